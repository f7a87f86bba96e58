//! Who leaves: gives a key back, or gives up; and every change of a slot in between.

use std::mem;

use super::{Entry, Hold, SLOT_STAYS, Seat, Table};
use crate::content::Content;
use crate::fault::{Fault, planted};
use crate::mode::Mode;
use crate::owners::notes::{self, Place};
use crate::owners::tracked::SlotState;
use crate::slot::{Bells, Ticket, Verdict};
use crate::sync::now;
use crate::unwind::alone;

impl<K, S, C: Content> Table<K, S, C> {
    /// Gives back what [`acquire`](Self::acquire) took, and what the holder has in hand. To be called once for a hold.
    #[inline]
    pub(crate) fn release(&self, hold: &mut Hold<C>, hand_over: bool) {
        self.release_noting(hold, hand_over, || self.last_sweep());
    }

    /// As [`release`](Self::release). If that leaves the entry idle, and it stays, `sweep` was the last sweep before.
    #[inline]
    pub(super) fn release_noting(&self, hold: &mut Hold<C>, hand_over: bool, sweep: impl FnOnce() -> u64) {
        if self.tracking.is_some() {
            self.release_tracked(hold, hand_over, sweep);
        } else {
            self.release_as(hold, hand_over, sweep, |_, _, _, _| ());
        }
    }

    #[cold]
    #[inline(never)]
    fn release_tracked(&self, hold: &mut Hold<C>, hand_over: bool, sweep: impl FnOnce() -> u64) {
        self.release_as(hold, hand_over, sweep, |shard, id, slot, mark| {
            self.track(|tracking| tracking.release(shard, id, slot, mark));
        });
    }

    /// `track` is told of the change in its critical section.
    #[inline(always)]
    fn release_as(
        &self,
        hold: &mut Hold<C>,
        hand_over: bool,
        sweep: impl FnOnce() -> u64,
        track: impl FnOnce(usize, u64, SlotState, u64),
    ) {
        let Hold { hash, id, weight, mark, .. } = *hold;
        #[cfg(loom)]
        if planted(Fault::RemoveInTwoSteps) {
            return self.release_in_two_steps(hash, id, weight);
        }
        if C::GATED {
            notes::remove(mem::replace(&mut hold.place, Place::NONE));
        }
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(SLOT_STAYS);
        let Entry { slot, content } = entry.get_mut();
        content.put(mem::take(&mut hold.in_hand));
        let leaves = self.leave(index, weight);
        if slot.is_last_hold(weight) {
            track(index, id, SlotState::UNUSED, mark);
            if self.retention.is_some() || (content.is_kept() && !planted(Fault::ValueGoesWithTheLast)) {
                slot.release_last(sweep());
                drop(shard);
                return self.left(leaves);
            }
            return alone(|| {
                let removed = shard.remove_entry(hash, |(stored, _)| stored.id == id);
                drop(shard);
                self.left(leaves);
                drop(removed);
            });
        }
        // Somebody waits, or other permits are out: the slot stays in use.
        let bells = slot.release(weight, hand_over, now);
        track(index, id, slot.state(), mark);
        drop(shard);
        self.left(leaves);
        if let Some(bells) = bells {
            bells.ring();
        }
    }

    /// Counts a hold or a request of this weight out, at the door of its shard, under that shard's lock; to be told to
    /// [`left`](Self::left) once that is let go.
    #[inline]
    fn leave(&self, shard: usize, weight: u32) -> Option<(Mode, u64)> {
        let mode = Mode::of_weight(weight);
        self.gates().map(|gates| (mode, gates.door(shard).leave(mode)))
    }

    #[inline]
    fn left(&self, leaves: Option<(Mode, u64)>) {
        if let Some((mode, closing)) = leaves
            && closing != 0
            && !planted(Fault::LeftUntold)
        {
            self.tell_gate(mode, closing);
        }
    }

    /// Gives up a request that waits in its slot, unless there is a verdict already, which stands.
    pub(super) fn abandon(&self, hold: &mut Hold<C>, ticket: Ticket) -> Option<Verdict> {
        let weight = hold.weight;
        self.change_or_leave(hold.hash, hold.id, |entry, bells| {
            let verdict = entry.abandon(ticket, bells, &mut hold.in_hand);
            if verdict.is_none() {
                let shard = self.map.determine_shard(hold.hash as usize);
                self.track(|tracking| tracking.unqueue(shard, hold.id, entry.slot.state(), ticket.number()));
            }
            let leaves = verdict.is_none().then_some(weight);
            (verdict, leaves)
        })
    }

    /// Changes a slot that the caller holds or waits in, sees to the entry if that leaves it idle, then rings.
    ///
    /// It can only unwind after `change` where the entry goes, by the key's `Drop`: never if the caller holds the slot then.
    pub(super) fn change<R>(&self, hash: u64, id: u64, change: impl FnOnce(&mut Entry<C>, &mut Bells<Seat>) -> R) -> R {
        self.change_or_leave(hash, id, |entry, bells| (change(entry, bells), None))
    }

    /// As [`change`](Self::change). If a request leaves by it, `change` says of what weight.
    #[inline(never)]
    pub(super) fn change_or_leave<R>(
        &self,
        hash: u64,
        id: u64,
        change: impl FnOnce(&mut Entry<C>, &mut Bells<Seat>) -> (R, Option<u32>),
    ) -> R {
        let mut bells = Bells::new();
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(SLOT_STAYS);
        let entry = entry.get_mut();
        let (result, leaves) = change(entry, &mut bells);
        self.track(|tracking| tracking.follow(index, id, entry.slot.state()));
        let leaves = leaves.and_then(|weight| self.leave(index, weight));
        let mut removed = None;
        if entry.slot.is_idle() {
            if self.retention.is_some() || entry.content.is_kept() {
                entry.slot.retire(self.last_sweep());
            } else {
                removed = shard.remove_entry(hash, |(stored, _)| stored.id == id);
            }
        }
        drop(shard);
        self.left(leaves);
        bells.ring();
        alone(|| drop(removed));
        result
    }
}

#[cfg(loom)]
impl<K, S, C: Content> Table<K, S, C> {
    /// What the fault `RemoveInTwoSteps` does instead of [`release`](Self::release).
    fn release_in_two_steps(&self, hash: u64, id: u64, weight: u32) {
        let shard = &self.map.shards()[self.map.determine_shard(hash as usize)];
        let released = shard.write().get_mut(hash, |(stored, _)| stored.id == id).map(|(_, entry)| {
            let slot = &mut entry.get_mut().slot;
            (slot.release(weight, false, now), slot.is_idle())
        });
        let Some((bells, idle)) = released else { return };
        if let Some(bells) = bells {
            bells.ring();
        }
        if idle {
            drop(shard.write().remove_entry(hash, |(stored, _)| stored.id == id));
        }
    }
}
