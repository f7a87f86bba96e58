//! Who arrives: takes the key, or queues for it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::Location;
use std::time::Instant;

use super::gated::{Knock, went_through};
use super::queued::Queued;
use super::waiting::OneWait;
use super::{Entry, Hold, Seat, Stored, Table};
use crate::content::Content;
use crate::error::AcquireError;
use crate::fault::{Fault, planted};
use crate::gate::{Door, LetIn};
use crate::mode::Mode;
use crate::options::Fairness;
use crate::owners::notes::{self, Note, Of, Place};
use crate::owners::tracked::Party;
use crate::owners::{slot_id, thread_number};
use crate::report::Deadlock;
use crate::slot::{Request, Slot, Ticket};
use crate::sync::{Ordering, SharedValue, now, spin_loop, yield_now};
use crate::unwind::Alone;
use crate::wait::{Deadline, Wait};

/// How often a request looks again before it queues, as parking_lot's `SpinWait` does: first after `4 << round` spins, which
/// bridge sections of some hundred nanoseconds, then after letting other threads run: one of them may be the holder, without
/// a core. More of the first costs more than it saves where threads outnumber cores, and so does more of the second where
/// other processes want the cores: there each yield costs a time slice.
const SPINS: u32 = if cfg!(loom) { 0 } else { 3 };
const YIELDS: u32 = if cfg!(loom) { 0 } else { 3 };

/// What a call asks of a key.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    /// Where the public call was made.
    pub(crate) location: &'static Location<'static>,
}

/// Whether a hold has an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Exclusive, by a guard that stays on its thread.
    Owned,
    /// The same, as one of several keys: never a re-entry.
    OneOfSeveral,
    /// Exclusive, by a guard that may move: the hold has no owner, but a thread that owns the key cannot ask for it.
    Movable,
    /// One of several permits, by a guard that stays on its thread.
    Permit,
    /// The same, by a guard that may move.
    MovablePermit,
    /// Shared, by a guard that stays on its thread.
    Reader,
    /// Shared, by a guard that may move.
    MovableReader,
}

impl Ask {
    #[inline]
    pub(super) fn request(self) -> Request {
        let owner = match self.kind {
            Kind::Owned | Kind::OneOfSeveral => thread_number(),
            Kind::Movable | Kind::Permit | Kind::MovablePermit | Kind::Reader | Kind::MovableReader => 0,
        };
        Request { weight: self.weight, owner }
    }

    #[inline]
    pub(super) fn mode(self) -> Mode {
        Mode::of_weight(self.weight)
    }

    /// Whether the guard may move to another thread.
    pub(super) fn is_movable(self) -> bool {
        matches!(self.kind, Kind::Movable | Kind::MovablePermit | Kind::MovableReader)
    }

    /// For the account of owners.
    pub(super) fn party(self, since: Instant) -> Party {
        Party::new(self.weight, self.is_movable(), since, self.location)
    }
}

/// Why a newcomer did not take the key.
enum Refusal<'a> {
    /// The gate is closed to it.
    Closed,
    /// The key is there, in this slot.
    Present { id: u64, slot: &'a mut Slot<Seat>, door: Option<&'a Door> },
    /// The key is absent, and new entries have too low a limit for the request; 0 if the limit has to be asked for.
    Absent { limit: u32 },
}

/// What a newcomer that is refused does about it.
enum Refused<'a> {
    AskLimit,
    Closed,
    /// Whether this thread has this slot already.
    LookAtNotes {
        id: u64,
    },
    Reentered {
        id: u64,
    },
    OwnHold,
    OverLimit {
        limit: u32,
    },
    Busy,
    QueueFull,
    LookAgain,
    Queued {
        id: u64,
        ticket: Ticket,
        one_wait: OneWait<'a>,
    },
}

impl<K, S: BuildHasher, C: Content> Table<K, S, C> {
    /// Takes the key if it can be had at once, as a newcomer: `None` if not.
    // Inlined for sure, as `acquire`: a guard that is built where it stays is never copied.
    #[inline(always)]
    pub(crate) fn try_acquire<Q>(&self, key: &Q, ask: Ask) -> Option<Hold<C>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let must_ask = |refusal: Refusal<'_>| matches!(refusal, Refusal::Absent { limit: 0 } | Refusal::Closed);
        let mut in_hand = C::InHand::default();
        let (id, mark) = match self.enter(hash, key, ask.request(), false, 0, || key.to_owned(), &mut in_hand, must_ask)
        {
            Ok(id) => (id, self.hold(hash, id, ask)),
            // Perhaps it can re-enter, or pass.
            Err(must_ask) if must_ask || self.reentrant || (C::GATED && notes::any()) => {
                let taken;
                (taken, in_hand) = self.acquire_contended(hash, key, ask, &Wait::now(), None).ok()?;
                taken
            }
            Err(_) => return None,
        };
        Some(Hold { hash, id, weight: ask.weight, place: self.note(ask, hash, id), mark, in_hand })
    }

    /// Takes the key, waiting for it without limit. The error is `WouldDeadlock` or `OverLimit`.
    #[inline(always)]
    pub(crate) fn acquire<Q>(&self, key: &Q, ask: Ask) -> Result<Hold<C>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let mut in_hand = C::InHand::default();
        let (id, mark) = match self.enter(hash, key, ask.request(), false, 0, || key.to_owned(), &mut in_hand, |_| ()) {
            Ok(id) => (id, self.hold(hash, id, ask)),
            Err(()) => {
                let taken;
                (taken, in_hand) = self.acquire_contended(hash, key, ask, &Wait::FOREVER, None)?;
                taken
            }
        };
        Ok(Hold { hash, id, weight: ask.weight, place: self.note(ask, hash, id), mark, in_hand })
    }

    /// Takes the key, waiting for it as `wait` allows.
    pub(crate) fn acquire_with<Q>(&self, key: &Q, ask: Ask, wait: &Wait) -> Result<Hold<C>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.acquire_by(key, ask, wait, None)
    }

    /// As [`acquire_with`](Self::acquire_with), with the time limit of a wait that has begun already, if there is one.
    pub(crate) fn acquire_by<Q>(
        &self,
        key: &Q,
        ask: Ask,
        wait: &Wait,
        deadline: Option<Deadline>,
    ) -> Result<Hold<C>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        if wait.is_cancelled() {
            return Err(AcquireError::Cancelled);
        }
        let hash = self.hash(key);
        let ((id, mark), in_hand) = self.acquire_contended(hash, key, ask, wait, deadline)?;
        Ok(Hold { hash, id, weight: ask.weight, place: self.note(ask, hash, id), mark, in_hand })
    }

    /// Notes a hold that stays on this thread, if the table asks for it.
    #[inline(always)]
    fn note(&self, ask: Ask, hash: u64, id: u64) -> Place {
        match self.gates() {
            Some(gates) if matches!(ask.kind, Kind::Owned | Kind::OneOfSeveral | Kind::Reader) => {
                notes::add(Note { table: gates.table, mode: ask.mode(), of: Of::Key { hash, id } })
            }
            _ => Place::NONE,
        }
    }

    /// Fails if this thread would wait for itself.
    pub(crate) fn check_not_owned<Q>(&self, key: &Q, ask: Ask) -> Result<(), AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        let mut reads_it = false;
        if let Some(gates) = self.gates() {
            let holdings = notes::holdings(gates.table);
            if holdings.forbid(ask.mode()) {
                return Err(self.under_own_hold(ask));
            }
            // What it reads it cannot write.
            reads_it = ask.mode() == Mode::Write
                && holdings.any
                && self.id_of(key).is_some_and(|id| notes::holds(gates.table, id));
        }
        if reads_it || self.query(key, |slot| slot.is_owned_by(thread_number())).unwrap_or(false) {
            return Err(self.own_hold(ask));
        }
        Ok(())
    }

    pub(super) fn own_hold(&self, ask: Ask) -> AcquireError {
        self.counters.deadlocked();
        Deadlock::reentry(&self.about, ask.location).into()
    }

    pub(super) fn under_own_hold(&self, ask: Ask) -> AcquireError {
        self.counters.deadlocked();
        Deadlock::under_own_hold(&self.about, ask.location).into()
    }

    /// One look at the key as a newcomer: takes it if that is possible, else asks `refused` what to do, in the same critical
    /// section. Gives the id of the slot.
    ///
    /// With `through` the caller has the gate, and goes through it. `asked` is what the limit function says of the key, or 0 if
    /// it was not asked; `own` gives the key for a new entry; `in_hand` gets what the entry kept.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "it is inlined: a struct of them would be copied")]
    fn enter<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        request: Request,
        through: bool,
        asked: u32,
        own: impl FnOnce() -> K,
        in_hand: &mut C::InHand,
        refused: impl FnOnce(Refusal<'_>) -> R,
    ) -> Result<u64, R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let door = self.gates().map(|gates| gates.door(index));
        let mode = Mode::of_weight(request.weight);
        if let Some(door) = door
            && !through
            && door.closed(mode) != 0
        {
            return Err(refused(Refusal::Closed));
        }
        if let Some((stored, entry)) = shard.get_mut(hash, |(stored, _)| stored.is(hash, key)) {
            let Entry { slot, content } = entry.get_mut();
            if slot.try_take(request, now) {
                *in_hand = content.take();
                if let Some(door) = door {
                    door.enter(mode);
                }
                return Ok(stored.id);
            }
            return Err(refused(Refusal::Present { id: stored.id, slot, door }));
        }
        // Read under the shard lock: who changes the limit stores it first and then visits the shards, so either this sees
        // the new limit or that sees the new entry.
        let limit = match self.limit.load(Ordering::Relaxed) {
            0 => asked,
            _ if asked > 0 && planted(Fault::StaleLimit) => asked,
            limit => limit,
        };
        if request.weight > limit {
            return Err(refused(Refusal::Absent { limit }));
        }
        let stored = Stored { hash, id: slot_id(), key: own() };
        let id = stored.id;
        let entry = Entry { slot: Slot::held(limit, request), content: C::default() };
        shard.insert(hash, (stored, SharedValue::new(entry)), |(stored, _)| stored.hash);
        if let Some(door) = door {
            door.enter(mode);
        }
        Ok(id)
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended<Q>(
        &self,
        hash: u64,
        key: &Q,
        ask: Ask,
        wait: &Wait,
        mut deadline: Option<Deadline>,
    ) -> Result<((u64, u64), C::InHand), AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let (request, shard) = (ask.request(), self.map.determine_shard(hash as usize));
        let over_limit = |limit: u32| AcquireError::OverLimit { requested: ask.weight as usize, limit: limit as usize };
        let mut in_hand = C::InHand::default();
        let (mut asked, mut owned) = (0, Alone(None));
        // Under `Fifo` a request takes its place before others run. Nor does it yield there: with other processes around,
        // hand-overs then take ten times as long as by parking. One with a limit keeps to it: a yield may take long.
        let yields = self.fairness != Fairness::Fifo && wait.is_endless();
        // Who is first in line looks out for its turn, where nobody can get in before: under `Fifo`. And a writer does, whose turn
        // comes when the last reader leaves: it would hardly ever see that by looking again, beside readers that keep coming.
        let looks_out = self.fairness == Fairness::Fifo || (C::GATED && ask.mode() == Mode::Write);
        let looks = if yields { SPINS + YIELDS } else { SPINS };
        let mut round = 0;
        // Whether this thread has a slot already, or reads every key, once it has looked; and the gate, on the way through it.
        let (mut noted, mut gate) = (None, None);
        let (id, ticket, one_wait) = loop {
            if C::GATED && wait.limits_the_queue() && gate.is_none() {
                gate = self.open_gate(ask.mode());
            }
            let through = gate.is_some();
            let kept_out = match &gate {
                Some(gate) if wait.limits_the_queue() => gate.kept_out_for(hash, |other| other.borrow() == key),
                _ => 0,
            };
            let refused = |refusal: Refusal<'_>| {
                let (id, slot, door) = match refusal {
                    Refusal::Closed => return Refused::Closed,
                    Refusal::Present { id, slot, door } => (id, slot, door),
                    Refusal::Absent { limit: 0 } if asked == 0 => return Refused::AskLimit,
                    Refusal::Absent { limit } => return Refused::OverLimit { limit },
                };
                if !matches!(ask.kind, Kind::Permit | Kind::MovablePermit) && slot.is_owned_by(thread_number()) {
                    if self.reentrant && ask.kind == Kind::Owned {
                        slot.reenter();
                        return Refused::Reentered { id };
                    }
                    return Refused::OwnHold;
                }
                if let Some(door) = door
                    && notes::any()
                {
                    match noted {
                        Some((noted, true)) if noted == id && ask.mode() == Mode::Write => return Refused::OwnHold,
                        // It reads the key, or every key: it may go on doing so, whoever waits.
                        Some((noted, true)) if noted == id && slot.take_more(request) => {
                            door.enter(Mode::Read);
                            return Refused::Reentered { id };
                        }
                        Some((noted, _)) if noted == id => {}
                        _ => return Refused::LookAtNotes { id },
                    }
                }
                if ask.weight > slot.limit() {
                    return Refused::OverLimit { limit: slot.limit() };
                }
                let deadline = *deadline.get_or_insert_with(|| wait.deadline());
                if deadline == Deadline::Passed {
                    return Refused::Busy;
                }
                if !wait.may_queue_behind(kept_out + slot.waiters()) {
                    return Refused::QueueFull;
                }
                if round < looks && slot.waiters() == 0 && (!through || wait.limits_the_queue()) {
                    return Refused::LookAgain;
                }
                let mut one_wait = self.begin_wait(ask, deadline.instant());
                one_wait.looks_out = looks_out && slot.waiters() == 0;
                let ticket = slot.enqueue(self.fairness, request, one_wait.seat(), one_wait.since());
                one_wait.track(|tracking, party| tracking.queue(shard, id, slot.state(), ticket.number(), party));
                if let Some(door) = door {
                    door.enter(ask.mode());
                }
                Refused::Queued { id, ticket, one_wait }
            };
            // Of a hold that is in the account of owners already.
            let mut mark = 0;
            let own = || owned.0.take().unwrap_or_else(|| key.to_owned());
            let entered = self.enter(hash, key, request, through, asked, own, &mut in_hand, refused);
            if let Some(gate) = gate.take() {
                let queued = matches!(entered, Err(Refused::Queued { .. }));
                let came = queued || matches!(entered, Ok(_) | Err(Refused::Reentered { .. }));
                went_through(gate, ask.mode(), came, queued);
            }
            let entered = match entered {
                Err(Refused::Closed) => {
                    let own = owned.0.take().unwrap_or_else(|| key.to_owned());
                    match self.knock::<Q>(hash, own, ask, wait, &mut deadline)? {
                        Knock::Open(key) => {
                            owned.0 = Some(key);
                            continue;
                        }
                        Knock::Through(key, ours) => {
                            (owned.0, gate) = (Some(key), Some(ours));
                            continue;
                        }
                        Knock::LetIn(outcome, key, one_wait) => {
                            owned.0 = key;
                            match outcome {
                                LetIn::Granted { id } => {
                                    mark = one_wait.mark();
                                    Ok(id)
                                }
                                LetIn::Queued { id, ticket } => {
                                    // It may have been about to give up at the gate, and does not: it waits on.
                                    one_wait.track(|tracking, party| {
                                        tracking.waits_in_queue(shard, id, ticket.number(), &party)
                                    });
                                    Err(Refused::Queued { id, ticket, one_wait: *one_wait })
                                }
                                LetIn::Again => continue,
                            }
                        }
                    }
                }
                entered => entered,
            };
            match entered {
                Ok(id) | Err(Refused::Reentered { id }) => {
                    let mark = if mark == 0 { self.hold(hash, id, ask) } else { mark };
                    let hold = Hold::new(hash, id, ask.weight, mark, in_hand);
                    let mut unreturned = Unreturned { table: self, hold };
                    drop(owned);
                    let in_hand = mem::take(&mut unreturned.hold.in_hand);
                    mem::forget(unreturned);
                    return Ok(((id, mark), in_hand));
                }
                Err(Refused::AskLimit) => {
                    // The time runs from the call, and the function may take some.
                    deadline.get_or_insert_with(|| wait.deadline());
                    asked = self.ask_limit(owned.0.insert(key.to_owned()));
                    if asked == 0 && self.limit.load(Ordering::Relaxed) == 0 {
                        return Err(over_limit(0));
                    }
                }
                Err(Refused::Closed) => unreachable!("it has knocked"),
                Err(Refused::LookAtNotes { id }) => {
                    let has_it = |table: u64| notes::holds(table, id) || notes::holdings(table).reads_all;
                    noted = Some((id, self.gates().is_some_and(|gates| has_it(gates.table))));
                }
                Err(Refused::OwnHold) => {
                    // First: an error that is about to be returned would leak if this panicked.
                    drop(owned);
                    return Err(self.own_hold(ask));
                }
                Err(Refused::OverLimit { limit }) => return Err(over_limit(limit)),
                Err(Refused::Busy) => return Err(AcquireError::Busy),
                Err(Refused::QueueFull) => return Err(AcquireError::QueueFull),
                Err(Refused::Queued { id, ticket, one_wait }) => break (id, ticket, one_wait),
                Err(Refused::LookAgain) => {
                    if round < SPINS {
                        (0..4 << round).for_each(|_| spin_loop());
                    } else {
                        yield_now();
                    }
                    round += 1;
                }
            }
        };
        let deadline = deadline.unwrap_or(Deadline::Never);
        let hold = Hold::new(hash, id, ask.weight, one_wait.mark(), in_hand);
        let queued = Queued { table: self, hold, ticket: Some(ticket), one_wait };
        drop(owned);
        queued.wait(wait, deadline)
    }
}

/// A hold that no guard has yet. Dropped by unwinding, when the `Drop` of a key that was not needed panics, it releases.
struct Unreturned<'a, K, S, C: Content> {
    table: &'a Table<K, S, C>,
    hold: Hold<C>,
}

impl<K, S, C: Content> Drop for Unreturned<'_, K, S, C> {
    fn drop(&mut self) {
        self.table.release(&mut self.hold, false);
    }
}
