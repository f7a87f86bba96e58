//! Who holds and who waits, in the tables that keep account of it.
//!
//! Plain data beside a table, without its keys: so it can be read from any thread, whatever the lifetime of the table, and
//! the search for [deadlocks](crate::deadlock) goes through several tables with it. A table changes what is here about a key
//! under that key's shard lock, and what is here about all keys under the gate's mutex: it says what the slots and the gate say. But
//! for one thing: a hold that was had without waiting is entered just after, before its thread can do anything else. Each lock here is taken last, and held for a moment: that
//! of what a thread waits for perhaps under one of the others, else alone.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::{slot_id, thread_number};
use crate::mode::Mode;
use crate::report::About;
use crate::status::HolderStatus;
use crate::sync::{Mutex, PlainMutex, now, thread_local};

/// A thread that holds or waits.
pub(crate) struct Owner {
    pub(crate) number: u64,
    pub(crate) thread: Thread,
    /// What it waits for in a table that looks for deadlocks, from before it can be found in a queue until it knows its outcome. Who is not in that queue any more
    /// was granted.
    pub(crate) waits: Mutex<Option<WaitsFor>>,
}

#[derive(Clone)]
pub(crate) struct WaitsFor {
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) place: WaitPlace,
    /// Of the request.
    pub(crate) mark: u64,
    /// When the thread gives up, if it will.
    pub(crate) until: Option<Instant>,
}

#[derive(Clone, Copy)]
pub(crate) enum WaitPlace {
    /// In the queue of a key.
    Key { shard: usize, id: u64, ticket: u64 },
    /// For all keys, or kept out by who holds or wants all keys.
    Gate { place: i64 },
}

/// Threads that hold or wait past the end of their thread-locals.
static LATE: PlainMutex<Vec<Weak<Owner>>> = PlainMutex::new(Vec::new());

struct OwnOwner(RefCell<Option<Arc<Owner>>>);

impl Drop for OwnOwner {
    fn drop(&mut self) {
        if let Some(owner) = self.0.take()
            && Arc::strong_count(&owner) > 1
        {
            LATE.lock().push(Arc::downgrade(&owner));
        }
    }
}

impl Owner {
    /// This thread.
    pub(crate) fn current() -> Arc<Self> {
        thread_local! {
            static OWNER: OwnOwner = const { OwnOwner(RefCell::new(None)) };
        }
        let own = || Arc::new(Self::new());
        OWNER.try_with(|owner| owner.0.borrow_mut().get_or_insert_with(own).clone()).unwrap_or_else(|_| Self::late())
    }

    /// This thread, past the end of this thread-local: one that holds or waits is found again.
    fn late() -> Arc<Self> {
        let number = thread_number();
        let mut late = LATE.lock();
        late.retain(|owner| owner.strong_count() > 0);
        let known = late.iter().filter_map(Weak::upgrade).find(|owner| owner.number == number);
        known.unwrap_or_else(|| {
            let owner = Arc::new(Self::new());
            late.push(Arc::downgrade(&owner));
            owner
        })
    }

    /// What it waits for, if it does.
    pub(crate) fn waits_for(&self) -> Option<WaitsFor> {
        self.waits.lock().clone()
    }

    fn new() -> Self {
        Self { number: thread_number(), thread: thread::current(), waits: Mutex::new(None) }
    }
}

/// A request, from when it waits, if it does, until what it took is given back.
#[derive(Clone)]
pub(crate) struct Party {
    /// Of this request alone, in the whole process.
    pub(crate) mark: u64,
    pub(crate) owner: Arc<Owner>,
    /// Whether the guard may move to another thread, so that nobody can tell who has it.
    pub(crate) movable: bool,
    pub(crate) permits: u32,
    /// When it gives up, if it waits with a time limit.
    pub(crate) until: Option<Instant>,
    /// When it began to wait; once it holds, since when.
    pub(crate) since: Instant,
    /// Where the call was made.
    pub(crate) location: &'static Location<'static>,
}

impl Party {
    pub(crate) fn new(permits: u32, movable: bool, since: Instant, location: &'static Location<'static>) -> Self {
        Self { mark: slot_id(), owner: Owner::current(), movable, permits, until: None, since, location }
    }

    pub(crate) fn status(&self) -> HolderStatus {
        HolderStatus {
            thread: self.owner.thread.clone(),
            movable: self.movable,
            since: self.since,
            location: self.location,
            permits: self.permits as usize,
        }
    }

    pub(crate) fn holds_from_now(mut self) -> Self {
        self.since = now();
        self
    }
}

/// Who holds and who waits for one key.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) limit: u32,
    /// By mark.
    pub(crate) holders: ByNumber<Party>,
    /// By ticket.
    pub(crate) waiting: BTreeMap<u64, Party>,
}

impl Node {
    /// Whoever was in front of `first`, the first in the slot's queue, has been granted since.
    fn follow(&mut self, first: Option<u64>) {
        while let Some(entry) =
            self.waiting.first_entry().filter(|entry| first.is_none_or(|first| *entry.key() < first))
        {
            let party = entry.remove().holds_from_now();
            self.holders.insert(party.mark, party);
        }
    }
}

/// Who holds and who waits for all keys, and who is kept out by them.
#[derive(Default)]
pub(crate) struct AllKeys {
    pub(crate) held: Vec<(Mode, Party)>,
    /// By place.
    pub(crate) waiting: BTreeMap<i64, (Mode, Party)>,
    /// By number, of the same sequence.
    pub(crate) kept_out: BTreeMap<i64, KeptOutParty>,
}

pub(crate) struct KeptOutParty {
    pub(crate) mode: Mode,
    pub(crate) party: Party,
    /// Whether its thread holds something, and so passes waiting locks over all keys.
    pub(crate) holds: bool,
}

/// The keys of one shard, by slot id.
type Shard = CachePadded<Mutex<ByNumber<Node>>>;

/// By slot ids or marks, which nobody outside chooses.
type ByNumber<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// Spreads them over all bits: by a multiplication, as Knuth's multiplicative hashing does.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a slot id is a u64");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The account of one table.
pub(crate) struct Tracking {
    pub(crate) about: About,
    /// Whether deadlocks are looked for.
    pub(crate) detects: bool,
    /// By slot id.
    shards: Box<[Shard]>,
    all: Mutex<AllKeys>,
}

/// What a slot says of itself after a change.
#[derive(Clone, Copy)]
pub(crate) struct SlotState {
    pub(crate) limit: u32,
    /// The first ticket in its queue.
    pub(crate) first: Option<u64>,
}

impl SlotState {
    /// Of a slot that nobody holds or waits for.
    pub(crate) const UNUSED: Self = Self { limit: 0, first: None };
}

impl Tracking {
    pub(crate) fn new(about: About, detects: bool, shards: usize) -> Self {
        let shards = (0..shards).map(|_| CachePadded::new(Mutex::new(HashMap::default()))).collect();
        Self { about, detects, shards, all: Mutex::new(AllKeys::default()) }
    }

    /// Gives back the memory of keys that are gone.
    pub(crate) fn shrink_to_fit(&self) {
        self.shards.iter().for_each(|shard| shard.lock().shrink_to_fit());
    }

    /// Reads about a key.
    pub(crate) fn read<R>(&self, shard: usize, id: u64, read: impl FnOnce(&Node) -> R) -> Option<R> {
        self.shards[shard].lock().get(&id).map(read)
    }

    /// Shows every key that somebody holds or waits for, shard by shard.
    pub(crate) fn for_each(&self, mut show: impl FnMut(usize, u64, &Node)) {
        for (index, shard) in self.shards.iter().enumerate() {
            shard.lock().iter().for_each(|(id, node)| show(index, *id, node));
        }
    }

    /// Reads about all keys.
    pub(crate) fn read_all<R>(&self, read: impl FnOnce(&AllKeys) -> R) -> R {
        read(&self.all.lock())
    }

    /// Who holds a key, the oldest first.
    pub(crate) fn holders(&self, shard: usize, id: u64) -> Vec<HolderStatus> {
        let holders = |node: &Node| node.holders.values().map(Party::status).collect();
        let mut holders: Vec<HolderStatus> = self.read(shard, id, holders).unwrap_or_default();
        holders.sort_by_key(|holder| holder.since);
        holders
    }

    /// Who holds all keys, the oldest first.
    pub(crate) fn holders_of_all(&self) -> Vec<HolderStatus> {
        self.read_all(|all| all.held.iter().map(|(_, party)| party.status()).collect())
    }

    /// Notes a change of a slot, and who was granted by it.
    fn change<R>(&self, shard: usize, id: u64, slot: SlotState, change: impl FnOnce(&mut Node) -> R) -> R {
        let mut shard = self.shards[shard].lock();
        let node = shard.entry(id).or_default();
        node.limit = slot.limit;
        let result = change(node);
        node.follow(slot.first);
        if node.holders.is_empty() && node.waiting.is_empty() {
            shard.remove(&id);
        }
        result
    }

    /// A slot was changed by others than who holds it.
    pub(crate) fn follow(&self, shard: usize, id: u64, slot: SlotState) {
        self.change(shard, id, slot, |_| ());
    }

    /// A request took its permits at once. Returns its mark.
    pub(crate) fn hold(&self, shard: usize, id: u64, slot: SlotState, party: Party) -> u64 {
        let mark = party.mark;
        self.change(shard, id, slot, |node| node.holders.insert(mark, party));
        mark
    }

    /// A request queued.
    pub(crate) fn queue(self: &Arc<Self>, shard: usize, id: u64, slot: SlotState, ticket: u64, party: Party) {
        self.waits_in_queue(shard, id, ticket, &party);
        self.change(shard, id, slot, |node| node.waiting.insert(ticket, party));
    }

    /// A request is in the queue, or will be in a moment.
    pub(crate) fn waits_in_queue(self: &Arc<Self>, shard: usize, id: u64, ticket: u64, party: &Party) {
        self.waits_in(WaitPlace::Key { shard, id, ticket }, party);
    }

    /// A request left the queue.
    pub(crate) fn unqueue(&self, shard: usize, id: u64, slot: SlotState, ticket: u64) {
        self.change(shard, id, slot, |node| node.waiting.remove(&ticket));
    }

    /// The limit was changed; those in the queue of whom `is_rejected` says so are out of it.
    pub(crate) fn reject(&self, shard: usize, id: u64, slot: SlotState, is_rejected: impl Fn(u64) -> bool) {
        self.change(shard, id, slot, |node| node.waiting.retain(|ticket, _| !is_rejected(*ticket)));
    }

    /// A hold was given back.
    pub(crate) fn release(&self, shard: usize, id: u64, slot: SlotState, mark: u64) {
        self.change(shard, id, slot, |node| node.holders.remove(&mark));
    }

    /// A hold has become one of so many permits.
    pub(crate) fn convert(&self, shard: usize, id: u64, slot: SlotState, mark: u64, permits: u32) {
        self.change(shard, id, slot, |node| {
            if let Some(party) = node.holders.get_mut(&mark) {
                party.permits = permits;
            }
        });
    }

    /// All keys were taken at once.
    pub(crate) fn hold_all(&self, mode: Mode, party: Party) {
        self.all.lock().held.push((mode, party));
    }

    /// Of a table that does not look for deadlocks no wait is seen, so that its threads count as threads that run.
    fn waits_in(self: &Arc<Self>, place: WaitPlace, party: &Party) {
        if self.detects {
            let Party { mark, until, .. } = *party;
            *party.owner.waits.lock() = Some(WaitsFor { tracking: Arc::clone(self), place, mark, until });
        }
    }

    /// A request waits for all keys.
    pub(crate) fn queue_for_all(self: &Arc<Self>, place: i64, mode: Mode, party: Party) {
        self.waits_in(WaitPlace::Gate { place }, &party);
        self.all.lock().waiting.insert(place, (mode, party));
    }

    /// A request for all keys left.
    pub(crate) fn unqueue_for_all(&self, place: i64) {
        let left = self.all.lock().waiting.remove(&place);
        drop(left);
    }

    /// Those of whom `waits` says that they wait no more have been granted all keys.
    pub(crate) fn follow_all(&self, waits: impl Fn(Mode, i64) -> bool) {
        let mut all = self.all.lock();
        while let Some(first) = all.waiting.first_entry().filter(|first| !waits(first.get().0, *first.key())) {
            let (mode, party) = first.remove();
            all.held.push((mode, party.holds_from_now()));
        }
    }

    /// A hold over all keys was given back.
    pub(crate) fn release_all(&self, mark: u64) {
        self.all.lock().held.retain(|(_, party)| party.mark != mark);
    }

    /// A keyed request is kept out.
    pub(crate) fn keep_out(self: &Arc<Self>, number: i64, mode: Mode, party: Party, holds: bool) {
        self.waits_in(WaitPlace::Gate { place: number }, &party);
        self.all.lock().kept_out.insert(number, KeptOutParty { mode, party, holds });
    }

    /// A request that was kept out is so no more: it left, or goes to its key.
    pub(crate) fn take_out(&self, number: i64) -> Option<Party> {
        self.all.lock().kept_out.remove(&number).map(|kept_out| kept_out.party)
    }
}
