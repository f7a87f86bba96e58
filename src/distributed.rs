//! The same calls beyond one process: keys that are locked over processes and machines, by an engine that all of them reach.
//!
//! ```
//! use perkey::distributed::{DistributedLock, FileStore};
//!
//! # let directory = std::env::temp_dir().join(format!("perkey-mod-{}", std::process::id()));
//! // Processes of one machine that open the same directory.
//! let jobs = DistributedLock::new(FileStore::open(&directory)?);
//! let lease = jobs.lock("nightly-report")?;
//! println!("writing the report, with token {:?}", lease.fencing_token());
//! # drop(lease);
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Efficiency or correctness
//!
//! Within a process a lock is a fact. Beyond it, it is an opinion: a holder can be stopped for a minute (by the system, a debugger, a
//! virtual machine that moves), its lease ends, another gets the key, and the first goes on as if nothing had happened.
//! No store can prevent that. So say what the lock is for:
//!
//! * For **efficiency**, it saves doing work twice. That it happens once in a while is waste, and no harm. Look at
//!   [`Lease::is_held`] now and then, and stop when [`Lease::lost`] says so.
//! * For **correctness**, nothing may be written by a holder whose lease was lost. Then the resource has to take part: it
//!   refuses what comes with a [fencing token](Lease::fencing_token) lower than one it has seen; or the lock and the data lie in one
//!   transaction.
//!
//! # What is promised
//!
//! | store | a key ends | of two who ask at once one is granted | good for correctness | tokens rise |
//! |---|---|---|---|---|
//! | [`MemoryStore`] | after its `ttl` | yes, in this process | with the token | as long as the store lives |
//! | [`FileStore`] | with its process | yes, on this machine, on a local file system | yes, without a token: it is not lost while the process lives, but by `max_hold` and `at_most` | yes, also over a loss of power |
//! | `PostgresStore` (feature `postgres`) | with its session | yes, on one server | in the same transaction; else with the token | as long as the server keeps its data |
//! | `RedisStore` (feature `redis`) | after its `ttl`, by the server's wall clock | as long as it is one server that keeps its data: not over a failover | with the token | as long as the server's data or its clock survive |
//! | `EtcdStore` (feature `etcd`) | after its `ttl`, by the leader's clock; a new leader begins it anew | yes, also over a failover | with the token, or with a guard in a transaction of etcd | as long as the cluster's data survive |
//!
//! # Fencing
//!
//! The resource remembers the highest token that it was written with. In a database that is a column and a condition:
//!
//! ```sql
//! UPDATE report SET text = $1, token = $2 WHERE id = $3 AND token <= $2
//! -- no row was changed: the lease was lost, do not try again
//! ```
//!
//! For a resource within one process there is [`Fence`]:
//!
//! ```
//! use std::time::Duration;
//! use perkey::distributed::{DistributedLock, Fence, LeaseOptions, MemoryStore};
//!
//! let store = MemoryStore::new();
//! let worker = || DistributedLock::with_options(store.clone(), LeaseOptions::new().renew(false));
//! let (first, second) = (worker(), worker());
//! let report = Fence::new(); // beside the resource
//!
//! let paused = first.lock("report")?;
//! store.advance(Duration::from_secs(60)); // the first worker is stopped for a minute
//! let lease = second.lock("report")?; // the store gives the key to the second
//! assert!(report.admit("report", lease.fencing_token().unwrap()).is_ok());
//! // The first goes on, and believes that it holds the key.
//! assert!(paused.is_held());
//! assert!(report.admit("report", paused.fencing_token().unwrap()).is_err());
//! # Ok::<(), perkey::distributed::Error>(())
//! ```
//!
//! # How leases are kept
//!
//! A lease ends, for its holder, a bit before it ends for the store: reckoned from when the request was sent, and less 1 % and
//! 2 ms. A background thread per lock or semaphore object renews its leases after a third of their time. Each try may take half of what
//! is left, and two seconds at the most; one that fails is repeated, until the store says that somebody else has the key, or the time is
//! up: then [`Lease::lost`] is set, once and for ever. (Another thread looks at the clock, so that this is in time also while
//! the store hangs.) If the store gives no answer to a request, so that nobody knows whether it was granted, it is given back in the
//! background.

mod acquire;
mod core;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod fence;
mod file;
mod job;
mod lease;
mod lock;
mod lost;
mod memory;
mod name;
mod options;
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
mod random;
#[cfg(feature = "redis")]
mod redis;
mod semaphore;
mod store;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod tls;
mod watchdog;

#[cfg(feature = "etcd")]
pub use self::etcd::EtcdStore;
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresStore, lock_in_transaction, try_lock_in_transaction};
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
pub use error::{Error, StoreError, StoreErrorKind};
pub use fence::{Fence, Fenced};
pub use file::FileStore;
pub use job::{Job, JobLimits};
pub use lease::Lease;
pub use lock::DistributedLock;
pub use lost::Lost;
pub use memory::MemoryStore;
pub use name::Name;
pub use options::LeaseOptions;
pub use patience::{Backoff, Patience, Waker};
pub use semaphore::DistributedSemaphore;
pub use store::{Capabilities, Claim, Grant, Holder, Kind, OwnerId, Released, Renewal, Store, Term};
