//! What `snapshot` returns.

use std::fmt;
use std::panic::Location;
use std::thread::{Thread, ThreadId};
use std::time::Instant;

use crate::mode::MAX_READERS;

/// One key of a table at the moment of a `snapshot`.
///
/// # Examples
///
/// ```
/// use perkey::KeyedLock;
///
/// let locks = KeyedLock::<String>::new();
/// let _held = locks.lock("nightly-report");
/// let [status] = &locks.snapshot()[..] else { panic!("one key is held") };
/// assert_eq!((status.key.as_str(), status.held, status.limit), ("nightly-report", 1, 1));
/// assert!(status.waiters.is_empty());
/// println!("{status}");
/// ```
///
/// Its `Display` is for logs: one line for the key, and one for each holder and waiter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyStatus<K> {
    /// The key.
    pub key: K,
    /// How many permits are taken: 1 for a lock that is held, or its guards if it is
    /// [reentrant](crate::Options::reentrant); 0 for a key that is kept. Of a [`KeyedRwLock`](crate::KeyedRwLock), the
    /// readers; a writer holds all permits.
    pub held: usize,
    /// How many permits the key has: 1 for a lock, as many as there can be readers for a
    /// [`KeyedRwLock`](crate::KeyedRwLock).
    pub limit: usize,
    /// How many guards over every key there are, of a [`KeyedRwLock`](crate::KeyedRwLock): they hold this key too.
    pub held_with_all: usize,
    /// Who holds the key, the oldest first; who took it without waiting is here a moment later than in
    /// [`held`](Self::held). Empty without [`Options::track_owners`](crate::Options::track_owners). Those who hold
    /// every key are in [`holders_of_all`](Self::holders_of_all).
    pub holders: Vec<HolderStatus>,
    /// Who holds every key, the oldest first; empty without [`Options::track_owners`](crate::Options::track_owners).
    pub holders_of_all: Vec<HolderStatus>,
    /// The requests that wait for the key, in order of arrival. Those that a lock over every key holds back come last.
    pub waiters: Vec<WaiterStatus>,
    /// The requests that wait for every key, and so for this one too, in the order in which they are served.
    pub waiters_for_all: Vec<WaiterStatus>,
}

impl<K> KeyStatus<K> {
    /// Nobody holds or waits.
    pub(crate) fn of(key: K) -> Self {
        Self {
            key,
            held: 0,
            limit: 0,
            held_with_all: 0,
            holders: Vec::new(),
            holders_of_all: Vec::new(),
            waiters: Vec::new(),
            waiters_for_all: Vec::new(),
        }
    }
}

/// One hold of a key.
///
/// # Examples
///
/// ```
/// use perkey::{KeyedSemaphore, Options};
///
/// let hosts = KeyedSemaphore::<String, 3>::with_options(Options::new().track_owners(true));
/// let _permits = (hosts.acquire("a.example"), hosts.acquire("a.example"));
/// for holder in &hosts.snapshot()[0].holders {
///     println!("{holder}");
///     assert_eq!(holder.permits, 1);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The thread that took it.
    pub thread: Thread,
    /// Whether the guard may have moved to another thread since: an `Arc` guard.
    pub movable: bool,
    /// Since when it is held.
    pub since: Instant,
    /// Where the call was made that took it.
    pub location: &'static Location<'static>,
    /// How many permits it has: 1 for a lock, and to read; to write, all that there are.
    pub permits: usize,
}

/// One request that waits for a key.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::KeyedLock;
///
/// let locks = KeyedLock::<u32>::new();
/// std::thread::scope(|scope| {
///     let held = locks.lock(&7);
///     scope.spawn(|| drop(locks.lock(&7)));
///     while locks.waiters(&7) == 0 {
///         std::thread::yield_now();
///     }
///     let waiter = &locks.snapshot()[0].waiters[0];
///     println!("{:?} has waited for {:?} at {}", waiter.thread.id(), waiter.since.elapsed(), waiter.location);
///     assert!(waiter.location.file().ends_with(".rs"));
///     drop(held);
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaiterStatus {
    /// The waiting thread.
    pub thread: Thread,
    /// When it queued.
    pub since: Instant,
    /// Where the call that waits was made.
    pub location: &'static Location<'static>,
    /// How many permits it asks for: 1 for a lock, and to read; to write, all that there are.
    pub permits: usize,
}

/// How a thread is called in a log: by its name, if it has one.
pub(crate) struct Called<'a>(pub(crate) Option<&'a str>, pub(crate) ThreadId);

impl fmt::Display for Called<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "thread {name:?}"),
            None => write!(f, "a thread without a name, {:?}", self.1),
        }
    }
}

/// How many permits, where that is not one.
pub(crate) struct Permits(pub(crate) usize);

impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALL: usize = MAX_READERS as usize;
        match self.0 {
            1 => Ok(()),
            ALL => f.write_str(" to write"),
            permits => write!(f, " with {permits} permits"),
        }
    }
}

/// How much of a key is held.
pub(crate) struct Taken {
    pub(crate) held: usize,
    pub(crate) limit: usize,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALL: usize = MAX_READERS as usize;
        match (self.held, self.limit) {
            (0, _) => f.write_str("free"),
            (_, 1) => f.write_str("held"),
            (ALL, ALL) => f.write_str("held to write"),
            (held, ALL) => write!(f, "held by {held} to read"),
            (held, limit) => write!(f, "{held} of {limit} held"),
        }
    }
}

impl fmt::Display for HolderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, movable, since, location, permits } = self;
        let (thread, since, permits) = (Called(thread.name(), thread.id()), since.elapsed(), Permits(*permits));
        let taken = if *movable { "taken, and perhaps passed on, by" } else { "held by" };
        write!(f, "{taken} {thread} for {since:.1?}{permits}, at {location}")
    }
}

impl fmt::Display for WaiterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, since, location, permits } = self;
        let (thread, since, permits) = (Called(thread.name(), thread.id()), since.elapsed(), Permits(*permits));
        write!(f, "{thread} waits for {since:.1?}{permits}, at {location}")
    }
}

impl<K: fmt::Debug> fmt::Display for KeyStatus<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, held, limit, held_with_all, holders, holders_of_all, waiters, waiters_for_all } = self;
        write!(f, "{key:?}: {}", Taken { held: *held, limit: *limit })?;
        if *held_with_all > 0 {
            f.write_str(", and held with every key")?;
        }
        write!(f, ", {} waiting", waiters.len())?;
        holders.iter().try_for_each(|holder| write!(f, "\n  {holder}"))?;
        holders_of_all.iter().try_for_each(|holder| write!(f, "\n  with every key {holder}"))?;
        waiters.iter().try_for_each(|waiter| write!(f, "\n  {waiter}"))?;
        waiters_for_all.iter().try_for_each(|waiter| write!(f, "\n  for every key {waiter}"))
    }
}
