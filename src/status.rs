//! What `snapshot` returns.

use std::panic::Location;
use std::thread::Thread;
use std::time::Instant;

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
/// ```
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
    /// The requests that wait for the key, in order of arrival. Those that a lock over every key holds back come last.
    pub waiters: Vec<WaiterStatus>,
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
