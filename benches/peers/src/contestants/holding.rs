//! Tables with many keys that are held at once, by guards that are kept.

use std::hash::RandomState;
use std::sync::{Arc, PoisonError};

use dashmap::DashMap;
use lockable::Lockable;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use perkey::{KeyedLock, KeyedMutex, KeyedSemaphore, Options};

use super::floors::LockedMap;

/// A table, as it is used to hold keys for long.
pub(crate) trait Holding {
    /// What keeps a key.
    type Hold<'a>
    where
        Self: 'a;

    fn hold(&self, key: u64) -> Self::Hold<'_>;

    /// The key goes.
    fn give_back(&self, hold: Self::Hold<'_>) {
        drop(hold);
    }

    /// Gives memory back, where there is a call for it.
    fn shrink(&self) -> bool {
        false
    }

    /// How many keys the table still knows, where it tells.
    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        None
    }
}

impl Holding for KeyedLock<u64> {
    type Hold<'a> = perkey::KeyedLockGuard<'a, u64>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.lock(&key)
    }

    fn shrink(&self) -> bool {
        self.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Keeps account of who holds what.
pub(crate) fn owners() -> KeyedLock<u64> {
    KeyedLock::with_options(Options::new().track_owners(true))
}

impl Holding for KeyedSemaphore<u64, 4> {
    type Hold<'a> = perkey::KeyedPermit<'a, u64, 4>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.acquire(&key)
    }

    fn shrink(&self) -> bool {
        self.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Holds keys for reading.
impl Holding for perkey::KeyedRwLock<u64> {
    type Hold<'a> = perkey::KeyedRwLockReadGuard<'a, u64>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.read(&key)
    }

    fn shrink(&self) -> bool {
        self.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Holds keys that have values, which go when the keys are given back.
impl Holding for KeyedMutex<u64, u64> {
    type Hold<'a> = perkey::KeyedMutexGuard<'a, u64, u64>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        let mut guard = self.lock(&key);
        *guard = Some(key);
        guard
    }

    fn give_back(&self, mut hold: Self::Hold<'_>) {
        hold.take();
    }

    fn shrink(&self) -> bool {
        self.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// The same table, with values that stay while nobody holds them: a key is all there is to keep.
#[derive(Default)]
pub(crate) struct Kept(KeyedMutex<u64, u64>);

impl Holding for Kept {
    type Hold<'a> = u64;

    fn hold(&self, key: u64) -> u64 {
        self.0.insert(&key, key);
        key
    }

    fn give_back(&self, key: u64) {
        self.0.remove(&key);
    }

    fn shrink(&self) -> bool {
        self.0.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

pub(crate) type Lockmap = lockmap::LockMap<u64, (), RandomState>;

impl Holding for Lockmap {
    type Hold<'a> = lockmap::Entry<'a, u64, (), RandomState>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.entry(key)
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl Holding for lockable::LockPool<u64> {
    type Hold<'a> = <Self as Lockable<u64, ()>>::Guard<'a>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.blocking_lock(key)
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.num_locked())
    }
}

impl Holding for keyed_lock::sync::KeyedLock<u64> {
    type Hold<'a> = keyed_lock::sync::Guard<'a, u64>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.lock(key)
    }
}

impl Holding for key_mutex::KeyMutex<u64, ()> {
    type Hold<'a> = key_mutex::OwnedMutexGuard<u64, ()>;

    #[inline]
    fn hold(&self, key: u64) -> Self::Hold<'_> {
        self.lock(key).unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// By hand, as `by_hand::Counted`, with guards that can be kept.
#[derive(Default)]
pub(crate) struct Counted(DashMap<u64, Arc<Mutex<()>>>);

/// A mutex of [`Counted`], held.
pub(crate) struct CountedHold<'a> {
    table: &'a Counted,
    key: u64,
    guard: Option<ArcMutexGuard<RawMutex, ()>>,
}

impl Holding for Counted {
    type Hold<'a> = CountedHold<'a>;

    #[inline]
    fn hold(&self, key: u64) -> CountedHold<'_> {
        let mutex = Arc::clone(&self.0.entry(key).or_default());
        CountedHold { table: self, key, guard: Some(Mutex::lock_arc(&mutex)) }
    }

    fn shrink(&self) -> bool {
        self.0.shrink_to_fit();
        true
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

impl Drop for CountedHold<'_> {
    fn drop(&mut self) {
        self.table.0.remove_if(&self.key, |_, mutex| {
            // Given back under the shard's lock, as in `by_hand::Counted`.
            self.guard = None;
            Arc::strong_count(mutex) == 1
        });
    }
}

/// `floors::OneMap`: a key goes into a map and out again, and nothing is locked meanwhile.
#[derive(Default)]
pub(crate) struct OneMap(LockedMap<u64>);

pub(crate) struct OneMapHold<'a> {
    table: &'a OneMap,
    key: u64,
}

impl Holding for OneMap {
    type Hold<'a> = OneMapHold<'a>;

    #[inline]
    fn hold(&self, key: u64) -> OneMapHold<'_> {
        self.0.lock().insert(key, ());
        OneMapHold { table: self, key }
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.lock().len())
    }
}

impl Drop for OneMapHold<'_> {
    fn drop(&mut self) {
        self.table.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds_and_forgets<H: Holding>(table: &H) {
        let holds: Vec<_> = (0..100).map(|key| table.hold(key)).collect();
        assert!(matches!(table.keys_left(), None | Some(100)), "held: {:?}", table.keys_left());
        holds.into_iter().for_each(|hold| table.give_back(hold));
        assert!(matches!(table.keys_left(), None | Some(0)), "left behind: {:?}", table.keys_left());
        table.shrink();
    }

    #[test]
    fn every_table_holds_many_keys_and_forgets_them() {
        holds_and_forgets(&KeyedLock::new());
        holds_and_forgets(&owners());
        holds_and_forgets(&KeyedSemaphore::<u64, 4>::new());
        holds_and_forgets(&perkey::KeyedRwLock::new());
        holds_and_forgets(&KeyedMutex::<u64, u64>::new());
        holds_and_forgets(&Kept::default());
        holds_and_forgets(&Lockmap::with_hasher(RandomState::new()));
        holds_and_forgets(&lockable::LockPool::new());
        holds_and_forgets(&keyed_lock::sync::KeyedLock::new());
        holds_and_forgets(&key_mutex::KeyMutex::new());
        holds_and_forgets(&Counted::default());
        holds_and_forgets(&OneMap::default());
    }
}
