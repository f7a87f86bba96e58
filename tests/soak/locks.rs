//! `KeyedLock`, every call.

use std::sync::Arc;
use std::time::Duration;

use perkey::{AcquireError, ArcKeyedLockGuard, Fairness, KeyedLock, KeyedLockGuard, KeyedLockKeysGuard, Sweeper, Wait};

use crate::cli::Fault;
use crate::keys::{Name, light_fuse};
use crate::lap::Table;
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
    WithKeys,
}

const TAKES: [Take; 13] = [
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
    Take::WithKeys,
];

#[derive(Clone, Copy)]
enum Look {
    IsLocked,
    IsLockedByCurrentThread,
    Waiters,
    Len,
    IsEmpty,
    Snapshot,
    Print,
    Sweep,
    ShrinkToFit,
}

const LOOKS: [Look; 9] = [
    Look::IsLocked,
    Look::IsLockedByCurrentThread,
    Look::Waiters,
    Look::Len,
    Look::IsEmpty,
    Look::Snapshot,
    Look::Print,
    Look::Sweep,
    Look::ShrinkToFit,
];

pub(crate) struct Locks<K> {
    setup: Table,
    table: Arc<KeyedLock<K>>,
    names: Vec<K>,
    oracle: Arc<Oracle>,
}

impl<K: Name> Locks<K> {
    pub(crate) fn new(setup: Table) -> Self {
        let table = Arc::new(KeyedLock::with_options(setup.options()));
        let names = (0..setup.keys).map(K::name).collect();
        let oracle = Oracle::new(&setup.name, setup.keys, |_| 1, &setup.breaches);
        Self { setup, table, names, oracle }
    }

    fn take(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let name = &self.names[key];
        let mark = self.oracle.mark();
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
            Take::WithKey => self.table.with_key(name, || worker.visit(oracle, key, 1, mark)),
            Take::TryWithKey => {
                let outcome = self.table.try_with_key(name, || worker.visit(oracle, key, 1, mark));
                worker.judge_option(oracle, "try_with_key", &now, outcome);
            }
            Take::WithKeyWithin => {
                let outcome = self.table.with_key_within(name, patience.wait(), || worker.visit(oracle, key, 1, mark));
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
            Take::WithKeys => {
                let keys = worker.some_keys(self.names.len(), 4);
                let named = keys.iter().map(|key| &self.names[*key]);
                self.table.with_keys(named, || worker.visit_all(oracle, &each_once(keys.clone()), 1, mark));
            }
        }
    }

    fn hold(&self, worker: &mut Worker<'_>, key: usize, guard: KeyedLockGuard<'_, K>) {
        if key == 0 && worker.plants_now(Fault::Hang) {
            std::mem::forget(guard);
            return;
        }
        worker.visit(&self.oracle, key, 1, self.oracle.mark());
        match worker.rng.below(16) {
            0 => self.look_from_inside(worker, key),
            1 => self.take_another(worker, key),
            2 => return KeyedLockGuard::unlock_fair(guard),
            _ => (),
        }
        drop(guard);
    }

    fn hold_arc(&self, worker: &mut Worker<'_>, key: usize, guard: ArcKeyedLockGuard<K>) {
        let inside = self.oracle.enter(key, 1, self.oracle.mark());
        inside.work(&mut worker.rng);
        if !self.table.is_locked(&self.names[key]) {
            self.oracle.report("wrong answer: is_locked is false while an Arc guard holds the key");
        }
        match worker.rng.below(3) {
            0 => worker.hand_over(Box::new(move || {
                drop(inside);
                drop(guard);
            })),
            1 => {
                drop(inside);
                ArcKeyedLockGuard::unlock_fair(guard);
            }
            _ => {
                drop(inside);
                drop(guard);
            }
        }
    }

    fn hold_keys(&self, worker: &mut Worker<'_>, keys: Vec<usize>, guard: KeyedLockKeysGuard<'_, K>) {
        let keys = each_once(keys);
        worker.visit_all(&self.oracle, &keys, 1, self.oracle.mark());
        if worker.rng.one_in(16) {
            self.look_from_inside(worker, keys[0]);
        }
        drop(guard);
    }

    /// What this thread must be told of a key that it holds.
    fn look_from_inside(&self, worker: &mut Worker<'_>, key: usize) {
        let name = &self.names[key];
        if !self.table.is_locked(name) || !self.table.is_locked_by_current_thread(name) {
            self.oracle.report("wrong answer: a key is held, and its table says it is not");
        }
        if self.table.is_empty() {
            self.oracle.report("wrong answer: is_empty is true while a key is held");
        }
        let arc = self.table.lock_arc_with(name, Wait::forever()).map(drop);
        let again = self.table.lock_with(name, Wait::forever()).map(drop);
        let among = self.table.lock_keys_with([name], Wait::forever()).map(drop);
        let refused = |outcome: &Result<(), AcquireError>| matches!(outcome, Err(AcquireError::WouldDeadlock(_)));
        for outcome in [arc, among] {
            if !refused(&outcome) {
                self.oracle.report(&format!("wrong outcome: a key that is held was not refused: {outcome:?}"));
            }
        }
        if if self.setup.reentrant { again.is_err() } else { !refused(&again) } {
            self.oracle.report(&format!("wrong outcome: to lock again gave {again:?}"));
        }
        if self.setup.reentrant {
            // The oracle's count is of sections, and this one is inside another.
            self.table.with_key(name, || self.take_another(worker, key));
            if !self.table.is_locked_by_current_thread(name) {
                self.oracle.report("wrong answer: an inner guard released the key");
            }
        }
    }

    /// A second key while one is held: never without a limit, or threads wait in a circle.
    fn take_another(&self, worker: &mut Worker<'_>, held: usize) {
        let key = worker.rng.index(self.names.len());
        if key != held
            && let Some(guard) = self.table.try_lock_for(&self.names[key], worker.short())
        {
            worker.visit(&self.oracle, key, 1, self.oracle.mark());
            drop(guard);
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
            Look::Snapshot => self.oracle.judge_snapshot(
                &self.table.snapshot(),
                Rules {
                    held_may_exceed: self.setup.reentrant,
                    idle_may_stay: self.setup.idle_ttl.is_some(),
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
}

impl<K: Name> Subject for Locks<K> {
    fn kind(&self) -> Kind {
        Kind::Lock
    }

    fn call(&self, worker: &mut Worker<'_>) {
        if worker.plants_now(Fault::Overlap) {
            let key = worker.rng.index(self.names.len());
            worker.visit(&self.oracle, key, 1, self.oracle.mark());
        }
        let _fuse = light_fuse::<K>(&mut worker.rng);
        if worker.rng.one_in(8) { self.look(worker) } else { self.take(worker) }
    }

    fn judge_end(&self) {
        self.oracle.judge_end();
        for (key, name) in self.names.iter().enumerate() {
            if self.table.is_locked(name) || self.table.waiters(name) > 0 || self.table.try_lock(name).is_none() {
                self.oracle.report(&format!("still held: key {key}\n{}", self.describe()));
            }
        }
        self.setup.judge_empty(&self.oracle, || self.table.sweep(), || self.table.len());
        if !self.table.is_empty() || !self.table.snapshot().is_empty() {
            self.oracle.report(&format!("still there: {}", self.describe()));
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

pub(crate) fn each_once(mut keys: Vec<usize>) -> Vec<usize> {
    keys.sort_unstable();
    keys.dedup();
    keys
}
