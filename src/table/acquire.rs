//! Who arrives: takes the key, or queues for it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::Location;

use super::held::HoldId;
use super::queued::Queued;
use super::{Seat, Stored, Table};
use crate::error::{AcquireError, Deadlock};
use crate::fault::{Fault, planted};
use crate::options::Fairness;
use crate::owners::{slot_id, thread_number};
use crate::slot::{Request, Slot, Ticket};
use crate::sync::{Ordering, SharedValue, now, spin_loop, yield_now};
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;

/// How often a request looks again before it queues, as parking_lot's `SpinWait` does: first after `4 << round` spins, which
/// bridge sections of some hundred nanoseconds, then after letting other threads run: one of them may be the holder, without
/// a core. More of either costs more than it saves where threads outnumber cores.
const SPINS: u32 = if cfg!(loom) { 0 } else { 3 };
const YIELDS: u32 = if cfg!(loom) { 0 } else { 9 };

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
    /// Exclusive, by a guard that may move: the hold has no owner, but a thread that owns the key cannot ask for it.
    Movable,
    /// One of several permits.
    Permit,
}

impl Ask {
    #[inline]
    fn request(self) -> Request {
        let owner = if self.kind == Kind::Owned { thread_number() } else { 0 };
        Request { weight: self.weight, owner }
    }
}

/// Why a newcomer did not take the key.
enum Refusal<'a> {
    /// The key is there, in this slot.
    Present { id: u64, slot: &'a mut Slot<Seat> },
    /// The key is absent, and new entries have too low a limit for the request; 0 if the limit has to be asked for.
    Absent { limit: u32 },
}

/// What a newcomer that is refused does about it.
enum Refused {
    AskLimit,
    Reentered { id: u64 },
    OwnHold,
    OverLimit { limit: u32 },
    Busy,
    QueueFull,
    LookAgain,
    Queued { id: u64, ticket: Ticket, waiter: OwnWaiter },
}

impl<K, S: BuildHasher> Table<K, S> {
    /// Takes the key if it can be had at once, as a newcomer: `None` if not.
    // Inlined for sure, as `acquire`: a guard that is built where it stays is never copied.
    #[inline(always)]
    pub(crate) fn try_acquire<Q>(&self, key: &Q, ask: Ask) -> Option<HoldId>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let must_ask = |refusal: Refusal<'_>| matches!(refusal, Refusal::Absent { limit: 0 });
        let id = match self.enter(hash, key, ask.request(), 0, || key.to_owned(), must_ask) {
            Ok(id) => id,
            // Perhaps it can re-enter.
            Err(must_ask) if must_ask || self.reentrant => self.acquire_contended(hash, key, ask, &Wait::now()).ok()?,
            Err(_) => return None,
        };
        Some(HoldId { hash, id, weight: ask.weight })
    }

    /// Takes the key, waiting for it without limit. The error is `WouldDeadlock` or `OverLimit`.
    #[inline(always)]
    pub(crate) fn acquire<Q>(&self, key: &Q, ask: Ask) -> Result<HoldId, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let id = match self.enter(hash, key, ask.request(), 0, || key.to_owned(), |_| ()) {
            Ok(id) => id,
            Err(()) => self.acquire_contended(hash, key, ask, &Wait::FOREVER)?,
        };
        Ok(HoldId { hash, id, weight: ask.weight })
    }

    /// Takes the key, waiting for it as `wait` allows.
    pub(crate) fn acquire_with<Q>(&self, key: &Q, ask: Ask, wait: &Wait) -> Result<HoldId, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        if wait.is_cancelled() {
            return Err(AcquireError::Cancelled);
        }
        let hash = self.hash(key);
        let id = self.acquire_contended(hash, key, ask, wait)?;
        Ok(HoldId { hash, id, weight: ask.weight })
    }

    /// One look at the key as a newcomer: takes it if that is possible, else asks `refused` what to do, in the same critical
    /// section. Gives the id of the slot.
    ///
    /// `asked` is what the limit function says of the key, or 0 if it was not asked; `own` gives the key for a new entry.
    #[inline]
    fn enter<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        request: Request,
        asked: u32,
        own: impl FnOnce() -> K,
        refused: impl FnOnce(Refusal<'_>) -> R,
    ) -> Result<u64, R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        if let Some((stored, slot)) = shard.get_mut(hash, |(stored, _)| stored.is(hash, key)) {
            let slot = slot.get_mut();
            if slot.try_take(request, now) {
                return Ok(stored.id);
            }
            return Err(refused(Refusal::Present { id: stored.id, slot }));
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
        shard.insert(hash, (stored, SharedValue::new(Slot::held(limit, request))), |(stored, _)| stored.hash);
        Ok(id)
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended<Q>(&self, hash: u64, key: &Q, ask: Ask, wait: &Wait) -> Result<u64, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let request = ask.request();
        let over_limit = |limit: u32| AcquireError::OverLimit { requested: ask.weight as usize, limit: limit as usize };
        let mut deadline = None;
        let (mut asked, mut owned) = (0, None);
        // Under `Fifo` a request takes its place before it lets others run.
        let looks = if self.fairness == Fairness::Fifo { SPINS } else { SPINS + YIELDS };
        let mut round = 0;
        let (id, ticket, waiter) = loop {
            let refused = |refusal: Refusal<'_>| {
                let (id, slot) = match refusal {
                    Refusal::Present { id, slot } => (id, slot),
                    Refusal::Absent { limit: 0 } if asked == 0 => return Refused::AskLimit,
                    Refusal::Absent { limit } => return Refused::OverLimit { limit },
                };
                if ask.kind != Kind::Permit && slot.is_owned_by(thread_number()) {
                    if self.reentrant && ask.kind == Kind::Owned {
                        slot.reenter();
                        return Refused::Reentered { id };
                    }
                    return Refused::OwnHold;
                }
                if ask.weight > slot.limit() {
                    return Refused::OverLimit { limit: slot.limit() };
                }
                if *deadline.get_or_insert_with(|| wait.deadline()) == Deadline::Passed {
                    return Refused::Busy;
                }
                if !wait.may_queue_behind(slot.waiters()) {
                    return Refused::QueueFull;
                }
                if round < looks && slot.waiters() == 0 {
                    return Refused::LookAgain;
                }
                let (waiter, since) = (OwnWaiter::take(), now());
                let seat = Seat { waiter: waiter.share(), since, location: ask.location };
                Refused::Queued { id, ticket: slot.enqueue(self.fairness, request, seat, since), waiter }
            };
            let own = || owned.take().unwrap_or_else(|| key.to_owned());
            match self.enter(hash, key, request, asked, own, refused) {
                Ok(id) | Err(Refused::Reentered { id }) => {
                    let hold = Unreturned { table: self, hash, id, weight: ask.weight };
                    drop(owned);
                    mem::forget(hold);
                    return Ok(id);
                }
                Err(Refused::AskLimit) => {
                    // The time runs from the call, and the function may take some.
                    deadline.get_or_insert_with(|| wait.deadline());
                    asked = self.ask_limit(owned.insert(key.to_owned()));
                    if asked == 0 && self.limit.load(Ordering::Relaxed) == 0 {
                        return Err(over_limit(0));
                    }
                }
                Err(Refused::OwnHold) => {
                    return Err(Deadlock::reentry::<K>(self.name.clone(), self.table_type, ask.location).into());
                }
                Err(Refused::OverLimit { limit }) => return Err(over_limit(limit)),
                Err(Refused::Busy) => return Err(AcquireError::Busy),
                Err(Refused::QueueFull) => return Err(AcquireError::QueueFull),
                Err(Refused::Queued { id, ticket, waiter }) => break (id, ticket, waiter),
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
        let queued = Queued { table: self, hash, id, weight: ask.weight, ticket: Some(ticket), waiter };
        drop(owned);
        queued.wait(wait, deadline)
    }
}

/// A hold that no guard has yet. Dropped by unwinding, when the `Drop` of a key that was not needed panics, it releases.
struct Unreturned<'a, K, S> {
    table: &'a Table<K, S>,
    hash: u64,
    id: u64,
    weight: u32,
}

impl<K, S> Drop for Unreturned<'_, K, S> {
    fn drop(&mut self) {
        self.table.release(self.hash, self.id, self.weight, false);
    }
}
