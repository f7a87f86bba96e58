//! How a store waits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::random::part_of;
use crate::cancel::Registration;
use crate::wait::{Deadline, Wait};
use crate::waiter::{OwnWaiter, Waiter};

/// How long a [`Store`](super::Store) may go on trying to acquire, and what wakes it.
pub struct Patience<'a> {
    wait: &'a Wait,
    deadline: Deadline,
    waiter: OwnWaiter,
    /// Ring the waiter.
    _registrations: Vec<Registration<'a>>,
}

impl<'a> Patience<'a> {
    /// As `wait` says, with a time limit that began to run before.
    pub(super) fn new(wait: &'a Wait, deadline: Deadline) -> Self {
        let waiter = OwnWaiter::take();
        let registrations = wait.tokens().map(|token| token.register(waiter.share())).collect();
        Self { wait, deadline, waiter, _registrations: registrations }
    }

    /// Whether the store may wait at all; else it makes one attempt.
    #[must_use]
    pub fn allows_waiting(&self) -> bool {
        self.deadline != Deadline::Passed
    }

    /// Whether the time is up, or the wait was cancelled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.wait.is_cancelled() || self.remaining() == Some(Duration::ZERO)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.wait.is_cancelled()
    }

    /// The time that is left. `None` means no limit.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self.deadline {
            Deadline::Never => None,
            Deadline::Passed => Some(Duration::ZERO),
            Deadline::At(instant) => Some(instant.saturating_duration_since(Instant::now())),
        }
    }

    /// Pauses until a [`Waker`] wakes it, for at most `at_most`, and no longer than the wait allows. Whether another attempt is
    /// worthwhile: if not, the store gives up.
    pub fn pause(&self, at_most: Duration) -> bool {
        let pause = self.remaining().map_or(at_most, |remaining| remaining.min(at_most));
        if !self.is_over() {
            self.waiter.park(Instant::now().checked_add(pause));
        }
        !self.is_over()
    }

    /// Ends a [`pause`](Self::pause) from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.waiter.share())
    }
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

/// Ends a [pause](Patience::pause), or the next one if there is none. One that comes too late does no harm.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Waiter>);

impl Waker {
    /// Ends the pause.
    pub fn wake(&self) {
        self.0.ring();
    }
}

/// Pauses that grow to a limit, each of a random length between the half and the whole, so that many who wait do not come at
/// once.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// The first pause is of about `first`, each is about twice as long as the one before, and none is longer than `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// How long to pause now.
    #[must_use]
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        let half = pause / 2;
        half + part_of(half)
    }
}
