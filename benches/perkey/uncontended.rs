//! One thread: lock and unlock. Subtract the empty loop, which makes the keys.
//!
//! The guards do not go through `black_box`: that would force them into memory, and cost more than what is measured.

use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkGroup, Criterion, measurement::WallTime};
use parking_lot::Mutex;
use perkey::{KeyedLock, KeyedRwLock, KeyedSemaphore, Options, Wait};

use crate::keys::Keys;

/// The least that a table of entries can do: one insertion and one removal, each under the lock. It has the hasher of the
/// others, and a value of a lock's size.
struct Floor<K>(Mutex<HashMap<K, u64>>);

impl<K: Hash + Eq> Floor<K> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

fn with_integer(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut pair: impl FnMut(u64)) {
    let mut keys = Keys::new(1);
    group.bench_function(name, |bencher| bencher.iter(|| pair(black_box(keys.integer()))));
}

pub(crate) fn integer_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended_u64");
    with_integer(&mut group, "empty_loop", |_| ());

    let floor = Floor::new();
    with_integer(&mut group, "floor", |key| {
        floor.0.lock().insert(key, 1);
        let removed = floor.0.lock().remove(&key);
        black_box(removed);
    });

    let locks = Arc::new(KeyedLock::<u64>::new());
    with_integer(&mut group, "lock", |key| drop(locks.lock(&key)));
    with_integer(&mut group, "with_key", |key| locks.with_key(&key, || _ = black_box(key)));
    with_integer(&mut group, "try_lock", |key| drop(locks.try_lock(&key)));
    with_integer(&mut group, "lock_with_forever", |key| drop(locks.lock_with(&key, Wait::forever())));
    with_integer(&mut group, "lock_arc", |key| drop(locks.lock_arc(&key)));

    let permits = KeyedSemaphore::<u64, 4>::new();
    with_integer(&mut group, "semaphore", |key| drop(permits.acquire(&key)));
    group.finish();
}

fn with_text(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut pair: impl FnMut(&str)) {
    let mut keys = Keys::new(2);
    let mut place = [0; 24];
    group.bench_function(name, |bencher| bencher.iter(|| pair(black_box(keys.text(&mut place)))));
}

pub(crate) fn string_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended_string24");
    with_text(&mut group, "empty_loop", |_| ());

    let floor = Floor::new();
    with_text(&mut group, "floor", |key| {
        floor.0.lock().insert(key.to_owned(), 1);
        let removed = floor.0.lock().remove(key);
        black_box(removed);
    });

    let locks = KeyedLock::<String>::new();
    with_text(&mut group, "lock", |key| drop(locks.lock(key)));
    with_text(&mut group, "with_key", |key| locks.with_key(key, || _ = black_box(key)));

    let permits = KeyedSemaphore::<String, 4>::new();
    with_text(&mut group, "semaphore", |key| drop(permits.acquire(key)));
    group.finish();
}

/// Not every key is fresh: one that is held already, and one beside others that are.
pub(crate) fn present_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("present_keys");

    let permits = KeyedSemaphore::<u64, 4>::new();
    let held = permits.acquire(&7);
    group.bench_function("second_permit", |bencher| bencher.iter(|| drop(permits.acquire(black_box(&7)))));
    drop(held);

    let permits = KeyedSemaphore::<String, 4>::new();
    let held = permits.acquire("the-key-of-somebody-else");
    group.bench_function("second_permit_string24", |bencher| {
        bencher.iter(|| drop(permits.acquire(black_box("the-key-of-somebody-else"))));
    });
    drop(held);

    let locks = KeyedLock::<u64>::new();
    let held: Vec<_> = (0..1000).map(|key| locks.lock(&key)).collect();
    with_integer(&mut group, "fresh_beside_1000_held", |key| drop(locks.lock(&(key | 1 << 63))));
    group.bench_function("try_lock_of_a_held_key", |bencher| {
        bencher.iter(|| black_box(locks.try_lock(black_box(&7))).is_none());
    });
    drop(held);
    group.finish();
}

/// What a lock over every key costs depends on the shards, whose number depends on the cores unless it is given.
pub(crate) fn read_and_write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended_rwlock");
    let locks = KeyedRwLock::<u64>::with_options(Options::new().shards(64));
    with_integer(&mut group, "read", |key| drop(locks.read(&key)));
    with_integer(&mut group, "write", |key| drop(locks.write(&key)));
    group.bench_function("read_all", |bencher| bencher.iter(|| drop(locks.read_all())));
    group.bench_function("write_all", |bencher| bencher.iter(|| drop(locks.write_all())));
    group.finish();
}
