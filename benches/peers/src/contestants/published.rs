//! The other crates, each called as its documentation shows for threads.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::PoisonError;

use super::{Key, Locks, Lookup};

/// `lockmap::LockMap` without values: an entry is a lock.
pub(crate) struct Lockmap<K>(lockmap::LockMap<K, (), RandomState>);

impl<K: Key> Lockmap<K> {
    pub(crate) fn new() -> Self {
        Self(lockmap::LockMap::with_hasher(RandomState::new()))
    }
}

// Two implementations, because a look-up by reference needs `K: From<&Q>`, which integers do not have.
impl Locks<u64> for Lockmap<u64> {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let entry = self.0.entry(*key);
        black_box(&entry);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

impl Locks<str> for Lockmap<String> {
    #[inline]
    fn with(&self, key: &str, work: impl FnOnce()) {
        let entry = self.0.entry_by_ref(key);
        black_box(&entry);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `lockable::LockPool`, made for async code, by its blocking call. It takes its keys owned.
pub(crate) struct Lockable<K: Key>(lockable::LockPool<K>);

impl<K: Key> Lockable<K> {
    pub(crate) fn new() -> Self {
        Self(lockable::LockPool::new())
    }
}

impl<K: Key, Q: ?Sized + Lookup<K>> Locks<Q> for Lockable<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let guard = self.0.blocking_lock(key.to_owned());
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.num_locked())
    }
}

/// `keyed_lock`'s synchronous lock. It takes its keys owned.
pub(crate) struct Keyed<K: Key>(keyed_lock::sync::KeyedLock<K>);

impl<K: Key> Keyed<K> {
    pub(crate) fn new() -> Self {
        Self(keyed_lock::sync::KeyedLock::new())
    }
}

impl<K: Key, Q: ?Sized + Lookup<K>> Locks<Q> for Keyed<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let guard = self.0.lock(key.to_owned());
        black_box(&guard);
        work();
    }
}

/// `key_mutex::KeyMutex` without values. It takes its keys owned.
pub(crate) struct KeyMutex<K: Key>(key_mutex::KeyMutex<K, ()>);

impl<K: Key> KeyMutex<K> {
    pub(crate) fn new() -> Self {
        Self(key_mutex::KeyMutex::new())
    }
}

impl<K: Key, Q: ?Sized + Lookup<K>> Locks<Q> for KeyMutex<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let guard = self.0.lock(key.to_owned()).unwrap_or_else(PoisonError::into_inner);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
