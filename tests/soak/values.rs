//! `KeyedMutex`, every call.
//!
//! The values are counters. What was added to those of a key must be what they counted when they were dropped, one after
//! the other: none may be lost, and no increment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use perkey::{ArcKeyedMutexGuard, Fairness, KeyedMutex, KeyedMutexGuard, KeyedMutexKeysGuard, Sweeper, Wait};

use crate::cli::Fault;
use crate::keys::{Name, light_fuse};
use crate::lap::Table;
use crate::locks::each_once;
use crate::oracle::{Oracle, Rules};
use crate::patience::Patience;
use crate::subject::{Kind, Subject, describe};
use crate::worker::Worker;

#[derive(Clone, Copy)]
enum Take {
    Lock,
    TryLock,
    TryLockFor,
    LockWith,
    LockArc,
    TryLockArc,
    LockArcWith,
    WithKey,
    TryWithKey,
    WithKeyWithin,
    LockKeys,
    LockKeysWith,
    GetCloned,
    Insert,
    Remove,
}

const TAKES: [Take; 15] = [
    Take::Lock,
    Take::TryLock,
    Take::TryLockFor,
    Take::LockWith,
    Take::LockArc,
    Take::TryLockArc,
    Take::LockArcWith,
    Take::WithKey,
    Take::TryWithKey,
    Take::WithKeyWithin,
    Take::LockKeys,
    Take::LockKeysWith,
    Take::GetCloned,
    Take::Insert,
    Take::Remove,
];

#[derive(Clone, Copy)]
enum Look {
    IsLocked,
    IsLockedByCurrentThread,
    Waiters,
    Len,
    IsEmpty,
    Keys,
    Retain,
    Snapshot,
    Print,
    Sweep,
    ShrinkToFit,
}

const LOOKS: [Look; 11] = [
    Look::IsLocked,
    Look::IsLockedByCurrentThread,
    Look::Waiters,
    Look::Len,
    Look::IsEmpty,
    Look::Keys,
    Look::Retain,
    Look::Snapshot,
    Look::Print,
    Look::Sweep,
    Look::ShrinkToFit,
];

/// What became of the counters of one key.
#[derive(Default)]
struct Book {
    made: AtomicU64,
    dropped: AtomicU64,
}

/// A counter, or the picture of one, which is in no book.
struct Counter {
    count: u64,
    book: Option<Arc<Book>>,
}

impl Counter {
    fn new(book: &Arc<Book>) -> Self {
        Self { count: 0, book: Some(Arc::clone(book)) }
    }

    fn increment(&mut self) {
        self.set(self.count + 1);
    }

    /// Counts as one increment.
    fn set(&mut self, count: u64) {
        self.count = count;
        if let Some(book) = &self.book {
            book.made.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Clone for Counter {
    fn clone(&self) -> Self {
        Self { count: self.count, book: None }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(book) = &self.book {
            book.dropped.fetch_add(self.count, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Values<K> {
    setup: Table,
    table: Arc<KeyedMutex<K, Counter>>,
    names: Vec<K>,
    oracle: Arc<Oracle>,
    books: Vec<Arc<Book>>,
}

impl<K: Name> Values<K> {
    pub(crate) fn new(setup: Table) -> Self {
        let table = Arc::new(KeyedMutex::with_options(setup.options()));
        let names = (0..setup.keys).map(K::name).collect();
        let oracle = Oracle::new(&setup.name, setup.keys, |_| 1, &setup.breaches);
        let books = (0..setup.keys).map(|_| Arc::default()).collect();
        Self { setup, table, names, oracle, books }
    }

    fn take(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let name = &self.names[key];
        let short = worker.short();
        let (now, at_most) = (Patience::now(), Patience::at_most(short));
        let patience = worker.patience();
        let oracle = &self.oracle;
        match worker.pick(&TAKES) {
            Take::Lock => self.hold(worker, key, self.table.lock(name)),
            Take::TryLock => {
                if let Some(guard) = self.table.try_lock(name) {
                    self.hold(worker, key, guard);
                }
            }
            Take::TryLockFor => {
                let outcome = self.table.try_lock_for(name, short);
                if let Some(guard) = worker.judge_option(oracle, "try_lock_for", &at_most, outcome) {
                    self.hold(worker, key, guard);
                }
            }
            Take::LockWith => {
                let outcome = self.table.lock_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "lock_with", &patience, outcome) {
                    self.hold(worker, key, guard);
                }
            }
            Take::LockArc => self.hold_arc(worker, key, self.table.lock_arc(name)),
            Take::TryLockArc => {
                if let Some(guard) = self.table.try_lock_arc(name) {
                    self.hold_arc(worker, key, guard);
                }
            }
            Take::LockArcWith => {
                let outcome = self.table.lock_arc_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "lock_arc_with", &patience, outcome) {
                    self.hold_arc(worker, key, guard);
                }
            }
            Take::WithKey => self.table.with_key(name, |value| self.change(worker, key, value)),
            Take::TryWithKey => {
                let outcome = self.table.try_with_key(name, |value| self.change(worker, key, value));
                worker.judge_option(oracle, "try_with_key", &now, outcome);
            }
            Take::WithKeyWithin => {
                let outcome =
                    self.table.with_key_within(name, patience.wait(), |value| self.change(worker, key, value));
                worker.judge(oracle, "with_key_within", &patience, outcome);
            }
            Take::LockKeys => {
                let keys = worker.some_keys(self.names.len(), 4);
                let guard = self.table.lock_keys(keys.iter().map(|key| &self.names[*key]));
                self.hold_keys(worker, keys, guard);
            }
            Take::LockKeysWith => {
                let keys = worker.some_keys(self.names.len(), 4);
                let outcome = self.table.lock_keys_with(keys.iter().map(|key| &self.names[*key]), patience.wait());
                if let Some(guard) = worker.judge(oracle, "lock_keys_with", &patience, outcome) {
                    self.hold_keys(worker, keys, guard);
                }
            }
            Take::GetCloned => drop(self.table.get_cloned(name)),
            Take::Insert => drop(self.table.insert(name, Counter::new(&self.books[key]))),
            Take::Remove => drop(self.table.remove(name)),
        }
    }

    /// What is done to a value whose key is held.
    fn change(&self, worker: &mut Worker<'_>, key: usize, value: &mut Option<Counter>) {
        if worker.rng.one_in(16) {
            *value = None;
        } else {
            value.get_or_insert_with(|| Counter::new(&self.books[key])).increment();
        }
        worker.visit(&self.oracle, key, 1, self.oracle.mark());
        if let Some(counter) = value {
            counter.increment();
        }
    }

    fn hold(&self, worker: &mut Worker<'_>, key: usize, mut guard: KeyedMutexGuard<'_, K, Counter>) {
        self.change(worker, key, &mut guard);
        match worker.rng.below(16) {
            0 => self.look_from_inside(key),
            1 => return KeyedMutexGuard::unlock_fair(guard),
            _ => (),
        }
        drop(guard);
    }

    fn hold_arc(&self, worker: &mut Worker<'_>, key: usize, mut guard: ArcKeyedMutexGuard<K, Counter>) {
        let book = Arc::clone(&self.books[key]);
        let inside = self.oracle.enter(key, 1, self.oracle.mark());
        inside.work(&mut worker.rng);
        guard.get_or_insert_with(|| Counter::new(&book)).increment();
        match worker.rng.below(3) {
            0 => worker.hand_over(Box::new(move || {
                guard.get_or_insert_with(|| Counter::new(&book)).increment();
                drop(inside);
                drop(guard);
            })),
            1 => {
                drop(inside);
                ArcKeyedMutexGuard::unlock_fair(guard);
            }
            _ => {
                drop(inside);
                drop(guard);
            }
        }
    }

    fn hold_keys(&self, worker: &mut Worker<'_>, keys: Vec<usize>, mut guard: KeyedMutexKeysGuard<'_, K, Counter>) {
        let keys = each_once(keys);
        worker.visit_all(&self.oracle, &keys, 1, self.oracle.mark());
        for key in &keys {
            let value = &mut guard[&self.names[*key]];
            value.get_or_insert_with(|| Counter::new(&self.books[*key])).increment();
        }
        if let [first, second, ..] = keys[..] {
            let both = guard.get_disjoint_mut([&self.names[first], &self.names[second]]);
            for counter in both.into_iter().flatten().flatten() {
                counter.increment();
            }
        }
        if let Some(Some(counter)) = guard.get_mut(&self.names[keys[0]]) {
            counter.increment();
        }
        if let Some(other) = (0..self.names.len()).find(|key| !keys.contains(key))
            && guard.get(&self.names[other]).is_some()
        {
            self.oracle.report("wrong answer: a guard of several keys has a key that was not asked for");
        }
        drop(guard);
    }

    /// What this thread must be told of a key that it holds.
    fn look_from_inside(&self, key: usize) {
        let name = &self.names[key];
        if !self.table.is_locked(name) || !self.table.is_locked_by_current_thread(name) {
            self.oracle.report("wrong answer: a key is held, and its table says it is not");
        }
        if self.table.lock_with(name, Wait::forever()).is_ok() || self.table.try_lock(name).is_some() {
            self.oracle.report("wrong outcome: a key that is held was locked again");
        }
        if self.table.retain(|_, _| true) == 0 {
            self.oracle.report("wrong answer: retain saw all values, and this thread holds one");
        }
    }

    fn look(&self, worker: &mut Worker<'_>) {
        let name = &self.names[worker.rng.index(self.names.len())];
        match worker.pick(&LOOKS) {
            Look::IsLocked => _ = self.table.is_locked(name),
            Look::IsLockedByCurrentThread => {
                if self.table.is_locked_by_current_thread(name) {
                    self.oracle.report("wrong answer: this thread holds no key, and is said to");
                }
            }
            Look::Waiters => _ = self.table.waiters(name),
            Look::Len => {
                let len = self.table.len();
                if len > self.names.len() {
                    self.oracle.report(&format!("wrong answer: len is {len} of {} keys", self.names.len()));
                }
            }
            Look::IsEmpty => _ = self.table.is_empty(),
            Look::Keys => {
                let keys = self.table.keys();
                if keys.iter().any(|key| key.number() >= self.names.len()) {
                    self.oracle.report(&format!("wrong answer: keys are {keys:?}"));
                }
            }
            Look::Retain => {
                self.table.retain(|key, counter| {
                    worker.visit(&self.oracle, key.number(), 1, self.oracle.mark());
                    counter.increment();
                    !worker.rng.one_in(4)
                });
            }
            Look::Snapshot => self.oracle.judge_snapshot(
                &self.table.snapshot(),
                Rules {
                    held_may_exceed: false,
                    idle_may_stay: true,
                    head_never_fits: self.setup.fairness == Fairness::Fifo,
                },
            ),
            Look::Print => _ = format!("{:?}", self.table),
            Look::Sweep => {
                let swept = self.table.sweep();
                if swept > 0 && self.setup.idle_ttl.is_none() {
                    self.oracle.report(&format!("wrong answer: {swept} keys were swept that were not kept"));
                }
            }
            Look::ShrinkToFit => self.table.shrink_to_fit(),
        }
    }

    /// The planted fault: what is read under one hold of the key is written under another.
    fn lose_an_update(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        if let Some(seen) = self.table.get_cloned(&self.names[key]) {
            thread::yield_now();
            if let Some(counter) = &mut *self.table.lock(&self.names[key]) {
                counter.set(seen.count + 1);
            }
        }
    }
}

impl<K: Name> Subject for Values<K> {
    fn kind(&self) -> Kind {
        Kind::Mutex
    }

    fn call(&self, worker: &mut Worker<'_>) {
        if worker.plants_now(Fault::LostUpdate) {
            self.lose_an_update(worker);
        }
        let _fuse = light_fuse::<K>(&mut worker.rng);
        if worker.rng.one_in(8) { self.look(worker) } else { self.take(worker) }
    }

    fn judge_end(&self) {
        self.oracle.judge_end();
        let skipped = self.table.retain(|_, _| false);
        if skipped > 0 {
            self.oracle.report(&format!("still held: {skipped} keys\n{}", self.describe()));
        }
        self.setup.judge_empty(&self.oracle, || self.table.sweep(), || self.table.len());
        if !self.table.is_empty() || !self.table.keys().is_empty() {
            self.oracle.report(&format!("still there: {}", self.describe()));
        }
        for (key, book) in self.books.iter().enumerate() {
            let [made, dropped] = [&book.made, &book.dropped].map(|count| count.load(Ordering::Relaxed));
            if made != dropped {
                let wrong =
                    format!("updates lost: key {key}: {made} increments were made, the values counted {dropped}");
                self.oracle.report(&wrong);
            }
        }
    }

    fn describe(&self) -> String {
        describe(&self.setup.name, self.table.snapshot())
    }

    fn spawn_sweeper(&self, every: Duration) -> Sweeper {
        Sweeper::spawn(&self.table, every)
    }

    fn try_spawn_sweeper(&self, every: Duration) -> std::io::Result<Sweeper> {
        Sweeper::try_spawn(&self.table, every)
    }

    fn add_to(&self, sweeper: &mut Sweeper) {
        sweeper.add(&self.table);
    }
}
