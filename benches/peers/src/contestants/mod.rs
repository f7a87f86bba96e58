//! What is measured, behind one trait.
//!
//! Each contestant is built with its own defaults, except for the hasher: that is the standard library's `RandomState`
//! everywhere.

pub(crate) mod by_hand;
pub(crate) mod counters;
pub(crate) mod floors;
pub(crate) mod holding;
pub(crate) mod pairs;
pub(crate) mod perkey;
pub(crate) mod published;
pub(crate) mod read_write;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;

/// One lock per key, as the shapes use it. Nothing here is virtual: every contestant gets its own copy of every loop.
pub(crate) trait Locks<Q: ?Sized>: Sync {
    /// Runs `work` while `key` is locked.
    ///
    /// An implementation shows its guard to `black_box` by reference, so that everybody's guard is in memory, and
    /// nobody's is moved there. It releases the key on unwinding too, as a user's code would.
    fn with(&self, key: &Q, work: impl FnOnce());

    /// How many keys the table still knows, where it tells.
    #[cfg(test)]
    fn keys_left(&self) -> Option<usize> {
        None
    }

    /// The counter of `key`, where the table keeps one.
    #[cfg(test)]
    fn counter(&self, _key: &Q) -> Option<u64> {
        None
    }
}

/// What the keys of every table can do.
pub(crate) trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Key for K {}

/// A borrowed form of `K`, as in map look-ups.
pub(crate) trait Lookup<K>: Eq + Hash + Sync + ToOwned<Owned = K> + 'static {}

impl<K: Borrow<Q>, Q: ?Sized + Eq + Hash + Sync + ToOwned<Owned = K> + 'static> Lookup<K> for Q {}

/// The contestants' names, as the table and the goals have them.
pub(crate) mod names {
    pub(crate) const PERKEY: &str = "perkey";
    pub(crate) const PERKEY_FIFO: &str = "perkey fifo";
    pub(crate) const PERKEY_KEPT: &str = "perkey idle_ttl";
    pub(crate) const PERKEY_OWNERS: &str = "perkey owners";
    pub(crate) const PERKEY_DETECT: &str = "perkey detect";
    pub(crate) const PERKEY_WITH_KEY: &str = "perkey with_key";
    pub(crate) const PERKEY_SEMAPHORE: &str = "perkey semaphore";
    pub(crate) const PERKEY_LOCK_KEYS: &str = "perkey lock_keys";
    pub(crate) const PERKEY_MUTEX: &str = "perkey mutex";
    pub(crate) const PERKEY_MUTEX_KEPT: &str = "perkey mutex kept";
    pub(crate) const PERKEY_MUTEX_LOCK_KEYS: &str = "mutex lock_keys";

    pub(crate) const PERKEY_READ: &str = "perkey read";
    pub(crate) const PERKEY_WRITE: &str = "perkey write";
    pub(crate) const PERKEY_READ_ALL: &str = "perkey read_all";
    pub(crate) const PERKEY_WRITE_ALL: &str = "perkey write_all";

    pub(crate) const LOCKMAP: &str = "lockmap";
    pub(crate) const LOCKABLE: &str = "lockable";
    pub(crate) const KEYED_LOCK: &str = "keyed-lock";
    pub(crate) const KEY_MUTEX: &str = "key-mutex";

    pub(crate) const COUNTED: &str = "dashmap counted";
    pub(crate) const LEAKING: &str = "dashmap leaking";
    pub(crate) const TEXTBOOK: &str = "textbook";

    pub(crate) const FLOOR_ONE_MAP: &str = "floor: one map";
    pub(crate) const FLOOR_SHARDS: &str = "floor: 64 maps";
    pub(crate) const FLOOR_MUTEX: &str = "floor: one mutex";
    pub(crate) const FLOOR_THREADS: &str = "floor: threads";
    pub(crate) const ONE_CONDVAR: &str = "one condvar";
    pub(crate) const EMPTY_LOOP: &str = "empty loop";

    /// Who is in every shape that compares perkey with others; a `-` in the table where one cannot do it.
    pub(crate) const PEERS: [&str; 7] = [LOCKMAP, LOCKABLE, KEYED_LOCK, KEY_MUTEX, COUNTED, LEAKING, TEXTBOOK];

    /// A line for each name that does not explain itself.
    pub(crate) const LEGEND: [(&str, &str); 24] = [
        (
            PERKEY,
            "KeyedLock with its defaults, a guard; KeyedMutex in the shapes add-*, KeyedRwLock in rw-1-* and rw-1000-*",
        ),
        (PERKEY_FIFO, "the same with Fairness::Fifo"),
        (PERKEY_OWNERS, "KeyedLock with track_owners"),
        (PERKEY_DETECT, "KeyedLock with detect_deadlocks"),
        (PERKEY_WITH_KEY, "KeyedLock, the closure call"),
        (PERKEY_SEMAPHORE, "KeyedSemaphore of four permits, a guard"),
        (PERKEY_LOCK_KEYS, "KeyedLock, two keys in one call"),
        (PERKEY_MUTEX, "KeyedMutex, one key"),
        (PERKEY_MUTEX_KEPT, "KeyedMutex, with a value that stays in the table"),
        (PERKEY_MUTEX_LOCK_KEYS, "KeyedMutex, two keys in one call"),
        (PERKEY_READ, "KeyedRwLock, a key for reading"),
        (PERKEY_WRITE, "KeyedRwLock, a key for writing"),
        (PERKEY_READ_ALL, "KeyedRwLock, every key for reading"),
        (PERKEY_WRITE_ALL, "KeyedRwLock, every key for writing"),
        (LOCKABLE, "blocking_lock of LockPool, or of LockableHashMap in the shapes add-*; its locks are tokio's"),
        (
            COUNTED,
            "DashMap of Arc<parking_lot::Mutex> (or RwLock), an entry removed when its count says that it is the last",
        ),
        (LEAKING, "the same, and nothing is ever removed"),
        (TEXTBOOK, "std's Mutex around a HashMap of Arc<Mutex>, with the same clean-up"),
        (FLOOR_ONE_MAP, "insert, then remove, in one parking_lot::Mutex<HashMap>; locks nothing"),
        (FLOOR_SHARDS, "the same in 64 padded ones; locks nothing"),
        (FLOOR_MUTEX, "one parking_lot::Mutex for all keys"),
        (FLOOR_THREADS, "threads that wait for nothing: they sleep, or are unparked one by one"),
        (ONE_CONDVAR, "threads that wait at one parking_lot::Condvar, which is told once for all"),
        (EMPTY_LOOP, "makes the keys and does nothing with them"),
    ];
}
