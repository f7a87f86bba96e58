//! A wait: in the queue of a key, at the gate, or for every key.

#[cfg(feature = "tracing")]
use std::cell::Cell;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use super::acquire::Ask;
#[cfg(feature = "tracing")]
use super::warning::{Obstacle, woke_to_warn};
use super::{Seat, Table};
use crate::cancel::Registration;
use crate::content::Content;
use crate::deadlock;
use crate::error::AcquireError;
use crate::owners::tracked::{Party, Tracking, WaitsFor};
use crate::report::Deadlock;
use crate::stats::Counters;
use crate::sync::now;
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;
#[cfg(feature = "tracing")]
use crate::warning::{Due, Schedule};

/// A thread's wait for one request, from when it queues or is kept out until it has its outcome.
pub(super) struct OneWait<'a> {
    counters: &'a Counters,
    waiter: OwnWaiter,
    since: Instant,
    /// Whether it looks out for its turn before it parks again.
    pub(super) looks_out: bool,
    location: &'static Location<'static>,
    /// Where owners are tracked.
    tracked: Option<Box<Tracked<'a>>>,
    /// When it warns, if it does.
    #[cfg(feature = "tracing")]
    pub(super) schedule: Cell<Option<Schedule>>,
}

struct Tracked<'a> {
    tracking: &'a Arc<Tracking>,
    party: Party,
    /// What the thread waits for already, if the user's code that runs in a wait waits itself.
    outer: Option<WaitsFor>,
}

impl<K, S, C: Content> Table<K, S, C> {
    /// Begins a wait that ends then, if it has a time limit. It can be done under a lock.
    pub(super) fn begin_wait(&self, ask: Ask, until: Option<Instant>) -> OneWait<'_> {
        self.counters.contended();
        let since = now();
        let tracked = self.tracking.as_ref().map(|tracking| {
            let party = Party { until, ..ask.party(since) };
            let outer = party.owner.waits_for();
            Box::new(Tracked { tracking, party, outer })
        });
        OneWait {
            counters: &self.counters,
            waiter: OwnWaiter::take(),
            since,
            looks_out: false,
            location: ask.location,
            tracked,
            #[cfg(feature = "tracing")]
            schedule: Cell::new(self.warn_waiting_over.and_then(|duration| Schedule::new(since, duration))),
        }
    }
}

impl OneWait<'_> {
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn seat(&self) -> Seat {
        Seat { waiter: self.waiter.share(), since: self.since, location: self.location }
    }

    /// What a table that tracks owners calls the request; 0 elsewhere.
    pub(super) fn mark(&self) -> u64 {
        self.tracked.as_ref().map_or(0, |tracked| tracked.party.mark)
    }

    /// Tells the account of owners where the request waits, if there is one. In the critical section in which it is queued.
    pub(super) fn track(&self, tell: impl FnOnce(&Arc<Tracking>, Party)) {
        if let Some(Tracked { tracking, party, .. }) = self.tracked.as_deref() {
            tell(tracking, party.clone());
        }
    }

    /// When the thread wakes if nobody rings: at the end of the wait, or at the next time to warn.
    fn wakes_by(&self, deadline: Option<Instant>) -> Option<Instant> {
        #[cfg(feature = "tracing")]
        if let Some(next) = self.schedule.get().and_then(|schedule| schedule.next()) {
            return Some(deadline.map_or(next, |deadline| deadline.min(next)));
        }
        deadline
    }

    #[cfg(feature = "tracing")]
    pub(super) fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// The deadlock that this wait is in, if it is and the table looks for them. With no lock held.
    fn deadlock(&self) -> Option<Deadlock> {
        let Tracked { tracking, party, .. } = self.tracked.as_deref().filter(|tracked| tracked.tracking.detects)?;
        let threads = deadlock::ring(party)?;
        Some(Deadlock::of_ring(threads, &tracking.about, self.location))
    }
}

impl Deref for OneWait<'_> {
    type Target = OwnWaiter;

    fn deref(&self) -> &OwnWaiter {
        &self.waiter
    }
}

impl Drop for OneWait<'_> {
    fn drop(&mut self) {
        if let Some(Tracked { party, outer, .. }) = self.tracked.as_deref_mut() {
            let mut waits = party.owner.waits.lock();
            // Else it is the outer wait's already: its request was let in at the gate meanwhile.
            if waits.as_ref().is_none_or(|waits| waits.mark == party.mark) {
                *waits = outer.take();
            }
        }
        self.counters.waited(now().saturating_duration_since(self.since));
    }
}

/// A request that waits. Dropped so, by unwinding, it gives up.
pub(super) trait Waiting {
    /// What it waits for.
    type Outcome;

    fn one_wait(&self) -> &OneWait<'_>;

    /// Its outcome, if it has one by now.
    fn look(&mut self) -> Option<Result<Self::Outcome, AcquireError>>;

    /// Leaves, unless there is an outcome already, which stands.
    fn give_up(&mut self) -> Option<Result<Self::Outcome, AcquireError>>;

    /// What is in its way, if it is to warn now that it is due. To be called with no lock held.
    #[cfg(feature = "tracing")]
    fn obstacle(&self, due: Due) -> Option<Obstacle<'_>>;

    /// Waits for the outcome, as `wait` allows.
    fn wait_for_outcome(&mut self, wait: &Wait, deadline: Deadline) -> Result<Self::Outcome, AcquireError> {
        let waiter = self.one_wait().share();
        let registrations: Vec<Registration<'_>> = wait.tokens().map(|token| token.register(waiter.clone())).collect();
        let outcome = loop {
            if wait.is_cancelled() {
                break self.give_up().unwrap_or(Err(AcquireError::Cancelled));
            }
            if let Some(deadlock) = self.one_wait().deadlock() {
                break self.give_up().unwrap_or(Err(deadlock.into()));
            }
            if self.one_wait().looks_out {
                waiter.look_out();
            }
            if !waiter.park(self.one_wait().wakes_by(deadline.instant())) && !woke_to_warn(self, deadline.instant()) {
                break self.give_up().unwrap_or(Err(AcquireError::Timeout));
            }
            if let Some(outcome) = self.look() {
                break outcome;
            }
        };
        drop(registrations);
        outcome.inspect_err(|error| self.one_wait().counters.failed(error))
    }
}

/// Whether the thread woke for another reason than the end of its wait.
#[cfg(not(feature = "tracing"))]
fn woke_to_warn(_: &(impl Waiting + ?Sized), _: Option<Instant>) -> bool {
    false
}
