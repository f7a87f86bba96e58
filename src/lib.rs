//! Per-key locks, read/write locks, mutexes and semaphores for threads: work on one key is serialised, or limited to N at a
//! time, and work on different keys runs in parallel.
//!
//! ```
//! use perkey::KeyedLock;
//!
//! let accounts = KeyedLock::<u64>::new();
//! let guard = accounts.lock(&42); // 42 is ours; 43 is free for others
//! assert!(accounts.is_locked(&42) && !accounts.is_locked(&43));
//! drop(guard); // nothing of account 42 is left in the table
//! assert!(accounts.is_empty());
//! ```
//!
//! # Which type when
//!
//! | you want | use |
//! |---|---|
//! | one thread at a time per key, to guard something that lies elsewhere: a row, a file, a host | [`KeyedLock`] |
//! | one thread at a time per key, to guard a value that the table keeps | [`KeyedMutex`] |
//! | many readers or one writer per key | [`KeyedRwLock`] |
//! | several keys at once | [`KeyedLock::lock_keys`], [`KeyedMutex::lock_keys`], [`KeyedRwLock::read_keys`], [`KeyedRwLock::write_keys`] |
//! | every key at once | [`KeyedRwLock::read_all`], [`KeyedRwLock::write_all`] |
//! | at most N at a time per key, N known when you write the program | [`KeyedSemaphore<K, N>`](KeyedSemaphore) |
//! | the same, N known when it runs | [`KeyedSemaphore<K>`](KeyedSemaphore) and [`with_limit`](KeyedSemaphore::with_limit) |
//! | a limit that depends on the key | [`KeyedSemaphore::with_limit_by`] |
//! | several permits of a key in one step | [`KeyedSemaphore::acquire_many`] |
//!
//! A [`KeyedMutex`] is the choice where the state is in memory and has no other home: it cannot be reached without its key's lock,
//! and it goes when it is taken out, or, with [`Options::idle_ttl`] and sweeps, has idled for long enough. Where the state has a home (a database, a directory, a
//! connection pool), a [`KeyedLock`] leaves nothing behind. A [`KeyedRwLock`] pays where readers of one key stay inside for a
//! while, or where something is done to all keys at once. A [`KeyedSemaphore`] of 1 is a lock without an owner: use it only
//! where permits move between threads as `Arc` permits anyway.
//!
//! They have the same families of calls, as far as these make sense for the type:
//!
//! | call | waits | if it does not get the key |
//! |---|---|---|
//! | `lock`, `read`, `write`, `acquire`, `with_key`, `with_read`, `with_write` | for ever | |
//! | `lock_keys`, `read_keys`, `write_keys`, `with_keys` | for ever, for every key named | |
//! | `read_all`, `write_all` | for ever, for every key there is | |
//! | `try_lock`, `try_read`, `try_write`, `try_read_all`, `try_write_all`, `try_acquire`, `try_with_key` | not at all | `None` |
//! | `try_lock_for`, `try_read_for`, `try_write_for`, `try_read_all_for`, `try_write_all_for`, `try_acquire_for` | for a [`Duration`](std::time::Duration) | `None` |
//! | `lock_with`, `read_with`, `write_with`, `read_all_with`, `write_all_with`, `lock_keys_with`, `read_keys_with`, `write_keys_with`, `acquire_with`, `acquire_many`, `with_key_within` | as a [`Wait`] says: time, cancellation, length of the queue | an [`AcquireError`] that says why |
//!
//! Those named `_arc` give a guard that may move to another thread and keeps the table alive.
//!
//! # Readers, writers, and every key at once
//!
//! Readers of a [`KeyedRwLock`] share their key, a writer has it alone. [`read_all`](KeyedRwLock::read_all) and
//! [`write_all`](KeyedRwLock::write_all) lock all keys in one step, those included that have no entry yet: a cache is read and
//! refreshed key by key, and rebuilt while nobody looks.
//!
//! ```
//! use perkey::{KeyedRwLock, KeyedRwLockWriteGuard};
//!
//! let pages = KeyedRwLock::<String>::new();
//! pages.with_read("index", || println!("read beside other readers"));
//!
//! let writer = pages.write("index"); // nobody else has it
//! let reader = KeyedRwLockWriteGuard::downgrade(writer); // and nobody has written since
//! drop(reader);
//!
//! let everything = pages.write_all(); // nobody else has any page
//! drop(everything);
//! ```
//!
//! Requests that conflict are served in the order in which they came (but for what [`Fairness::Eventual`] allows within the
//! queue of a key), so neither readers, nor writers, nor locks over every key can be kept out by the others. What a thread may
//! ask for while it holds something, the type's own page [says](KeyedRwLock#while-a-thread-holds-something).
//!
//! # How it works
//!
//! The table is a [`DashMap`](https://docs.rs/dashmap) with one entry per key that is held or waited for, and the state of
//! the key lies in the entry itself. Every decision about a key (grant, queue, release, give up) is made in one short
//! critical section under the lock of that key's shard, and the section that brings the number of holders and waiters to
//! zero removes the entry. So there is no lock object per key to leak, and no moment at which an entry is unused and still
//! there. A thread that has to wait parks on a condition variable of its own.
//!
//! That a waiter is woken to look, and is not told what has happened, and that one queue serves requests of every
//! weight, follows tokio's `batch_semaphore` and parking_lot's eventual fairness; the window of [`Fairness::Eventual`] is
//! measured per waiter, from the moment it is first in line.
//!
//! # Keys that come back
//!
//! An entry that goes the moment its key is free has to be made anew when the key comes back, and the key cloned. With
//! [`Options::idle_ttl`] it stays until a sweep finds that it has been idle for so long; [`Sweeper`] sweeps one table or
//! several in the background.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use perkey::{KeyedLock, Options, Sweeper};
//!
//! let options = Options::new().idle_ttl(Duration::from_secs(60));
//! let sessions = Arc::new(KeyedLock::<String>::with_options(options));
//! let sweeper = Sweeper::spawn(&sessions, Duration::from_secs(10));
//! sessions.with_key("session-1", || ()); // its entry goes about a minute after its last use
//! ```
//!
//! # When something hangs
//!
//! A thread that never gives its key back stops everybody who wants that key. Ask in this order:
//!
//! **Who waits, and for what?** `snapshot()` of a table shows every key with its waiters: thread, since when, and the call. Its
//! `Display` is made for logs. It waits for no holder, so a health check can print it at any time (but not a
//! signal handler: it takes locks and memory). A table of read/write locks without a key shows nobody, whoever waits for all.
//!
//! **Who holds it?** With [`Options::track_owners`] the same snapshot shows the holders. It costs an entry in a second map per
//! hold, so it is for tables whose keys are held for long, or for a day of searching.
//!
//! ```
//! use perkey::{KeyedLock, Options};
//!
//! let jobs = KeyedLock::<String>::with_options(Options::new().name("jobs").track_owners(true));
//! let _hangs = jobs.lock("nightly-report");
//! for status in jobs.snapshot() {
//!     // "nightly-report": held, 0 waiting
//!     //   held by thread "main" for 1.2µs, at src/main.rs:5:19
//!     eprintln!("{status}");
//! }
//! ```
//!
//! **Who tells me?** With the cargo feature `tracing`, `Options::warn_waiting_over` logs all this by itself, when a wait takes longer
//! than you think it should.
//!
//! **Do they wait for each other?** If the holders in the snapshot are waiters too, of another key or another table, it may be a
//! deadlock. [`Options::detect_deadlocks`] finds it as it happens: one request of the ring panics, gives `None`, or fails
//! with [`AcquireError::WouldDeadlock`], and [`Deadlock`] names all threads of the ring, what they hold and what they wait for.
//! Then take keys in one order, which `lock_keys` does for the keys of one table, or take the second key with a time limit
//! while you hold the first.
//!
//! **Is it only slow?** `stats()` says how many requests had to wait, the longest wait, and how many ran out of time, from the
//! start of the table on, without an option.
//!
//! What no option sees: a wait for something else than a key (a channel, a socket, another lock), a guard that was forgotten
//! (its key is held, and its thread runs), and who has an `Arc` guard that was passed on (the snapshot says who took it).
//!
//! # What a key needs
//!
//! `Hash + Eq`, and `ToOwned` for the form it is called with: a `KeyedLock<String>` is called with `&str`, a
//! `KeyedLock<u64>` with `&u64` (which asks for `Clone`), a `KeyedLock<&'static str>` with `&"a"`, and a
//! `KeyedLock<Arc<str>>` with an `&Arc<str>`, whose clone is a count and not a copy.
//! What of it runs where, and what it may do there, [`KeyedLock`] says.
//!
//! # Cargo features
//!
//! `tracing`, off by default: `Options::warn_waiting_over`, warnings of waits that go on for long, as events of
//! [tracing](https://docs.rs/tracing).
//!
//! `distributed`, off by default: the module `distributed`, the same calls beyond one process, with stores in memory and as lock files.
//! `etcd` adds a store in an etcd cluster, `postgres` one in a PostgreSQL server, and `redis` one in a Redis server.
//!
//! # Thread-locals, forks, async
//!
//! Keys can be locked in the destructors of thread-locals. Guards of one table may be dropped in any order. After a
//! `fork` only the calling thread lives on in the child, and what others held stays held there: do not share tables with
//! a forked child. The calls block their thread: they are not for async tasks.
#![forbid(unsafe_code)]

mod cancel;
mod content;
mod deadlock;
#[cfg(all(feature = "distributed", not(loom)))]
pub mod distributed;
mod error;
mod fault;
mod gate;
mod keys;
mod limit;
mod lock;
mod mode;
mod mutex;
mod options;
mod owners;
mod report;
mod retention;
mod rwlock;
mod semaphore;
mod slot;
mod stats;
mod status;
#[cfg(not(loom))]
mod sweeper;
mod sync;
mod table;
mod unwind;
mod wait;
mod waiter;
#[cfg(feature = "tracing")]
mod warning;

pub use cancel::CancellationToken;
pub use error::AcquireError;
pub use limit::Limit;
pub use lock::{ArcKeyedLockGuard, KeyedLock, KeyedLockGuard, KeyedLockKeysGuard};
pub use mutex::{ArcKeyedMutexGuard, KeyedMutex, KeyedMutexGuard, KeyedMutexKeysGuard};
pub use options::{Fairness, Options};
pub use report::{Deadlock, DeadlockedRequest, DeadlockedThread};
pub use rwlock::{
    ArcKeyedRwLockReadGuard, ArcKeyedRwLockWriteGuard, KeyedRwLock, KeyedRwLockReadAllGuard, KeyedRwLockReadGuard,
    KeyedRwLockReadKeysGuard, KeyedRwLockWriteAllGuard, KeyedRwLockWriteGuard, KeyedRwLockWriteKeysGuard,
};
pub use semaphore::{ArcKeyedPermit, DYNAMIC, KeyedPermit, KeyedSemaphore};
pub use stats::Stats;
pub use status::{HolderStatus, KeyStatus, WaiterStatus};
#[cfg(not(loom))]
pub use sweeper::{Sweep, Sweeper};
pub use wait::Wait;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
