//! Who waits.

use super::Table;
use crate::cancel::Registration;
use crate::error::AcquireError;
use crate::options::Fairness;
use crate::slot::{Ticket, Verdict};
use crate::sync::now;
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;

/// A request in the queue of its slot. Dropped there, by unwinding, it gives up its place.
pub(super) struct Queued<'a, K, S> {
    pub(super) table: &'a Table<K, S>,
    pub(super) hash: u64,
    pub(super) id: u64,
    pub(super) weight: u32,
    /// Until the outcome is known.
    pub(super) ticket: Option<Ticket>,
    pub(super) waiter: OwnWaiter,
}

impl<K, S> Queued<'_, K, S> {
    /// Waits for the grant; gives the slot's id.
    pub(super) fn wait(mut self, wait: &Wait, deadline: Deadline) -> Result<u64, AcquireError> {
        let registrations: Vec<Registration<'_>> =
            wait.tokens().map(|token| token.register(self.waiter.share())).collect();
        let outcome = self.park(wait, deadline);
        drop(registrations);
        outcome.map(|()| self.id)
    }

    fn park(&mut self, wait: &Wait, deadline: Deadline) -> Result<(), AcquireError> {
        let deadline = match deadline {
            Deadline::At(instant) => Some(instant),
            Deadline::Never => None,
            Deadline::Passed => unreachable!("a request without time does not queue"),
        };
        loop {
            if wait.is_cancelled() {
                return self.give_up(AcquireError::Cancelled);
            }
            // Not under `Eventual`: a waiter that runs takes part in every release, and parking it makes them cheaper.
            if self.table.fairness == Fairness::Fifo {
                self.waiter.linger();
            }
            if !self.waiter.park(deadline) {
                return self.give_up(AcquireError::Timeout);
            }
            if let Some(verdict) = self.look() {
                return self.outcome(verdict);
            }
        }
    }

    fn look(&mut self) -> Option<Verdict> {
        let ticket = self.ticket?;
        let verdict = self.table.change(self.hash, self.id, |slot, bells| slot.look(ticket, now, bells))?;
        self.ticket = None;
        Some(verdict)
    }

    /// Leaves with `error`, unless there is a verdict already.
    fn give_up(&mut self, error: AcquireError) -> Result<(), AcquireError> {
        self.abandon().map_or(Err(error), |verdict| self.outcome(verdict))
    }

    fn abandon(&mut self) -> Option<Verdict> {
        let ticket = self.ticket.take()?;
        self.table.change(self.hash, self.id, |slot, bells| slot.abandon(ticket, now, bells))
    }

    fn outcome(&self, verdict: Verdict) -> Result<(), AcquireError> {
        match verdict {
            Verdict::Granted => Ok(()),
            Verdict::OverLimit { limit } => {
                Err(AcquireError::OverLimit { requested: self.weight as usize, limit: limit as usize })
            }
        }
    }
}

impl<K, S> Drop for Queued<'_, K, S> {
    fn drop(&mut self) {
        if self.abandon() == Some(Verdict::Granted) {
            self.table.release(self.hash, self.id, self.weight, false);
        }
    }
}
