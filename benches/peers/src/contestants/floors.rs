//! What no per-key lock can be much faster than. Only [`OneMutex`] excludes anybody.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hint::black_box;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::{Key, Locks, Lookup};

/// A key goes into a map when it is taken and out when it is given back: the least a table without leftovers can do.
pub(crate) struct OneMap<K>(LockedMap<K>);

pub(super) type LockedMap<K> = Mutex<HashMap<K, ()>>;

impl<K: Key> OneMap<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Key + Borrow<Q>, Q: ?Sized + Lookup<K>> Locks<Q> for OneMap<K> {
    #[inline]
    fn with(&self, key: &Q, work: impl FnOnce()) {
        self.0.lock().insert(key.to_owned(), ());
        work();
        self.0.lock().remove(key);
    }
}

/// The same with 64 maps.
pub(crate) struct Shards(Box<[CachePadded<LockedMap<u64>>]>);

impl Shards {
    const BITS: u32 = 6;

    pub(crate) fn new() -> Self {
        Self((0..1 << Self::BITS).map(|_| CachePadded::default()).collect())
    }
}

impl Locks<u64> for Shards {
    #[inline]
    fn with(&self, key: &u64, work: impl FnOnce()) {
        // A floor need not resist chosen keys, so one multiplication is hash enough to find the shard.
        let shard = &self.0[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::BITS)) as usize];
        shard.lock().insert(*key, ());
        work();
        shard.lock().remove(key);
    }
}

/// One mutex and no table, for shapes that have one key.
pub(crate) struct OneMutex(Mutex<()>);

impl OneMutex {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(()))
    }
}

impl<Q: ?Sized> Locks<Q> for OneMutex {
    #[inline]
    fn with(&self, _: &Q, work: impl FnOnce()) {
        let guard = self.0.lock();
        black_box(&guard);
        work();
    }
}

/// Nothing at all: the cost of the loop and of making the keys.
pub(crate) struct EmptyLoop;

impl<Q: ?Sized> Locks<Q> for EmptyLoop {
    #[inline]
    fn with(&self, _: &Q, work: impl FnOnce()) {
        work();
    }
}
