//! Several threads. Times are per operation of all threads together: the time that passed, by the number of sections.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::spin_loop;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use perkey::{Fairness, KeyedLock, KeyedSemaphore, Options};

use crate::keys::Keys;

const MODES: [(&str, Fairness); 2] = [("eventual", Fairness::Eventual), ("fifo", Fairness::Fifo)];

/// Starts the threads anew for each sample, lets them go together, and times from the first start to the last end.
fn on_threads(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    threads: u64,
    work: impl Fn(&mut Keys) + Sync,
) {
    let sample = |operations: u64| {
        let each = operations.div_ceil(threads);
        let barrier = Barrier::new(threads as usize);
        let run = |thread| {
            let mut keys = Keys::new(thread);
            barrier.wait();
            let start = Instant::now();
            for _ in 0..each {
                work(&mut keys);
            }
            (start, Instant::now())
        };
        let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            handles.into_iter().map(|handle| handle.join().expect("the section does not panic")).collect()
        });
        let start = times.iter().map(|(start, _)| *start).min();
        let end = times.iter().map(|(_, end)| *end).max();
        let passed = end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start);
        passed.mul_f64(operations as f64 / (each * threads) as f64)
    };
    group.bench_function(id, |bencher| bencher.iter_custom(sample));
}

fn section(spins: u32) {
    for _ in 0..spins {
        spin_loop();
    }
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat).sample_size(10).measurement_time(Duration::from_secs(3));
    group
}

pub(crate) fn one_key(criterion: &mut Criterion) {
    let mut group = group(criterion, "8_threads_1_key");
    for spins in [0, 20, 200] {
        for (name, fairness) in MODES {
            let locks = KeyedLock::<u64>::with_options(Options::new().fairness(fairness));
            on_threads(&mut group, BenchmarkId::new(name, spins), 8, |_| locks.with_key(&42, || section(spins)));
        }
        let permits = KeyedSemaphore::<u64, 2>::new();
        on_threads(&mut group, BenchmarkId::new("semaphore_of_2", spins), 8, |_| {
            permits.with_key(&42, || section(spins));
        });
    }
    group.finish();
}

pub(crate) fn sixteen_keys(criterion: &mut Criterion) {
    let mut group = group(criterion, "8_threads_16_keys");
    for (name, fairness) in MODES {
        let locks = KeyedLock::<u64>::with_options(Options::new().fairness(fairness));
        on_threads(&mut group, BenchmarkId::new(name, 20), 8, |keys| locks.with_key(&keys.below(16), || section(20)));
    }
    group.finish();
}

/// The least that a sharded table can do.
struct ShardedFloor {
    shards: Vec<CachePadded<Mutex<HashMap<u64, u64>>>>,
    hasher: RandomState,
}

impl ShardedFloor {
    fn new() -> Self {
        Self { shards: (0..64).map(|_| CachePadded::default()).collect(), hasher: RandomState::new() }
    }

    fn pair(&self, key: u64) {
        let shard = &self.shards[(self.hasher.hash_one(key) >> 58) as usize];
        shard.lock().insert(key, 1);
        shard.lock().remove(&key);
    }
}

pub(crate) fn many_keys(criterion: &mut Criterion) {
    const KEYS: u64 = 100_000;
    let mut group = group(criterion, "2_threads_100000_keys");
    let floor = ShardedFloor::new();
    on_threads(&mut group, BenchmarkId::new("floor", 0), 2, |keys| floor.pair(keys.below(KEYS)));
    for (name, fairness) in MODES {
        let locks = KeyedLock::<u64>::with_options(Options::new().fairness(fairness));
        on_threads(&mut group, BenchmarkId::new(name, 0), 2, |keys| locks.with_key(&keys.below(KEYS), || ()));
    }
    group.finish();
}
