//! What must hold whatever happens.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use perkey::KeyStatus;

use crate::keys::Name;
use crate::rng::Rng;

/// What a reader and a writer of a `KeyedRwLock` take of a key, whose limit is what a writer takes.
pub(crate) const READER: u32 = 1;
pub(crate) const WRITER: u32 = u32::MAX >> 2;

/// A fault shows over and over; so many of them are enough to read.
const MANY: usize = 10;

/// What was found to be wrong. The first ends the run.
#[derive(Default)]
pub(crate) struct Breaches {
    list: Mutex<Vec<String>>,
    any: AtomicBool,
}

impl Breaches {
    pub(crate) fn add(&self, breach: String) {
        let mut list = self.list.lock();
        if list.len() < MANY {
            list.push(breach);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.list.lock().clone()
    }
}

/// What is counted of one key. All of it is `Relaxed`: that a section sees what the one before it wrote is the work of the
/// lock.
#[derive(Default)]
struct Cell {
    inside: AtomicU32,
    /// Exclusive sections, counted in one step.
    atomic: AtomicU64,
    /// The same, counted by a load and a later store: wrong if two were in there at once.
    plain: AtomicU64,
}

/// Which limits have been in force, if they change while they are used.
struct Changes {
    /// `None` is the limit that the key began with.
    limits: Vec<Option<u32>>,
    /// Up to here, they have been changed everywhere.
    settled: usize,
}

/// The oracle of one table.
pub(crate) struct Oracle {
    table: String,
    breaches: Arc<Breaches>,
    cells: Vec<Cell>,
    first_limit: fn(usize) -> u32,
    changes: Option<Mutex<Changes>>,
}

/// When a call began, as far as limits go.
#[derive(Clone, Copy)]
pub(crate) struct Mark(usize);

impl Oracle {
    /// Of a table whose keys have a limit that depends on their number.
    pub(crate) fn new(table: &str, keys: usize, limit: fn(usize) -> u32, breaches: &Arc<Breaches>) -> Arc<Self> {
        Arc::new(Self::parts(table, keys, limit, breaches, None))
    }

    /// As [`new`](Self::new), and the limits [change](Self::change_limit).
    pub(crate) fn live(table: &str, keys: usize, limit: fn(usize) -> u32, breaches: &Arc<Breaches>) -> Arc<Self> {
        let changes = Changes { limits: vec![None], settled: 0 };
        Arc::new(Self::parts(table, keys, limit, breaches, Some(Mutex::new(changes))))
    }

    fn parts(
        table: &str,
        keys: usize,
        first_limit: fn(usize) -> u32,
        breaches: &Arc<Breaches>,
        changes: Option<Mutex<Changes>>,
    ) -> Self {
        let cells = (0..keys).map(|_| Cell::default()).collect();
        Self { table: table.to_owned(), breaches: Arc::clone(breaches), cells, first_limit, changes }
    }

    pub(crate) fn keys(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn report(&self, breach: &str) {
        self.breaches.add(format!("{breach} ({})", self.table));
    }

    /// To be called before the call that may enter.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.changes.as_ref().map_or(0, |changes| changes.lock().settled))
    }

    /// The limits of `key` that have been in force since `mark`.
    pub(crate) fn limits(&self, key: usize, mark: Mark) -> Vec<u32> {
        let first = (self.first_limit)(key);
        match &self.changes {
            None => vec![first],
            Some(changes) => changes.lock().limits[mark.0..].iter().map(|limit| limit.unwrap_or(first)).collect(),
        }
    }

    /// Notes that the limit of all keys changes, by what `change` does. One at a time, by the caller's care.
    pub(crate) fn change_limit(&self, limit: u32, change: impl FnOnce()) {
        let changes = self.changes.as_ref().expect("a table whose limits change");
        changes.lock().limits.push(Some(limit));
        change();
        let mut changes = changes.lock();
        changes.settled = changes.limits.len() - 1;
    }

    /// To be called when the permits have been granted; the value is to be dropped before they are given back.
    ///
    /// Since `mark` the last grant was this one or a later one, and it kept to the limit of its moment.
    pub(crate) fn enter(self: &Arc<Self>, key: usize, weight: u32, mark: Mark) -> Inside {
        self.add(key, weight, mark);
        Inside { oracle: Arc::clone(self), key, weight }
    }

    fn add(&self, key: usize, weight: u32, mark: Mark) {
        let inside = self.cells[key].inside.fetch_add(weight, Ordering::Relaxed).wrapping_add(weight);
        let limits = self.limits(key, mark);
        if limits == [WRITER] && inside > WRITER {
            let (readers, writers) = (inside % WRITER, inside / WRITER);
            let what = if readers > 0 { "reader beside writer" } else { "writer beside writer" };
            self.report(&format!("{what}: {readers} readers and {writers} writers of key {key} are inside"));
        } else if limits.iter().all(|limit| inside > *limit) {
            self.report(&format!("too many inside: {inside} permits of key {key} are out, of {limits:?}"));
        }
    }

    pub(crate) fn judge_snapshot<K: Name>(&self, seen: &[KeyStatus<K>], rules: Rules) {
        for status in seen {
            let number = status.key.number();
            let (held, limit) = (status.held, status.limit);
            let head = status.waiters.first().map(|waiter| waiter.permits);
            let wrong = if number >= self.keys() {
                "a key that nobody named"
            } else if held > limit && !rules.held_may_exceed {
                "more is held than the limit"
            } else if held == 0 && head.is_none() && !rules.idle_may_stay {
                "a key that nobody holds or waits for"
            } else if rules.head_never_fits && head.is_some_and(|permits| permits + held <= limit) {
                "the head of the queue fits and was not granted"
            } else {
                continue;
            };
            self.report(&format!("wrong snapshot: {wrong}: {status:?}"));
        }
        if seen.len() > self.keys() {
            self.report(&format!("wrong snapshot: {} keys, where {} exist", seen.len(), self.keys()));
        }
    }

    /// To be called when every thread of the lap is done.
    pub(crate) fn judge_end(&self) {
        for (key, cell) in self.cells.iter().enumerate() {
            let inside = cell.inside.load(Ordering::Relaxed);
            if inside != 0 {
                self.report(&format!("still inside: {inside} permits of key {key}"));
            }
            let [atomic, plain] = [&cell.atomic, &cell.plain].map(|counter| counter.load(Ordering::Relaxed));
            if atomic != plain {
                self.report(&format!("sections overlapped: key {key}: of {atomic} a plain counter saw {plain}"));
            }
        }
    }
}

/// What a snapshot may show, which depends on the table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Guards of a reentrant table, and permits that were out when the limit fell.
    pub(crate) held_may_exceed: bool,
    /// Keys that are kept, or have a value.
    pub(crate) idle_may_stay: bool,
    /// Under `Fairness::Fifo`.
    pub(crate) head_never_fits: bool,
}

/// Permits that are inside, until drop.
pub(crate) struct Inside {
    oracle: Arc<Oracle>,
    key: usize,
    weight: u32,
}

impl Inside {
    /// What a holder does: counts, if it is alone, and dawdles.
    pub(crate) fn work(&self, rng: &mut Rng) {
        let Self { oracle, key, weight } = self;
        let cell = &oracle.cells[*key];
        if oracle.changes.is_none() && *weight == (oracle.first_limit)(*key) {
            cell.atomic.fetch_add(1, Ordering::Relaxed);
            let count = cell.plain.load(Ordering::Relaxed);
            dawdle(rng);
            cell.plain.store(count + 1, Ordering::Relaxed);
        } else {
            dawdle(rng);
        }
    }
}

impl Inside {
    /// A reader has become a writer; or a writer is about to become a reader.
    pub(crate) fn change(&mut self, weight: u32) {
        let Self { oracle, key, .. } = &*self;
        if weight > self.weight {
            oracle.add(*key, weight - self.weight, oracle.mark());
        } else {
            oracle.cells[*key].inside.fetch_sub(self.weight - weight, Ordering::Relaxed);
        }
        self.weight = weight;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.oracle.cells[self.key].inside.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

/// Mostly short; seldom long enough for every other thread to run into the holder.
fn dawdle(rng: &mut Rng) {
    match rng.below(16) {
        0 => thread::yield_now(),
        1 => (0..rng.below(500)).for_each(|_| spin_loop()),
        2..6 => (0..rng.below(40)).for_each(|_| spin_loop()),
        _ => (),
    }
}
