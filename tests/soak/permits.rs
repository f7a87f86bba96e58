//! `KeyedSemaphore`, every call.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perkey::{AcquireError, ArcKeyedPermit, DYNAMIC, Fairness, KeyedPermit, KeyedSemaphore, Limit, Sweeper};

use crate::cli::Fault;
use crate::keys::{Name, light_fuse};
use crate::lap::Table;
use crate::oracle::{Mark, Oracle, Rules};
use crate::patience::Patience;
use crate::subject::{Kind, Subject, describe};
use crate::worker::Worker;

/// The largest limit of a semaphore whose limit changes.
const MOST: u64 = 5;

#[derive(Clone, Copy)]
enum Take {
    Acquire,
    TryAcquire,
    TryAcquireFor,
    AcquireWith,
    AcquireMany,
    AcquireArc,
    TryAcquireArc,
    AcquireArcWith,
    AcquireManyArc,
    WithKey,
    TryWithKey,
    WithKeyWithin,
}

const TAKES: [Take; 12] = [
    Take::Acquire,
    Take::TryAcquire,
    Take::TryAcquireFor,
    Take::AcquireWith,
    Take::AcquireMany,
    Take::AcquireArc,
    Take::TryAcquireArc,
    Take::AcquireArcWith,
    Take::AcquireManyArc,
    Take::WithKey,
    Take::TryWithKey,
    Take::WithKeyWithin,
];

#[derive(Clone, Copy)]
enum Look {
    Limit,
    AvailablePermits,
    IsLocked,
    Waiters,
    Len,
    IsEmpty,
    Snapshot,
    Print,
    Sweep,
    ShrinkToFit,
    SetLimit,
}

const LOOKS: [Look; 11] = [
    Look::Limit,
    Look::AvailablePermits,
    Look::IsLocked,
    Look::Waiters,
    Look::Len,
    Look::IsEmpty,
    Look::Snapshot,
    Look::Print,
    Look::Sweep,
    Look::ShrinkToFit,
    Look::SetLimit,
];

pub(crate) struct Permits<K, const N: usize = DYNAMIC> {
    setup: Table,
    table: Arc<KeyedSemaphore<K, N>>,
    names: Vec<K>,
    oracle: Arc<Oracle>,
    live: Option<Live<K, N>>,
    /// For the planted fault: one permit is enough, and leaves room for the others.
    forgotten: AtomicBool,
}

/// How the limit is changed where it can be, by one thread at a time.
struct Live<K, const N: usize> {
    set_limit: fn(&KeyedSemaphore<K, N>, usize),
    turn: Mutex<()>,
}

impl<K: Name, const N: usize> Permits<K, N> {
    pub(crate) fn fixed(setup: Table) -> Self {
        let oracle = Oracle::new(&setup.name, setup.keys, |_| N as u32, &setup.breaches);
        let table = KeyedSemaphore::with_options(setup.options());
        Self::around(setup, table, oracle, None)
    }

    fn around(setup: Table, table: KeyedSemaphore<K, N>, oracle: Arc<Oracle>, live: Option<Live<K, N>>) -> Self {
        let names = (0..setup.keys).map(K::name).collect();
        Self { setup, table: Arc::new(table), names, oracle, live, forgotten: AtomicBool::new(false) }
    }
}

impl<K: Name> Permits<K> {
    /// The limit changes while it is used; it begins with one of each key's own.
    pub(crate) fn live(setup: Table) -> Self {
        let oracle = Oracle::live(&setup.name, setup.keys, own_limit, &setup.breaches);
        let live = Live { set_limit: |table, limit| table.set_limit(limit), turn: Mutex::new(()) };
        Self::around_own_limits(setup, oracle, Some(live))
    }

    /// Each key has a limit of its own.
    pub(crate) fn by_key(setup: Table) -> Self {
        let oracle = Oracle::new(&setup.name, setup.keys, own_limit, &setup.breaches);
        Self::around_own_limits(setup, oracle, None)
    }

    fn around_own_limits(setup: Table, oracle: Arc<Oracle>, live: Option<Live<K, DYNAMIC>>) -> Self {
        let limit = Limit::by_key(|key: &K| own_limit(key.number()) as usize);
        let table = KeyedSemaphore::with_limit_and_options(limit, setup.options());
        Self::around(setup, table, oracle, live)
    }
}

fn own_limit(key: usize) -> u32 {
    1 + key as u32 % 3
}

impl<K: Name, const N: usize> Permits<K, N> {
    fn take(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let name = &self.names[key];
        let mark = self.oracle.mark();
        let short = worker.short();
        let (now, at_most) = (Patience::now(), Patience::at_most(short));
        let patience = worker.patience();
        let weight = worker.rng.index(MOST as usize + 2);
        let oracle = &self.oracle;
        match worker.pick(&TAKES) {
            Take::Acquire => self.hold(worker, key, 1, mark, self.table.acquire(name)),
            Take::TryAcquire => {
                if let Some(permit) = self.table.try_acquire(name) {
                    self.hold(worker, key, 1, mark, permit);
                }
            }
            Take::TryAcquireFor => {
                let outcome = self.table.try_acquire_for(name, short);
                if let Some(permit) = worker.judge_option(oracle, "try_acquire_for", &at_most, outcome) {
                    self.hold(worker, key, 1, mark, permit);
                }
            }
            Take::AcquireWith => {
                let outcome = self.table.acquire_with(name, patience.wait());
                if let Some(permit) = worker.judge(oracle, "acquire_with", &patience, outcome) {
                    self.hold(worker, key, 1, mark, permit);
                }
            }
            Take::AcquireMany => {
                let outcome = self.table.acquire_many(name, weight, patience.wait());
                if let Some(permit) = self.judge_many(worker, key, weight, mark, &patience, outcome) {
                    self.hold(worker, key, weight as u32, mark, permit);
                }
            }
            Take::AcquireArc => self.hold_arc(worker, key, 1, mark, self.table.acquire_arc(name)),
            Take::TryAcquireArc => {
                if let Some(permit) = self.table.try_acquire_arc(name) {
                    self.hold_arc(worker, key, 1, mark, permit);
                }
            }
            Take::AcquireArcWith => {
                let outcome = self.table.acquire_arc_with(name, patience.wait());
                if let Some(permit) = worker.judge(oracle, "acquire_arc_with", &patience, outcome) {
                    self.hold_arc(worker, key, 1, mark, permit);
                }
            }
            Take::AcquireManyArc => {
                let outcome = self.table.acquire_many_arc(name, weight, patience.wait());
                if let Some(permit) = self.judge_many(worker, key, weight, mark, &patience, outcome) {
                    self.hold_arc(worker, key, weight as u32, mark, permit);
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
        }
    }

    /// The outcome of a request for `weight` permits, where that is more than there are, or none.
    fn judge_many<G>(
        &self,
        worker: &Worker<'_>,
        key: usize,
        weight: usize,
        mark: Mark,
        patience: &Patience,
        outcome: Result<G, AcquireError>,
    ) -> Option<G> {
        let limits = self.oracle.limits(key, mark);
        let fits = |limit: usize| (1..=limit).contains(&weight);
        match outcome {
            Err(AcquireError::OverLimit { requested, limit }) => {
                if requested != weight || fits(limit) || !limits.contains(&(limit as u32)) {
                    self.oracle.report(&format!(
                        "wrong outcome: {weight} permits refused as {requested} of {limit}, where the limit was {limits:?}"
                    ));
                }
                None
            }
            Ok(_) if !limits.iter().any(|limit| fits(*limit as usize)) => {
                self.oracle.report(&format!("wrong outcome: {weight} permits granted, where the limit was {limits:?}"));
                None
            }
            outcome => worker.judge(&self.oracle, "acquire_many", patience, outcome),
        }
    }

    fn hold(&self, worker: &mut Worker<'_>, key: usize, weight: u32, mark: Mark, permit: KeyedPermit<'_, K, N>) {
        if N > 1 && worker.plants(Fault::LostPermit) && !self.forgotten.swap(true, Ordering::Relaxed) {
            mem::forget(permit);
            return;
        }
        worker.visit(&self.oracle, key, weight, mark);
        if worker.rng.one_in(16) {
            self.take_another(worker);
        }
        drop(permit);
    }

    fn hold_arc(&self, worker: &mut Worker<'_>, key: usize, weight: u32, mark: Mark, permit: ArcKeyedPermit<K, N>) {
        let inside = self.oracle.enter(key, weight, mark);
        inside.work(&mut worker.rng);
        if !self.table.is_locked(&self.names[key]) {
            self.oracle.report("wrong answer: is_locked is false while an Arc permit is out");
        }
        if worker.rng.one_in(2) {
            worker.hand_over(Box::new(move || {
                drop(inside);
                drop(permit);
            }));
        } else {
            drop(inside);
            drop(permit);
        }
    }

    /// A second permit while one is held, perhaps of the same key: never without a limit, or threads wait in a circle.
    fn take_another(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let mark = self.oracle.mark();
        if let Some(permit) = self.table.try_acquire_for(&self.names[key], worker.short()) {
            worker.visit(&self.oracle, key, 1, mark);
            drop(permit);
        }
    }

    fn look(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let name = &self.names[key];
        let mark = self.oracle.mark();
        match worker.pick(&LOOKS) {
            Look::Limit => {
                let (said, limits) = (self.table.limit(name), self.oracle.limits(key, mark));
                if !limits.contains(&(said as u32)) {
                    self.oracle.report(&format!("wrong answer: limit is {said}, where it was {limits:?}"));
                }
            }
            Look::AvailablePermits => {
                let (said, limits) = (self.table.available_permits(name), self.oracle.limits(key, mark));
                if limits.iter().all(|limit| said > *limit as usize) {
                    self.oracle.report(&format!("wrong answer: {said} permits available, of {limits:?}"));
                }
            }
            Look::IsLocked => _ = self.table.is_locked(name),
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
                    held_may_exceed: self.live.is_some(),
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
            Look::SetLimit => {
                if let Some(Live { set_limit, turn }) = &self.live {
                    let limit = 1 + worker.rng.below(MOST);
                    let _turn = turn.lock();
                    self.oracle.change_limit(limit as u32, || set_limit(&self.table, limit as usize));
                }
            }
        }
    }

    /// Whether as many permits can be had as there are, and no more.
    fn judge_permits(&self, key: usize) {
        let name = &self.names[key];
        let limits = self.oracle.limits(key, self.oracle.mark());
        let limit = limits[0] as usize;
        let free = self.table.available_permits(name);
        if limits != [free as u32] || self.table.waiters(name) > 0 {
            self.oracle
                .report(&format!("permits missing: key {key}: {free} are back, of {limit}\n{}", self.describe()));
            return;
        }
        let one_by_one: Vec<_> = (0..limit).filter_map(|_| self.table.try_acquire(name)).collect();
        if one_by_one.len() != limit || self.table.try_acquire(name).is_some() {
            let had = one_by_one.len();
            self.oracle
                .report(&format!("permits missing: key {key}: {had} can be had one by one, of {limit}, or more"));
        }
        drop(one_by_one);
        if let Err(error) = self.table.acquire_many(name, limit, Duration::ZERO) {
            self.oracle.report(&format!("permits missing: key {key}: {limit} at once gave {error:?}"));
        }
    }
}

impl<K: Name, const N: usize> Subject for Permits<K, N> {
    fn kind(&self) -> Kind {
        Kind::Semaphore
    }

    fn call(&self, worker: &mut Worker<'_>) {
        let _fuse = light_fuse::<K>(&mut worker.rng);
        if worker.rng.one_in(8) { self.look(worker) } else { self.take(worker) }
    }

    fn judge_end(&self) {
        self.oracle.judge_end();
        (0..self.names.len()).for_each(|key| self.judge_permits(key));
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
