//! perkey's own calls.

use std::borrow::Borrow;
use std::hint::black_box;
use std::time::Duration;

use perkey::{Fairness, KeyedLock, KeyedMutex, KeyedSemaphore, Options, Wait};

use super::{Key, Locks, Lookup};

/// `lock`, and its guard dropped.
pub(crate) struct Guard<K>(KeyedLock<K>);

impl<K> Guard<K> {
    pub(crate) fn new() -> Self {
        Self(KeyedLock::new())
    }

    pub(crate) fn fifo() -> Self {
        Self(KeyedLock::with_options(Options::new().fairness(Fairness::Fifo)))
    }

    /// Keeps account of who holds what.
    pub(crate) fn owners() -> Self {
        Self(KeyedLock::with_options(Options::new().track_owners(true)))
    }

    /// Looks for deadlocks before it waits.
    pub(crate) fn detects() -> Self {
        Self(KeyedLock::with_options(Options::new().detect_deadlocks(true)))
    }

    /// Keeps the entries of idle keys.
    pub(crate) fn kept() -> Self {
        Self(KeyedLock::with_options(Options::new().idle_ttl(Duration::from_secs(60))))
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for Guard<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let guard = self.0.lock(key);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `with_key`.
pub(crate) struct Closure<K>(KeyedLock<K>);

impl<K> Closure<K> {
    pub(crate) fn new() -> Self {
        Self(KeyedLock::new())
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for Closure<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        self.0.with_key(key, work);
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `lock` of a table that could have values, and its guard dropped without one.
pub(crate) struct Value<K>(KeyedMutex<K, u64>);

impl<K> Value<K> {
    pub(crate) fn new() -> Self {
        Self(KeyedMutex::new())
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for Value<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let guard = self.0.lock(key);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `acquire`, and its permit dropped.
pub(crate) struct Permit<K, const N: usize>(KeyedSemaphore<K, N>);

impl<K, const N: usize> Permit<K, N> {
    pub(crate) fn new() -> Self {
        Self(KeyedSemaphore::new())
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>, const N: usize> Locks<Q> for Permit<K, N> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let permit = self.0.acquire(key);
        black_box(&permit);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `acquire_many` of a semaphore that has room for four such requests, and its permits dropped.
pub(crate) struct Weighted {
    semaphore: KeyedSemaphore<u64>,
    weight: usize,
}

impl Weighted {
    pub(crate) fn new(weight: u64, fifo: bool) -> Self {
        let weight = usize::try_from(weight).expect("a weight");
        let fairness = if fifo { Fairness::Fifo } else { Fairness::default() };
        let semaphore = KeyedSemaphore::with_limit_and_options(4 * weight, Options::new().fairness(fairness));
        Self { semaphore, weight }
    }
}

impl Locks<u64> for Weighted {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let permits = self.semaphore.acquire_many(key, self.weight, Wait::forever()).expect("there is room for it");
        black_box(&permits);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.semaphore.len())
    }
}
