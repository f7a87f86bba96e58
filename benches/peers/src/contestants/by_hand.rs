//! What people write themselves.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::RandomState;
use std::hint::black_box;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use dashmap::DashMap;
use parking_lot::Mutex;

use super::{Key, Locks, Lookup};

/// A DashMap of counted mutexes; who leaves last removes the entry.
pub(crate) struct Counted<K>(DashMap<K, Arc<Mutex<()>>, RandomState>);

impl<K: Key> Counted<K> {
    pub(crate) fn new() -> Self {
        Self(DashMap::with_hasher(RandomState::new()))
    }
}

impl Counted<u64> {
    /// [`with`](Locks::with), unless that has to wait longer than this; whether it did.
    pub(crate) fn try_with_until(&self, key: &u64, deadline: Instant, work: impl FnOnce()) -> bool {
        let mutex = Some(Arc::clone(&self.0.entry(*key).or_default()));
        let share = Share { table: self, key, mutex };
        let guard = share.mutex.as_deref().and_then(|mutex| mutex.try_lock_until(deadline));
        black_box(&guard);
        let locked = guard.is_some();
        if locked {
            work();
        }
        locked
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for Counted<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let mutex = Some(Arc::clone(&self.0.entry(key.to_owned()).or_default()));
        let share = Share { table: self, key, mutex };
        let guard = share.mutex.as_deref().map(Mutex::lock);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// A count of one mutex of [`Counted`].
struct Share<'a, K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> {
    table: &'a Counted<K>,
    key: &'a Q,
    mutex: Option<Arc<Mutex<()>>>,
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Drop for Share<'_, K, Q> {
    fn drop(&mut self) {
        self.table.0.remove_if(self.key, |_, mutex| {
            // Given back under the shard's lock: of two that leave together, the later one sees that it is the last.
            // Comparing with 2 and giving back later would let both see 3, and the entry would stay.
            self.mutex = None;
            Arc::strong_count(mutex) == 1
        });
    }
}

/// A DashMap of mutexes from which nothing is ever removed.
pub(crate) struct Leaking<K>(DashMap<K, Arc<Mutex<()>>, RandomState>);

impl<K: Key> Leaking<K> {
    pub(crate) fn new() -> Self {
        Self(DashMap::with_hasher(RandomState::new()))
    }
}

impl<K: Key, Q: ?Sized + Lookup<K>> Locks<Q> for Leaking<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let mutex = Arc::clone(&self.0.entry(key.to_owned()).or_default());
        let guard = mutex.lock();
        black_box(&guard);
        work();
    }
}

/// The textbook's answer: a HashMap of mutexes in a mutex, all of the standard library; who leaves last removes the entry.
pub(crate) struct Textbook<K>(std::sync::Mutex<HashMap<K, Arc<std::sync::Mutex<()>>>>);

impl<K: Key> Textbook<K> {
    pub(crate) fn new() -> Self {
        Self(std::sync::Mutex::new(HashMap::new()))
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for Textbook<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mutex = Some(Arc::clone(map.entry(key.to_owned()).or_default()));
        drop(map);
        let share = TextbookShare { table: self, key, mutex };
        let guard = share.mutex.as_deref().map(|mutex| mutex.lock().unwrap_or_else(PoisonError::into_inner));
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.lock().unwrap().len())
    }
}

/// A count of one mutex of [`Textbook`].
struct TextbookShare<'a, K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> {
    table: &'a Textbook<K>,
    key: &'a Q,
    mutex: Option<Arc<std::sync::Mutex<()>>>,
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Drop for TextbookShare<'_, K, Q> {
    fn drop(&mut self) {
        let mut map = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.mutex = None;
        if map.get(self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            map.remove(self.key);
        }
    }
}
