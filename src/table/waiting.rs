//! A wait: in the queue of a key, at the gate, or for every key.

use std::ops::Deref;
use std::time::Instant;

use super::{Seat, Table};
use crate::cancel::Registration;
use crate::content::Content;
use crate::error::AcquireError;
use crate::stats::Counters;
use crate::sync::now;
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;
use std::panic::Location;

/// A thread's wait for one request, from when it queues or is kept out until it has its outcome.
pub(super) struct OneWait<'a> {
    counters: &'a Counters,
    waiter: OwnWaiter,
    since: Instant,
}

impl<K, S, C: Content> Table<K, S, C> {
    /// Begins a wait. It can be done under a lock.
    pub(super) fn begin_wait(&self) -> OneWait<'_> {
        self.counters.contended();
        OneWait { counters: &self.counters, waiter: OwnWaiter::take(), since: now() }
    }
}

impl OneWait<'_> {
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn seat(&self, location: &'static Location<'static>) -> Seat {
        Seat { waiter: self.waiter.share(), since: self.since, location }
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

    /// Waits for the outcome, as `wait` allows.
    fn wait_for_outcome(&mut self, wait: &Wait, deadline: Deadline) -> Result<Self::Outcome, AcquireError> {
        let waiter = self.one_wait().share();
        let registrations: Vec<Registration<'_>> = wait.tokens().map(|token| token.register(waiter.clone())).collect();
        let outcome = loop {
            if wait.is_cancelled() {
                break self.give_up().unwrap_or(Err(AcquireError::Cancelled));
            }
            if !waiter.park(deadline.instant()) {
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
