//! Who holds, or waits for, every key; and holds that turn from shared to exclusive and back, which the gate has to know.

use std::panic::Location;

use super::acquire::{Ask, Kind};
use super::waiting::{OneWait, Waiting};
#[cfg(feature = "tracing")]
use super::warning::Obstacle;
use super::{Hold, Seat, Table};
use crate::content::Content;
use crate::error::AcquireError;
use crate::fault::{Fault, planted};
use crate::gate::{Gate, Gates};
use crate::mode::Mode;
use crate::owners::notes::{self, Note, Of, Place};
use crate::owners::thread_number;
use crate::report::Deadlock;
use crate::slot::{Bells, Request};
use crate::sync::now;
use crate::wait::{Deadline, Wait};
#[cfg(feature = "tracing")]
use crate::warning::Due;

/// What the holder of every key has. It has to be [released](Table::release_all).
pub(crate) struct HoldAll {
    mode: Mode,
    place: Place,
    mark: u64,
}

const GATED: &str = "only tables with a gate are locked over every key";

impl<K, S, C: Content> Table<K, S, C> {
    /// Takes every key, waiting as `wait` allows.
    pub(crate) fn acquire_all(
        &self,
        mode: Mode,
        location: &'static Location<'static>,
        wait: &Wait,
    ) -> Result<HoldAll, AcquireError> {
        let gates = self.gates().expect(GATED);
        if wait.is_cancelled() {
            return Err(AcquireError::Cancelled);
        }
        let would_deadlock = || {
            self.counters.deadlocked();
            Deadlock::over_own_hold(&self.about, location).into()
        };
        let holdings = notes::holdings(gates.table);
        if holdings.writes || holdings.writes_all || (mode == Mode::Write && holdings.any) {
            return Err(would_deadlock());
        }
        let deadline = wait.deadline();
        let mut bells = Bells::new();
        let mut gate = gates.gate.lock();
        self.close_doors(gates, &mut gate, mode);
        let mut refuse = |gate: &mut Gate<K, Seat>, error| {
            self.settle_gate(gates, gate, &mut bells);
            Err(error)
        };
        let place = gate.place(holdings);
        let ask = Ask { weight: mode.weight(), kind: Kind::OneOfSeveral, location };
        let refused = if gate.try_hold(mode, place) {
            let party = self.tracking.as_ref().map(|tracking| (tracking, ask.party(now())));
            let mark = party.as_ref().map_or(0, |(_, party)| party.mark);
            if let Some((tracking, party)) = party {
                tracking.hold_all(mode, party);
            }
            drop(gate);
            return Ok(self.hold_all(gates, mode, mark));
        } else if holdings.any && (self.is_awaited(gates) || self.is_awaited_before(gates, &gate, place)) {
            // It would wait for that writer, who waits for this thread.
            refuse(&mut gate, would_deadlock())
        } else if deadline == Deadline::Passed {
            refuse(&mut gate, AcquireError::Busy)
        } else if !wait.may_queue_behind(gate.waiters()) {
            refuse(&mut gate, AcquireError::QueueFull)
        } else {
            Ok(())
        };
        if let Err(error) = refused {
            drop(gate);
            bells.ring();
            return Err(error);
        }
        let one_wait = self.begin_wait(ask, deadline.instant());
        let mark = one_wait.mark();
        gate.wait(mode, place, one_wait.seat());
        one_wait.track(|tracking, party| tracking.queue_for_all(place, mode, party));
        drop(gate);
        WaitsForAll { table: self, gates, mode, place: Some(place), one_wait }.wait_for_outcome(wait, deadline)?;
        Ok(self.hold_all(gates, mode, mark))
    }

    fn hold_all(&self, gates: &Gates<K, Seat>, mode: Mode, mark: u64) -> HoldAll {
        HoldAll { mode, mark, place: notes::add(Note { table: gates.table, mode, of: Of::AllKeys }) }
    }

    /// Closes the doors to what conflicts with all keys in `mode`, those that are open yet.
    fn close_doors(&self, gates: &Gates<K, Seat>, gate: &mut Gate<K, Seat>, mode: Mode) {
        let Some((modes, closing)) = gate.begin_closing(mode) else { return };
        for (index, shard) in self.map.shards().iter().enumerate() {
            let _shard = shard.write();
            for mode in &modes {
                gate.close(gates.door(index), *mode, closing);
            }
        }
    }

    /// To be called once for a hold.
    pub(crate) fn release_all(&self, hold: &mut HoldAll) {
        notes::remove(hold.place);
        let Some(gates) = self.gates() else { return };
        let mut bells = Bells::new();
        let mut gate = gates.gate.lock();
        gate.release(hold.mode);
        self.track(|tracking| tracking.release_all(hold.mark));
        self.settle_gate(gates, &mut gate, &mut bells);
        drop(gate);
        bells.ring();
    }

    /// Turns a hold from exclusive to shared, and lets in who may share it.
    pub(crate) fn downgrade(&self, hold: &mut Hold<C>) {
        let Some(gates) = self.gates() else { return };
        notes::change(hold.place, Mode::Read);
        let (hash, id) = (hold.hash, hold.id);
        let index = self.map.determine_shard(hash as usize);
        let mut bells = Bells::new();
        let mut shard = self.map.shards()[index].write();
        let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(super::SLOT_STAYS);
        let slot = &mut entry.get_mut().slot;
        let weight = Mode::Read.weight();
        slot.downgrade(Request { weight, owner: 0 }, now, &mut bells);
        self.track(|tracking| tracking.convert(index, id, slot.state(), hold.mark, weight));
        let door = gates.door(index);
        door.enter(Mode::Read);
        let (came, left) = (door.closed(Mode::Read), door.leave(Mode::Write));
        drop(shard);
        hold.weight = Mode::Read.weight();
        if came != 0 || left != 0 {
            let mut gate = gates.gate.lock();
            gate.came(Mode::Read, came);
            gate.left(Mode::Write, left);
            self.grant_all(&mut gate, &mut bells);
        }
        bells.ring();
    }

    /// Turns a hold from shared to exclusive, if it is the only one of its key and nobody reads all keys.
    pub(crate) fn try_upgrade(&self, hold: &mut Hold<C>) -> bool {
        let Some(gates) = self.gates() else { return false };
        let (hash, id, mark) = (hold.hash, hold.id, hold.mark);
        let index = self.map.determine_shard(hash as usize);
        let owner = if hold.place == Place::NONE { 0 } else { thread_number() };
        // Under the shard's lock; the doors as they were found.
        let upgrade = |through: bool| {
            let mut shard = self.map.shards()[index].write();
            let door = gates.door(index);
            if door.closed(Mode::Write) != 0 && !through {
                return None;
            }
            let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(super::SLOT_STAYS);
            let slot = &mut entry.get_mut().slot;
            if slot.taken() != Mode::Read.weight() {
                return Some((false, 0));
            }
            let weight = Mode::Write.weight();
            slot.convert(Request { weight, owner });
            self.track(|tracking| tracking.convert(index, id, slot.state(), mark, weight));
            door.enter(Mode::Write);
            Some((true, door.leave(Mode::Read)))
        };
        let upgraded = upgrade(false).map(|(upgraded, _)| upgraded).unwrap_or_else(|| {
            let mut gate = gates.gate.lock();
            if gate.held().is_some() {
                return false;
            }
            let (upgraded, left) = upgrade(true).unwrap_or_default();
            if upgraded {
                gate.entered(Mode::Write);
                gate.left(Mode::Read, left);
            }
            upgraded
        });
        if upgraded {
            hold.weight = Mode::Write.weight();
            notes::change(hold.place, Mode::Write);
        }
        upgraded
    }
}

/// A request for every key, in line. Dropped there, by unwinding, it gives up its place.
struct WaitsForAll<'a, K, S, C: Content> {
    table: &'a Table<K, S, C>,
    gates: &'a Gates<K, Seat>,
    mode: Mode,
    /// Until the outcome is known.
    place: Option<i64>,
    one_wait: OneWait<'a>,
}

impl<K, S, C: Content> WaitsForAll<'_, K, S, C> {
    /// Whether it has left; else all keys were granted.
    fn leave(&mut self) -> bool {
        let Some(place) = self.place.take() else { return false };
        let mut bells = Bells::new();
        let mut gate = self.gates.gate.lock();
        let left = gate.give_up(self.mode, place);
        if left {
            self.table.track(|tracking| tracking.unqueue_for_all(place));
        }
        if left && !planted(Fault::CloserLeavesUnsettled) {
            self.table.settle_gate(self.gates, &mut gate, &mut bells);
        }
        drop(gate);
        bells.ring();
        left
    }
}

impl<K, S, C: Content> Waiting for WaitsForAll<'_, K, S, C> {
    type Outcome = ();

    fn one_wait(&self) -> &OneWait<'_> {
        &self.one_wait
    }

    fn look(&mut self) -> Option<Result<(), AcquireError>> {
        let place = self.place?;
        if self.gates.gate.lock().waits(self.mode, place) {
            return None;
        }
        self.place = None;
        Some(Ok(()))
    }

    fn give_up(&mut self) -> Option<Result<(), AcquireError>> {
        if self.leave() { None } else { Some(Ok(())) }
    }

    #[cfg(feature = "tracing")]
    fn obstacle(&self, due: Due) -> Option<Obstacle<'_>> {
        self.table.obstacle_to_all(self.gates, (self.mode, self.place?), due)
    }
}

impl<K, S, C: Content> Drop for WaitsForAll<'_, K, S, C> {
    fn drop(&mut self) {
        if self.place.is_some() && !self.leave() {
            let mark = self.one_wait.mark();
            self.table.release_all(&mut HoldAll { mode: self.mode, place: Place::NONE, mark });
        }
    }
}
