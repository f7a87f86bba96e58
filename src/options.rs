//! How a table behaves.

use std::borrow::Cow;
use std::hash::RandomState;
use std::time::Duration;

/// Who goes first when a key comes free.
///
/// The question is only how long the head of a key's queue may be overtaken by a thread that has not queued. Among
/// those that queue the order is always that of arrival.
///
/// # Examples
///
/// ```
/// use perkey::{Fairness, KeyedLock, Options};
///
/// let tickets = KeyedLock::<String>::with_options(Options::new().fairness(Fairness::Fifo));
/// tickets.with_key("concert", || println!("served in order of arrival"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fairness {
    /// A thread that runs may take a free key although others wait, until the head of the queue has been at the head
    /// for 300 µs. From then on nobody overtakes it, and the release that makes room hands the key over to it. That the
    /// time is up is noticed at the first overtake and at every eighth one, when the head runs and finds the key taken, and
    /// when a release makes too little room for it; so it waits for about 300 µs and eight sections at most. This is the
    /// faster mode, and the default.
    #[default]
    Eventual,
    /// Nobody who has queued is ever overtaken: who asks while others wait queues behind them, and a release hands the
    /// key straight to the head of the queue. (A thread queues after it has looked again for a microsecond or so.) Under
    /// contention each hand-over costs a context switch.
    Fifo,
}

/// Settings of a table; every type's `with_options` takes them.
///
/// # Examples
///
/// ```
/// use perkey::{Fairness, KeyedLock, Options};
///
/// let locks = KeyedLock::<u64>::with_options(Options::new().fairness(Fairness::Fifo).name("accounts"));
/// ```
///
/// With another hasher the type of the table says so:
///
/// ```
/// use std::hash::{BuildHasherDefault, DefaultHasher};
/// use perkey::{KeyedLock, Options};
///
/// type Fixed = BuildHasherDefault<DefaultHasher>;
/// let locks: KeyedLock<String, Fixed> = KeyedLock::with_options(Options::new().hasher(Fixed::default()));
/// locks.with_key("a", || ());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options<S = RandomState> {
    pub(crate) hasher: S,
    pub(crate) fairness: Fairness,
    pub(crate) shards: Option<usize>,
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) reentrant: bool,
    pub(crate) idle_ttl: Option<Duration>,
    pub(crate) track_owners: bool,
    pub(crate) detect_deadlocks: bool,
    #[cfg(feature = "tracing")]
    pub(crate) warn_waiting_over: Option<Duration>,
}

impl Options {
    /// The defaults: what `new()` of every type uses.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let locks = KeyedLock::<u64>::with_options(Options::new());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Options<S> {
    const MIN_SHARDS: usize = 2;
    const MAX_SHARDS: usize = 65_536;

    /// Hashes keys with `hasher`. Default: [`RandomState`], which resists keys chosen to collide.
    ///
    /// A hasher whose values differ in few bits does not crowd keys into one shard: hashes are mixed once more before use.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use perkey::{KeyedLock, Options};
    ///
    /// let options = Options::new().hasher(BuildHasherDefault::<DefaultHasher>::default());
    /// let locks = KeyedLock::<String, _>::with_options(options);
    /// assert!(locks.try_lock("a").is_some());
    /// ```
    #[must_use]
    pub fn hasher<S2>(self, hasher: S2) -> Options<S2> {
        let Self {
            hasher: _,
            fairness,
            shards,
            name,
            reentrant,
            idle_ttl,
            track_owners,
            detect_deadlocks,
            #[cfg(feature = "tracing")]
            warn_waiting_over,
        } = self;
        Options {
            hasher,
            fairness,
            shards,
            name,
            reentrant,
            idle_ttl,
            track_owners,
            detect_deadlocks,
            #[cfg(feature = "tracing")]
            warn_waiting_over,
        }
    }

    /// Who goes first when a key comes free. Default: [`Fairness::Eventual`].
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{Fairness, KeyedSemaphore, Options};
    ///
    /// let hosts = KeyedSemaphore::<String, 3>::with_options(Options::new().fairness(Fairness::Fifo));
    /// ```
    #[must_use]
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.fairness = fairness;
        self
    }

    /// How many shards the table has: rounded up to a power of two, at least 2 and at most 65,536. Default: four per
    /// core, at least 64.
    ///
    /// Two keys of one shard never wait for each other's holder; they share a lock for the nanoseconds in which the
    /// table is changed. An empty shard takes 128 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let many_cores = KeyedLock::<u64>::with_options(Options::new().shards(1024));
    /// ```
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The table's name in panics, in [`Deadlock`](crate::Deadlock) and in `Debug`. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// assert!(format!("{locks:?}").contains("accounts"));
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Lets a thread lock a key again that it holds by a guard; the key is released when all its guards are gone. Default:
    /// false, re-entry is an error.
    ///
    /// Only for [`KeyedLock`](crate::KeyedLock). Guards that may move to another thread have no owner, so
    /// [`lock_arc`](crate::KeyedLock::lock_arc) of a key that this thread holds stays an error.
    ///
    /// # Panics
    ///
    /// The constructors of the other types panic on it.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().reentrant(true));
    /// let outer = locks.lock(&42);
    /// let inner = locks.lock(&42);
    /// drop(outer);
    /// assert!(locks.is_locked(&42));
    /// drop(inner);
    /// assert!(!locks.is_locked(&42));
    /// ```
    #[must_use]
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// Keeps the entry of a key that nobody holds or waits for until a sweep finds that it has been idle for `ttl`: without
    /// a sweep it stays for ever. Default: none, an entry goes the moment nobody holds or waits, unless
    /// it has a value. With a `ttl` the values of a [`KeyedMutex`](crate::KeyedMutex) that idle for so long go too.
    ///
    /// For keys that come back soon: that costs no insertion and no clone of the key then. Sweeps are made by
    /// [`Sweeper`](crate::Sweeper), in the background, or by calling `sweep()` of the table. An entry goes at the first
    /// sweep that begins at least `ttl` after the sweep that first saw it idle. So it stays for at least `ttl` after its last
    /// use, and at most for twice the time between two sweeps more. (Where sweeps come more than 65,536 times in `ttl`, those
    /// of one 65,536th of it count as one, and an entry may stay for so much longer. The times of sweeps take 3 MiB per table
    /// then; far less where sweeps are rarer.)
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options, Sweeper};
    ///
    /// let sessions = Arc::new(KeyedLock::<String>::with_options(Options::new().idle_ttl(Duration::from_secs(60))));
    /// let sweeper = Sweeper::spawn(&sessions, Duration::from_secs(10));
    /// sessions.with_key("session-1", || ());
    /// assert_eq!(sessions.len(), 1);
    /// ```
    #[must_use]
    pub fn idle_ttl(mut self, ttl: Duration) -> Self {
        self.idle_ttl = Some(ttl);
        self
    }

    /// Keeps account of who holds a key: which thread, since when, and where the call was made. `snapshot()` shows it. Default:
    /// false, only those who wait are shown.
    ///
    /// For the search for what is stuck, on a table where that matters more than speed: each acquisition and each release
    /// of a key then writes into a second map, and an acquisition reads the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Options};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().track_owners(true));
    /// let _held = locks.lock(&42);
    /// let holder = &locks.snapshot()[0].holders[0];
    /// assert_eq!(holder.thread.id(), std::thread::current().id());
    /// println!("held for {:?} by the call at {}", holder.since.elapsed(), holder.location);
    /// ```
    #[must_use]
    pub fn track_owners(mut self, track_owners: bool) -> Self {
        self.track_owners = track_owners;
        self
    }

    /// Finds out when threads wait for each other in a ring, over all tables with this option. One request of the ring is
    /// refused: with [`AcquireError::WouldDeadlock`](crate::AcquireError::WouldDeadlock), or a panic from the calls that
    /// cannot fail, or `None` from those that give an `Option`; [`Deadlock`](crate::Deadlock) says who waits for what, and where.
    /// Default: false, only what a thread would wait for itself for is found. Implies [`track_owners`](Self::track_owners).
    ///
    /// Looked for when a request is about to wait: the one that closes the ring is refused, or another that came a moment before and
    /// looks only now. Those who wait already look again when a lower limit, or a lock over every key that goes, may have closed a
    /// ring. Who waits with a time limit, or may be cancelled, counts as one who waits for ever; among waits without either there is no
    /// false report. What is not seen: a wait for anything but a key of such a table, who has a guard that may move to another thread
    /// (an `Arc` guard), and a wait in the middle of another one of the same thread (by what a key's `Drop` does, or a subscriber of
    /// warnings).
    ///
    /// A look costs the more the more there is in the way: it goes through what holders wait for, and their holders; where one of
    /// them waits for every key of a table, through all holds of that table. Time limits and cancellation are noticed after it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Barrier;
    /// use std::thread;
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let accounts = KeyedLock::<u32>::with_options(Options::new().name("accounts").detect_deadlocks(true));
    /// let each_has_one = Barrier::new(2);
    /// let transfer = |from: u32, to: u32| {
    ///     let _first = accounts.lock(&from);
    ///     each_has_one.wait();
    ///     accounts.lock_with(&to, Wait::forever()).map(drop)
    /// };
    /// let (one, other) = thread::scope(|scope| {
    ///     let other = scope.spawn(|| transfer(2, 1));
    ///     (transfer(1, 2), other.join().unwrap())
    /// });
    /// // One of them is refused, and gives back what it has; so the other goes on.
    /// let Err(AcquireError::WouldDeadlock(deadlock)) = one.and(other) else { panic!() };
    /// println!("{deadlock}");
    /// assert_eq!(deadlock.threads().len(), 2);
    /// ```
    #[must_use]
    pub fn detect_deadlocks(mut self, detect_deadlocks: bool) -> Self {
        self.detect_deadlocks = detect_deadlocks;
        self
    }

    /// Warns of waits that take longer than `duration`: with a [`tracing`](https://docs.rs/tracing) event of the target
    /// `perkey` and the level `WARN`. Default: none. *Only with the cargo feature `tracing`.*
    ///
    /// A wait that goes on warns again when it has lasted twice as long, four times, and so on. Of the requests that wait for one
    /// key, one warns within each `duration`; so do, in a table of read/write locks, those that wait for every key, together
    /// with those that wait until somebody has had every key. The fields are:
    ///
    /// | field | is |
    /// |---|---|
    /// | `message` | whether it waits for a key, for a key behind a lock over every key, or for every key |
    /// | `table`, `table_type`, `key_type` | the table's [name](Self::name), if it has one, its type, and that of its keys |
    /// | `waiter` | the thread that waits, by its name if it has one |
    /// | `waited_secs` | for how many seconds |
    /// | `location` | where the call that waits was made |
    /// | `waiting` | how many wait for the key; for, or behind, a lock over every key: of all keys together |
    /// | `held` | how many permits of the key are out; or who is in the way of a lock over every key, or who wants one |
    /// | `holders` | with [`track_owners`](Self::track_owners), who holds it, for how long, and where each call was made: the 16 oldest |
    ///
    /// Which key it is cannot be said, since a key need not be printable: where the calls were made has to tell, or `snapshot()`.
    ///
    /// The thread that waits calls the subscriber, with no lock of the table held but with its place in the queue. While the
    /// subscriber runs it cannot take what it waited for, nor notice that its own time is up; the outcome is the same as without
    /// a warning. If the subscriber panics, so does the call that waits, which gives up its place. A subscriber may use the
    /// table, and does not get warnings of its own waits; but if it waits for the key that its thread waits for already, that is
    /// for ever.
    ///
    /// With a duration of zero nothing is warned of, nor with one too long for the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options};
    ///
    /// let options = Options::new().name("accounts").track_owners(true).warn_waiting_over(Duration::from_secs(10));
    /// let accounts = KeyedLock::<u64>::with_options(options);
    /// accounts.with_key(&42, || ()); // nobody had to wait
    /// ```
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn warn_waiting_over(mut self, duration: Duration) -> Self {
        self.warn_waiting_over = Some(duration);
        self
    }

    /// The number of shards to make.
    pub(crate) fn shard_amount(&self) -> usize {
        let wanted = self.shards.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            cores.saturating_mul(4).max(64)
        });
        wanted.clamp(Self::MIN_SHARDS, Self::MAX_SHARDS).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_power_of_two_within_bounds() {
        for (asked, made) in [(0, 2), (1, 2), (2, 2), (3, 4), (64, 64), (65, 128), (usize::MAX, 65_536)] {
            assert_eq!(Options::new().shards(asked).shard_amount(), made, "asked for {asked}");
        }
        assert!(Options::new().shard_amount() >= 64);
    }
}
