//! `KeyedRwLock`: many readers or one writer per key, and locks over every key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::content::Gated;
use crate::error::AcquireError;
use crate::keys::HeldKeys;
use crate::limit::Source;
use crate::mode::{MAX_READERS, Mode};
use crate::options::Options;
use crate::owners::thread_number;
use crate::stats::Stats;
use crate::status::KeyStatus;
use crate::table::{Ask, HasTable, Held, HeldAll, Kind, Table};
use crate::unwind::holding;
use crate::wait::Wait;

/// A read/write lock per key, and locks over every key: many threads read a key at the same time, or one writes it.
///
/// It guards something that lies elsewhere, as a [`KeyedLock`] does. Different keys are held side by side.
/// [`read_all`](Self::read_all) and [`write_all`](Self::write_all) lock every key in one step, also those that have no entry
/// yet: to look at everything while nobody writes, or to rebuild it while nobody else is there.
///
/// An entry exists only while its key is held or waited for (or [kept](Options::idle_ttl)). Keys are borrowed as in map
/// look-ups: a `KeyedRwLock<String>` is called with `&str`. What [`KeyedLock`] says of contention, of memory ordering and of
/// the key's own code holds here too; [reentrant](Options::reentrant) tables there are none.
///
/// # Conflicts
///
/// Of the locks of one table, these exclude each other:
///
/// | asked for | conflicts with | goes together with |
/// |---|---|---|
/// | [`write_all()`](Self::write_all) | everything | nothing |
/// | [`write(k)`](Self::write) | `read_all`, `write_all`, any lock on k | locks on other keys |
/// | [`read_all()`](Self::read_all) | `write_all`, every `write(k)` | `read_all`, every `read(k)` |
/// | [`read(k)`](Self::read) | `write_all`, `write(k)` | `read_all`, `read(k)`, `write` of other keys |
///
/// # Order
///
/// * Under [`Fairness::Fifo`](crate::Fairness::Fifo) a request waits if and only if it conflicts with a lock that is held, or
///   with a request that came before it and still waits in the queue of its key, or for every key. So a reader waits
///   behind a writer that waits, and readers cannot keep a writer out.
/// * Under [`Fairness::Eventual`](crate::Fairness::Eventual) the head of a key's queue may be overtaken within its window of
///   300 µs by requests for the same key that find it free for them, readers and writers alike.
/// * Between requests for a key and requests for every key the order is that of arrival, under both. Neither kind can
///   keep the other out.
/// * A request for a key that is held back by a waiting `read_all` or `write_all` takes its place in its key's queue only
///   when that one is gone: its lock released, or given up. Until then other requests for the same key do not wait for it.
///
/// # While a thread holds something
///
/// What a thread holds by guards that stay on it (all but the `Arc` ones) is known to the table.
///
/// **It passes** where waiting could have no end:
///
/// * It passes every waiting `read_all` and `write_all` that waits for what it holds, directly or through others. So it can
///   finish.
/// * Reading a key that it reads already, it passes the writers that wait for that key.
/// * Holding a `read_all`, it passes whatever waits, with `read(k)` and with another `read_all`.
/// * Holding a `read(k)`, it passes a waiting `write_all` with `read_all`.
///
/// **It is an error**, found at once, to ask for what conflicts with something that the thread holds itself:
///
/// * `write_all` while it holds anything, and anything while it holds `write_all`;
/// * `read_all` while it writes a key, and `write(k)` while it holds `read_all`;
/// * `read(k)` or `write(k)` while it writes k, and `write(k)` while it reads k (but see
///   [`try_upgrade`](KeyedRwLockReadGuard::try_upgrade));
/// * `read_all` while it reads a key that a writer already waits for: it would wait for that writer, and the writer waits
///   for this thread.
///
/// Calls that cannot fail panic then, `try_` calls give `None`, and those that take a [`Wait`] give
/// [`WouldDeadlock`](AcquireError::WouldDeadlock).
///
/// **Everything else waits** as it does for a thread that holds nothing, and two threads can wait for each other for
/// ever. Take keys in one order everywhere, and a lock over every key before keys.
///
/// # `Arc` guards have no owner
///
/// An [`ArcKeyedRwLockReadGuard`] or [`ArcKeyedRwLockWriteGuard`] may be dropped on any thread, so the table does not know
/// who waits for it. Nothing of the above sees it: a thread that asks for what conflicts with its own `Arc` guard waits, and
/// one that holds only `Arc` guards is let past nobody. It should wait with a time limit.
///
/// # Panics and poisoning
///
/// A panic while a guard lives releases what it holds. There is no poisoning.
///
/// # Limits
///
/// A key has at most 2^30 - 1 readers at a time, about a billion; the next one waits.
///
/// # Examples
///
/// ```
/// use perkey::KeyedRwLock;
///
/// let files = KeyedRwLock::<String>::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| files.with_read("a.txt", || println!("others may read a.txt too")));
///     scope.spawn(|| files.with_read("a.txt", || println!("as here")));
///     scope.spawn(|| files.with_write("a.txt", || println!("nobody else has a.txt")));
///     scope.spawn(|| {
///         let _everything = files.write_all();
///         println!("nobody else has any file");
///     });
/// });
/// assert!(files.is_empty());
/// ```
///
/// [`KeyedLock`]: crate::KeyedLock
pub struct KeyedRwLock<K, S = RandomState> {
    table: Table<K, S, Gated>,
}

impl<K> KeyedRwLock<K> {
    /// A table with the default [`Options`].
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<String>::new();
    /// locks.with_write("a", || println!("alone with a"));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::new())
    }
}

impl<K, S> KeyedRwLock<K, S> {
    /// A table with `options`.
    ///
    /// # Panics
    ///
    /// If `options` are [reentrant](Options::reentrant): a writer has its key alone. (A reader may read again in any case.)
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{Fairness, KeyedRwLock, Options};
    ///
    /// let locks = KeyedRwLock::<String>::with_options(Options::new().name("files").fairness(Fairness::Fifo));
    /// ```
    #[must_use]
    pub fn with_options(options: Options<S>) -> Self {
        assert!(!options.reentrant, "a KeyedRwLock cannot be reentrant: a writer has its key alone");
        Self { table: Table::new("KeyedRwLock", Source::Same(MAX_READERS as usize), options) }
    }

    /// How many keys are held or waited for, plus those kept by [`Options::idle_ttl`]. Not those whose only requests are held
    /// back by a [`read_all`](Self::read_all) or a [`write_all`](Self::write_all), which are no keys themselves. Exact when
    /// nothing else runs; visits the shards one after the other.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<u32>::new();
    /// let one = (locks.read(&1), locks.read(&1));
    /// let two = locks.write(&2);
    /// assert_eq!(locks.len(), 2);
    /// drop((one, two));
    /// assert_eq!(locks.len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether [`len`](Self::len) is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<u32>::new();
    /// assert!(locks.is_empty());
    /// let _guard = locks.read(&1);
    /// assert!(!locks.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Every key that is held, waited for or kept, and who waits for it; with how many guards over every key there are. A reader holds one permit of its key, a writer
    /// all of them: [`held`](KeyStatus::held) equals [`limit`](KeyStatus::limit) then. The same goes for the permits of a
    /// waiter.
    ///
    /// Who holds every key, and who waits for every key, is shown with each key; a table without a key shows nobody.
    ///
    /// In no particular order; the waiters of one key are in order of arrival, those that a lock over every key holds back last.
    /// Each key is as it was at one moment; two keys need not be of the same moment. Keys are cloned under the lock of their
    /// shard: meant for logs and debugging, not for a hot path.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<String>::new();
    /// let _guards = (locks.read("a"), locks.read("a"), locks.write("b"));
    /// for status in locks.snapshot() {
    ///     match status.held {
    ///         held if held == status.limit => println!("{}: written", status.key),
    ///         readers => println!("{}: {readers} readers", status.key),
    ///     }
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
    /// let locks = perkey::KeyedRwLock::<String>::new();
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
    /// use perkey::{KeyedRwLock, Options};
    ///
    /// let table = KeyedRwLock::<String>::with_options(Options::new().idle_ttl(Duration::ZERO));
    /// table.with_read("a", || ());
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
    /// let table = perkey::KeyedRwLock::<String>::new();
    /// // ... a spike of a million keys ...
    /// table.shrink_to_fit();
    /// # table.with_read("a", || ());
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.shrink_to_fit();
    }
}

impl<K, S: BuildHasher> KeyedRwLock<K, S> {
    #[inline]
    #[track_caller]
    fn reader(kind: Kind) -> Ask {
        Ask { weight: 1, kind, location: Location::caller() }
    }

    #[inline]
    #[track_caller]
    fn writer(kind: Kind) -> Ask {
        Ask { weight: MAX_READERS, kind, location: Location::caller() }
    }

    /// Locks `key` for reading, beside other readers; waits for a writer of it, and for a [`write_all`](Self::write_all).
    ///
    /// It also waits for those who came before it and wait for that, as [Order](Self#order) has it: a reader waits
    /// behind a writer that waits.
    ///
    /// # Panics
    ///
    /// If this thread writes `key`, or holds a `write_all`: the wait could never end.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<String>::new();
    /// let one = locks.read("a");
    /// let two = locks.read("a");
    /// assert!(locks.is_locked("a") && !locks.is_write_locked("a"));
    /// drop((one, two));
    /// assert!(!locks.is_locked("a"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn read<Q>(&self, key: &Q) -> KeyedRwLockReadGuard<'_, K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::reader(Kind::Reader)) {
            Ok(hold) => KeyedRwLockReadGuard::new(Held::new(self, hold)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks `key` for writing; waits until nobody else reads or writes it, by itself or with every key.
    ///
    /// # Panics
    ///
    /// If this thread reads or writes `key`, or holds a [`read_all`](Self::read_all) or a [`write_all`](Self::write_all): the
    /// wait could never end.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<String>::new();
    /// let guard = locks.write("a");
    /// assert!(locks.is_write_locked("a"));
    /// drop(guard);
    /// assert!(!locks.is_locked("a"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn write<Q>(&self, key: &Q) -> KeyedRwLockWriteGuard<'_, K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::writer(Kind::Owned)) {
            Ok(hold) => KeyedRwLockWriteGuard::new(Held::new(self, hold)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks `key` for reading if that needs no waiting. `None` also if this thread holds something that conflicts.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let guard = locks.try_read(&1).expect("nobody writes it");
    /// assert!(locks.try_read(&1).is_some());
    /// assert!(locks.try_write(&1).is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_read<Q>(&self, key: &Q) -> Option<KeyedRwLockReadGuard<'_, K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::reader(Kind::Reader))?;
        Some(KeyedRwLockReadGuard::new(Held::new(self, hold)))
    }

    /// Locks `key` for writing if that needs no waiting. `None` also if this thread holds something that conflicts.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let guard = locks.try_write(&1).expect("nobody holds it");
    /// assert!(locks.try_read(&1).is_none());
    /// assert!(locks.try_write(&2).is_some());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_write<Q>(&self, key: &Q) -> Option<KeyedRwLockWriteGuard<'_, K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::writer(Kind::Owned))?;
        Some(KeyedRwLockWriteGuard::new(Held::new(self, hold)))
    }

    /// Locks `key` for reading, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds
    /// something that conflicts.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// match locks.try_read_for(&42, Duration::from_millis(50)) {
    ///     Some(_guard) => println!("nobody writes it now"),
    ///     None => println!("still written after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_read_for<Q>(&self, key: &Q, duration: Duration) -> Option<KeyedRwLockReadGuard<'_, K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.read_with(key, duration).ok()
    }

    /// Locks `key` for writing, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds
    /// something that conflicts.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever. A writer that gives up lets those in
    /// who waited behind it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// match locks.try_write_for(&42, Duration::from_millis(50)) {
    ///     Some(_guard) => println!("ours"),
    ///     None => println!("still taken after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_write_for<Q>(&self, key: &Q, duration: Duration) -> Option<KeyedRwLockWriteGuard<'_, K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.write_with(key, duration).ok()
    }

    /// Locks `key` for reading, waiting as `wait` allows, and says why if it does not come to that.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread writes `key` or
    /// holds a [`write_all`](Self::write_all), [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull),
    /// [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedRwLock};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// match locks.read_with(&42, Duration::from_secs(1)) {
    ///     Ok(_guard) => println!("nobody writes it now"),
    ///     Err(AcquireError::Timeout) => println!("somebody writes for long"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    #[track_caller]
    pub fn read_with<Q>(&self, key: &Q, wait: impl Into<Wait>) -> Result<KeyedRwLockReadGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::reader(Kind::Reader), &wait.into())?;
        Ok(KeyedRwLockReadGuard::new(Held::new(self, hold)))
    }

    /// Locks `key` for writing, waiting as `wait` allows, and says why if it does not come to that. A writer that gives up
    /// lets those in who waited behind it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread reads or writes
    /// `key` or holds a [`read_all`](Self::read_all) or a [`write_all`](Self::write_all), [`Busy`](AcquireError::Busy),
    /// [`QueueFull`](AcquireError::QueueFull), [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedRwLock, Wait};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let _reader = locks.read(&42);
    /// let error = std::thread::scope(|scope| {
    ///     scope.spawn(|| locks.write_with(&42, Wait::now()).unwrap_err()).join().unwrap()
    /// });
    /// assert_eq!(error, AcquireError::Busy);
    /// ```
    #[track_caller]
    pub fn write_with<Q>(&self, key: &Q, wait: impl Into<Wait>) -> Result<KeyedRwLockWriteGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::writer(Kind::Owned), &wait.into())?;
        Ok(KeyedRwLockWriteGuard::new(Held::new(self, hold)))
    }

    /// As [`read`](Self::read), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// The guard [has no owner](Self#arc-guards-have-no-owner): asking on this thread for what conflicts with it waits. Prefer
    /// [`read_arc_with`](Self::read_arc_with) and a time limit where that could happen.
    ///
    /// # Panics
    ///
    /// As [`read`](Self::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<String>::new());
    /// let guard = locks.read_arc("a");
    /// let worker = std::thread::spawn(move || drop(guard));
    /// worker.join().unwrap();
    /// assert!(locks.is_empty());
    /// ```
    #[track_caller]
    pub fn read_arc<Q>(self: &Arc<Self>, key: &Q) -> ArcKeyedRwLockReadGuard<K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::reader(Kind::MovableReader)) {
            Ok(hold) => ArcKeyedRwLockReadGuard { held: Held::new(Arc::clone(self), hold) },
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`write`](Self::write), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// The guard [has no owner](Self#arc-guards-have-no-owner): asking on this thread for what conflicts with it waits. Prefer
    /// [`write_arc_with`](Self::write_arc_with) and a time limit where that could happen.
    ///
    /// # Panics
    ///
    /// As [`write`](Self::write).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<String>::new());
    /// let guard = locks.write_arc("a");
    /// let worker = std::thread::spawn(move || drop(guard));
    /// worker.join().unwrap();
    /// assert!(locks.is_empty());
    /// ```
    #[track_caller]
    pub fn write_arc<Q>(self: &Arc<Self>, key: &Q) -> ArcKeyedRwLockWriteGuard<K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::writer(Kind::Movable)) {
            Ok(hold) => ArcKeyedRwLockWriteGuard { held: Held::new(Arc::clone(self), hold) },
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`try_read`](Self::try_read), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// if let Some(guard) = locks.try_read_arc(&42) {
    ///     std::thread::spawn(move || drop(guard)).join().unwrap();
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_read_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<ArcKeyedRwLockReadGuard<K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::reader(Kind::MovableReader))?;
        Some(ArcKeyedRwLockReadGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// As [`try_write`](Self::try_write), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// if let Some(guard) = locks.try_write_arc(&42) {
    ///     std::thread::spawn(move || drop(guard)).join().unwrap();
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the key is free again"]
    pub fn try_write_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<ArcKeyedRwLockWriteGuard<K, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.try_acquire(key, Self::writer(Kind::Movable))?;
        Some(ArcKeyedRwLockWriteGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// As [`read_with`](Self::read_with), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Errors
    ///
    /// Those of [`read_with`](Self::read_with).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let guard = locks.read_arc_with(&42, Duration::from_secs(1))?;
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn read_arc_with<Q>(
        self: &Arc<Self>,
        key: &Q,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedRwLockReadGuard<K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::reader(Kind::MovableReader), &wait.into())?;
        Ok(ArcKeyedRwLockReadGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// As [`write_with`](Self::write_with), with a guard that can be moved to another thread and keeps the table alive.
    ///
    /// # Errors
    ///
    /// Those of [`write_with`](Self::write_with).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedRwLock};
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let guard = locks.read_arc(&42);
    /// // An `Arc` guard has no owner, so this waits for its whole time.
    /// let error = locks.write_arc_with(&42, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, AcquireError::Timeout);
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn write_arc_with<Q>(
        self: &Arc<Self>,
        key: &Q,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedRwLockWriteGuard<K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let hold = self.table.acquire_with(key, Self::writer(Kind::Movable), &wait.into())?;
        Ok(ArcKeyedRwLockWriteGuard { held: Held::new(Arc::clone(self), hold) })
    }

    /// Runs `work` while `key` is locked for reading, waiting for it as [`read`](Self::read) does. A panic in `work` releases
    /// the key.
    ///
    /// # Panics
    ///
    /// As [`read`](Self::read), and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<String>::new();
    /// let answer = locks.with_read("a", || locks.with_read("a", || 6 * 7));
    /// assert_eq!(answer, 42);
    /// ```
    #[inline]
    #[track_caller]
    pub fn with_read<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.read(key), |_| work())
    }

    /// Runs `work` while `key` is locked for writing, waiting for it as [`write`](Self::write) does. A panic in `work`
    /// releases the key.
    ///
    /// # Panics
    ///
    /// As [`write`](Self::write), and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<String>::new();
    /// let answer = locks.with_write("a", || 6 * 7);
    /// assert_eq!(answer, 42);
    /// ```
    #[inline]
    #[track_caller]
    pub fn with_write<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.write(key), |_| work())
    }

    /// Locks every key for reading, also those that have no entry yet; waits until nobody writes any key, and for a
    /// [`write_all`](Self::write_all).
    ///
    /// Readers of single keys go on beside it. Writers that come later wait, while it waits (but for threads that it
    /// [waits for](Self#while-a-thread-holds-something)) and while it is held; those that came before it go first. It visits
    /// every shard of the table, so it costs far more than a lock of one key.
    ///
    /// # Panics
    ///
    /// If this thread writes a key, or holds a `write_all`, or reads a key that a writer is queued for: the wait could never
    /// end.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let files = KeyedRwLock::<String>::new();
    /// let everything = files.read_all();
    /// // A backup, say. Who only reads is let in.
    /// assert!(files.try_read("a.txt").is_some());
    /// assert!(files.try_write("a.txt").is_none());
    /// drop(everything);
    /// assert!(files.try_write("a.txt").is_some());
    /// ```
    #[track_caller]
    pub fn read_all(&self) -> KeyedRwLockReadAllGuard<'_, K, S> {
        match self.all(Mode::Read, &Wait::FOREVER) {
            Ok(held) => KeyedRwLockReadAllGuard::new(held),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks every key for writing, also those that have no entry yet; waits until nobody else holds anything.
    ///
    /// Requests that come later wait, while it waits (but for threads that it
    /// [waits for](Self#while-a-thread-holds-something)) and while it is held; those that came before it go first. It visits
    /// every shard of the table, so it costs far more than a lock of one key.
    ///
    /// # Panics
    ///
    /// If this thread holds anything of the table: the wait could never end.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let files = KeyedRwLock::<String>::new();
    /// let everything = files.write_all();
    /// assert!(files.is_write_locked("a.txt") && files.is_write_locked("a file to come"));
    /// drop(everything);
    /// assert!(files.try_read("a.txt").is_some());
    /// ```
    #[track_caller]
    pub fn write_all(&self) -> KeyedRwLockWriteAllGuard<'_, K, S> {
        match self.all(Mode::Write, &Wait::FOREVER) {
            Ok(held) => KeyedRwLockWriteAllGuard::new(held),
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks every key for reading if that needs no waiting. `None` also if this thread holds something that conflicts.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let reader = locks.read(&1);
    /// assert!(locks.try_read_all().is_some());
    /// let writer = locks.write(&2);
    /// assert!(locks.try_read_all().is_none());
    /// # drop((reader, writer));
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the keys are free again"]
    pub fn try_read_all(&self) -> Option<KeyedRwLockReadAllGuard<'_, K, S>> {
        self.read_all_with(Wait::now()).ok()
    }

    /// Locks every key for writing if that needs no waiting. `None` also if this thread holds anything.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let reader = locks.read(&1);
    /// assert!(locks.try_write_all().is_none());
    /// drop(reader);
    /// assert!(locks.try_write_all().is_some());
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the keys are free again"]
    pub fn try_write_all(&self) -> Option<KeyedRwLockWriteAllGuard<'_, K, S>> {
        self.write_all_with(Wait::now()).ok()
    }

    /// Locks every key for reading, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds
    /// something that conflicts.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever. When it gives up, those are let in
    /// who waited behind it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// match locks.try_read_all_for(Duration::from_millis(50)) {
    ///     Some(_everything) => println!("nobody writes now"),
    ///     None => println!("still written after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the keys are free again"]
    pub fn try_read_all_for(&self, duration: Duration) -> Option<KeyedRwLockReadAllGuard<'_, K, S>> {
        self.read_all_with(duration).ok()
    }

    /// Locks every key for writing, waiting for at most `duration`. `None` if the time is up, and at once if this thread holds
    /// anything.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever. When it gives up, those are let in
    /// who waited behind it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let reader = locks.read_arc(&1);
    /// assert!(locks.try_write_all_for(Duration::from_millis(1)).is_none());
    /// drop(reader);
    /// assert!(locks.try_write_all_for(Duration::from_secs(1)).is_some());
    /// ```
    #[track_caller]
    #[must_use = "if the guard is dropped at once, the keys are free again"]
    pub fn try_write_all_for(&self, duration: Duration) -> Option<KeyedRwLockWriteAllGuard<'_, K, S>> {
        self.write_all_with(duration).ok()
    }

    /// Locks every key for reading, waiting as `wait` allows, and says why if it does not come to that. When it gives up, those
    /// are let in who waited behind it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) where
    /// [`read_all`](Self::read_all) panics, [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull),
    /// [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, CancellationToken, KeyedRwLock, Wait};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let shutdown = CancellationToken::new();
    /// assert!(locks.read_all_with(&shutdown).is_ok());
    ///
    /// let _writer = locks.write(&1);
    /// let error = locks.read_all_with(&shutdown).unwrap_err();
    /// assert!(matches!(error, AcquireError::WouldDeadlock(_)), "this thread writes a key itself");
    /// ```
    #[track_caller]
    pub fn read_all_with(&self, wait: impl Into<Wait>) -> Result<KeyedRwLockReadAllGuard<'_, K, S>, AcquireError> {
        Ok(KeyedRwLockReadAllGuard::new(self.all(Mode::Read, &wait.into())?))
    }

    /// Locks every key for writing, waiting as `wait` allows, and says why if it does not come to that. When it gives up, those
    /// are let in who waited behind it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`WouldDeadlock`](AcquireError::WouldDeadlock) if this thread holds anything,
    /// [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull), [`Timeout`](AcquireError::Timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedRwLock};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// match locks.write_all_with(Duration::from_secs(1)) {
    ///     Ok(_everything) => println!("nobody else holds anything"),
    ///     Err(AcquireError::Timeout) => println!("somebody is slow"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    #[track_caller]
    pub fn write_all_with(&self, wait: impl Into<Wait>) -> Result<KeyedRwLockWriteAllGuard<'_, K, S>, AcquireError> {
        Ok(KeyedRwLockWriteAllGuard::new(self.all(Mode::Write, &wait.into())?))
    }

    #[track_caller]
    fn all(&self, mode: Mode, wait: &Wait) -> Result<HeldAll<&Self>, AcquireError> {
        Ok(HeldAll::new(self, self.table.acquire_all(mode, Location::caller(), wait)?))
    }

    /// Locks every one of `keys` for reading, waiting until all are held.
    ///
    /// They are taken one after the other, in their order ([`Ord`], which has to agree with `Eq`), each once however often it
    /// is named, and released in reverse order. So calls of this kind and of [`write_keys`](Self::write_keys) that name
    /// the same keys in different orders cannot wait for each other; a thread that takes single keys beside them must keep to
    /// that order too. While it waits for one, the keys before it are held already. No keys are a guard over nothing.
    ///
    /// # Panics
    ///
    /// If this thread writes one of `keys`, or holds a [`write_all`](Self::write_all). Nothing is waited for then; free keys
    /// before it may be taken for a moment, and are given back. If the iterator panics, or a key's code does, what was taken
    /// is given back too.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let accounts = KeyedRwLock::<u64>::new();
    /// let both = accounts.read_keys([&42, &7]);
    /// assert!(accounts.is_locked(&42) && accounts.is_locked(&7));
    /// drop(both);
    /// assert!(accounts.is_empty());
    /// ```
    #[inline]
    #[track_caller]
    pub fn read_keys<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> KeyedRwLockReadKeysGuard<'_, K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let held = self.keys(keys, Self::reader(Kind::Reader));
        KeyedRwLockReadKeysGuard { held, not_send: PhantomData }
    }

    /// Locks every one of `keys` for writing, waiting until all are held.
    ///
    /// They are taken in their order and each once, as by [`read_keys`](Self::read_keys), and released in reverse order.
    ///
    /// # Panics
    ///
    /// If this thread reads or writes one of `keys`, or holds a [`read_all`](Self::read_all) or a
    /// [`write_all`](Self::write_all). Nothing is waited for then; free keys before it may be taken for a moment, and are given
    /// back. If the iterator panics, or a key's code does, what was taken is given back too.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let files = KeyedRwLock::<String>::new();
    /// let names = ["b.txt", "a.txt", "b.txt"];
    /// let all = files.write_keys(names.iter().copied());
    /// assert_eq!(files.len(), 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn write_keys<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> KeyedRwLockWriteKeysGuard<'_, K, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let held = self.keys(keys, Self::writer(Kind::OneOfSeveral));
        KeyedRwLockWriteKeysGuard { held, not_send: PhantomData }
    }

    /// As [`read_keys`](Self::read_keys), waiting as `wait` allows: one time limit for all keys together.
    /// [`Wait::max_queued`] counts for each key.
    ///
    /// # Errors
    ///
    /// Those of [`read_with`](Self::read_with). What was taken by then is given back. If this thread writes one of the
    /// keys it is [`WouldDeadlock`](AcquireError::WouldDeadlock), before anything is waited for.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedRwLock, Wait};
    ///
    /// let accounts = KeyedRwLock::<u64>::new();
    /// let both = accounts.read_keys_with([&42, &7], Wait::now())?;
    /// assert!(accounts.try_read(&7).is_some());
    /// # Ok::<(), AcquireError>(())
    /// ```
    #[track_caller]
    pub fn read_keys_with<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        wait: impl Into<Wait>,
    ) -> Result<KeyedRwLockReadKeysGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        held.take_with(keys, Self::reader(Kind::Reader), &wait.into())?;
        Ok(KeyedRwLockReadKeysGuard { held, not_send: PhantomData })
    }

    /// As [`write_keys`](Self::write_keys), waiting as `wait` allows: one time limit for all keys together.
    /// [`Wait::max_queued`] counts for each key.
    ///
    /// # Errors
    ///
    /// Those of [`write_with`](Self::write_with). What was taken by then is given back. If this thread holds one of the
    /// keys it is [`WouldDeadlock`](AcquireError::WouldDeadlock), before anything is waited for.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{AcquireError, KeyedRwLock};
    ///
    /// let accounts = Arc::new(KeyedRwLock::<u64>::new());
    /// let _reader = accounts.read_arc(&42);
    /// let error = accounts.write_keys_with([&42, &7], Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, AcquireError::Timeout);
    /// assert!(!accounts.is_locked(&7));
    /// ```
    #[track_caller]
    pub fn write_keys_with<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        wait: impl Into<Wait>,
    ) -> Result<KeyedRwLockWriteKeysGuard<'_, K, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        held.take_with(keys, Self::writer(Kind::OneOfSeveral), &wait.into())?;
        Ok(KeyedRwLockWriteKeysGuard { held, not_send: PhantomData })
    }

    #[inline]
    #[track_caller]
    fn keys<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>, ask: Ask) -> HeldKeys<&Self, Gated>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = K> + 'q,
    {
        let mut held = HeldKeys::none(self);
        if let Err(error) = held.take(keys, ask) {
            // Now, because what this gives back may panic too.
            drop(held);
            panic!("{error}");
        }
        held
    }

    /// Whether anybody reads or writes `key`, by itself or with every key. Another thread may change that before you look at
    /// the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<u32>::new();
    /// let one = locks.read(&1);
    /// assert!(locks.is_locked(&1) && !locks.is_locked(&2));
    /// let everything = locks.read_all();
    /// assert!(locks.is_locked(&2));
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.is_held(key, Mode::Read.weight())
    }

    /// Whether anybody writes `key`, by itself or with every key. Another thread may change that before you look at the
    /// answer.
    ///
    /// # Examples
    ///
    /// ```
    /// let locks = perkey::KeyedRwLock::<u32>::new();
    /// let _guards = (locks.read(&1), locks.write(&2));
    /// assert!(!locks.is_write_locked(&1));
    /// assert!(locks.is_write_locked(&2));
    /// ```
    #[must_use]
    pub fn is_write_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.is_held(key, Mode::Write.weight())
    }

    /// Whether this thread writes `key` by a [`KeyedRwLockWriteGuard`] or a [`KeyedRwLockWriteKeysGuard`]. A hold by an
    /// [`ArcKeyedRwLockWriteGuard`] has no owner and does not count; nor does a [`write_all`](Self::write_all).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let _guards = (locks.write(&1), locks.read(&2));
    /// assert!(locks.is_locked_by_current_thread(&1));
    /// assert!(!locks.is_locked_by_current_thread(&2));
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

    /// How many requests wait for `key`, to read or to write it, those that are held back by a lock over every key included.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedRwLock;
    ///
    /// let locks = KeyedRwLock::<u32>::new();
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

impl<K, S: Default> Default for KeyedRwLock<K, S> {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl<K, S> fmt::Debug for KeyedRwLock<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.debug(f)
    }
}

impl<K, S> HasTable for KeyedRwLock<K, S> {
    type Key = K;
    type Hasher = S;
    type Content = Gated;

    #[inline]
    fn table(&self) -> &Table<K, S, Gated> {
        &self.table
    }
}

/// A key of a [`KeyedRwLock`], held for reading until this is dropped.
///
/// It stays on its thread (it is not `Send`), which is what lets the table know what a thread holds. For one that may move,
/// see [`KeyedRwLock::read_arc`]. Forgetting it ([`std::mem::forget`]) keeps writers out for ever and breaks nothing else.
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockReadGuard};
///
/// struct Reading<'a, K> {
///     file: KeyedRwLockReadGuard<'a, K>,
/// }
///
/// let files = KeyedRwLock::<u32>::new();
/// let one = Reading { file: files.read(&1) };
/// let two = Reading { file: files.read(&1) };
/// ```
///
/// It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let locks = perkey::KeyedRwLock::<u32>::new();
/// let guard = locks.read(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct KeyedRwLockReadGuard<'a, K, S = RandomState> {
    held: Held<&'a KeyedRwLock<K, S>, Gated>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, S> KeyedRwLockReadGuard<'a, K, S> {
    #[inline]
    fn new(held: Held<&'a KeyedRwLock<K, S>, Gated>) -> Self {
        Self { held, not_send: PhantomData }
    }

    /// Makes a writer of the reader, at once or not at all: if this is the only hold on its key, and nobody holds a
    /// [`read_all`](KeyedRwLock::read_all). It overtakes those who wait: upgrades without pause can keep a waiting `read_all`
    /// out.
    ///
    /// An associated function, to be called as `KeyedRwLockReadGuard::try_upgrade(guard)`. Never waits: two readers that
    /// waited to become writers would wait for each other.
    ///
    /// # Errors
    ///
    /// The guard, unchanged, if somebody else reads the key, alone or with every key. That may be this thread itself, by
    /// another guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedRwLock, KeyedRwLockReadGuard};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let (one, two) = (locks.read(&42), locks.read(&42));
    /// let one = KeyedRwLockReadGuard::try_upgrade(one).expect_err("there is another reader");
    /// drop(two);
    /// let writer = KeyedRwLockReadGuard::try_upgrade(one).expect("this is the only one");
    /// assert!(locks.is_write_locked(&42));
    /// # drop(writer);
    /// ```
    pub fn try_upgrade(mut guard: Self) -> Result<KeyedRwLockWriteGuard<'a, K, S>, Self> {
        if guard.held.try_upgrade() { Ok(KeyedRwLockWriteGuard::new(guard.held)) } else { Err(guard) }
    }

    /// Releases the key; if it is free for the first request in its queue then, that gets it, whatever the
    /// [`Fairness`](crate::Fairness).
    ///
    /// An associated function, to be called as `KeyedRwLockReadGuard::unlock_fair(guard)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedRwLock, KeyedRwLockReadGuard};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let guard = locks.read(&42);
    /// KeyedRwLockReadGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for KeyedRwLockReadGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockReadGuard").finish_non_exhaustive()
    }
}

/// A key of a [`KeyedRwLock`], held for writing until this is dropped.
///
/// It stays on its thread (it is not `Send`), which is what lets the table know what a thread holds. For one that may move,
/// see [`KeyedRwLock::write_arc`]. Forgetting it ([`std::mem::forget`]) keeps the key locked for ever and breaks nothing
/// else.
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockWriteGuard};
///
/// struct Writing<'a, K> {
///     file: KeyedRwLockWriteGuard<'a, K>,
/// }
///
/// let files = KeyedRwLock::<u32>::new();
/// let one = Writing { file: files.write(&1) };
/// let two = Writing { file: files.write(&2) };
/// ```
///
/// It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let locks = perkey::KeyedRwLock::<u32>::new();
/// let guard = locks.write(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct KeyedRwLockWriteGuard<'a, K, S = RandomState> {
    held: Held<&'a KeyedRwLock<K, S>, Gated>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, S> KeyedRwLockWriteGuard<'a, K, S> {
    #[inline]
    fn new(held: Held<&'a KeyedRwLock<K, S>, Gated>) -> Self {
        Self { held, not_send: PhantomData }
    }

    /// Makes a reader of the writer. No other writer can get between.
    ///
    /// An associated function, to be called as `KeyedRwLockWriteGuard::downgrade(guard)`. Readers that are first in the
    /// key's queue are let in beside it, and a [`read_all`](KeyedRwLock::read_all) that waited for nothing else. A reader that
    /// waits behind a writer waits on.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedRwLock, KeyedRwLockWriteGuard};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let writer = locks.write(&42);
    /// let reader = KeyedRwLockWriteGuard::downgrade(writer);
    /// assert!(locks.is_locked(&42) && !locks.is_write_locked(&42));
    /// # drop(reader);
    /// ```
    pub fn downgrade(mut guard: Self) -> KeyedRwLockReadGuard<'a, K, S> {
        guard.held.downgrade();
        KeyedRwLockReadGuard::new(guard.held)
    }

    /// Releases the key to the first request in its queue, whatever the [`Fairness`](crate::Fairness).
    ///
    /// An associated function, to be called as `KeyedRwLockWriteGuard::unlock_fair(guard)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedRwLock, KeyedRwLockWriteGuard};
    ///
    /// let locks = KeyedRwLock::<u32>::new();
    /// let guard = locks.write(&42);
    /// KeyedRwLockWriteGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for KeyedRwLockWriteGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockWriteGuard").finish_non_exhaustive()
    }
}

/// A key of a [`KeyedRwLock`], held for reading until this is dropped, on whatever thread that is. It keeps the table alive.
///
/// See [`KeyedRwLock::read_arc`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use perkey::{ArcKeyedRwLockReadGuard, KeyedRwLock};
///
/// struct Job {
///     file: ArcKeyedRwLockReadGuard<String>,
/// }
///
/// let files = Arc::new(KeyedRwLock::<String>::new());
/// let job = Job { file: files.read_arc("a.txt") };
/// std::thread::spawn(move || drop(job)).join().unwrap();
/// assert!(!files.is_locked("a.txt"));
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct ArcKeyedRwLockReadGuard<K, S = RandomState> {
    held: Held<Arc<KeyedRwLock<K, S>>, Gated>,
}

impl<K, S> ArcKeyedRwLockReadGuard<K, S> {
    /// Makes a writer of the reader, at once or not at all: if this is the only hold on its key, and nobody holds a
    /// [`read_all`](KeyedRwLock::read_all). It overtakes those who wait: upgrades without pause can keep a waiting `read_all`
    /// out.
    ///
    /// # Errors
    ///
    /// The guard, unchanged, if somebody else reads the key, alone or with every key.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedRwLockReadGuard, KeyedRwLock};
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let reader = locks.read_arc(&42);
    /// let writer = ArcKeyedRwLockReadGuard::try_upgrade(reader).expect("nobody else reads it");
    /// std::thread::spawn(move || drop(writer)).join().unwrap();
    /// ```
    pub fn try_upgrade(mut guard: Self) -> Result<ArcKeyedRwLockWriteGuard<K, S>, Self> {
        if guard.held.try_upgrade() { Ok(ArcKeyedRwLockWriteGuard { held: guard.held }) } else { Err(guard) }
    }

    /// Releases the key; if it is free for the first request in its queue then, that gets it, whatever the
    /// [`Fairness`](crate::Fairness).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedRwLockReadGuard, KeyedRwLock};
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let guard = locks.read_arc(&42);
    /// ArcKeyedRwLockReadGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for ArcKeyedRwLockReadGuard<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcKeyedRwLockReadGuard").finish_non_exhaustive()
    }
}

/// A key of a [`KeyedRwLock`], held for writing until this is dropped, on whatever thread that is. It keeps the table alive.
///
/// See [`KeyedRwLock::write_arc`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use perkey::{ArcKeyedRwLockWriteGuard, KeyedRwLock};
///
/// struct Job {
///     file: ArcKeyedRwLockWriteGuard<String>,
/// }
///
/// let files = Arc::new(KeyedRwLock::<String>::new());
/// let job = Job { file: files.write_arc("a.txt") };
/// std::thread::spawn(move || drop(job)).join().unwrap();
/// assert!(!files.is_locked("a.txt"));
/// ```
#[must_use = "if the guard is dropped at once, the key is free again"]
pub struct ArcKeyedRwLockWriteGuard<K, S = RandomState> {
    held: Held<Arc<KeyedRwLock<K, S>>, Gated>,
}

impl<K, S> ArcKeyedRwLockWriteGuard<K, S> {
    /// Makes a reader of the writer, as [`KeyedRwLockWriteGuard::downgrade`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedRwLockWriteGuard, KeyedRwLock};
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let reader = ArcKeyedRwLockWriteGuard::downgrade(locks.write_arc(&42));
    /// assert!(locks.try_read(&42).is_some());
    /// # drop(reader);
    /// ```
    pub fn downgrade(mut guard: Self) -> ArcKeyedRwLockReadGuard<K, S> {
        guard.held.downgrade();
        ArcKeyedRwLockReadGuard { held: guard.held }
    }

    /// Releases the key to the first request in its queue, whatever the [`Fairness`](crate::Fairness).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{ArcKeyedRwLockWriteGuard, KeyedRwLock};
    ///
    /// let locks = Arc::new(KeyedRwLock::<u32>::new());
    /// let guard = locks.write_arc(&42);
    /// ArcKeyedRwLockWriteGuard::unlock_fair(guard);
    /// assert!(!locks.is_locked(&42));
    /// ```
    pub fn unlock_fair(guard: Self) {
        guard.held.hand_over();
    }
}

impl<K, S> fmt::Debug for ArcKeyedRwLockWriteGuard<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcKeyedRwLockWriteGuard").finish_non_exhaustive()
    }
}

/// Every key of a [`KeyedRwLock`], held for reading until this is dropped.
///
/// See [`KeyedRwLock::read_all`]. It stays on its thread (it is not `Send`).
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockReadAllGuard};
///
/// let files = KeyedRwLock::<String>::new();
/// let everything: KeyedRwLockReadAllGuard<'_, String> = files.read_all();
/// let one = files.read("a.txt"); // beside it
/// assert!(files.try_write_all().is_none());
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedRwLockReadAllGuard<'a, K, S = RandomState> {
    /// Released by its drop.
    _held: HeldAll<&'a KeyedRwLock<K, S>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, S> KeyedRwLockReadAllGuard<'a, K, S> {
    fn new(held: HeldAll<&'a KeyedRwLock<K, S>>) -> Self {
        Self { _held: held, not_send: PhantomData }
    }
}

impl<K, S> fmt::Debug for KeyedRwLockReadAllGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockReadAllGuard").finish_non_exhaustive()
    }
}

/// Every key of a [`KeyedRwLock`], held for writing until this is dropped.
///
/// See [`KeyedRwLock::write_all`]. It stays on its thread (it is not `Send`).
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockWriteAllGuard};
///
/// let files = KeyedRwLock::<String>::new();
/// let everything: KeyedRwLockWriteAllGuard<'_, String> = files.write_all();
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(files.try_read("a.txt").is_none()));
/// });
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedRwLockWriteAllGuard<'a, K, S = RandomState> {
    /// Released by its drop.
    _held: HeldAll<&'a KeyedRwLock<K, S>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, S> KeyedRwLockWriteAllGuard<'a, K, S> {
    fn new(held: HeldAll<&'a KeyedRwLock<K, S>>) -> Self {
        Self { _held: held, not_send: PhantomData }
    }
}

impl<K, S> fmt::Debug for KeyedRwLockWriteAllGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockWriteAllGuard").finish_non_exhaustive()
    }
}

/// Several keys of a [`KeyedRwLock`], held for reading until this is dropped.
///
/// See [`KeyedRwLock::read_keys`]. It stays on its thread (it is not `Send`).
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockReadKeysGuard};
///
/// let accounts = KeyedRwLock::<u64>::new();
/// let both: KeyedRwLockReadKeysGuard<'_, u64> = accounts.read_keys([&42, &7]);
/// assert!(accounts.try_read(&42).is_some());
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedRwLockReadKeysGuard<'a, K, S = RandomState> {
    held: HeldKeys<&'a KeyedRwLock<K, S>, Gated>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<K, S> fmt::Debug for KeyedRwLockReadKeysGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockReadKeysGuard").field("keys", &self.held.len()).finish_non_exhaustive()
    }
}

/// Several keys of a [`KeyedRwLock`], held for writing until this is dropped.
///
/// See [`KeyedRwLock::write_keys`]. It stays on its thread (it is not `Send`).
///
/// # Examples
///
/// ```
/// use perkey::{KeyedRwLock, KeyedRwLockWriteKeysGuard};
///
/// let accounts = KeyedRwLock::<u64>::new();
/// let both: KeyedRwLockWriteKeysGuard<'_, u64> = accounts.write_keys([&42, &7]);
/// assert!(accounts.is_locked_by_current_thread(&42));
/// ```
#[must_use = "if the guard is dropped at once, the keys are free again"]
pub struct KeyedRwLockWriteKeysGuard<'a, K, S = RandomState> {
    held: HeldKeys<&'a KeyedRwLock<K, S>, Gated>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<K, S> fmt::Debug for KeyedRwLockWriteKeysGuard<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRwLockWriteKeysGuard").field("keys", &self.held.len()).finish_non_exhaustive()
    }
}
