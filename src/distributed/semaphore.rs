//! At most N holders per key, beyond one process.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::core::Core;
use super::error::{Error, StoreError};
use super::lease::{Front, Lease};
use super::options::LeaseOptions;
use super::store::{Holder, Kind, Store};
use crate::error::AcquireError;
use crate::semaphore::KeyedSemaphore;
use crate::wait::{Deadline, Wait};

/// At most so many holders per key, over all processes that use the same store and namespace. Those with different limits
/// see the same holders, and each keeps to its own limit, as far as the store can tell (lock files and PostgreSQL
/// cannot, quite: one with a smaller limit does not see the places above it).
///
/// As a [`DistributedLock`](super::DistributedLock) otherwise; a key of one is not the same as a key of the other, also with a limit
/// of 1.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use perkey::distributed::{DistributedSemaphore, MemoryStore};
///
/// let hosts = DistributedSemaphore::new(MemoryStore::new(), NonZeroU32::new(2).unwrap());
/// let (one, two) = (hosts.acquire("a.example")?, hosts.acquire("a.example")?);
/// assert!(hosts.try_acquire("a.example")?.is_none());
/// drop(one);
/// assert!(hosts.try_acquire("a.example")?.is_some());
/// # drop(two);
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Clone)]
pub struct DistributedSemaphore {
    core: Arc<Core>,
    limit: NonZeroU32,
    front: Arc<KeyedSemaphore<String>>,
}

impl DistributedSemaphore {
    /// Permits over a store, with the default options.
    #[must_use]
    pub fn new(store: impl Store, limit: NonZeroU32) -> Self {
        Self::with_options(store, limit, LeaseOptions::new())
    }

    /// Permits over a store.
    #[must_use]
    pub fn with_options(store: impl Store, limit: NonZeroU32, options: LeaseOptions) -> Self {
        let front = Arc::new(KeyedSemaphore::with_limit(limit.get() as usize));
        Self { core: Core::new(store, options), limit, front }
    }

    /// Waits for a permit, for ever.
    ///
    /// # Errors
    ///
    /// As [`DistributedLock::lock`](super::DistributedLock::lock); and [`Error::Store`] if the store has no semaphores.
    pub fn acquire(&self, key: &str) -> Result<Lease, Error> {
        self.acquire_with(key, Wait::forever())
    }

    /// Takes a permit if there is one. One attempt.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), at once.
    pub fn try_acquire(&self, key: &str) -> Result<Option<Lease>, Error> {
        match self.acquire_until(key, &Wait::now(), Deadline::Passed) {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::NotGranted { cause: AcquireError::Busy, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for a permit as `wait` says.
    ///
    /// # Errors
    ///
    /// As [`DistributedLock::lock_with`](super::DistributedLock::lock_with); and [`Error::Store`] if the store has no semaphores.
    pub fn acquire_with(&self, key: &str, wait: impl Into<Wait>) -> Result<Lease, Error> {
        let wait = wait.into();
        let deadline = wait.deadline();
        self.acquire_until(key, &wait, deadline)
    }

    /// Holds a permit while `work` runs. It is given back after it, also if it panics.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), before `work` runs.
    pub fn with_key<R>(&self, key: &str, work: impl FnOnce(&Lease) -> R) -> Result<R, Error> {
        let lease = self.acquire(key)?;
        Ok(work(&lease))
    }

    /// Who holds permits of the keys that begin with `prefix`, by key.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the store fails, or cannot tell.
    pub fn holders(&self, prefix: &str) -> Result<Vec<Holder>, Error> {
        self.core.holders(prefix)
    }

    fn acquire_until(&self, key: &str, wait: &Wait, deadline: Deadline) -> Result<Lease, Error> {
        if !self.core.store().capabilities().semaphores {
            let cause = StoreError::permanent("this store has locks only, no semaphores");
            return Err(self.core.error("acquire", key, cause));
        }
        let front = self.front.acquire_arc_with(key, wait.ending(deadline));
        let front = front.map_err(|cause| self.core.refused(key, cause, deadline))?;
        let kind = Kind::Permit { limit: self.limit };
        self.core.acquire(key, kind, self.core.keeping(), (wait, deadline), Front::Permit(front))
    }
}

impl fmt::Debug for DistributedSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedSemaphore")
            .field("store", &self.core.store().describe())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
