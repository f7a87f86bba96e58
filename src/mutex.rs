//! `KeyedMutex`: a lock that owns a value per key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::panic::Location;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::content::Value;
use crate::error::AcquireError;
use crate::keys::{self, HeldKeys};
use crate::limit::Source;
use crate::options::Options;
use crate::owners::thread_number;
use crate::stats::Stats;
use crate::status::KeyStatus;
use crate::table::{Ask, HasTable, Held, Kind, Table};
use crate::unwind::holding;
use crate::wait::Wait;

/// A lock per key that owns a value per key: a map whose values are reached by locking their keys, one by one.
///
/// A guard dereferences to `Option<V>`, so the whole API of [`Option`] is the entry API: `None` is a key without a value,
/// [`get_or_insert_with`](Option::get_or_insert_with) adds one, [`take`](Option::take) removes it. An entry exists while its
/// key is held, waited for, or has a value (or is [kept](Options::idle_ttl)). With [`Options::idle_ttl`] values that nobody
/// has used for so long go with their entries, in a [`sweep`](Self::sweep); without it they stay until they are removed.
///
/// The value moves into the guard while its key is held, and back when the guard is dropped: box what is large. It needs to
/// be `Send` for the table to be shared, and never `Sync`: a `KeyedMutex<u32, Cell<u32>>` is fine.
///
/// Keys are borrowed as in map look-ups: a `KeyedMutex<String, V>` is called with `&str`. What [`KeyedLock`] says of
/// contention, of re-entry, of memory ordering and of the key's own code holds here too, but for
/// [`reentrant`](Options::reentrant) tables. A value's code (its `Drop`, its `Clone` in [`get_cloned`](Self::get_cloned),
/// closures that get it) runs outside the table's locks and may call the table, except for a key that its thread
/// holds at that moment.
///
/// # Panics and poisoning
///
/// A panic while a guard lives releases the key, with the value as it was left at that moment. There is no poisoning.
///
/// # Examples
///
/// ```
/// use perkey::KeyedMutex;
///
/// let balances = KeyedMutex::<String, i64>::new();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let mut balance = balances.lock("account-42");
///             *balance.get_or_insert(0) += 10;
///         });
///     }
/// });
/// assert_eq!(balances.get_cloned("account-42"), Some(40));
/// ```
///
/// [`KeyedLock`]: crate::KeyedLock
pub struct KeyedMutex<K, V, S = RandomState> {
    table: Table<K, S, Value<V>>,
}

impl<K, V> KeyedMutex<K, V> {
    /// A table without values, with the default [`Options`].
    ///
    /// # Examples
    ///
    /// ```
    /// let sessions = perkey::KeyedMutex::<String, u32>::new();
    /// assert!(sessions.is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::new())
    }
}

impl<K, V, S> KeyedMutex<K, V, S> {
    /// A table without values, with `options`.
    ///
    /// # Panics
    ///
    /// If `options` are [reentrant](Options::reentrant): two guards of one key would both own its value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{KeyedMutex, Options};
    ///
    /// let options = Options::new().name("sessions").idle_ttl(Duration::from_secs(600));
    /// let sessions = KeyedMutex::<String, u32>::with_options(options);
    /// ```
    #[must_use]
    pub fn with_options(options: Options<S>) -> Self {
        assert!(!options.reentrant, "a KeyedMutex cannot be reentrant: two guards of one key would both own its value");
        Self { table: Table::new("KeyedMutex", Source::Same(1), options) }
    }

    /// How many keys have a value, are held, are waited for, or are kept by [`Options::idle_ttl`]. Exact when nothing else
    /// runs; visits the shards one after the other.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, &str>::new();
    /// values.insert(&1, "one");
    /// let two = values.lock(&2);
    /// assert_eq!(values.len(), 2);
    /// drop(two); // it got no value
    /// assert_eq!(values.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key has a value, is held, waited for, or kept.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, &str>::new();
    /// assert!(values.is_empty());
    /// values.insert(&1, "one");
    /// assert!(!values.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Every key that [`len`](Self::len) counts, and who waits for it. In no particular order; the waiters of one key are in
    /// order of arrival. Each key is as it was at one moment; two keys need not be of the same moment.
    ///
    /// Keys are cloned under the lock of their shard: meant for logs and debugging, not for a hot path.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<String, u32>::new();
    /// let _guard = values.lock("a");
    /// for status in values.snapshot() {
    ///     println!("{}: held by {}, {} waiting", status.key, status.held, status.waiters.len());
    /// }
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Vec<KeyStatus<K>>
    where
        K: Clone,
    {
        self.table.snapshot()
    }

    /// What has happened so far: how many requests had to wait, for how long at most, and how waits failed. Counted where
    /// requests wait, so a key that is free costs nothing for it.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<String, u32>::new();
    /// println!("{:?}", values.stats());
    /// assert_eq!(values.stats().contended, 0);
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// The keys that [`len`](Self::len) counts, in no particular order; waits for nobody.
    ///
    /// Keys are cloned under the lock of their shard. A key that somebody holds is among them whether it has a value or
    /// not: only its holder knows.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, &str>::new();
    /// values.insert(&1, "one");
    /// values.insert(&2, "two");
    /// let mut keys = values.keys();
    /// keys.sort();
    /// assert_eq!(keys, [1, 2]);
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.table.keys()
    }

    /// Shows every value to `keep`, one after the other, and drops those it answers `false` for. Skips the keys that
    /// somebody holds or waits for, and returns how many it skipped: 0 means that it saw all.
    ///
    /// A key is held while `keep` looks at its value. Waits for nobody; keys that come meanwhile may be missed. For
    /// [`Options::idle_ttl`] a visit is no use, so it does not make a value stay longer (but a sweep skips the key that
    /// `keep` looks at just then). Keys are cloned under the lock of their shard.
    ///
    /// # Panics
    ///
    /// With the first panic of `keep`, of a key's `Clone` or `Drop`, or of a value's `Drop`. The values not seen by then stay,
    /// and so does the one that `keep` panics at.
    ///
    /// # Examples
    ///
    /// ```
    /// let stock = perkey::KeyedMutex::<String, u32>::new();
    /// stock.insert("apples", 3);
    /// stock.insert("pears", 0);
    /// let skipped = stock.retain(|_, count| *count > 0);
    /// assert_eq!((skipped, stock.keys()), (0, vec!["apples".to_owned()]));
    /// ```
    #[track_caller]
    pub fn retain(&self, keep: impl FnMut(&K, &mut V) -> bool) -> usize
    where
        K: Clone,
    {
        self.table.retain(Location::caller(), keep)
    }

    /// Removes the entries that have been idle for [`Options::idle_ttl`], and drops their values; returns how many went, and
    /// gives memory back where little is left. An entry whose key is held or waited for stays. Without `idle_ttl` there is
    /// nothing to do.
    ///
    /// [`Sweeper`](crate::Sweeper) calls it in the background.
    ///
    /// # Panics
    ///
    /// With the first panic of a key's or a value's `Drop`, after all that go have been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{KeyedMutex, Options};
    ///
    /// let values = KeyedMutex::<String, u32>::with_options(Options::new().idle_ttl(Duration::ZERO));
    /// values.insert("a", 1);
    /// assert_eq!(values.sweep(), 1);
    /// assert!(values.is_empty());
    /// ```
    pub fn sweep(&self) -> usize {
        self.table.sweep()
    }

    /// Gives memory back: shrinks every shard to what it holds. Each shard is locked while that is done.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// // ... a spike of a million keys ...
    /// values.shrink_to_fit();
    /// # values.insert(&1, 1);
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.shrink_to_fit();
    }
}

impl<K, V, S: BuildHasher> KeyedMutex<K, V, S> {
    #[inline]
    #[track_caller]
    fn ask(kind: Kind) -> Ask {
        Ask { weight: 1, kind, location: Location::caller() }
    }

    /// Locks `key`, waiting until it is free.
    ///
    /// # Panics
    ///
    /// If this thread already holds `key` by a [`KeyedMutexGuard`] or a [`KeyedMutexKeysGuard`]: the wait could never end.
    ///
    /// # Examples
    ///
    /// ```
    /// let visits = perkey::KeyedMutex::<String, u32>::new();
    /// *visits.lock("a.example").get_or_insert(0) += 1;
    /// assert_eq!(*visits.lock("a.example"), Some(1));
    /// assert_eq!(*visits.lock("b.example"), None);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock<Q>(&self, key: &Q) -> KeyedMutexGuard<'_, K, V, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::ask(Kind::Owned)) {
            Ok(hold) => KeyedMutexGuard::new(Held::new(self, hold)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks `key` if that needs no waiting. `None` also if this thread holds it.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// let guard = values.try_lock(&1).expect("nobody holds it");
    /// assert!(values.try_lock(&1).is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock<Q>(&self, key: &Q) -> Option<KeyedMutexGuard<'_, K, V, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::ask(Kind::Owned))?;
        Some(KeyedMutexGuard::new(Held::new(self, hold)))
    }

    /// Locks `key`, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds `key`.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let values = perkey::KeyedMutex::<u32, String>::new();
    /// match values.try_lock_for(&42, Duration::from_millis(50)) {
    ///     Some(mut value) => *value = Some("ours".to_owned()),
    ///     None => println!("still taken after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock_for<Q>(&self, key: &Q, duration: Duration) -> Option<KeyedMutexGuard<'_, K, V, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.lock_with(key, duration).ok()
    }

    /// Locks `key`, waiting as `wait` allows, and says why if it does not come to that.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread holds `key`,
    /// [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull), [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedMutex;
    ///
    /// let values = KeyedMutex::<u32, u32>::new();
    /// let mut value = values.lock_with(&42, Duration::from_secs(1))?;
    /// assert_eq!(value.replace(1), None);
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn lock_with<Q>(&self, key: &Q, wait: impl Into<Wait>) -> Result<KeyedMutexGuard<'_, K, V, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::ask(Kind::Owned), &wait.into())?;
        Ok(KeyedMutexGuard::new(Held::new(self, hold)))
    }

    /// As [`lock`](Self::lock), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// The guard has no owner: asking on this thread for a key that it holds by such a guard waits. Prefer
    /// [`lock_arc_with`](Self::lock_arc_with) and a time limit where that could happen.
    ///
    /// # Panics
    ///
    /// If this thread already holds `key` by a [`KeyedMutexGuard`] or a [`KeyedMutexKeysGuard`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedMutex;
    ///
    /// let values = Arc::new(KeyedMutex::<String, u32>::new());
    /// let mut value = values.lock_arc("a");
    /// let worker = std::thread::spawn(move || *value = Some(1));
    /// worker.join().unwrap();
    /// assert_eq!(values.get_cloned("a"), Some(1));
    /// ```
    #[track_caller]
    pub fn lock_arc<Q>(self: &Arc<Self>, key: &Q) -> ArcKeyedMutexGuard<K, V, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::ask(Kind::Movable)) {
            Ok(hold) => ArcKeyedMutexGuard { held: Held::new(Arc::clone(self), hold) },
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`try_lock`](Self::try_lock), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedMutex;
    ///
    /// let values = Arc::new(KeyedMutex::<u32, u32>::new());
    /// if let Some(mut value) = values.try_lock_arc(&42) {
    ///     std::thread::spawn(move || *value = Some(1)).join().unwrap();
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<ArcKeyedMutexGuard<K, V, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::ask(Kind::Movable))?;
        Some(ArcKeyedMutexGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// As [`lock_with`](Self::lock_with), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with); [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread holds `key`
    /// by a [`KeyedMutexGuard`] or a [`KeyedMutexKeysGuard`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedMutex};
    ///
    /// let values = Arc::new(KeyedMutex::<u32, u32>::new());
    /// let guard = values.lock_arc(&42);
    /// // An `Arc` guard has no owner, so this waits for its whole time.
    /// let error = values.lock_arc_with(&42, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, AcquireError::Timeout);
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn lock_arc_with<Q>(
        self: &Arc<Self>,
        key: &Q,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedMutexGuard<K, V, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::ask(Kind::Movable), &wait.into())?;
        Ok(ArcKeyedMutexGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// Runs `work` on the value of `key` while it is locked, waiting for it as [`lock`](Self::lock) does. A panic in `work`
    /// releases the key.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock), and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// let visits = perkey::KeyedMutex::<String, u32>::new();
    /// let count = visits.with_key("a.example", |count| {
    ///     let count = count.get_or_insert(0);
    ///     *count += 1;
    ///     *count
    /// });
    /// assert_eq!(count, 1);
    /// ```
    #[inline]
    #[track_caller]
    pub fn with_key<Q, R>(&self, key: &Q, work: impl FnOnce(&mut Option<V>) -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.lock(key), |value| work(value))
    }

    /// Runs `work` on the value of `key` if it can be locked without waiting; `None` if not.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// assert_eq!(values.try_with_key(&1, |value| value.replace(7)), Some(None));
    /// assert_eq!(values.try_with_key(&1, |value| *value), Some(Some(7)));
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the key was taken, `work` did not run"]
    pub fn try_with_key<Q, R>(&self, key: &Q, work: impl FnOnce(&mut Option<V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        Some(holding(self.try_lock(key)?, |value| work(value)))
    }

    /// Runs `work` on the value of `key` while it is locked, waiting for it as `wait` allows. The time limit is for the wait,
    /// not for `work`.
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with); `work` did not run then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// values.with_key_within(&42, Duration::from_secs(1), |value| *value = Some(1))?;
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn with_key_within<Q, R>(
        &self,
        key: &Q,
        wait: impl Into<Wait>,
        work: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        Ok(holding(self.lock_with(key, wait)?, |value| work(value)))
    }

    /// Locks every one of `keys`, waiting until all are held; the guard gives access to the value of each.
    ///
    /// They are taken in their order ([`Ord`], which has to agree with `Eq`) and each once, as
    /// [`KeyedLock::lock_keys`](crate::KeyedLock::lock_keys) does, and released in reverse order.
    ///
    /// # Panics
    ///
    /// If this thread already holds one of `keys` by a [`KeyedMutexGuard`] or a [`KeyedMutexKeysGuard`]. Nothing is waited for
    /// then; free keys before it may be taken for a moment, and are given back. If the iterator panics, or a key's code does,
    /// what was taken is given back too.
    ///
    /// # Examples
    ///
    /// A transfer between two accounts:
    ///
    /// ```
    /// let balances = perkey::KeyedMutex::<String, i64>::new();
    /// balances.insert("alice", 100);
    ///
    /// let mut both = balances.lock_keys(["alice", "bob"]);
    /// *both["alice"].get_or_insert(0) -= 30;
    /// *both["bob"].get_or_insert(0) += 30;
    /// drop(both);
    ///
    /// assert_eq!(balances.get_cloned("alice"), Some(70));
    /// assert_eq!(balances.get_cloned("bob"), Some(30));
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock_keys<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> KeyedMutexKeysGuard<'_, K, V, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        if let Err(error) = held.take(keys, Self::ask(Kind::OneOfSeveral)) {
            // Now, because what this gives back may panic too.
            drop(held);
            panic!("{error}");
        }
        KeyedMutexKeysGuard::new(held)
    }

    /// As [`lock_keys`](Self::lock_keys), waiting as `wait` allows: one time limit for all keys together.
    /// [`Wait::max_queued`] counts for each key.
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with). What was taken by then is given back. If this thread holds one of the
    /// keys it is [`WouldDeadlock`](AcquireError::WouldDeadlock), before anything is waited for.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedMutex, Wait};
    ///
    /// let balances = KeyedMutex::<u64, i64>::new();
    /// balances.insert(&42, 100);
    /// let mut both = balances.lock_keys_with([&42, &7], Wait::now())?;
    /// let [from, to] = both.get_disjoint_mut([&42, &7]).map(Option::unwrap);
    /// std::mem::swap(from, to);
    /// # Ok::<(), AcquireError>(())
    /// ```
    #[track_caller]
    pub fn lock_keys_with<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        wait: impl Into<Wait>,
    ) -> Result<KeyedMutexKeysGuard<'_, K, V, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        held.take_with(keys, Self::ask(Kind::OneOfSeveral), &wait.into())?;
        Ok(KeyedMutexKeysGuard::new(held))
    }

    /// A clone of the value of `key`, if it has one. Waits for a key that is held.
    ///
    /// The value is cloned while `key` is held, outside the table's own locks.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, String>::new();
    /// assert_eq!(values.get_cloned(&1), None);
    /// values.insert(&1, "one".to_owned());
    /// assert_eq!(values.get_cloned(&1).as_deref(), Some("one"));
    /// ```
    #[track_caller]
    #[must_use]
    pub fn get_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
        V: Clone,
    {
        holding(self.lock_present(key)?, |value| (**value).clone())
    }

    /// Gives `key` a value, and returns the one it had. Waits for a key that is held.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, &str>::new();
    /// assert_eq!(values.insert(&1, "one"), None);
    /// assert_eq!(values.insert(&1, "uno"), Some("one"));
    /// ```
    #[track_caller]
    pub fn insert<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.lock(key), |slot| slot.replace(value))
    }

    /// Takes the value of `key` away, and returns it. Waits for a key that is held.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, &str>::new();
    /// values.insert(&1, "one");
    /// assert_eq!(values.remove(&1), Some("one"));
    /// assert_eq!(values.remove(&1), None);
    /// assert!(values.is_empty());
    /// ```
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.lock_present(key)?, |value| value.take())
    }

    /// Locks `key` if it has an entry: one that has none has no value, and is not worth making one.
    #[track_caller]
    fn lock_present<Q>(&self, key: &Q) -> Option<KeyedMutexGuard<'_, K, V, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.table.id_of(key)?;
        Some(self.lock(key))
    }

    /// Whether anybody holds `key`. Another thread may change that before you look at the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// values.insert(&1, 1);
    /// assert!(!values.is_locked(&1));
    /// let _guard = values.lock(&1);
    /// assert!(values.is_locked(&1));
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.query(key, |slot| slot.taken() > 0).unwrap_or(false)
    }

    /// Whether this thread holds `key`. A hold by an [`ArcKeyedMutexGuard`] has no owner and does not count.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// let _guard = values.lock(&1);
    /// assert!(values.is_locked_by_current_thread(&1));
    /// assert!(!values.is_locked_by_current_thread(&2));
    /// ```
    #[must_use]
    pub fn is_locked_by_current_thread<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.query(key, |slot| slot.is_owned_by(thread_number())).unwrap_or(false)
    }

    /// How many requests wait for `key`.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// assert_eq!(values.waiters(&42), 0);
    /// ```
    #[must_use]
    pub fn waiters<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.query(key, |slot| slot.waiters()).unwrap_or(0)
    }
}

impl<K, V, S: Default> Default for KeyedMutex<K, V, S> {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl<K, V, S> fmt::Debug for KeyedMutex<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.debug(f)
    }
}

impl<K, V, S> HasTable for KeyedMutex<K, V, S> {
    type Key = K;
    type Hasher = S;
    type Content = Value<V>;

    #[inline]
    fn table(&self) -> &Table<K, S, Value<V>> {
        &self.table
    }
}

/// A key of a [`KeyedMutex`], held until this is dropped, and its value: it dereferences to `Option<V>`.
///
/// It stays on its thread (it is not `Send`), which is what lets re-entry be found. For one that may move, see
/// [`KeyedMutex::lock_arc`]. Forgetting it ([`std::mem::forget`]) keeps the key locked for ever, loses the value, and
/// breaks nothing else.
///
/// # Examples
///
/// ```
/// use perkey::{KeyedMutex, KeyedMutexGuard};
///
/// struct Job<'a, K, V> {
///     account: KeyedMutexGuard<'a, K, V>,
/// }
///
/// let values = KeyedMutex::<u32, Vec<u8>>::new();
/// let mut guard = values.lock(&1);
/// guard.get_or_insert_default().push(7);
/// assert_eq!(guard.as_deref(), Some(&[7][..]));
/// ```
///
/// It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let values = perkey::KeyedMutex::<u32, u32>::new();
/// let guard = values.lock(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct KeyedMutexGuard<'a, K, V, S = RandomState> {
    held: Held<&'a KeyedMutex<K, V, S>, Value<V>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, V, S> KeyedMutexGuard<'a, K, V, S> {
    #[inline]
    fn new(held: Held<&'a KeyedMutex<K, V, S>, Value<V>>) -> Self {
        Self { held, not_send: PhantomData }
    }

    /// Releases the key to the first thread that waits for it, whatever the [`Fairness`](crate::Fairness).
    ///
    /// An associated function, to be called as `KeyedMutexGuard::unlock_fair(guard)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedMutex, KeyedMutexGuard};
    ///
    /// let values = KeyedMutex::<u32, u32>::new();
    /// let guard = values.lock(&42);
    /// KeyedMutexGuard::unlock_fair(guard);
    /// assert!(!values.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, V, S> Deref for KeyedMutexGuard<'_, K, V, S> {
    type Target = Option<V>;

    #[inline]
    fn deref(&self) -> &Option<V> {
        self.held.in_hand()
    }
}

impl<K, V, S> DerefMut for KeyedMutexGuard<'_, K, V, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<V> {
        self.held.in_hand_mut()
    }
}

impl<K, V: fmt::Debug, S> fmt::Debug for KeyedMutexGuard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A key of a [`KeyedMutex`], held until this is dropped, on whatever thread that is, and its value. It keeps the table alive.
///
/// See [`KeyedMutex::lock_arc`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use perkey::{ArcKeyedMutexGuard, KeyedMutex};
///
/// struct Job {
///     account: ArcKeyedMutexGuard<u64, i64>,
/// }
///
/// let balances = Arc::new(KeyedMutex::<u64, i64>::new());
/// let mut job = Job { account: balances.lock_arc(&42) };
/// std::thread::spawn(move || *job.account = Some(100)).join().unwrap();
/// assert_eq!(balances.get_cloned(&42), Some(100));
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct ArcKeyedMutexGuard<K, V, S = RandomState> {
    held: Held<Arc<KeyedMutex<K, V, S>>, Value<V>>,
}

impl<K, V, S> ArcKeyedMutexGuard<K, V, S> {
    /// Releases the key to the first thread that waits for it, whatever the [`Fairness`](crate::Fairness).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedMutexGuard, KeyedMutex};
    ///
    /// let values = Arc::new(KeyedMutex::<u32, u32>::new());
    /// let guard = values.lock_arc(&42);
    /// ArcKeyedMutexGuard::unlock_fair(guard);
    /// assert!(!values.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, V, S> Deref for ArcKeyedMutexGuard<K, V, S> {
    type Target = Option<V>;

    #[inline]
    fn deref(&self) -> &Option<V> {
        self.held.in_hand()
    }
}

impl<K, V, S> DerefMut for ArcKeyedMutexGuard<K, V, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<V> {
        self.held.in_hand_mut()
    }
}

impl<K, V: fmt::Debug, S> fmt::Debug for ArcKeyedMutexGuard<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Several keys of a [`KeyedMutex`], held until this is dropped, and the value of each.
///
/// See [`KeyedMutex::lock_keys`]. It stays on its thread (it is not `Send`). A value is found by asking the table for its
/// key, so each access hashes the key and takes the lock of its shard for a moment.
///
/// # Examples
///
/// ```
/// let balances = perkey::KeyedMutex::<u64, i64>::new();
/// let mut both = balances.lock_keys([&42, &7]);
/// both[&42] = Some(100);
/// both[&7] = both[&42].map(|balance| balance / 2);
/// assert_eq!(both[&7], Some(50));
/// assert!(both.get(&1).is_none(), "not one of the keys");
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedMutexKeysGuard<'a, K, V, S = RandomState> {
    held: HeldKeys<&'a KeyedMutex<K, V, S>, Value<V>>,
    index: keys::Index,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, V, S> KeyedMutexKeysGuard<'a, K, V, S> {
    #[inline]
    fn new(held: HeldKeys<&'a KeyedMutex<K, V, S>, Value<V>>) -> Self {
        let index = held.index();
        Self { held, index, not_send: PhantomData }
    }
}

impl<K, V, S: BuildHasher> KeyedMutexKeysGuard<'_, K, V, S> {
    /// The value of `key`, or its absence; `None` if `key` is not one of those that this guard holds.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// values.insert(&1, 10);
    /// let both = values.lock_keys([&1, &2]);
    /// assert_eq!(both.get(&1), Some(&Some(10)));
    /// assert_eq!(both.get(&2), Some(&None));
    /// assert_eq!(both.get(&3), None);
    /// ```
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&Option<V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.held.in_hand(&self.index, key)
    }

    /// As [`get`](Self::get), to be changed.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// let mut both = values.lock_keys([&1, &2]);
    /// if let Some(value) = both.get_mut(&1) {
    ///     *value = Some(10);
    /// }
    /// ```
    #[must_use]
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut Option<V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.held.in_hand_mut(&self.index, key)
    }

    /// As [`get_mut`](Self::get_mut), for several keys at once.
    ///
    /// # Panics
    ///
    /// If two of `keys` are the same, and that is one of those held.
    ///
    /// # Examples
    ///
    /// ```
    /// let values = perkey::KeyedMutex::<u32, u32>::new();
    /// let mut both = values.lock_keys([&1, &2]);
    /// if let [Some(one), Some(two)] = both.get_disjoint_mut([&1, &2]) {
    ///     std::mem::swap(one, two);
    /// }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn get_disjoint_mut<Q, const N: usize>(&mut self, keys: [&Q; N]) -> [Option<&mut Option<V>>; N]
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.held.in_hands_mut(&self.index, keys)
    }
}

impl<K, V, S, Q> Index<&Q> for KeyedMutexKeysGuard<'_, K, V, S>
where
    K: Borrow<Q>,
    S: BuildHasher,
    Q: ?Sized + Hash + Eq,
{
    type Output = Option<V>;

    /// # Panics
    ///
    /// If `key` is not one of those that the guard holds.
    #[track_caller]
    fn index(&self, key: &Q) -> &Option<V> {
        self.get(key).expect(NOT_HELD)
    }
}

impl<K, V, S, Q> IndexMut<&Q> for KeyedMutexKeysGuard<'_, K, V, S>
where
    K: Borrow<Q>,
    S: BuildHasher,
    Q: ?Sized + Hash + Eq,
{
    /// # Panics
    ///
    /// If `key` is not one of those that the guard holds.
    #[track_caller]
    fn index_mut(&mut self, key: &Q) -> &mut Option<V> {
        self.get_mut(key).expect(NOT_HELD)
    }
}

const NOT_HELD: &str = "the key is not one of those that this guard holds";

impl<K, V, S> fmt::Debug for KeyedMutexKeysGuard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMutexKeysGuard").field("keys", &self.held.len()).finish_non_exhaustive()
    }
}
