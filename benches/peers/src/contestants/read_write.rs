//! Tables of read/write locks.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::RwLock;
use perkey::{Fairness, KeyedRwLock, Options};

use super::Locks;

/// A key, and what it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) key: u64,
    pub(crate) writes: bool,
}

/// `perkey::KeyedRwLock`, by `read` and `write`.
pub(crate) struct Perkey(KeyedRwLock<u64>);

impl Perkey {
    pub(crate) fn new() -> Self {
        Self(KeyedRwLock::new())
    }

    pub(crate) fn fifo() -> Self {
        Self(KeyedRwLock::with_options(Options::new().fairness(Fairness::Fifo)))
    }
}

impl Locks<Access> for Perkey {
    #[inline]
    fn with(&self, access: &Access, work: impl FnOnce()) {
        if access.writes {
            let guard = self.0.write(&access.key);
            black_box(&guard);
            work();
        } else {
            let guard = self.0.read(&access.key);
            black_box(&guard);
            work();
        }
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `KeyedRwLock::read` only.
pub(crate) struct Read(KeyedRwLock<u64>);

impl Read {
    pub(crate) fn new() -> Self {
        Self(KeyedRwLock::new())
    }
}

impl Locks<u64> for Read {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let guard = self.0.read(key);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `KeyedRwLock::write` only.
pub(crate) struct Write(KeyedRwLock<u64>);

impl Write {
    pub(crate) fn new() -> Self {
        Self(KeyedRwLock::new())
    }
}

impl Locks<u64> for Write {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        let guard = self.0.write(key);
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `KeyedRwLock::read_all`, whatever the key, of a table that has no entries.
pub(crate) struct ReadAll(KeyedRwLock<u64>);

impl ReadAll {
    pub(crate) fn new() -> Self {
        Self(KeyedRwLock::with_options(Options::new().shards(ALL_SHARDS)))
    }
}

/// The cost of a lock over every key grows with the shards, whose number depends on the cores otherwise.
const ALL_SHARDS: usize = 64;

impl Locks<u64> for ReadAll {
    #[inline]
    fn with(&self, _: &u64, work: impl FnOnce()) {
        let guard = self.0.read_all();
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The same of `KeyedRwLock::write_all`.
pub(crate) struct WriteAll(KeyedRwLock<u64>);

impl WriteAll {
    pub(crate) fn new() -> Self {
        Self(KeyedRwLock::with_options(Options::new().shards(ALL_SHARDS)))
    }
}

impl Locks<u64> for WriteAll {
    #[inline]
    fn with(&self, _: &u64, work: impl FnOnce()) {
        let guard = self.0.write_all();
        black_box(&guard);
        work();
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// By hand: a DashMap of counted read/write locks; who leaves last removes the entry.
pub(crate) struct Counted(DashMap<u64, Arc<RwLock<()>>, RandomState>);

impl Counted {
    pub(crate) fn new() -> Self {
        Self(DashMap::with_hasher(RandomState::new()))
    }
}

impl Locks<Access> for Counted {
    #[inline]
    fn with(&self, access: &Access, work: impl FnOnce()) {
        let lock = Some(Arc::clone(&self.0.entry(access.key).or_default()));
        let share = Share { table: self, key: access.key, lock };
        if access.writes {
            let guard = share.lock.as_deref().map(RwLock::write);
            black_box(&guard);
            work();
        } else {
            let guard = share.lock.as_deref().map(RwLock::read);
            black_box(&guard);
            work();
        }
    }

    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// A count of one lock of [`Counted`].
struct Share<'a> {
    table: &'a Counted,
    key: u64,
    lock: Option<Arc<RwLock<()>>>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.table.0.remove_if(&self.key, |_, lock| {
            // Given back under the shard's lock, as in `by_hand::Counted`.
            self.lock = None;
            Arc::strong_count(lock) == 1
        });
    }
}
