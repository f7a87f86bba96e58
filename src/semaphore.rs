//! `KeyedSemaphore`: up to N holders per key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::error::AcquireError;
use crate::limit::{Limit, Source, clamp};
use crate::options::Options;
use crate::stats::Stats;
use crate::status::KeyStatus;
use crate::table::{Ask, HasTable, Held, Kind, Table};
use crate::unwind::holding;
use crate::wait::Wait;

/// The `N` of a [`KeyedSemaphore`] whose limit is chosen at run time.
///
/// # Examples
///
/// ```
/// use perkey::{DYNAMIC, KeyedSemaphore};
///
/// let hosts: KeyedSemaphore<String, DYNAMIC> = KeyedSemaphore::<String>::with_limit(4);
/// ```
pub const DYNAMIC: usize = 0;

/// A semaphore per key: at most N permits of a key are out, and different keys do not limit each other.
///
/// N is in the type (`KeyedSemaphore<String, 3>`) or chosen at run time
/// ([`KeyedSemaphore::<String>::with_limit(n)`](KeyedSemaphore::with_limit)). Limits above `u32::MAX` count as `u32::MAX`.
///
/// An entry exists only while a permit of its key is out or waited for (or [kept](Options::idle_ttl)). Keys are borrowed as in map look-ups: a
/// `KeyedSemaphore<String, 3>` is called with `&str`. What [`KeyedLock`](crate::KeyedLock) says of contention, of panics,
/// and of the key's own code holds here too. With `acquire_many`, small requests cannot crowd out a big one: once the big
/// one is the head of the queue, [`Fairness`](crate::Fairness) bounds how long it is overtaken, and who queues behind it
/// stays behind it.
///
/// # Memory ordering
///
/// What a thread wrote before it gave a permit back is visible to whoever takes a permit of that key later. Those who hold
/// permits of one key at the same time are not ordered among each other.
///
/// # Deadlocks
///
/// Permits are not exclusive, so a thread may take several of one key. A thread that holds all of them and asks for one
/// more waits for itself for ever; give such a call a time limit, or the table
/// [`Options::detect_deadlocks`](crate::Options::detect_deadlocks).
///
/// # Examples
///
/// At most two downloads per host:
///
/// ```
/// use perkey::KeyedSemaphore;
///
/// let hosts = KeyedSemaphore::<String, 2>::new();
/// std::thread::scope(|scope| {
///     for n in 0..8 {
///         let hosts = &hosts;
///         scope.spawn(move || {
///             let _permit = hosts.acquire(if n % 2 == 0 { "a.example" } else { "b.example" });
///             // At most two threads are here for one host.
///         });
///     }
/// });
/// assert!(hosts.is_empty());
/// ```
pub struct KeyedSemaphore<K, const N: usize = DYNAMIC, S = RandomState> {
    table: Table<K, S>,
}

impl<K, const N: usize> KeyedSemaphore<K, N> {
    /// A table with `N` permits per key and the default [`Options`].
    ///
    /// With `N` = 0, and with no `N` at all (see [`with_limit`](KeyedSemaphore::with_limit) for that), it does not
    /// compile. The error comes when the program is built: `cargo check` does not see it.
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String, 3>::new();
    /// ```
    ///
    /// ```compile_fail,E0080
    /// let hosts = perkey::KeyedSemaphore::<String, 0>::new();
    /// ```
    ///
    /// ```compile_fail,E0080
    /// let hosts = perkey::KeyedSemaphore::<String>::new();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::new())
    }
}

impl<K, const N: usize, S> KeyedSemaphore<K, N, S> {
    /// A table with `N` permits per key and `options`. With `N` = 0 it does not compile, as [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// If the options are [reentrant](Options::reentrant).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{Fairness, KeyedSemaphore, Options};
    ///
    /// let hosts = KeyedSemaphore::<String, 3>::with_options(Options::new().fairness(Fairness::Fifo));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_options(options: Options<S>) -> Self {
        const { assert!(N != DYNAMIC, "a KeyedSemaphore needs a limit: N of at least 1 in the type, or `with_limit`") };
        Self::from_source(Source::Same(N), options)
    }

    #[track_caller]
    fn from_source(limit: Source<K>, options: Options<S>) -> Self {
        assert!(
            !options.reentrant,
            "a KeyedSemaphore cannot be reentrant: its permits have no owner, and a thread may take several anyway"
        );
        Self { table: Table::new("KeyedSemaphore", limit, options) }
    }

    /// How many keys have a permit out, are waited for, or are kept by [`Options::idle_ttl`]. Exact when nothing else runs; visits the shards one after the
    /// other.
    ///
    /// # Examples
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String, 2>::new();
    /// let permits = [hosts.acquire("a.example"), hosts.acquire("a.example"), hosts.acquire("b.example")];
    /// assert_eq!(hosts.len(), 2);
    /// # drop(permits);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no permit is out or waited for, and no key kept.
    ///
    /// # Examples
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String, 2>::new();
    /// assert!(hosts.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Every key that has a permit out, is waited for, or is kept, and who waits; as [`KeyedLock::snapshot`](crate::KeyedLock::snapshot).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 3>::new();
    /// let _permit = hosts.acquire("a.example");
    /// for status in hosts.snapshot() {
    ///     println!("{}: {} of {} permits out", status.key, status.held, status.limit);
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
    /// let hosts = perkey::KeyedSemaphore::<String, 2>::new();
    /// println!("{:?}", hosts.stats());
    /// assert_eq!(hosts.stats().contended, 0);
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
    /// use perkey::{KeyedSemaphore, Options};
    ///
    /// let table = KeyedSemaphore::<String, 3>::with_options(Options::new().idle_ttl(Duration::ZERO));
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
    /// let table = perkey::KeyedSemaphore::<String, 3>::new();
    /// // ... a spike of a million keys ...
    /// table.shrink_to_fit();
    /// # table.with_key("a", || ());
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.shrink_to_fit();
    }
}

impl<K> KeyedSemaphore<K> {
    /// A table with `limit` permits per key and the default [`Options`].
    ///
    /// # Panics
    ///
    /// If `limit` is 0: nobody could ever enter.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let per_host = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4);
    /// let hosts = KeyedSemaphore::<String>::with_limit(per_host);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_limit(limit: impl Into<Limit<K>>) -> Self {
        Self::with_limit_and_options(limit, Options::new())
    }

    /// As [`with_limit`](Self::with_limit) with [`Limit::by_key`], without naming the type of the closure's argument.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String>::with_limit_by(|host| if host.ends_with(".internal") { 64 } else { 2 });
    /// assert_eq!(hosts.limit("db.internal"), 64);
    /// ```
    #[must_use]
    pub fn with_limit_by(limit: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        Self::with_limit(Limit::by_key(limit))
    }
}

impl<K, S> KeyedSemaphore<K, DYNAMIC, S> {
    /// A table with `limit` permits per key and `options`.
    ///
    /// # Panics
    ///
    /// If `limit` is 0, or if the options are [reentrant](Options::reentrant).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedSemaphore, Options};
    ///
    /// let hosts = KeyedSemaphore::<String>::with_limit_and_options(4, Options::new().name("hosts"));
    /// assert_eq!(hosts.limit("a.example"), 4);
    /// ```
    ///
    /// With another hasher:
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use perkey::{DYNAMIC, KeyedSemaphore, Options};
    ///
    /// let options = Options::new().hasher(BuildHasherDefault::<DefaultHasher>::default());
    /// let hosts = KeyedSemaphore::<String, DYNAMIC, _>::with_limit_and_options(4, options);
    /// assert_eq!(hosts.limit("a.example"), 4);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_limit_and_options(limit: impl Into<Limit<K>>, options: Options<S>) -> Self {
        let Limit(source) = limit.into();
        if let Source::Same(limit) = source {
            assert_not_zero(limit);
        }
        Self::from_source(source, options)
    }

    /// Gives every key `limit` permits from now on, those that are held or waited for included; it replaces a
    /// [`Limit::by_key`]. Limits above `u32::MAX` count as `u32::MAX`.
    ///
    /// Permits that are out stay out. If the limit falls below them, nobody enters until enough have come back, and requests
    /// in the queue that ask for more than the new limit get [`OverLimit`](AcquireError::OverLimit) at once. Keys change one
    /// after the other; of two calls at once, one is whole before the other begins.
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String>::with_limit(1);
    /// let first = hosts.acquire("a.example");
    /// assert!(hosts.try_acquire("a.example").is_none());
    /// hosts.set_limit(2);
    /// assert!(hosts.try_acquire("a.example").is_some());
    /// # drop(first);
    /// ```
    #[track_caller]
    pub fn set_limit(&self, limit: usize) {
        assert_not_zero(limit);
        self.table.set_limit(clamp(limit));
    }
}

#[track_caller]
fn assert_not_zero(limit: usize) {
    assert!(limit > 0, "a KeyedSemaphore with a limit of 0 would never let anybody in: give it at least 1");
}

impl<K, const N: usize, S: BuildHasher> KeyedSemaphore<K, N, S> {
    #[inline]
    #[track_caller]
    fn one(kind: Kind) -> Ask {
        Ask { weight: 1, kind, location: Location::caller() }
    }

    /// `permits` in one step. What is above the limit of the key is found out when it is asked for.
    #[track_caller]
    fn many<Q>(&self, kind: Kind, key: &Q, permits: usize, wait: &Wait) -> Result<Ask, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match u32::try_from(permits) {
            Ok(weight) if weight > 0 => Ok(Ask { weight, ..Self::one(kind) }),
            _ if wait.is_cancelled() => Err(AcquireError::Cancelled),
            _ => Err(AcquireError::OverLimit { requested: permits, limit: self.limit(key) }),
        }
    }

    /// Takes a permit of `key`, waiting until one is free.
    ///
    /// # Panics
    ///
    /// If a [`Limit::by_key`] gives `key` no permits at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 2>::new();
    /// let first = hosts.acquire("a.example");
    /// let second = hosts.acquire("a.example");
    /// assert_eq!(hosts.available_permits("a.example"), 0);
    /// # drop((first, second));
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire<Q>(&self, key: &Q) -> KeyedPermit<'_, K, N, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::one(Kind::Permit)) {
            Ok(id) => KeyedPermit::new(Held::new(self, id)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes a permit of `key` if that needs no waiting.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 1>::new();
    /// let permit = hosts.try_acquire("a.example");
    /// assert!(permit.is_some());
    /// assert!(hosts.try_acquire("a.example").is_none());
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if the permit is dropped at once, it is free again"]
    pub fn try_acquire<Q>(&self, key: &Q) -> Option<KeyedPermit<'_, K, N, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.try_acquire(key, Self::one(Kind::Permit))?;
        Some(KeyedPermit::new(Held::new(self, id)))
    }

    /// Takes a permit of `key`, waiting for at most `duration`; `None` if the time is up.
    ///
    /// [`Duration::ZERO`] tries once; a duration too long for the clock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 2>::new();
    /// match hosts.try_acquire_for("a.example", Duration::from_millis(50)) {
    ///     Some(_permit) => println!("go"),
    ///     None => println!("both permits are still out after 50 ms"),
    /// }
    /// ```
    #[track_caller]
    #[must_use = "if the permit is dropped at once, it is free again"]
    pub fn try_acquire_for<Q>(&self, key: &Q, duration: Duration) -> Option<KeyedPermit<'_, K, N, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.acquire_with(key, duration).ok()
    }

    /// Takes a permit of `key`, waiting as `wait` allows, and says why if it does not come to that.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](AcquireError::Cancelled), [`Busy`](AcquireError::Busy), [`QueueFull`](AcquireError::QueueFull),
    /// [`Timeout`](AcquireError::Timeout), and [`OverLimit`](AcquireError::OverLimit) if a [`Limit::by_key`] gives `key` no
    /// permits at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedSemaphore, Wait};
    ///
    /// let hosts = KeyedSemaphore::<String, 1>::new();
    /// let _permit = hosts.acquire("a.example");
    /// let error = hosts.acquire_with("a.example", Wait::forever().max_queued(0)).unwrap_err();
    /// assert_eq!(error, AcquireError::QueueFull);
    /// ```
    #[track_caller]
    pub fn acquire_with<Q>(&self, key: &Q, wait: impl Into<Wait>) -> Result<KeyedPermit<'_, K, N, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.acquire_with(key, Self::one(Kind::Permit), &wait.into())?;
        Ok(KeyedPermit::new(Held::new(self, id)))
    }

    /// Takes `permits` permits of `key` together, waiting as `wait` allows.
    ///
    /// # Errors
    ///
    /// [`OverLimit`](AcquireError::OverLimit) at once if `permits` is 0 or above the limit, or when a new limit falls below
    /// it during the wait; and those of [`acquire_with`](Self::acquire_with).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedSemaphore, Wait};
    ///
    /// let hosts = KeyedSemaphore::<String, 3>::new();
    /// let permit = hosts.acquire_many("a.example", 2, Wait::forever())?;
    /// assert_eq!(hosts.available_permits("a.example"), 1);
    /// drop(permit);
    /// let error = hosts.acquire_many("a.example", 4, Wait::forever()).unwrap_err();
    /// assert_eq!(error, AcquireError::OverLimit { requested: 4, limit: 3 });
    /// # Ok::<(), AcquireError>(())
    /// ```
    #[track_caller]
    pub fn acquire_many<Q>(
        &self,
        key: &Q,
        permits: usize,
        wait: impl Into<Wait>,
    ) -> Result<KeyedPermit<'_, K, N, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let wait = wait.into();
        let id = self.table.acquire_with(key, self.many(Kind::Permit, key, permits, &wait)?, &wait)?;
        Ok(KeyedPermit::new(Held::new(self, id)))
    }

    /// As [`acquire`](Self::acquire), with a permit that can be moved to another thread and keeps the table alive.
    ///
    /// # Panics
    ///
    /// If a [`Limit::by_key`] gives `key` no permits at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = Arc::new(KeyedSemaphore::<String, 2>::new());
    /// let permit = hosts.acquire_arc("a.example");
    /// let worker = std::thread::spawn(move || {
    ///     // ... the download ...
    ///     drop(permit);
    /// });
    /// worker.join().unwrap();
    /// ```
    #[track_caller]
    pub fn acquire_arc<Q>(self: &Arc<Self>, key: &Q) -> ArcKeyedPermit<K, N, S>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        match self.table.acquire(key, Self::one(Kind::MovablePermit)) {
            Ok(id) => ArcKeyedPermit { held: Held::new(Arc::clone(self), id) },
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that can be moved to another thread and keeps the table alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = Arc::new(KeyedSemaphore::<String, 1>::new());
    /// let permit = hosts.try_acquire_arc("a.example");
    /// assert!(permit.is_some());
    /// ```
    #[track_caller]
    #[must_use = "if the permit is dropped at once, it is free again"]
    pub fn try_acquire_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<ArcKeyedPermit<K, N, S>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.try_acquire(key, Self::one(Kind::MovablePermit))?;
        Some(ArcKeyedPermit { held: Held::new(Arc::clone(self), id) })
    }

    /// As [`acquire_with`](Self::acquire_with), with a permit that can be moved to another thread and keeps the table
    /// alive.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_with`](Self::acquire_with).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = Arc::new(KeyedSemaphore::<String, 1>::new());
    /// let permit = hosts.acquire_arc_with("a.example", Duration::from_secs(1))?;
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn acquire_arc_with<Q>(
        self: &Arc<Self>,
        key: &Q,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedPermit<K, N, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let id = self.table.acquire_with(key, Self::one(Kind::MovablePermit), &wait.into())?;
        Ok(ArcKeyedPermit { held: Held::new(Arc::clone(self), id) })
    }

    /// As [`acquire_many`](Self::acquire_many), with a permit that can be moved to another thread and keeps the table
    /// alive.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_many`](Self::acquire_many).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use perkey::{KeyedSemaphore, Wait};
    ///
    /// let hosts = Arc::new(KeyedSemaphore::<String, 3>::new());
    /// let permit = hosts.acquire_many_arc("a.example", 3, Wait::now())?;
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(hosts.available_permits("a.example"), 3);
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    #[track_caller]
    pub fn acquire_many_arc<Q>(
        self: &Arc<Self>,
        key: &Q,
        permits: usize,
        wait: impl Into<Wait>,
    ) -> Result<ArcKeyedPermit<K, N, S>, AcquireError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let wait = wait.into();
        let id = self.table.acquire_with(key, self.many(Kind::MovablePermit, key, permits, &wait)?, &wait)?;
        Ok(ArcKeyedPermit { held: Held::new(Arc::clone(self), id) })
    }

    /// Runs `work` with a permit of `key`, waiting until one is free. A panic in `work` gives the permit back.
    ///
    /// # Panics
    ///
    /// If a [`Limit::by_key`] gives `key` no permits at all, and with the panic of `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 2>::new();
    /// let page = hosts.with_key("a.example", || "<html>");
    /// # assert_eq!(page, "<html>");
    /// ```
    #[inline]
    #[track_caller]
    pub fn with_key<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> R
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        holding(self.acquire(key), |_| work())
    }

    /// Runs `work` if a permit of `key` can be had without waiting; `None` if not.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 1>::new();
    /// let _permit = hosts.acquire("a.example");
    /// assert_eq!(hosts.try_with_key("a.example", || "ran"), None);
    /// assert_eq!(hosts.try_with_key("b.example", || "ran"), Some("ran"));
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "if no permit was free, `work` did not run"]
    pub fn try_with_key<Q, R>(&self, key: &Q, work: impl FnOnce() -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        Some(holding(self.try_acquire(key)?, |_| work()))
    }

    /// Runs `work` with a permit of `key`, waiting for it as `wait` allows. The time limit is for the wait, not for
    /// `work`.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_with`](Self::acquire_with); `work` did not run then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 2>::new();
    /// let page = hosts.with_key_within("a.example", Duration::from_secs(5), || "<html>")?;
    /// # assert_eq!(page, "<html>");
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
        Ok(holding(self.acquire_with(key, wait)?, |_| work()))
    }

    /// How many permits `key` has in all. Of a key that is absent a [`Limit::by_key`] is asked.
    ///
    /// # Examples
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String>::with_limit(4);
    /// assert_eq!(hosts.limit("a.example"), 4);
    /// ```
    #[must_use]
    pub fn limit<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.table.limit(key) as usize
    }

    /// How many permits of `key` are free; all of them if the key is absent (a [`Limit::by_key`] is asked then). Another thread may change that before you
    /// look at the answer. Free permits may be spoken for by a thread that waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::KeyedSemaphore;
    ///
    /// let hosts = KeyedSemaphore::<String, 3>::new();
    /// let _permit = hosts.acquire("a.example");
    /// assert_eq!(hosts.available_permits("a.example"), 2);
    /// assert_eq!(hosts.available_permits("b.example"), 3);
    /// ```
    #[must_use]
    pub fn available_permits<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.table.available(key) as usize
    }

    /// Whether any permit of `key` is out.
    ///
    /// # Examples
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String, 2>::new();
    /// let _permit = hosts.acquire("a.example");
    /// assert!(hosts.is_locked("a.example"));
    /// assert!(!hosts.is_locked("b.example"));
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        self.table.query(key, |slot| slot.taken() > 0).unwrap_or(false)
    }

    /// How many requests wait for permits of `key`.
    ///
    /// # Examples
    ///
    /// ```
    /// let hosts = perkey::KeyedSemaphore::<String, 2>::new();
    /// assert_eq!(hosts.waiters("a.example"), 0);
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

/// As [`with_options`](KeyedSemaphore::with_options) with the defaults; for a type without `N` it does not compile.
impl<K, const N: usize, S: Default> Default for KeyedSemaphore<K, N, S> {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl<K, const N: usize, S> fmt::Debug for KeyedSemaphore<K, N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.debug(f)
    }
}

impl<K, const N: usize, S> HasTable for KeyedSemaphore<K, N, S> {
    type Key = K;
    type Hasher = S;
    type Content = ();

    #[inline]
    fn table(&self) -> &Table<K, S> {
        &self.table
    }
}

/// Permits of one key of a [`KeyedSemaphore`], out until this is dropped.
///
/// It stays on its thread; for one that may move, see [`KeyedSemaphore::acquire_arc`]. Forgetting it
/// ([`std::mem::forget`]) keeps its permits out for ever and breaks nothing else.
///
/// ```compile_fail,E0277
/// let hosts = perkey::KeyedSemaphore::<u32, 2>::new();
/// let permit = hosts.acquire(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(permit));
/// });
/// ```
///
/// # Examples
///
/// ```
/// let hosts = perkey::KeyedSemaphore::<u32, 2>::new();
/// let permit = hosts.acquire(&1);
/// std::thread::scope(|scope| {
///     scope.spawn(|| println!("{permit:?}"));
/// });
/// ```
#[must_use = "if the permit is dropped at once, it is free again"]
pub struct KeyedPermit<'a, K, const N: usize = DYNAMIC, S = RandomState> {
    held: Held<&'a KeyedSemaphore<K, N, S>>,
    not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl<'a, K, const N: usize, S> KeyedPermit<'a, K, N, S> {
    #[inline]
    fn new(held: Held<&'a KeyedSemaphore<K, N, S>>) -> Self {
        Self { held, not_send: PhantomData }
    }
}

impl<K, const N: usize, S> fmt::Debug for KeyedPermit<'_, K, N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPermit").field("permits", &self.held.permits()).finish_non_exhaustive()
    }
}

/// Permits of one key of a [`KeyedSemaphore`], out until this is dropped, on whatever thread that is. It keeps the table
/// alive.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use perkey::{ArcKeyedPermit, KeyedSemaphore};
///
/// let hosts = Arc::new(KeyedSemaphore::<String, 2>::new());
/// let (jobs, queue) = mpsc::channel::<ArcKeyedPermit<String, 2>>();
/// let worker = std::thread::spawn(move || queue.into_iter().for_each(drop));
/// jobs.send(hosts.acquire_arc("a.example")).unwrap();
/// drop(jobs);
/// worker.join().unwrap();
/// assert!(hosts.is_empty());
/// ```
#[must_use = "if the permit is dropped at once, it is free again"]
pub struct ArcKeyedPermit<K, const N: usize = DYNAMIC, S = RandomState> {
    held: Held<Arc<KeyedSemaphore<K, N, S>>>,
}

impl<K, const N: usize, S> fmt::Debug for ArcKeyedPermit<K, N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcKeyedPermit").field("permits", &self.held.permits()).finish_non_exhaustive()
    }
}
