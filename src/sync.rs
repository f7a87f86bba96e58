//! The one place that names parking_lot, DashMap and the clock.
//!
//! Under `cfg(loom)` the same names are stand-ins that loom can explore, so the models in `tests/loom.rs` run the
//! protocol of the other files as it is. DashMap itself is replaced there: loom proves our protocol, not DashMap.

/// For statics; loom does not know of it.
pub(crate) use parking_lot::Mutex as PlainMutex;

#[cfg(loom)]
mod loom;
#[cfg(loom)]
pub(crate) use self::loom::*;

#[cfg(not(loom))]
pub(crate) use self::real::*;

#[cfg(not(loom))]
mod real {
    use std::hash::{BuildHasher, Hash};
    use std::time::Instant;

    pub(crate) use dashmap::{DashMap, SharedValue};
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::thread::yield_now;
    pub(crate) use std::thread_local;

    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Visits every entry, one shard after the other, under the shard's read lock.
    pub(crate) fn for_each<K: Hash + Eq, V, S: BuildHasher + Clone>(
        map: &DashMap<K, V, S>,
        mut visit: impl FnMut(&K, &V),
    ) {
        for entry in map {
            visit(entry.key(), entry.value());
        }
    }

    /// As [`for_each`], under the shard's write lock.
    pub(crate) fn for_each_mut<K: Hash + Eq, V, S: BuildHasher + Clone>(
        map: &DashMap<K, V, S>,
        mut visit: impl FnMut(&K, &mut V),
    ) {
        for mut entry in map.iter_mut() {
            let (key, value) = entry.pair_mut();
            visit(key, value);
        }
    }
}
