//! Stand-ins under `cfg(loom)`: as much of each API as the crate uses, no more.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::time::Instant;

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use loom::thread::yield_now;

/// loom's macro does not know `const` initialisers.
macro_rules! const_thread_local {
    (static $name:ident: $type:ty = const { $init:expr };) => {
        loom::thread_local! { static $name: $type = $init; }
    };
}
pub(crate) use const_thread_local as thread_local;

/// A clock that stands still, so that every replay of a schedule takes the same branches.
pub(crate) fn now() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `Condvar::wait` takes the guard out")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only `Condvar::wait` takes the guard out")
    }
}

#[derive(Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

/// loom's timed wait never times out; the models reach the paths of a time-out through cancellation.
pub(crate) struct WaitTimeoutResult;

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("a guard is whole outside `wait`");
        guard.0 = Some(self.0.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

pub(crate) struct SharedValue<V>(V);

impl<V> SharedValue<V> {
    pub(crate) fn new(value: V) -> Self {
        Self(value)
    }

    pub(crate) fn get(&self) -> &V {
        &self.0
    }

    pub(crate) fn get_mut(&mut self) -> &mut V {
        &mut self.0
    }
}

/// A shard's table: a list, searched in order.
pub(crate) struct RawTable<T>(Vec<T>);

impl<T> RawTable<T> {
    pub(crate) fn get_mut(&mut self, _hash: u64, mut eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.0.iter_mut().find(|entry| eq(entry))
    }

    pub(crate) fn insert(&mut self, _hash: u64, entry: T, _hasher: impl Fn(&T) -> u64) {
        self.0.push(entry);
    }

    pub(crate) fn remove_entry(&mut self, _hash: u64, eq: impl FnMut(&T) -> bool) -> Option<T> {
        let position = self.0.iter().position(eq)?;
        Some(self.0.remove(position))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(crate) fn shrink_to(&mut self, min_size: usize, _hasher: impl Fn(&T) -> u64) {
        self.0.shrink_to(min_size);
    }
}

pub(crate) struct RwLock<T>(Mutex<T>);

impl<T> RwLock<T> {
    pub(crate) fn write(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }
}

/// A map of one shard.
pub(crate) struct DashMap<K, V, S> {
    shards: [RwLock<RawTable<(K, SharedValue<V>)>>; 1],
    _hasher: S,
}

impl<K, V, S> DashMap<K, V, S> {
    pub(crate) fn with_hasher_and_shard_amount(hasher: S, _shards: usize) -> Self {
        Self { shards: [RwLock(Mutex::new(RawTable(Vec::new())))], _hasher: hasher }
    }

    pub(crate) fn shards(&self) -> &[RwLock<RawTable<(K, SharedValue<V>)>>] {
        &self.shards
    }

    pub(crate) fn determine_shard(&self, _hash: usize) -> usize {
        0
    }
}

pub(crate) fn for_each<K, V, S>(map: &DashMap<K, V, S>, mut visit: impl FnMut(&K, &V)) {
    let shard = map.shards[0].write();
    let table: &RawTable<_> = &shard;
    for (key, value) in &table.0 {
        visit(key, value.get());
    }
}

pub(crate) fn for_each_mut<K, V, S>(map: &DashMap<K, V, S>, mut visit: impl FnMut(&K, &mut V)) {
    let mut shard = map.shards[0].write();
    let table: &mut RawTable<_> = &mut shard;
    for (key, value) in &mut table.0 {
        visit(key, value.get_mut());
    }
}
