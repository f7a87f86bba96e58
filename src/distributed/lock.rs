//! One holder per key, beyond one process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::core::{Core, Keeping};
use super::error::Error;
use super::job::{Job, JobLimits};
use super::lease::{Front, Lease};
use super::options::LeaseOptions;
use super::store::{Holder, Kind, Store};
use crate::error::AcquireError;
use crate::lock::KeyedLock;
use crate::wait::{Deadline, Wait};

/// One holder per key, over all processes that use the same store and namespace.
///
/// Within this process a [`KeyedLock`] comes first, so that of its threads one at a time asks the store for a key; among processes
/// there is no order of arrival unless the store has one. Clones share that lock; make one object per store, and share it. Leases
/// have no owner: a thread that locks a key that it holds waits for itself, until its time limit.
///
/// What a lease is worth depends on the store: see [the table](super#what-is-promised).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, MemoryStore};
///
/// let accounts = DistributedLock::new(MemoryStore::new());
/// let lease = accounts.lock_with("account-42", Duration::from_secs(5))?;
/// assert!(accounts.try_lock("account-42")?.is_none());
/// assert!(accounts.try_lock("account-43")?.is_some());
/// drop(lease);
/// assert!(accounts.try_lock("account-42")?.is_some());
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Clone)]
pub struct DistributedLock {
    core: Arc<Core>,
    front: Arc<KeyedLock<String>>,
}

impl DistributedLock {
    /// Locks over a store, with the default options.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::with_options(store, LeaseOptions::new())
    }

    /// Locks over a store.
    #[must_use]
    pub fn with_options(store: impl Store, options: LeaseOptions) -> Self {
        Self { core: Core::new(store, options), front: Arc::default() }
    }

    /// Waits for the key, for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the store fails for good, or for longer than a [`ttl`](LeaseOptions::ttl); [`Error::Options`] if the
    /// options make no sense.
    pub fn lock(&self, key: &str) -> Result<Lease, Error> {
        self.lock_with(key, Wait::forever())
    }

    /// Takes the key if it is free. One attempt.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), at once.
    pub fn try_lock(&self, key: &str) -> Result<Option<Lease>, Error> {
        self.try_lock_keeping(key, self.core.keeping())
    }

    /// Waits for the key as `wait` says: its time limit is for all of it, and [`max_queued`](Wait::max_queued) counts the threads of
    /// this process.
    ///
    /// # Errors
    ///
    /// [`Error::NotGranted`] if the wait ended before; else as [`lock`](Self::lock). A failure that may pass is retried until
    /// the time is up.
    pub fn lock_with(&self, key: &str, wait: impl Into<Wait>) -> Result<Lease, Error> {
        let wait = wait.into();
        let deadline = wait.deadline();
        self.lock_until(key, &wait, deadline, self.core.keeping())
    }

    /// Locks the key while `work` runs. The lease is given back after it, also if it panics.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` runs.
    pub fn with_key<R>(&self, key: &str, work: impl FnOnce(&Lease) -> R) -> Result<R, Error> {
        let lease = self.lock(key)?;
        Ok(work(&lease))
    }

    /// Locks several keys, in their order, each once: all or none, with one time limit.
    ///
    /// Who locks several keys by this call only does not wait for others who do in a ring.
    ///
    /// # Errors
    ///
    /// As [`lock_with`](Self::lock_with), for the first key that fails.
    pub fn lock_many<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k str>,
        wait: impl Into<Wait>,
    ) -> Result<Vec<Lease>, Error> {
        let wait = wait.into();
        let deadline = wait.deadline();
        let keys: BTreeSet<&str> = keys.into_iter().collect();
        keys.into_iter().map(|key| self.lock_until(key, &wait, deadline, self.core.keeping())).collect()
    }

    /// Runs a job that several processes try to run, in one of them, if none runs it now; as a scheduler would.
    ///
    /// The key is taken for at most `limits.at_most`, without renewal: then others may run the job, and a process that was killed
    /// blocks it no longer. Once `work` is done the key is kept until `limits.at_least` have passed since the start, so that
    /// a process whose clock is late does not run it again. Where the store has no leases (a session, a lock file) it is this process that
    /// gives the key up after `limits.at_most`: one that is stopped does so when it goes on. If it panics the key is given back at once, as after every panic.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), before `work` runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::distributed::{DistributedLock, Job, JobLimits, MemoryStore};
    ///
    /// let jobs = DistributedLock::new(MemoryStore::new());
    /// let limits = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_secs(30) };
    /// let ran = jobs.run_job("nightly-report", limits, |_| "written")?;
    /// assert_eq!(ran, Job::Ran("written"));
    /// assert_eq!(jobs.run_job("nightly-report", limits, |_| "twice")?, Job::Skipped); // for half a minute
    /// # Ok::<(), perkey::distributed::Error>(())
    /// ```
    pub fn run_job<R>(&self, key: &str, limits: JobLimits, work: impl FnOnce(&Lease) -> R) -> Result<Job<R>, Error> {
        limits.check()?;
        let max_hold = self.core.keeping().max_hold.map_or(limits.at_most, |max_hold| max_hold.min(limits.at_most));
        let keeping = Keeping { ttl: limits.at_most, renew: false, max_hold: Some(max_hold) };
        let Some(lease) = self.try_lock_keeping(key, keeping)? else { return Ok(Job::Skipped) };
        let result = limits.run(lease, work);
        Ok(Job::Ran(result))
    }

    /// Who holds the keys that begin with `prefix`, by key.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the store fails, or cannot tell.
    pub fn holders(&self, prefix: &str) -> Result<Vec<Holder>, Error> {
        self.core.holders(prefix)
    }

    fn try_lock_keeping(&self, key: &str, keeping: Keeping) -> Result<Option<Lease>, Error> {
        match self.lock_until(key, &Wait::now(), Deadline::Passed, keeping) {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::NotGranted { cause: AcquireError::Busy, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock_until(&self, key: &str, wait: &Wait, deadline: Deadline, keeping: Keeping) -> Result<Lease, Error> {
        let front = self.front.lock_arc_with(key, wait.ending(deadline));
        let front = front.map_err(|cause| self.core.refused(key, cause, deadline))?;
        self.core.acquire(key, Kind::Lock, keeping, (wait, deadline), Front::Lock(front))
    }
}

impl fmt::Debug for DistributedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLock").field("store", &self.core.store().describe()).finish_non_exhaustive()
    }
}
