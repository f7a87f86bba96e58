//! perkey
mod cancel;
mod error;
mod fault;
mod lock;
mod options;
mod owners;
mod semaphore;
mod slot;
mod status;
mod sync;
mod table;
mod wait;
mod waiter;

pub use cancel::CancellationToken;
pub use error::{AcquireError, Deadlock};
pub use lock::{ArcKeyedLockGuard, KeyedLock, KeyedLockGuard};
pub use options::{Fairness, Options};
pub use semaphore::{ArcKeyedPermit, DYNAMIC, KeyedPermit, KeyedSemaphore};
pub use status::{KeyStatus, WaiterStatus};
pub use wait::Wait;
