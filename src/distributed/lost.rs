//! Says that a lease is lost.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};
use crate::unwind::survive;

/// Whether a [`Lease`](super::Lease) was lost: it ran out, somebody else has the key, or the session that held it is gone. Set
/// once, and never taken back. Clones are the same signal.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, LeaseOptions, MemoryStore};
///
/// let options = LeaseOptions::new().ttl(Duration::from_millis(20)).renew(false);
/// let jobs = DistributedLock::with_options(MemoryStore::new(), options);
/// let lease = jobs.lock("nightly-report")?;
/// lease.lost().on_lost(|| println!("stop the report: somebody else may write it"));
/// assert!(lease.lost().wait_timeout(Duration::from_secs(60)));
/// assert!(!lease.is_held());
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Lost(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_set: bool,
    calls: Vec<Box<dyn FnOnce() + Send>>,
}

impl Lost {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Whether the lease was lost. [`Lease::is_held`](super::Lease::is_held) also looks at the clock.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.state.lock().is_set
    }

    /// Waits until the lease is lost, for at most `duration`. Whether it is.
    #[must_use]
    pub fn wait_timeout(&self, duration: Duration) -> bool {
        let mut state = self.0.state.lock();
        self.0.changed.wait_while_for(&mut state, |state| !state.is_set, duration);
        state.is_set
    }

    /// Calls `call` once the lease is lost, or now if it is: on the thread that finds out, which renews other leases too. So it
    /// has to be quick, must not call the store, and must not wait for a lock that is held by who drops the lease: that waits for this
    /// call. A call that owns the [`Lease`](super::Lease), by an `Arc`, keeps it for ever. If it panics, that is reported by the panic hook, and goes no further.
    pub fn on_lost(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if !state.is_set {
            return state.calls.push(Box::new(call));
        }
        drop(state);
        survive(call);
    }

    /// Says that the lease is lost: for stores whose sessions can end.
    pub fn set(&self) {
        let mut state = self.0.state.lock();
        state.is_set = true;
        let calls = mem::take(&mut state.calls);
        drop(state);
        self.0.changed.notify_all();
        calls.into_iter().for_each(survive);
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("is_set", &self.is_set()).finish()
    }
}
