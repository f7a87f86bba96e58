//! Who arrives: takes the key, or queues for it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::Location;

use super::queued::Queued;
use super::{Entry, Hold, Seat, Stored, Table};
use crate::content::Content;
use crate::error::{AcquireError, Deadlock};
use crate::fault::{Fault, planted};
use crate::options::Fairness;
use crate::owners::{slot_id, thread_number};
use crate::slot::{Request, Slot, Ticket};
use crate::sync::{Ordering, SharedValue, now, spin_loop, yield_now};
use crate::unwind::Alone;
use crate::wait::{Deadline, Wait};
use crate::waiter::OwnWaiter;

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
    /// One of several permits.
    Permit,
}

impl Ask {
    #[inline]
    fn request(self) -> Request {
        let owner = match self.kind {
            Kind::Owned | Kind::OneOfSeveral => thread_number(),
            Kind::Movable | Kind::Permit => 0,
        };
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
        let must_ask = |refusal: Refusal<'_>| matches!(refusal, Refusal::Absent { limit: 0 });
        let mut in_hand = C::InHand::default();
        let id = match self.enter(hash, key, ask.request(), 0, || key.to_owned(), &mut in_hand, must_ask) {
            Ok(id) => id,
            // Perhaps it can re-enter.
            Err(must_ask) if must_ask || self.reentrant => {
                let id;
                (id, in_hand) = self.acquire_contended(hash, key, ask, &Wait::now(), None).ok()?;
                id
            }
            Err(_) => return None,
        };
        Some(Hold { hash, id, weight: ask.weight, in_hand })
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
        let id = match self.enter(hash, key, ask.request(), 0, || key.to_owned(), &mut in_hand, |_| ()) {
            Ok(id) => id,
            Err(()) => {
                let id;
                (id, in_hand) = self.acquire_contended(hash, key, ask, &Wait::FOREVER, None)?;
                id
            }
        };
        Ok(Hold { hash, id, weight: ask.weight, in_hand })
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
        let (id, in_hand) = self.acquire_contended(hash, key, ask, wait, deadline)?;
        Ok(Hold { hash, id, weight: ask.weight, in_hand })
    }

    /// Fails if this thread owns the key.
    pub(crate) fn check_not_owned<Q>(&self, key: &Q, ask: Ask) -> Result<(), AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        match self.query(key, |slot| slot.is_owned_by(thread_number())) {
            Some(true) => Err(self.own_hold(ask)),
            _ => Ok(()),
        }
    }

    fn own_hold(&self, ask: Ask) -> AcquireError {
        Deadlock::reentry::<K>(self.name.clone(), self.table_type, ask.location).into()
    }

    /// One look at the key as a newcomer: takes it if that is possible, else asks `refused` what to do, in the same critical
    /// section. Gives the id of the slot.
    ///
    /// `asked` is what the limit function says of the key, or 0 if it was not asked; `own` gives the key for a new entry;
    /// `in_hand` gets what the entry kept.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "it is inlined: a struct of them would be copied")]
    fn enter<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        request: Request,
        asked: u32,
        own: impl FnOnce() -> K,
        in_hand: &mut C::InHand,
        refused: impl FnOnce(Refusal<'_>) -> R,
    ) -> Result<u64, R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        if let Some((stored, entry)) = shard.get_mut(hash, |(stored, _)| stored.is(hash, key)) {
            let Entry { slot, content } = entry.get_mut();
            if slot.try_take(request, now) {
                *in_hand = content.take();
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
        let entry = Entry { slot: Slot::held(limit, request), content: C::default() };
        shard.insert(hash, (stored, SharedValue::new(entry)), |(stored, _)| stored.hash);
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
    ) -> Result<(u64, C::InHand), AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let request = ask.request();
        let over_limit = |limit: u32| AcquireError::OverLimit { requested: ask.weight as usize, limit: limit as usize };
        let mut in_hand = C::InHand::default();
        let (mut asked, mut owned) = (0, Alone(None));
        // Under `Fifo` a request takes its place before others run. Nor does it yield there: with other processes around,
        // hand-overs then take ten times as long as by parking. One with a limit keeps to it: a yield may take long.
        let yields = self.fairness != Fairness::Fifo && wait.is_endless();
        let looks = if yields { SPINS + YIELDS } else { SPINS };
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
            let own = || owned.0.take().unwrap_or_else(|| key.to_owned());
            match self.enter(hash, key, request, asked, own, &mut in_hand, refused) {
                Ok(id) | Err(Refused::Reentered { id }) => {
                    let hold = Hold { hash, id, weight: ask.weight, in_hand };
                    let mut unreturned = Unreturned { table: self, hold };
                    drop(owned);
                    let in_hand = mem::take(&mut unreturned.hold.in_hand);
                    mem::forget(unreturned);
                    return Ok((id, in_hand));
                }
                Err(Refused::AskLimit) => {
                    // The time runs from the call, and the function may take some.
                    deadline.get_or_insert_with(|| wait.deadline());
                    asked = self.ask_limit(owned.0.insert(key.to_owned()));
                    if asked == 0 && self.limit.load(Ordering::Relaxed) == 0 {
                        return Err(over_limit(0));
                    }
                }
                Err(Refused::OwnHold) => return Err(self.own_hold(ask)),
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
        let hold = Hold { hash, id, weight: ask.weight, in_hand };
        let queued = Queued { table: self, hold, ticket: Some(ticket), waiter };
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
