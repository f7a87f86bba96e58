//! Key → slot: acquire, wait, release, abandon.
//!
//! One critical section per decision, under the shard lock of the key. The number of permits taken plus the number of
//! waiters is the count of references to an entry; the critical section that brings it to zero removes the entry.
//!
//! # Rules
//!
//! 1. Under a shard lock run, of the user's code, only the key's `Eq`, its `to_owned` on a miss, and its `Clone` in
//!    [`Table::snapshot`]. All run before anything is changed, so they may panic. Hashing comes before the lock;
//!    dropping a key, ringing a waiter and parking come after it.
//! 2. At most one lock is held at a time, with one exception: a scan holds `scan`, then one shard after the other.
//! 3. A hold is `(hash, slot id)`. Ids are unique in the process, so it can only ever meet its own slot.
//! 4. Three functions change a slot: [`Table::enter`] for who arrives, [`Table::release`] for who leaves, and
//!    [`Table::change`] for who waits.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use crate::cancel::Registration;
use crate::error::{AcquireError, Deadlock};
#[cfg(loom)]
use crate::fault::{Fault, planted};
use crate::options::{Fairness, Options};
use crate::owners::{slot_id, thread_number};
use crate::slot::{Abandon, Bells, Look, Request, Slot, Ticket};
use crate::status::{KeyStatus, WaiterStatus};
use crate::sync::{DashMap, Mutex, SharedValue, for_each, now, spin_loop};
use crate::wait::{Deadline, Wait};
use crate::waiter::{OwnWaiter, Waiter};

/// How often a request looks again before it queues, with `4 << round` spins before each look. Short: it bridges
/// sections of some hundred nanoseconds, and a longer one costs more than it saves where threads outnumber cores.
const SPIN_ROUNDS: u32 = if cfg!(loom) { 0 } else { 4 };

const SLOT_STAYS: &str = "the slot of a key that is held or waited for stays in the table";

pub(crate) struct Table<K, S> {
    map: DashMap<Stored<K>, Slot<Seat>, NoHash>,
    hasher: S,
    limit: u32,
    fairness: Fairness,
    /// The public type, for messages.
    table_type: &'static str,
    name: Option<Cow<'static, str>>,
    /// Held by a scan, so that there is one at a time: read locks that overlap could keep a shard's writers out.
    scan: Mutex<()>,
}

// A panic leaves no slot half changed: see rule 1.
impl<K, S> UnwindSafe for Table<K, S> {}
impl<K, S> RefUnwindSafe for Table<K, S> {}

/// A key in the map. It hashes by its stored hash and compares by its id, so that no bound on `K` reaches the map, and so
/// that the user's `Hash` never runs inside it.
struct Stored<K> {
    hash: u64,
    id: u64,
    key: K,
}

impl<K> Stored<K> {
    fn is<Q: ?Sized + Eq>(&self, hash: u64, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.hash == hash && self.key.borrow() == key
    }
}

impl<K> PartialEq for Stored<K> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<K> Eq for Stored<K> {}

impl<K> Hash for Stored<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The map's own hasher, which is never asked: every hash is computed beside the map and stored.
#[derive(Clone)]
struct NoHash;

impl BuildHasher for NoHash {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        unreachable!("the table brings its hashes along")
    }
}

/// Spreads the hash over all bits, with one multiplication whose halves are folded together: DashMap takes a shard from
/// high bits, hashbrown a bucket from low ones, and a weak hasher (an identity, say) fills only some of them. The constant
/// is 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing (TAOCP 3, §6.4).
#[inline]
fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9E37_79B9_7F4A_7C15;
    product as u64 ^ (product >> 64) as u64
}

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

/// What a waiting request leaves in its slot's queue.
#[derive(Clone)]
pub(crate) struct Seat {
    waiter: Arc<Waiter>,
    since: Instant,
    location: &'static Location<'static>,
}

// A million keys are a million slots: what only waiting needs is behind the one pointer.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(size_of::<Slot<Seat>>() == 24 && size_of::<(Stored<u64>, Slot<Seat>)>() == 48);

impl Bells<Seat> {
    /// To be called with no lock held.
    fn ring(self) {
        self.for_each(|seat| seat.waiter.ring());
    }
}

impl<K, S> Table<K, S> {
    pub(crate) fn new(table_type: &'static str, limit: u32, options: Options<S>) -> Self {
        let shards = options.shard_amount();
        let Options { hasher, fairness, shards: _, name } = options;
        Self {
            map: DashMap::with_hasher_and_shard_amount(NoHash, shards),
            hasher,
            limit,
            fairness,
            table_type,
            name,
            scan: Mutex::new(()),
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Keys held or waited for.
    pub(crate) fn len(&self) -> usize {
        // Write locks: see `query`.
        self.map.shards().iter().map(|shard| shard.write().len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.shards().iter().all(|shard| shard.write().len() == 0)
    }

    /// The status of every key, in no particular order. Shards are visited one after the other, so two keys need not be
    /// of the same moment.
    pub(crate) fn snapshot(&self) -> Vec<KeyStatus<K>>
    where
        K: Clone,
    {
        // Before `_one_at_a_time`: if a clone panics, the others are dropped last, with no lock held.
        let mut keys = Vec::new();
        let _one_at_a_time = self.scan.lock();
        for_each(&self.map, |stored, slot| {
            let waiters = slot.waiting().map(|(seat, weight)| WaiterStatus {
                thread: seat.waiter.thread().clone(),
                since: seat.since,
                location: seat.location,
                permits: weight as usize,
            });
            keys.push(KeyStatus {
                key: stored.key.clone(),
                held: slot.taken() as usize,
                limit: slot.limit() as usize,
                waiters: waiters.collect(),
            });
        });
        keys
    }

    /// Gives back what [`acquire`](Self::acquire) took.
    #[inline]
    fn release(&self, hash: u64, id: u64, weight: u32, hand_over: bool) {
        #[cfg(loom)]
        if planted(Fault::RemoveInTwoSteps) {
            return self.release_in_two_steps(hash, id, weight);
        }
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        let removed = shard.remove_entry(hash, |(stored, slot)| stored.id == id && slot.get().is_last_hold(weight));
        if removed.is_some() {
            drop(shard);
            return drop(removed);
        }
        // Somebody waits, or other permits are out, so the slot stays.
        let (_, slot) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(SLOT_STAYS);
        let bells = slot.get_mut().release(weight, hand_over, now);
        drop(shard);
        bells.ring();
    }

    /// Changes a slot that the caller holds or waits in, removes the entry if that leaves it idle, then rings.
    #[inline(never)]
    fn change<R>(&self, hash: u64, id: u64, change: impl FnOnce(&mut Slot<Seat>, &mut Bells<Seat>) -> R) -> R {
        let mut bells = Bells::new();
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        let (_, slot) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(SLOT_STAYS);
        let slot = slot.get_mut();
        let result = change(slot, &mut bells);
        let removed = if slot.is_idle() { shard.remove_entry(hash, |(stored, _)| stored.id == id) } else { None };
        drop(shard);
        bells.ring();
        drop(removed);
        result
    }

    #[cold]
    fn reentry(&self, location: &'static Location<'static>) -> Deadlock {
        Deadlock::reentry::<K>(self.name.clone(), self.table_type, location)
    }

    /// The fields of the public type's `Debug`.
    pub(crate) fn debug(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct(self.table_type);
        if let Some(name) = &self.name {
            fields.field("name", name);
        }
        fields.field("fairness", &self.fairness).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<K, S: BuildHasher> Table<K, S> {
    #[inline]
    fn hash<Q: ?Sized + Hash>(&self, key: &Q) -> u64 {
        mix(self.hasher.hash_one(key))
    }

    /// Reads from the slot of `key`, if there is one.
    ///
    /// Under the shard's write lock, although it only reads: DashMap's read lock lets readers that poll keep a writer
    /// out without bound.
    pub(crate) fn query<Q, R>(&self, key: &Q, read: impl FnOnce(&Slot<Seat>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        let hash = self.hash(key);
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        let (_, slot) = shard.get_mut(hash, |(stored, _)| stored.is(hash, key))?;
        Some(read(slot.get_mut()))
    }

    /// Takes the key if it can be had at once, as a newcomer: `None` if not.
    // Inlined for sure, as `acquire`: a guard that is built where it stays is never copied.
    #[inline(always)]
    pub(crate) fn try_acquire<Q>(&self, key: &Q, ask: Ask) -> Option<HoldId>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let id = self.enter(hash, key, ask.request(), |_, _| ()).ok()?;
        Some(HoldId { hash, id, weight: ask.weight })
    }

    /// Takes the key, waiting for it without limit. The error is `WouldDeadlock`; a permit's request has none.
    #[inline(always)]
    pub(crate) fn acquire<Q>(&self, key: &Q, ask: Ask) -> Result<HoldId, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hash = self.hash(key);
        let id = match self.enter(hash, key, ask.request(), |_, _| ()) {
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

    /// One look at the key as a newcomer: takes it if that is possible, else asks `refused` what to do, in the same
    /// critical section. Gives the id of the slot.
    #[inline]
    fn enter<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        request: Request,
        refused: impl FnOnce(&mut Slot<Seat>, u64) -> R,
    ) -> Result<u64, R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        if let Some((stored, slot)) = shard.get_mut(hash, |(stored, _)| stored.is(hash, key)) {
            let slot = slot.get_mut();
            return if slot.try_take(request, now) { Ok(stored.id) } else { Err(refused(slot, stored.id)) };
        }
        let stored = Stored { hash, id: slot_id(), key: key.to_owned() };
        let id = stored.id;
        shard.insert(hash, (stored, SharedValue::new(Slot::held(self.limit, request))), |(stored, _)| stored.hash);
        Ok(id)
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended<Q>(&self, hash: u64, key: &Q, ask: Ask, wait: &Wait) -> Result<u64, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        enum Refused {
            OwnHold,
            Busy,
            QueueFull,
            Spin,
            Queued { id: u64, ticket: Ticket, waiter: OwnWaiter },
        }

        let mut deadline = None;
        let request = ask.request();
        let mut round = 0;
        let (id, ticket, waiter) = loop {
            let refused = |slot: &mut Slot<Seat>, id| {
                if ask.kind != Kind::Permit && slot.is_owned_by(thread_number()) {
                    return Refused::OwnHold;
                }
                if *deadline.get_or_insert_with(|| wait.deadline()) == Deadline::Passed {
                    return Refused::Busy;
                }
                if !wait.may_queue_behind(slot.waiters()) {
                    return Refused::QueueFull;
                }
                if round < SPIN_ROUNDS && !slot.has_waiters() {
                    return Refused::Spin;
                }
                let (waiter, since) = (OwnWaiter::take(), now());
                let seat = Seat { waiter: waiter.share(), since, location: ask.location };
                Refused::Queued { id, ticket: slot.enqueue(self.fairness, request, seat, since), waiter }
            };
            match self.enter(hash, key, request, refused) {
                Ok(id) => return Ok(id),
                Err(Refused::OwnHold) => return Err(self.reentry(ask.location).into()),
                Err(Refused::Busy) => return Err(AcquireError::Busy),
                Err(Refused::QueueFull) => return Err(AcquireError::QueueFull),
                Err(Refused::Queued { id, ticket, waiter }) => break (id, ticket, waiter),
                Err(Refused::Spin) => {
                    for _ in 0..4 << round {
                        spin_loop();
                    }
                    round += 1;
                }
            }
        };
        let deadline = deadline.unwrap_or(Deadline::Never);
        let queued = Queued { table: self, hash, id, weight: ask.weight, ticket: Some(ticket), waiter };
        queued.wait(wait, deadline)
    }
}

/// A request in the queue of its slot. Dropped there, by unwinding, it gives up its place.
struct Queued<'a, K, S> {
    table: &'a Table<K, S>,
    hash: u64,
    id: u64,
    weight: u32,
    /// Until the outcome is known.
    ticket: Option<Ticket>,
    waiter: OwnWaiter,
}

impl<K, S> Queued<'_, K, S> {
    /// Waits for the grant; gives the slot's id.
    fn wait(mut self, wait: &Wait, deadline: Deadline) -> Result<u64, AcquireError> {
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
            if !self.waiter.park(deadline) {
                return self.give_up(AcquireError::Timeout);
            }
            if self.look() == Look::Granted {
                return Ok(());
            }
        }
    }

    fn look(&mut self) -> Look {
        let Some(ticket) = self.ticket else { return Look::Granted };
        let look = self.table.change(self.hash, self.id, |slot, bells| slot.look(ticket, now, bells));
        if look == Look::Granted {
            self.ticket = None;
        }
        look
    }

    /// Leaves with `error`, unless the grant came first.
    fn give_up(&mut self, error: AcquireError) -> Result<(), AcquireError> {
        match self.abandon() {
            Abandon::Granted => Ok(()),
            Abandon::Left => Err(error),
        }
    }

    fn abandon(&mut self) -> Abandon {
        let Some(ticket) = self.ticket.take() else { return Abandon::Granted };
        self.table.change(self.hash, self.id, |slot, bells| slot.abandon(ticket, now, bells))
    }
}

impl<K, S> Drop for Queued<'_, K, S> {
    fn drop(&mut self) {
        if self.ticket.is_some() && self.abandon() == Abandon::Granted {
            self.table.release(self.hash, self.id, self.weight, false);
        }
    }
}

/// What a hold is called in its table.
#[derive(Clone, Copy)]
pub(crate) struct HoldId {
    hash: u64,
    id: u64,
    weight: u32,
}

/// A public type, seen from its guards.
pub(crate) trait HasTable {
    type Key;
    type Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher>;
}

impl<T: HasTable> HasTable for &T {
    type Key = T::Key;
    type Hasher = T::Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher> {
        T::table(self)
    }
}

impl<T: HasTable> HasTable for Arc<T> {
    type Key = T::Key;
    type Hasher = T::Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher> {
        T::table(self)
    }
}

/// A key that is held, until drop; the inside of every guard. `T` is the table's owner: borrowed, or an `Arc`.
pub(crate) struct Held<T: HasTable> {
    /// `None` once it is released.
    owner: Option<T>,
    id: HoldId,
}

impl<T: HasTable> Held<T> {
    #[inline]
    pub(crate) fn new(owner: T, id: HoldId) -> Self {
        Self { owner: Some(owner), id }
    }

    pub(crate) fn permits(&self) -> usize {
        self.id.weight as usize
    }

    /// Releases to the head of the queue, whatever the mode.
    pub(crate) fn hand_over(mut self) {
        self.release(true);
    }

    #[inline]
    fn release(&mut self, hand_over: bool) {
        if let Some(owner) = self.owner.take() {
            let HoldId { hash, id, weight } = self.id;
            owner.table().release(hash, id, weight, hand_over);
        }
    }
}

impl<T: HasTable> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        self.release(false);
    }
}

#[cfg(loom)]
impl<K, S> Table<K, S> {
    /// What [`Fault::RemoveInTwoSteps`] does instead of [`release`](Self::release).
    fn release_in_two_steps(&self, hash: u64, id: u64, weight: u32) {
        let shard = &self.map.shards()[self.map.determine_shard(hash as usize)];
        let released = shard.write().get_mut(hash, |(stored, _)| stored.id == id).map(|(_, slot)| {
            let bells = slot.get_mut().release(weight, false, now);
            (bells, slot.get().is_idle())
        });
        let Some((bells, idle)) = released else { return };
        bells.ring();
        if idle {
            drop(shard.write().remove_entry(hash, |(stored, _)| stored.id == id));
        }
    }
}
