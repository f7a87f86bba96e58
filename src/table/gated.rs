//! Keyed requests that come while somebody holds, or waits for, every key.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use super::acquire::Ask;
use super::waiting::{OneWait, Waiting};
#[cfg(feature = "tracing")]
use super::warning::Obstacle;
use super::{Entry, Hold, Seat, Stored, Table};
use crate::content::Content;
use crate::error::AcquireError;
use crate::fault::{Fault, planted};
use crate::gate::{Gate, Gates, KeptOut, LetIn};
use crate::mode::{MAX_READERS, Mode};
use crate::owners::notes::{self, Of};
use crate::owners::slot_id;
use crate::slot::{Bells, Request, Slot, Verdict};
use crate::status::KeyStatus;
use crate::sync::{MutexGuard, SharedValue, now};
use crate::unwind::{Alone, alone, survive};
use crate::wait::{Deadline, Wait};
#[cfg(feature = "tracing")]
use crate::warning::Due;

/// What a request finds that a door was closed to.
pub(super) enum Knock<'a, K> {
    /// The door is open again.
    Open(K),
    /// It may go through the gate, which is the caller's now.
    Through(K, MutexGuard<'a, Gate<K, Seat>>),
    /// It was kept out, and has been let in.
    LetIn(LetIn, Option<K>, Box<OneWait<'a>>),
}

/// Lets the gate go after a request went through, or tried to.
pub(super) fn went_through<K>(mut gate: MutexGuard<'_, Gate<K, Seat>>, mode: Mode, came: bool, queued: bool) {
    let mut bells = Bells::new();
    if came {
        gate.entered(mode);
    }
    if queued && mode == Mode::Write {
        gate.look_again(&mut bells);
    }
    drop(gate);
    bells.ring();
}

/// Adds to a snapshot who is kept out, how many hold all keys, and who waits for them.
pub(super) fn add_what_the_gate_knows<K: Clone>(gate: &Gate<K, Seat>, keys: &mut Vec<KeyStatus<K>>) {
    for (mode, request) in gate.kept_out_in_order() {
        let place = keys.iter().position(|status| (request.same)(&status.key, &request.key)).unwrap_or_else(|| {
            let limit = MAX_READERS as usize;
            let key = request.key.clone();
            keys.push(KeyStatus { limit, ..KeyStatus::of(key) });
            keys.len() - 1
        });
        keys[place].waiters.push(request.seat.status(mode.weight()));
    }
    let held = gate.held().map_or(0, |(_, held)| held as usize);
    let waiters: Vec<_> = gate.waiting_in_order().map(|(mode, seat)| seat.status(mode.weight())).collect();
    for status in keys {
        status.held_with_all = held;
        status.waiters_for_all = waiters.clone();
    }
}

impl<K, S: BuildHasher, C: Content> Table<K, S, C> {
    /// The gate, if it is open to `mode`: for requests to which it matters how many are kept out.
    pub(super) fn open_gate(&self, mode: Mode) -> Option<MutexGuard<'_, Gate<K, Seat>>> {
        let gate = self.gates()?.gate.lock();
        (!gate.is_closed(mode)).then_some(gate)
    }

    /// Goes to the gate with a keyed request, and waits there if it is kept out.
    pub(super) fn knock<Q>(
        &self,
        hash: u64,
        key: K,
        ask: Ask,
        wait: &Wait,
        deadline: &mut Option<Deadline>,
    ) -> Result<Knock<'_, K>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq,
    {
        let gates = self.gates().expect("there are doors, so there is a gate");
        let mode = ask.mode();
        let same = |one: &K, other: &K| one.borrow() == other.borrow();
        let mut gate = gates.gate.lock();
        if !gate.is_closed(mode) {
            return Ok(Knock::Open(key));
        }
        let holdings = notes::holdings(gates.table);
        if holdings.forbid(mode) {
            drop(gate);
            // Before there is an error: one that is about to be returned would leak if this panicked.
            drop(key);
            return Err(self.under_own_hold(ask));
        }
        if !gate.keeps_out(mode, holdings, || self.is_awaited(gates)) {
            return Ok(Knock::Through(key, gate));
        }
        if mode == Mode::Write && holdings.any {
            // It would wait here first, and then for itself.
            let id = self.id_of_hash(hash, |stored| same(stored, &key));
            if id.is_some_and(|id| notes::holds(gates.table, id)) {
                drop(gate);
                drop(key);
                return Err(self.own_hold(ask));
            }
        }
        let deadline = *deadline.get_or_insert_with(|| wait.deadline());
        if deadline == Deadline::Passed {
            return Err(AcquireError::Busy);
        }
        if wait.limits_the_queue() {
            let waiting = gate.kept_out_for(hash, |other| same(other, &key))
                + self.read_slot(hash, |stored| same(stored, &key), Slot::waiters).unwrap_or(0);
            if !wait.may_queue_behind(waiting) {
                return Err(AcquireError::QueueFull);
            }
        }
        let one_wait = self.begin_wait(ask, deadline.instant());
        let seat = one_wait.seat();
        let request = KeptOut { hash, key, same, owner: ask.request().owner, seat, holds: holdings.any };
        let number = gate.keep_out(mode, request);
        one_wait.track(|tracking, party| tracking.keep_out(number, mode, party, holdings.any));
        drop(gate);
        let mut kept_out =
            AtGate { table: self, gates, hash, mode, number: Some(number), holds: holdings.any, one_wait: &one_wait };
        let (outcome, key) = kept_out.wait_for_outcome(wait, deadline)?;
        drop(kept_out);
        // It may have been granted between being queued and looking here: it looks at its slot before it parks.
        one_wait.ring();
        Ok(Knock::LetIn(outcome, key, Box::new(one_wait)))
    }
}

impl<K, S, C: Content> Table<K, S, C> {
    /// Whether a writer is queued for a key that this thread reads.
    pub(super) fn is_awaited(&self, gates: &Gates<K, Seat>) -> bool {
        !notes::visit(gates.table, |note| {
            let Of::Key { hash, id } = note.of else { return true };
            let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
            let found = shard.get_mut(hash, |(stored, _)| stored.id == id);
            !found.is_some_and(|(_, entry)| entry.get_mut().slot.is_waited_for_by(MAX_READERS))
        })
    }

    /// Whether a writer is kept out, in front of a place at the gate, who wants a key that this thread reads.
    pub(super) fn is_awaited_before(&self, gates: &Gates<K, Seat>, gate: &Gate<K, Seat>, place: i64) -> bool {
        gate.writers_kept_out_before(place).any(|writer| {
            let id = self.id_of_hash(writer.hash, |key| (writer.same)(key, &writer.key));
            id.is_some_and(|id| notes::holds(gates.table, id))
        })
    }

    /// Takes a request that was kept out to its key. What becomes of it, and its key if it was not needed.
    fn let_in(
        &self,
        gates: &Gates<K, Seat>,
        gate: &mut Gate<K, Seat>,
        (number, mode, kept_out): (i64, Mode, KeptOut<K, Seat>),
        bells: &mut Bells<Seat>,
    ) -> (LetIn, Option<K>) {
        let party = self.tracking.as_ref().and_then(|tracking| Some((tracking, tracking.take_out(number)?)));
        let KeptOut { hash, key, same, owner, seat, holds: _ } = kept_out;
        let request = Request { weight: mode.weight(), owner };
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let mut found = None;
        // The key's own code, on a thread that has no use for its panic.
        survive(|| {
            let present = shard.get_mut(hash, |(stored, _)| stored.hash == hash && same(&stored.key, &key));
            found = Some(present.map(|(stored, _)| stored.id));
        });
        let (outcome, unused, state) = match found {
            None => {
                bells.push(seat);
                return (LetIn::Again, Some(key));
            }
            Some(Some(id)) => {
                let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect("it was there");
                let slot = &mut entry.get_mut().slot;
                let ticket = slot.admit(self.fairness, request, seat.clone(), now());
                let outcome = ticket.map_or(LetIn::Granted { id }, |ticket| LetIn::Queued { id, ticket });
                (outcome, Some(key), slot.state())
            }
            Some(None) => {
                let stored = Stored { hash, id: slot_id(), key };
                let id = stored.id;
                let slot = Slot::held(MAX_READERS, request);
                let state = slot.state();
                let entry = Entry { slot, content: C::default() };
                shard.insert(hash, (stored, SharedValue::new(entry)), |(stored, _)| stored.hash);
                (LetIn::Granted { id }, None, state)
            }
        };
        gates.door(index).enter(mode);
        gate.entered(mode);
        match (outcome, party) {
            (LetIn::Granted { id }, Some((tracking, party))) => {
                tracking.hold(index, id, state, party.holds_from_now());
                bells.push(seat);
            }
            (LetIn::Queued { id, ticket }, Some((tracking, party))) => {
                tracking.queue(index, id, state, ticket.number(), party);
                if tracking.detects {
                    // It waits for others now, who may wait for it: it looks.
                    bells.push(seat);
                }
            }
            (LetIn::Granted { .. }, None) => bells.push(seat),
            _ => {}
        }
        (outcome, unused)
    }

    /// Lets in who is kept out by nothing any more, grants all keys to who is next, and opens the doors if nobody is; the end of
    /// every change by which a lock over all keys goes.
    pub(super) fn settle_gate(&self, gates: &Gates<K, Seat>, gate: &mut Gate<K, Seat>, bells: &mut Bells<Seat>) {
        while let Some(request) = gate.next_to_let_in() {
            let number = request.0;
            let outcome = self.let_in(gates, gate, request, bells);
            gate.note_outcome(number, outcome);
        }
        self.grant_all(gate, bells);
        gate.look_again(bells);
        let open = gate.begin_opening();
        if !open.is_empty() {
            for (index, shard) in self.map.shards().iter().enumerate() {
                let _shard = shard.write();
                for mode in &open {
                    gates.door(index).open(*mode);
                }
            }
        }
    }

    /// Grants all keys to who is next, while that is possible.
    pub(super) fn grant_all(&self, gate: &mut Gate<K, Seat>, bells: &mut Bells<Seat>) {
        gate.grant(bells);
        self.track(|tracking| tracking.follow_all(|mode, place| gate.waits(mode, place)));
    }

    /// Tells the gate of an intent that has left by a closed door. To be called with no lock held.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_gate(&self, mode: Mode, closing: u64) {
        let Some(gates) = self.gates() else { return };
        let mut bells = Bells::new();
        let mut gate = gates.gate.lock();
        gate.left(mode, closing);
        self.grant_all(&mut gate, &mut bells);
        drop(gate);
        bells.ring();
    }
}

/// A keyed request that is kept out. Dropped so, by unwinding, it gives up.
struct AtGate<'a, K, S, C: Content> {
    table: &'a Table<K, S, C>,
    gates: &'a Gates<K, Seat>,
    hash: u64,
    mode: Mode,
    /// Until the outcome is known.
    number: Option<i64>,
    holds: bool,
    one_wait: &'a OneWait<'a>,
}

impl<K, S, C: Content> AtGate<'_, K, S, C> {
    fn let_in(&mut self) -> Option<(LetIn, Option<K>)> {
        let number = self.number?;
        let mut bells = Bells::new();
        let mut gate = self.gates.gate.lock();
        let mut outcome = gate.outcome(number);
        if outcome.is_none()
            && self.holds
            && !gate.keeps_out(self.mode, notes::holdings(self.gates.table), || self.table.is_awaited(self.gates))
            && let Some(request) = gate.take_out(self.mode, number)
        {
            let let_in = self.table.let_in(self.gates, &mut gate, (number, self.mode, request), &mut bells);
            if matches!(let_in.0, LetIn::Queued { .. }) {
                gate.look_again(&mut bells);
            }
            outcome = Some(let_in);
        }
        drop(gate);
        bells.ring();
        if outcome.is_some() {
            self.number = None;
        }
        outcome
    }

    /// Leaves, unless it was let in.
    fn leave(&mut self) -> Option<(LetIn, Option<K>)> {
        let number = self.number.take()?;
        let mut bells = Bells::new();
        let mut gate = self.gates.gate.lock();
        let outcome = gate.outcome(number);
        let request = gate.take_out(self.mode, number);
        if request.is_some() {
            self.table.track(|tracking| drop(tracking.take_out(number)));
            // Who waits for all keys may have waited for it.
            self.table.grant_all(&mut gate, &mut bells);
        }
        drop(gate);
        bells.ring();
        alone(|| drop(request));
        outcome.filter(|(outcome, _)| !matches!(outcome, LetIn::Again) && !planted(Fault::LetInLost))
    }
}

impl<K, S, C: Content> Waiting for AtGate<'_, K, S, C> {
    type Outcome = (LetIn, Option<K>);

    fn one_wait(&self) -> &OneWait<'_> {
        self.one_wait
    }

    fn look(&mut self) -> Option<Result<Self::Outcome, AcquireError>> {
        self.let_in().map(Ok)
    }

    // What was let in goes on to its slot, and gives up there.
    fn give_up(&mut self) -> Option<Result<Self::Outcome, AcquireError>> {
        self.leave().map(Ok)
    }

    #[cfg(feature = "tracing")]
    fn obstacle(&self, due: Due) -> Option<Obstacle<'_>> {
        self.table.obstacle_at_gate(self.gates, (self.mode, self.number?), due)
    }
}

impl<K, S, C: Content> Drop for AtGate<'_, K, S, C> {
    fn drop(&mut self) {
        if self.number.is_none() {
            return;
        }
        let (hash, weight, mark) = (self.hash, self.mode.weight(), self.one_wait.mark());
        match self.leave() {
            Some((LetIn::Granted { id }, key)) => {
                let _key = Alone(key);
                self.table.release(&mut Hold::new(hash, id, weight, mark, C::InHand::default()), false);
            }
            Some((LetIn::Queued { id, ticket }, key)) => {
                let _key = Alone(key);
                let mut hold = Hold::new(hash, id, weight, mark, C::InHand::default());
                if self.table.abandon(&mut hold, ticket) == Some(Verdict::Granted) {
                    self.table.release(&mut hold, false);
                }
            }
            Some((LetIn::Again, _)) | None => {}
        }
    }
}
