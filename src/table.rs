//! Key → slot: acquire, wait, release, abandon, evict.
//!
//! One critical section per decision, under the shard lock of the key. The number of permits taken plus the number of
//! waiters is the count of references to an entry; the critical section that brings it to zero removes the entry, or, if it
//! has a value or the table an `idle_ttl`, retires it. A value is in the hand of who holds its key, else in the entry.
//!
//! # Rules
//!
//! 1. Under a shard lock run, of the user's code, only the key's `Borrow` and `Eq`, its `to_owned` on a miss, and its
//!    `Clone` in [`Table::snapshot`], [`Table::keys`] and [`Table::retain`]. All run before anything is changed, so they may
//!    panic. Hashing and limit functions come before the lock; dropping a key or a value, showing a value to the user,
//!    ringing a waiter, warning and parking come after it.
//! 2. At most one lock is held at a time, with three exceptions: a scan holds `scan`, and a change of the limit holds
//!    `by_key`, and then the shards in ascending order, the next before the last is let go (so does DashMap's iterator, and
//!    there is no other safe visit). Under those two no code of the user's runs but `Clone` in `snapshot` and `keys`. Who
//!    goes through the gate of a table of read/write locks holds it, and then one shard at a time; a snapshot takes it under
//!    `scan`. Under it runs what may run under a shard lock.
//! 3. A hold is `(hash, slot id)`. Ids are unique in the process, so it can only ever meet its own slot.
//! 4. Who arrives changes a slot in [`Table::enter`] (or visits it in [`Table::retain`]), who leaves in [`Table::release`], who waits in [`Table::change`];
//!    a new limit goes through all slots.

mod acquire;
mod all;
mod evict;
mod gated;
mod held;
mod limits;
mod queued;
mod release;
mod values;
mod waiting;
#[cfg(feature = "tracing")]
mod warning;

use std::any::type_name;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
#[cfg(feature = "tracing")]
use std::time::Duration;
use std::time::Instant;

pub(crate) use self::acquire::{Ask, Kind};
use self::gated::add_what_the_gate_knows;
pub(crate) use self::held::{HasTable, Held, HeldAll, Hold};
use crate::content::Content;
use crate::fault::{Fault, planted};
use crate::gate::Gates;
use crate::limit::{LimitFn, Source, clamp};
use crate::options::{Fairness, Options};
use crate::owners::tracked::{SlotState, Tracking};
use crate::report::About;
use crate::retention::Retention;
use crate::slot::{Bells, Seated, Slot, Ticket, Verdict};
use crate::stats::{Counters, Stats};
use crate::status::{KeyStatus, WaiterStatus};
use crate::sync::{AtomicU32, DashMap, Mutex, for_each, now};
use crate::unwind::FirstPanic;
use crate::waiter::Waiter;

const SLOT_STAYS: &str = "the slot of a key that is held or waited for stays in the table";

pub(crate) struct Table<K, S, C = ()> {
    map: DashMap<Stored<K>, Entry<C>, NoHash>,
    hasher: S,
    /// The limit of new entries; 0 while `by_key` has to be asked.
    limit: AtomicU32,
    by_key: Mutex<Option<LimitFn<K>>>,
    fairness: Fairness,
    reentrant: bool,
    /// Keeps idle entries, if any.
    retention: Option<Retention>,
    /// Of a table of read/write locks.
    gates: Option<Box<Gates<K, Seat>>>,
    counters: Counters,
    about: About,
    /// Who holds and who waits, where the options ask for it.
    tracking: Option<Arc<Tracking>>,
    #[cfg(feature = "tracing")]
    warn_waiting_over: Option<Duration>,
    /// Held by a scan, so that there is one at a time: scans that overlap could keep a shard's writers out.
    scan: Mutex<()>,
}

// A panic leaves no slot half changed: see rule 1. The hasher is the user's. A value is too, and comes without poisoning.
impl<K, S: UnwindSafe, C> UnwindSafe for Table<K, S, C> {}
impl<K, S: RefUnwindSafe, C> RefUnwindSafe for Table<K, S, C> {}

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

/// What the map has for a key.
struct Entry<C> {
    slot: Slot<Seat>,
    content: C,
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

/// What a waiting request leaves in its slot's queue.
#[derive(Clone)]
pub(crate) struct Seat {
    waiter: Arc<Waiter>,
    since: Instant,
    location: &'static Location<'static>,
}

impl Seated for Seat {
    fn looks_out(&self) -> bool {
        self.waiter.looks_out()
    }
}

impl Seat {
    fn status(&self, weight: u32) -> WaiterStatus {
        let thread = self.waiter.thread().clone();
        WaiterStatus { thread, since: self.since, location: self.location, permits: weight as usize }
    }
}

// A million keys are a million slots: what only waiting needs is behind the one pointer.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(size_of::<Slot<Seat>>() == 24 && size_of::<(Stored<u64>, Entry<()>)>() == 48);

impl Bells<Seat> {
    /// To be called with no lock held.
    fn ring(self) {
        self.for_each(|seat| seat.waiter.ring());
    }
}

impl Slot<Seat> {
    /// What the account of owners has to know after a change.
    fn state(&self) -> SlotState {
        SlotState { limit: self.limit(), first: self.first_ticket() }
    }
}

impl<C: Content> Entry<C> {
    /// A waiter looks what has become of its request. If it was granted, the content goes into its hand.
    fn look(&mut self, ticket: Ticket, bells: &mut Bells<Seat>, in_hand: &mut C::InHand) -> Option<Verdict> {
        let verdict = self.slot.look(ticket, now, bells);
        self.hand_out(verdict, in_hand)
    }

    /// A waiter gives up, unless there is a verdict already. If it was granted, the content goes into its hand.
    fn abandon(&mut self, ticket: Ticket, bells: &mut Bells<Seat>, in_hand: &mut C::InHand) -> Option<Verdict> {
        let verdict = self.slot.abandon(ticket, now, bells);
        if planted(Fault::ValueStaysBehind) {
            return verdict;
        }
        self.hand_out(verdict, in_hand)
    }

    fn hand_out(&mut self, verdict: Option<Verdict>, in_hand: &mut C::InHand) -> Option<Verdict> {
        if verdict == Some(Verdict::Granted) {
            *in_hand = self.content.take();
        }
        verdict
    }
}

impl<K, S, C: Content> Table<K, S, C> {
    pub(crate) fn new(table_type: &'static str, limit: Source<K>, options: Options<S>) -> Self {
        let shards = options.shard_amount();
        let Options {
            hasher,
            fairness,
            shards: _,
            name,
            reentrant,
            idle_ttl,
            track_owners,
            detect_deadlocks,
            #[cfg(feature = "tracing")]
            warn_waiting_over,
        } = options;
        let about = About { name, table_type, key_type: type_name::<K>() };
        let (limit, by_key) = match limit {
            Source::Same(limit) => (clamp(limit), None),
            Source::ByKey(limit) => (0, Some(limit)),
        };
        let map = DashMap::with_hasher_and_shard_amount(NoHash, shards);
        let shards = map.shards().len();
        let tracking = (track_owners || detect_deadlocks)
            .then(|| Arc::new(Tracking::new(about.clone(), detect_deadlocks, shards)));
        let gates = C::GATED.then(|| Box::new(Gates::new(shards)));
        Self {
            map,
            gates,
            hasher,
            limit: AtomicU32::new(limit),
            by_key: Mutex::new(by_key),
            fairness,
            reentrant,
            retention: idle_ttl.map(Retention::new),
            counters: Counters::default(),
            about,
            tracking,
            #[cfg(feature = "tracing")]
            warn_waiting_over,
            scan: Mutex::new(()),
        }
    }

    /// What read/write locks have besides. Of other tables the compiler knows that there is nothing.
    #[inline]
    fn gates(&self) -> Option<&Gates<K, Seat>> {
        if C::GATED { self.gates.as_deref() } else { None }
    }

    /// Keys held or waited for, or kept.
    pub(crate) fn len(&self) -> usize {
        // Write locks: see `query`.
        self.map.shards().iter().map(|shard| shard.write().len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.shards().iter().all(|shard| shard.write().len() == 0)
    }

    /// The status of every key, in no particular order. Shards are visited in turn, so two keys need not be of the same
    /// moment.
    pub(crate) fn snapshot(&self) -> Vec<KeyStatus<K>>
    where
        K: Clone,
    {
        let mut keys = Vec::new();
        let mut panic = FirstPanic::default();
        panic.catch(|| {
            let _one_at_a_time = self.scan.lock();
            // To the end, so that a request that is let in meanwhile is shown once.
            let gate = self.gates().map(|gates| gates.gate.lock());
            for_each(&self.map, |stored, Entry { slot, .. }| {
                let waiters = slot.waiting().map(|(seat, weight)| seat.status(weight));
                let holders = self.tracking.as_ref().map_or_else(Vec::new, |tracking| {
                    tracking.holders(self.map.determine_shard(stored.hash as usize), stored.id)
                });
                keys.push(KeyStatus {
                    held: slot.taken() as usize,
                    limit: slot.limit() as usize,
                    holders,
                    waiters: waiters.collect(),
                    ..KeyStatus::of(stored.key.clone())
                });
            });
            if let Some(gate) = gate {
                add_what_the_gate_knows(&gate, &mut keys);
                self.track(|tracking| {
                    let holders = tracking.holders_of_all();
                    keys.iter_mut().for_each(|status| status.holders_of_all = holders.clone());
                });
            }
        });
        // With no lock held: if a clone panicked the others are dropped.
        panic.resume_or(keys)
    }

    /// Tells the account of owners, if there is one. In the critical section of what has changed.
    #[inline]
    fn track(&self, tell: impl FnOnce(&Arc<Tracking>)) {
        if let Some(tracking) = &self.tracking {
            tell(tracking);
        }
    }

    /// Notes that a request took its permits, where owners are tracked; returns its mark. To be called with no lock held, before the
    /// thread does anything else: until then it cannot wait, so it is in nobody's way.
    #[inline]
    fn hold(&self, hash: u64, id: u64, ask: Ask) -> u64 {
        if self.tracking.is_some() { self.hold_tracked(hash, id, ask) } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn hold_tracked(&self, hash: u64, id: u64, ask: Ask) -> u64 {
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id).expect(SLOT_STAYS);
        self.hold_in(index, id, &entry.get_mut().slot, ask)
    }

    /// As [`hold`](Self::hold), in a critical section of the slot.
    fn hold_in(&self, shard: usize, id: u64, slot: &Slot<Seat>, ask: Ask) -> u64 {
        self.tracking.as_ref().map_or(0, |tracking| tracking.hold(shard, id, slot.state(), ask.party(now())))
    }

    /// Reads from the slot of the key with this hash that `is` says is the one.
    fn read_slot<R>(&self, hash: u64, is: impl Fn(&K) -> bool, read: impl FnOnce(&Slot<Seat>) -> R) -> Option<R> {
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        let (_, entry) = shard.get_mut(hash, |(stored, _)| stored.hash == hash && is(&stored.key))?;
        Some(read(&entry.get_mut().slot))
    }

    /// The id of that slot.
    fn id_of_hash(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<u64> {
        let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
        shard.get_mut(hash, |(stored, _)| stored.hash == hash && is(&stored.key)).map(|(stored, _)| stored.id)
    }

    /// What has happened so far.
    pub(crate) fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// The number of the last sweep; 0 where nothing is swept.
    fn last_sweep(&self) -> u64 {
        self.retention.as_ref().map_or(0, Retention::last_sweep)
    }

    /// The fields of the public type's `Debug`.
    pub(crate) fn debug(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct(self.about.table_type);
        if let Some(name) = &self.about.name {
            fields.field("name", name);
        }
        fields.field("fairness", &self.fairness).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<K, S: BuildHasher, C: Content> Table<K, S, C> {
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
        self.read_slot(hash, |stored| stored.borrow() == key, read)
    }

    /// Whether `key` is held, or every key is, so that at least `least` permits of it are taken.
    pub(crate) fn is_held<Q>(&self, key: &Q, least: u32) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        let hash = self.hash(key);
        // The gate first, and to the end: who goes from one kind of hold to the other is seen in one of them.
        let gate = self.gates().map(|gates| gates.gate.lock());
        let by_all = gate.as_ref().and_then(|gate| gate.held()).is_some_and(|(mode, _)| mode.weight() >= least);
        by_all || self.read_slot(hash, |stored| stored.borrow() == key, |slot| slot.taken() >= least).unwrap_or(false)
    }

    /// How many requests wait for `key`, those included that are kept out at the gate.
    pub(crate) fn waiters<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        let hash = self.hash(key);
        // The gate first, and to the end: a request that is let in is counted once.
        let gate = self.gates().map(|gates| gates.gate.lock());
        let kept_out = gate.as_ref().map_or(0, |gate| gate.kept_out_for(hash, |other| other.borrow() == key));
        kept_out + self.read_slot(hash, |stored| stored.borrow() == key, Slot::waiters).unwrap_or(0)
    }

    /// The id of the slot of `key`, if there is one.
    pub(crate) fn id_of<Q>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        let hash = self.hash(key);
        self.id_of_hash(hash, |stored| stored.borrow() == key)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
