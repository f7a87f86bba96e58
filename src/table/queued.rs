//! Who waits.

use std::mem;

use super::{Hold, Table};
use crate::cancel::Registration;
use crate::content::Content;
use crate::error::AcquireError;
use crate::slot::{Ticket, Verdict};
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;

/// A request in the queue of its slot. Dropped there, by unwinding, it gives up its place.
pub(super) struct Queued<'a, K, S, C: Content> {
    pub(super) table: &'a Table<K, S, C>,
    /// What it will hold, once it is granted.
    pub(super) hold: Hold<C>,
    /// Until the outcome is known.
    pub(super) ticket: Option<Ticket>,
    pub(super) waiter: OwnWaiter,
}

impl<K, S, C: Content> Queued<'_, K, S, C> {
    /// Waits for the grant; gives the slot's id, and what the entry kept.
    pub(super) fn wait(mut self, wait: &Wait, deadline: Deadline) -> Result<(u64, C::InHand), AcquireError> {
        let registrations: Vec<Registration<'_>> =
            wait.tokens().map(|token| token.register(self.waiter.share())).collect();
        let outcome = self.park(wait, deadline);
        drop(registrations);
        outcome.map(|()| (self.hold.id, mem::take(&mut self.hold.in_hand)))
    }

    fn park(&mut self, wait: &Wait, deadline: Deadline) -> Result<(), AcquireError> {
        let deadline = deadline.instant();
        loop {
            if wait.is_cancelled() {
                return self.give_up(AcquireError::Cancelled);
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
        let Hold { hash, id, in_hand, .. } = &mut self.hold;
        self.table.change(*hash, *id, |entry, bells| {
            let verdict = entry.look(ticket, bells, in_hand);
            // Here already: if that leaves the entry idle it goes, and its key's `Drop` may panic.
            if verdict.is_some() {
                self.ticket = None;
            }
            verdict
        })
    }

    /// Leaves with `error`, unless there is a verdict already.
    fn give_up(&mut self, error: AcquireError) -> Result<(), AcquireError> {
        self.abandon().map_or(Err(error), |verdict| self.outcome(verdict))
    }

    fn abandon(&mut self) -> Option<Verdict> {
        let ticket = self.ticket.take()?;
        self.table.abandon(&mut self.hold, ticket)
    }

    fn outcome(&self, verdict: Verdict) -> Result<(), AcquireError> {
        match verdict {
            Verdict::Granted => Ok(()),
            Verdict::OverLimit { limit } => {
                Err(AcquireError::OverLimit { requested: self.hold.weight as usize, limit: limit as usize })
            }
        }
    }
}

impl<K, S, C: Content> Drop for Queued<'_, K, S, C> {
    fn drop(&mut self) {
        if self.abandon() == Some(Verdict::Granted) {
            self.table.release(&mut self.hold, false);
        }
    }
}
