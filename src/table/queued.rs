//! Who waits in the queue of a key.

use std::mem;

use super::waiting::{OneWait, Waiting};
#[cfg(feature = "tracing")]
use super::warning::Obstacle;
use super::{Hold, Table};
use crate::content::Content;
use crate::error::AcquireError;
use crate::slot::{Ticket, Verdict};
use crate::wait::{Deadline, Wait};
#[cfg(feature = "tracing")]
use crate::warning::Due;

/// A request in the queue of its slot. Dropped there, by unwinding, it gives up its place.
pub(super) struct Queued<'a, K, S, C: Content> {
    pub(super) table: &'a Table<K, S, C>,
    /// What it will hold, once it is granted.
    pub(super) hold: Hold<C>,
    /// Until the outcome is known.
    pub(super) ticket: Option<Ticket>,
    pub(super) one_wait: OneWait<'a>,
}

impl<K, S, C: Content> Queued<'_, K, S, C> {
    /// Waits for the grant; gives the slot's id, the hold's mark, and what the entry kept.
    pub(super) fn wait(mut self, wait: &Wait, deadline: Deadline) -> Result<((u64, u64), C::InHand), AcquireError> {
        self.wait_for_outcome(wait, deadline)?;
        Ok(((self.hold.id, self.hold.mark), mem::take(&mut self.hold.in_hand)))
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

impl<K, S, C: Content> Waiting for Queued<'_, K, S, C> {
    type Outcome = ();

    fn one_wait(&self) -> &OneWait<'_> {
        &self.one_wait
    }

    fn look(&mut self) -> Option<Result<(), AcquireError>> {
        let ticket = self.ticket?;
        let Hold { hash, id, in_hand, .. } = &mut self.hold;
        let verdict = self.table.change(*hash, *id, |entry, bells| {
            let verdict = entry.look(ticket, bells, in_hand);
            // Here already: if that leaves the entry idle it goes, and its key's `Drop` may panic.
            if verdict.is_some() {
                self.ticket = None;
            }
            verdict
        });
        // Beside readers that keep coming, the first in line may wake in vain many times. Now it has a core, and can be granted
        // the key by whoever leaves next.
        self.one_wait.looks_out |= C::GATED && verdict.is_none();
        verdict.map(|verdict| self.outcome(verdict))
    }

    fn give_up(&mut self) -> Option<Result<(), AcquireError>> {
        self.abandon().map(|verdict| self.outcome(verdict))
    }

    #[cfg(feature = "tracing")]
    fn obstacle(&self, due: Due) -> Option<Obstacle<'_>> {
        self.table.obstacle_in_queue(&self.hold, self.ticket?, due)
    }
}

impl<K, S, C: Content> Drop for Queued<'_, K, S, C> {
    fn drop(&mut self) {
        if self.abandon() == Some(Verdict::Granted) {
            self.table.release(&mut self.hold, false);
        }
    }
}
