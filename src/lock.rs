//! `KeyedLock`: one holder per key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::error::AcquireError;
use crate::keys::HeldKeys;
use crate::limit::Source;
use crate::options::Options;
use crate::owners::thread_number;
use crate::stats::Stats;
use crate::status::KeyStatus;
use crate::table::{Ask, HasTable, Held, Kind, Table};
use crate::unwind::holding;
use crate::wait::Wait;

/// A lock per key: at most one thread holds a key, and different keys are held side by side.
///
/// An entry exists only while its key is held or waited for (or [kept](Options::idle_ttl)): nothing is set up beforehand, and
/// nothing has to be cleaned up. (The table keeps the memory of its largest moment, until
/// [`shrink_to_fit`](Self::shrink_to_fit), or a [`sweep`](Self::sweep) of one that keeps idle keys.) Keys are borrowed as in map look-ups: a `KeyedLock<String>` is
/// called with `&str`, a `KeyedLock<&'static str>` with `&"a"`. An acquisition that finds the key absent owns it once, by
/// [`ToOwned`]; one that finds it present clones nothing.
///
/// # Contention
///
/// A thread that finds its key taken looks again a few times, letting other threads run in between, then queues and parks; a
/// release wakes at most one thread for each permit it frees. Who goes first is [`Fairness`](crate::Fairness)'s business. Two keys may share a shard of the
/// table, and so its lock for some nanoseconds (longer while the shard grows, shrinks, or is visited by
/// [`snapshot`](Self::snapshot)); they never wait for each other's holder.
///
/// # Re-entry
///
/// A thread that asks for a key it holds by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`] would wait for itself for ever. That is an error, found
/// at once: [`lock`](Self::lock), [`lock_arc`](Self::lock_arc) and [`with_key`](Self::with_key) panic, the `try_` calls
/// give `None`, and the calls that take a [`Wait`] give [`WouldDeadlock`](AcquireError::WouldDeadlock).
/// An [`ArcKeyedLockGuard`] may move between threads and has no owner: a thread that asks again for a key that it holds
/// by one *waits*. Threads that take several keys must take them in one order. In a table that is
/// [reentrant](Options::reentrant) the calls that give a [`KeyedLockGuard`] succeed instead, and the last guard of the key
/// releases it; the `_arc` calls stay errors.
///
/// # Panics and poisoning
///
/// A panic while a guard lives releases the key. There is no poisoning. A panic of the key's own `Drop` comes out of the
/// drop of the guard, or out of the call that gave up; the key is free by then. A key's `Drop` that panics while its thread
/// unwinds does not end the process: the first panic goes on, and the others, which the panic hook has reported, end there.
/// (The drop of the table itself is as that of any collection.)
///
/// # Memory ordering
///
/// What a thread wrote before it released a key is visible to the thread that holds the key next.
///
/// # What runs inside
///
/// The key's `Borrow` and `Eq`, its `to_owned` on a miss, and its `Clone` in [`snapshot`](Self::snapshot) run under the
/// lock of a shard. They may panic, without harm to the table. They must not call this table, print it, drop a guard of it,
/// or wait for a thread that may be doing so (a panic hook that runs in them is still inside, too). While one of them is
/// slow, calls for other keys of its shard wait, and during a snapshot or a sweep those of the next shard as well.
/// `Hash`, `Drop`, and `Ord` (for [`lock_keys`](Self::lock_keys)) run outside all locks.
///
/// # Examples
///
/// ```
/// use perkey::KeyedLock;
///
/// let accounts = KeyedLock::<u64>::new();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let _guard = accounts.lock(&42);
///             // One thread at a time is here for account 42; other accounts go on.
///         });
///     }
/// });
/// assert!(accounts.is_empty());
/// ```
pub struct KeyedLock<K, S = RandomState> {
    table: Table<K, S>,
}

impl<K> KeyedLock<K> {
    /// A table with the default [`Options`].
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedLock::<String>::new();
    /// locks.with_key("account-42", || println!("alone with account 42"));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::new())
    }
}

impl<K, S> KeyedLock<K, S> {
    /// A table with `options`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let locks = KeyedLock::<String>::with_options(Options::new().name("hosts").shards(128));
    /// ```
    #[must_use]
    pub fn with_options(options: Options<S>) -> Self {
        Self { table: Table::new("KeyedLock", Source::Same(1), options) }
    }

    /// How many keys are held, waited for, or kept by [`Options::idle_ttl`]. Exact when nothing else runs; visits the shards one after the other.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedLock::<u32>::new();
    /// let one = locks.lock(&1);
    /// let two = locks.lock(&2);
    /// assert_eq!(locks.len(), 2);
    /// drop((one, two));
    /// assert_eq!(locks.len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key is held, waited for, or kept.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedLock::<u32>::new();
    /// assert!(locks.is_empty());
    /// let _guard = locks.lock(&1);
    /// assert!(!locks.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Every key that is held, waited for, or kept, and who waits. In no particular order; the waiters of one key are in order
    /// of arrival. Each key is as it was at one moment; two keys need not be of the same moment.
    ///
    /// Keys are cloned under the lock of their shard: meant for logs and debugging, not for a hot path.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<String>::new();
    /// let _guard = locks.lock("a");
    /// for status in locks.snapshot() {
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
    /// let locks = perkey::KeyedLock::<String>::new();
    /// println!("{:?}", locks.stats());
    /// assert_eq!(locks.stats().contended, 0);
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// Removes the entries that have been idle for [`Options::idle_ttl`], and returns how many went; gives memory back where
    /// little is left. An entry whose key is held or waited for stays. Without `idle_ttl` there is nothing to do.
    ///
    /// [`Sweeper`](crate::Sweeper) calls it in the background.
    ///
    /// # Panics
    ///
    /// With the first panic of a key's `Drop`, after all keys that go have been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options};
    ///
    /// let table = KeyedLock::<String>::with_options(Options::new().idle_ttl(Duration::ZERO));
    /// table.with_key("a", || ());
    /// assert_eq!(table.len(), 1);
    /// assert_eq!(table.sweep(), 1);
    /// assert!(table.is_empty());
    /// ```
    pub fn sweep(&self) -> usize {
        self.table.sweep()
    }

    /// Gives memory back: shrinks every shard to what it holds. Each shard is locked while that is done.
    ///
    /// # Examples
    ///
    /// ```
    /// let table = perkey::KeyedLock::<String>::new();
    /// // ... a spike of a million keys ...
    /// table.shrink_to_fit();
    /// # table.with_key("a", || ());
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.shrink_to_fit();
    }
}

impl<K, S: BuildHasher> KeyedLock<K, S> {
    #[inline]
    #[track_caller]
    fn ask(kind: Kind) -> Ask {
        Ask { weight: 1, kind, location: Location::caller() }
    }

    /// Locks `key`, waiting until it is free.
    ///
    /// # Panics
    ///
    /// If this thread already holds `key` by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`], and the table is not
    /// [reentrant](Options::reentrant): the wait could never end.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<String>::new();
    /// let guard = locks.lock("account-42");
    /// assert!(locks.is_locked("account-42"));
    /// drop(guard);
    /// assert!(!locks.is_locked("account-42"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock<Q>(&self, key: &Q) -> KeyedLockGuard<'_, K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::ask(Kind::Owned)) {
            Ok(id) => KeyedLockGuard::new(Held::new(self, id)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks `key` if that needs no waiting. `None` also if this thread holds it (and the table is not
    /// [reentrant](Options::reentrant)).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let guard = locks.try_lock(&1).expect("nobody holds it");
    /// assert!(locks.try_lock(&1).is_none());
    /// assert!(locks.try_lock(&2).is_some());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock<Q>(&self, key: &Q) -> Option<KeyedLockGuard<'_, K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.try_acquire(key, Self::ask(Kind::Owned))?;
        Some(KeyedLockGuard::new(Held::new(self, id)))
    }

    /// Locks `key`, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds `key` (and
    /// the table is not [reentrant](Options::reentrant)).
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// match locks.try_lock_for(&42, Duration::from_millis(50)) {
    ///     Some(_guard) => println!("ours"),
    ///     None => println!("still taken after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock_for<Q>(&self, key: &Q, duration: Duration) -> Option<KeyedLockGuard<'_, K, S>>
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
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread holds `key` (and
    /// the table is not [reentrant](Options::reentrant)),
    /// [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull), [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedLock};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// match locks.lock_with(&42, Duration::from_secs(1)) {
    ///     Ok(_guard) => println!("ours"),
    ///     Err(AcquireError::Timeout) => println!("somebody else is slow"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    #[track_caller]
    pub fn lock_with<Q>(&self, key: &Q, wait: impl Into<Wait>) -> Result<KeyedLockGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.acquire_with(key, Self::ask(Kind::Owned), &wait.into())?;
        Ok(KeyedLockGuard::new(Held::new(self, id)))
    }

    /// As [`lock`](Self::lock), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// The guard has no owner: asking on this thread for a key that it holds by such a guard waits. Prefer
    /// [`lock_arc_with`](Self::lock_arc_with) and a time limit where that could happen.
    ///
    /// # Panics
    ///
    /// If this thread already holds `key` by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedLock;
    ///
    /// let locks = Arc::new(KeyedLock::<String>::new());
    /// let guard = locks.lock_arc("account-42");
    /// let worker = std::thread::spawn(move || drop(guard));
    /// worker.join().unwrap();
    /// assert!(locks.is_empty());
    /// ```
    #[track_caller]
    pub fn lock_arc<Q>(self: &Arc<Self>, key: &Q) -> ArcKeyedLockGuard<K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::ask(Kind::Movable)) {
            Ok(id) => ArcKeyedLockGuard { held: Held::new(Arc::clone(self), id) },
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`try_lock`](Self::try_lock), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedLock;
    ///
    /// let locks = Arc::new(KeyedLock::<u32>::new());
    /// if let Some(guard) = locks.try_lock_arc(&42) {
    ///     std::thread::spawn(move || drop(guard)).join().unwrap();
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_lock_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<ArcKeyedLockGuard<K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.try_acquire(key, Self::ask(Kind::Movable))?;
        Some(ArcKeyedLockGuard { held: Held::new(Arc::clone(self), id) })
    }

    /// As [`lock_with`](Self::lock_with), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with); [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread holds `key`
    /// by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedLock};
    ///
    /// let locks = Arc::new(KeyedLock::<u32>::new());
    /// let guard = locks.lock_arc(&42);
    /// // An `Arc` guard has no owner, so this waits for its whole time.
    /// let error = locks.lock_arc_with(&42, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, AcquireError::Timeout);
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn lock_arc_with<Q>(
        self: &Arc<Self>,
        key: &Q,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedLockGuard<K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.acquire_with(key, Self::ask(Kind::Movable), &wait.into())?;
        Ok(ArcKeyedLockGuard { held: Held::new(Arc::clone(self), id) })
    }

    /// Runs `work` while `key` is locked, waiting for it as [`lock`](Self::lock) does. A panic in `work` releases the key.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock), and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<String>::new();
    /// let answer = locks.with_key("account-42", || 6 * 7);
    /// assert_eq!(answer, 42);
    /// ```
    #[inline]
    #[track_caller]
    pub fn with_key<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.lock(key), |_| work())
    }

    /// Runs `work` if `key` can be locked without waiting; `None` if not.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let skipped = locks.with_key(&1, || locks.try_with_key(&1, || "ran"));
    /// assert_eq!(skipped, None);
    /// assert_eq!(locks.try_with_key(&1, || "ran"), Some("ran"));
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the key was taken, `work` did not run"]
    pub fn try_with_key<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        Some(holding(self.try_lock(key)?, |_| work()))
    }

    /// Runs `work` while `key` is locked, waiting for it as `wait` allows. The time limit is for the wait, not for `work`.
    ///
    /// # Errors
    ///
    /// Those of [`lock_with`](Self::lock_with); `work` did not run then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let done = locks.with_key_within(&42, Duration::from_secs(1), || "done")?;
    /// assert_eq!(done, "done");
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn with_key_within<Q, R>(
        &self,
        key: &Q,
        wait: impl Into<Wait>,
        work: impl FnOnce() -> R,
    ) -> Result<R, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        Ok(holding(self.lock_with(key, wait)?, |_| work()))
    }

    /// Locks every one of `keys`, waiting until all are held.
    ///
    /// They are taken one after the other, in their order ([`Ord`], which has to agree with `Eq`), each once however often it
    /// is named. So calls that name
    /// the same keys in different orders cannot wait for each other; a thread that takes single keys beside such a call
    /// must keep to that order too. While it waits for one, the keys before it are held already. They are released in
    /// reverse order. No keys are a guard over nothing. The iterator is used up, and dropped, before the first key is taken.
    ///
    /// # Panics
    ///
    /// If this thread already holds one of `keys` by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`], even if the table is
    /// [reentrant](Options::reentrant). Nothing is waited for then; free keys before it may be taken for a moment, and are
    /// given back. If the iterator panics, or a key's code does, what was taken is given back too.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let accounts = KeyedLock::<u64>::new();
    /// let (from, to) = (42, 7);
    /// let both = accounts.lock_keys([&from, &to]);
    /// assert!(accounts.is_locked(&42) && accounts.is_locked(&7));
    /// drop(both);
    /// assert!(accounts.is_empty());
    ///
    /// // Keys of other types are named by reference too; of `&[&str]` it is the elements.
    /// let files = KeyedLock::<String>::new();
    /// let names = ["b.txt", "a.txt", "b.txt"];
    /// let all = files.lock_keys(names.iter().copied());
    /// assert_eq!(files.len(), 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock_keys<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> KeyedLockKeysGuard<'_, K, S>
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
        KeyedLockKeysGuard { held, not_send: PhantomData }
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
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedLock};
    ///
    /// let accounts = Arc::new(KeyedLock::<u64>::new());
    /// let _held = accounts.lock_arc(&7);
    /// let error = accounts.lock_keys_with([&42, &7], Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, AcquireError::Timeout);
    /// assert!(!accounts.is_locked(&42));
    /// ```
    #[track_caller]
    pub fn lock_keys_with<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        wait: impl Into<Wait>,
    ) -> Result<KeyedLockKeysGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        held.take_with(keys, Self::ask(Kind::OneOfSeveral), &wait.into())?;
        Ok(KeyedLockKeysGuard { held, not_send: PhantomData })
    }

    /// Runs `work` while every one of `keys` is locked, waiting as [`lock_keys`](Self::lock_keys) does. A panic in `work`
    /// releases them.
    ///
    /// # Panics
    ///
    /// As [`lock_keys`](Self::lock_keys), and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// let accounts = perkey::KeyedLock::<u64>::new();
    /// accounts.with_keys([&42, &7], || println!("alone with both"));
    /// ```
    #[track_caller]
    pub fn with_keys<'q, Q, R>(&self, keys: impl IntoIterator<Item = &'q Q>, work: impl FnOnce() -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        holding(self.lock_keys(keys), |_| work())
    }

    /// Whether anybody holds `key`. Another thread may change that before you look at the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedLock::<u32>::new();
    /// let _guard = locks.lock(&1);
    /// assert!(locks.is_locked(&1));
    /// assert!(!locks.is_locked(&2));
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.query(key, |slot| slot.taken() > 0).unwrap_or(false)
    }

    /// Whether this thread holds `key` by a [`KeyedLockGuard`] or a [`KeyedLockKeysGuard`]. A hold by an
    /// [`ArcKeyedLockGuard`] has no owner and does not count.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let _guard = locks.lock(&1);
    /// assert!(locks.is_locked_by_current_thread(&1));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(!locks.is_locked_by_current_thread(&1)));
    /// });
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
    /// use perkey::KeyedLock;
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// assert_eq!(locks.waiters(&42), 0);
    /// ```
    #[must_use]
    pub fn waiters<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.waiters(key)
    }
}

impl<K, S: Default> Default for KeyedLock<K, S> {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl<K, S> fmt::Debug for KeyedLock<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.debug(f)
    }
}

impl<K, S> HasTable for KeyedLock<K, S> {
    type Key = K;
    type Hasher = S;
    type Content = ();

    #[inline]
    fn table(&self) -> &Table<K, S> {
        &self.table
    }
}

/// A key of a [`KeyedLock`], held until this is dropped (in a [reentrant](Options::reentrant) table: until the thread's last
/// guard of the key is).
///
/// It stays on its thread (it is not `Send`), which is what lets re-entry be found. For one that may move, see
/// [`KeyedLock::lock_arc`]. Forgetting it ([`std::mem::forget`]) keeps the key locked for ever and breaks nothing else.
///
/// # Examples
///
/// A struct that holds a guard needs no bounds:
///
/// ```
/// use perkey::KeyedLockGuard;
///
/// struct Job<'a, K> {
///     account: KeyedLockGuard<'a, K>,
/// }
/// ```
///
/// It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let locks = perkey::KeyedLock::<u32>::new();
/// let guard = locks.lock(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
///
/// It cannot outlive its table:
///
/// ```compile_fail,E0505
/// let locks = perkey::KeyedLock::<u32>::new();
/// let guard = locks.lock(&1);
/// drop(locks);
/// drop(guard);
/// ```
///
/// It can be shared with another thread:
///
/// ```
/// let locks = perkey::KeyedLock::<u32>::new();
/// let guard = locks.lock(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(|| println!("{guard:?}"));
/// });
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct KeyedLockGuard<'a, K, S = RandomState> {
    held: Held<&'a KeyedLock<K, S>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, S> KeyedLockGuard<'a, K, S> {
    #[inline]
    fn new(held: Held<&'a KeyedLock<K, S>>) -> Self {
        Self { held, not_send: PhantomData }
    }

    /// Releases the key to the first thread that waits for it, whatever the [`Fairness`](crate::Fairness).
    ///
    /// An associated function, to be called as `KeyedLockGuard::unlock_fair(guard)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, KeyedLockGuard};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let guard = locks.lock(&42);
    /// KeyedLockGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for KeyedLockGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLockGuard").finish_non_exhaustive()
    }
}

/// A key of a [`KeyedLock`], held until this is dropped, on whatever thread that is. It keeps the table alive.
///
/// See [`KeyedLock::lock_arc`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use perkey::{ArcKeyedLockGuard, KeyedLock};
///
/// struct Job {
///     account: ArcKeyedLockGuard<u64>,
/// }
///
/// let locks = Arc::new(KeyedLock::<u64>::new());
/// let job = Job { account: locks.lock_arc(&42) };
/// std::thread::spawn(move || drop(job)).join().unwrap();
/// assert!(!locks.is_locked(&42));
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct ArcKeyedLockGuard<K, S = RandomState> {
    held: Held<Arc<KeyedLock<K, S>>>,
}

impl<K, S> ArcKeyedLockGuard<K, S> {
    /// Releases the key to the first thread that waits for it, whatever the [`Fairness`](crate::Fairness).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedLockGuard, KeyedLock};
    ///
    /// let locks = Arc::new(KeyedLock::<u32>::new());
    /// let guard = locks.lock_arc(&42);
    /// ArcKeyedLockGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for ArcKeyedLockGuard<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcKeyedLockGuard").finish_non_exhaustive()
    }
}

/// Several keys of a [`KeyedLock`], held until this is dropped.
///
/// See [`KeyedLock::lock_keys`]. It stays on its thread (it is not `Send`).
///
/// # Examples
///
/// ```
/// use perkey::{KeyedLock, KeyedLockKeysGuard};
///
/// let accounts = KeyedLock::<u64>::new();
/// let both: KeyedLockKeysGuard<'_, u64> = accounts.lock_keys([&42, &7]);
/// assert!(accounts.is_locked_by_current_thread(&42));
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedLockKeysGuard<'a, K, S = RandomState> {
    held: HeldKeys<&'a KeyedLock<K, S>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<K, S> fmt::Debug for KeyedLockKeysGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLockKeysGuard").field("keys", &self.held.len()).finish_non_exhaustive()
    }
}
