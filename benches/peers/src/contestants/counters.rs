//! Tables that own a counter under each key. To take a key is to get its counter, or insert one, and to add to it.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::{Arc, PoisonError};

use dashmap::DashMap;
use lockable::SyncLimit;
use parking_lot::Mutex;
use perkey::KeyedMutex;

use super::Locks;

/// `perkey::KeyedMutex`.
pub(crate) struct Perkey(KeyedMutex<u64, u64>);

impl Perkey {
    pub(crate) fn new() -> Self {
        Self(KeyedMutex::new())
    }
}

impl Locks<u64> for Perkey {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let mut guard = self.0.lock(key);
        *guard.get_or_insert(0) += 1;
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }

    #[cfg(test)]
    fn counter(&self, key: &u64) -> Option<u64> {
        self.0.get_cloned(key)
    }
}

/// `lockmap::LockMap`.
pub(crate) struct Lockmap(lockmap::LockMap<u64, u64, RandomState>);

impl Lockmap {
    pub(crate) fn new() -> Self {
        Self(lockmap::LockMap::with_hasher(RandomState::new()))
    }
}

impl Locks<u64> for Lockmap {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let mut entry = self.0.entry(*key);
        *entry.or_insert(0) += 1;
        black_box(&entry);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }

    #[cfg(test)]
    fn counter(&self, key: &u64) -> Option<u64> {
        self.0.get(key)
    }
}

/// `lockable::LockableHashMap`, made for async code, by its blocking call and without a limit.
pub(crate) struct Lockable(lockable::LockableHashMap<u64, u64>);

impl Lockable {
    pub(crate) fn new() -> Self {
        Self(lockable::LockableHashMap::new())
    }
}

impl Locks<u64> for Lockable {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        // Without a limit there is no error.
        let Ok(mut guard) = self.0.blocking_lock(*key, SyncLimit::no_limit());
        *guard.value_or_insert(0) += 1;
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.num_entries_or_locked())
    }

    #[cfg(test)]
    fn counter(&self, key: &u64) -> Option<u64> {
        let Ok(guard) = self.0.blocking_lock(*key, SyncLimit::no_limit());
        guard.value().copied()
    }
}

/// `key_mutex::KeyMutex`, which keeps an entry while its value is not empty, as a `Some` is not.
pub(crate) struct KeyMutex(key_mutex::KeyMutex<u64, Option<u64>>);

impl KeyMutex {
    pub(crate) fn new() -> Self {
        Self(key_mutex::KeyMutex::new())
    }
}

impl Locks<u64> for KeyMutex {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let mut guard = self.0.lock(*key).unwrap_or_else(PoisonError::into_inner);
        *guard.get_or_insert(0) += 1;
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }

    #[cfg(test)]
    fn counter(&self, key: &u64) -> Option<u64> {
        *self.0.lock(*key).unwrap()
    }
}

/// By hand: a DashMap of mutexes.
pub(crate) struct Leaking(DashMap<u64, Arc<Mutex<u64>>, RandomState>);

impl Leaking {
    pub(crate) fn new() -> Self {
        Self(DashMap::with_hasher(RandomState::new()))
    }
}

impl Locks<u64> for Leaking {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let mutex = Arc::clone(&self.0.entry(*key).or_default());
        let mut guard = mutex.lock();
        *guard += 1;
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }

    #[cfg(test)]
    fn counter(&self, key: &u64) -> Option<u64> {
        self.0.get(key).map(|mutex| *mutex.lock())
    }
}
