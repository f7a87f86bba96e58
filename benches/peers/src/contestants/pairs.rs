//! Keys in pairs: both locked in one call, and one of them locked to compare that with.

use std::hint::black_box;

use perkey::{KeyedLock, KeyedMutex};

use super::Locks;

/// Locks the first of a pair, and ignores the second.
pub(crate) struct First<C>(pub(crate) C);

impl<C: Locks<u64>> Locks<[u64; 2]> for First<C> {
    #[inline]
    fn with(&self, [first, _]: &[u64; 2], work: impl FnOnce()) {
        self.0.with(first, work);
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        self.0.keys_left()
    }
}

/// `KeyedLock::lock_keys`.
pub(crate) struct Both(KeyedLock<u64>);

impl Both {
    pub(crate) fn new() -> Self {
        Self(KeyedLock::new())
    }
}

impl Locks<[u64; 2]> for Both {
    #[inline]
    fn with(&self, pair: &[u64; 2], work: impl FnOnce()) {
        let guard = self.0.lock_keys(pair);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `KeyedMutex::lock_keys`, of keys without values.
pub(crate) struct BothValues(KeyedMutex<u64, u64>);

impl BothValues {
    pub(crate) fn new() -> Self {
        Self(KeyedMutex::new())
    }
}

impl Locks<[u64; 2]> for BothValues {
    #[inline]
    fn with(&self, pair: &[u64; 2], work: impl FnOnce()) {
        let guard = self.0.lock_keys(pair);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
