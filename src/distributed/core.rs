//! What locks and semaphores have in common: the store, and who watches over its leases.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, StoreError, StoreErrorKind};
use super::lease::{Front, Keeping, Lease};
use super::name::Name;
use super::options::LeaseOptions;
use super::patience::{Backoff, Patience};
use super::store::{Claim, Grant, Holder, Kind, Released, Store};
use super::watchdog::{Task, Watchdog};
use crate::error::AcquireError;
use crate::wait::{Deadline, Wait};

/// How long giving back may take.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// A store that fails has said so by then.
const LONGEST_FAILURE: Duration = Duration::from_secs(10);

pub(super) struct Core {
    store: Arc<dyn Store>,
    options: LeaseOptions,
    watchdog: Arc<Watchdog>,
    /// Asks no store, so that it is never late.
    clock: Arc<Watchdog>,
}

impl Core {
    pub(super) fn new(store: impl Store, options: LeaseOptions) -> Arc<Self> {
        Arc::new(Self { store: Arc::new(store), options, watchdog: Arc::default(), clock: Arc::default() })
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Renews leases, and cleans up.
    pub(super) fn watchdog(&self) -> &Arc<Watchdog> {
        &self.watchdog
    }

    /// Watches over the ends of leases.
    pub(super) fn clock(&self) -> &Arc<Watchdog> {
        &self.clock
    }

    /// How leases are kept, unless the call says otherwise.
    pub(super) fn keeping(&self) -> Keeping {
        let LeaseOptions { ttl, renew, max_hold, .. } = self.options;
        Keeping { ttl, renew, max_hold }
    }

    pub(super) fn error(&self, doing: &'static str, key: &str, cause: StoreError) -> Error {
        Error::store(doing, key, self.store.describe(), cause)
    }

    pub(super) fn not_granted(&self, key: &str, cause: AcquireError) -> Error {
        Error::not_granted(key, self.store.describe(), cause)
    }

    /// Refused within this process. If the time was up by then, it is the same as if it was up meanwhile.
    pub(super) fn refused(&self, key: &str, cause: AcquireError, deadline: Deadline) -> Error {
        let was_late = cause == AcquireError::Busy && deadline != Deadline::Passed;
        self.not_granted(key, if was_late { AcquireError::Timeout } else { cause })
    }

    /// Gets the key from the store, once no other thread of this process asks for it.
    pub(super) fn acquire(
        self: &Arc<Self>,
        key: &str,
        kind: Kind,
        keeping: Keeping,
        (wait, deadline): (&Wait, Deadline),
        front: Front,
    ) -> Result<Lease, Error> {
        self.options.check()?;
        let patience = Patience::new(wait, deadline);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let mut failing_since = None;
        loop {
            let claim = Claim::fresh(Name::new(self.options.namespace.clone(), key), kind);
            let begin = Instant::now();
            let unknown = Unknown { core: self, claim: &claim, ttl: keeping.ttl };
            let acquired = self.store.acquire(&claim, keeping.ttl, &patience);
            mem::forget(unknown);
            let error = match acquired {
                Ok(Some(grant)) if is_worth_having(&grant) => {
                    return Lease::new(self, claim, grant, keeping, front);
                }
                Ok(Some(_)) => {
                    self.clean_up(&claim, keeping.ttl, Known::Granted);
                    let ttl = keeping.ttl;
                    StoreError::transient(format!("the grant came after its time to live, {ttl:?}: give a longer one"))
                }
                Ok(None) => {
                    let cause = match patience.is_cancelled() {
                        true => AcquireError::Cancelled,
                        false if !patience.allows_waiting() => AcquireError::Busy,
                        false => AcquireError::Timeout,
                    };
                    return Err(self.not_granted(key, cause));
                }
                Err(error) => {
                    if error.kind() == StoreErrorKind::UnknownOutcome {
                        self.clean_up(&claim, keeping.ttl, Known::Nothing);
                    }
                    error
                }
            };
            // Who waited for long had answers until now.
            if begin.elapsed() > keeping.ttl + LONGEST_FAILURE {
                failing_since = None;
            }
            // Without a time limit the caller is not left to hang on a store that is gone.
            let since = *failing_since.get_or_insert_with(Instant::now);
            let hangs = patience.remaining().is_none() && since.elapsed() > keeping.ttl;
            let is_final = error.kind() == StoreErrorKind::Permanent;
            if !is_final && patience.is_cancelled() {
                return Err(self.not_granted(key, AcquireError::Cancelled));
            }
            if is_final || hangs || patience.is_over() {
                return Err(self.error("acquire", key, error));
            }
            if !patience.pause(backoff.pause()) && patience.is_cancelled() {
                return Err(self.not_granted(key, AcquireError::Cancelled));
            }
        }
    }

    pub(super) fn holders(&self, prefix: &str) -> Result<Vec<Holder>, Error> {
        self.store.holders(&self.options.namespace, prefix).map_err(|cause| self.error("list", prefix, cause))
    }

    /// Gives back, in the background, what the store may have granted, until it would have ended by itself.
    pub(super) fn clean_up(&self, claim: &Claim, ttl: Duration, known: Known) {
        let now = Instant::now();
        let Some(until) = now.checked_add(ttl) else { return };
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let task = CleanUp { store: Arc::clone(&self.store), claim: claim.clone(), known, until, backoff };
        // Without a thread it ends by itself.
        let _ = self.watchdog.add(now, Box::new(task));
    }
}

/// What is known of a claim that has to be cleaned up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It was granted: if the store does not know it, it is over.
    Granted,
    /// The request may still be on its way: if the store does not know it, it may come to know it yet.
    Nothing,
}

/// A claim of which it is not known what became of it. Dropped so, because the store panicked, it is cleaned up.
struct Unknown<'a> {
    core: &'a Core,
    claim: &'a Claim,
    ttl: Duration,
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        self.core.clean_up(self.claim, self.ttl, Known::Nothing);
    }
}

fn is_worth_having(grant: &Grant) -> bool {
    grant.term.is_none_or(|term| term.ends().is_none_or(|ends| Instant::now() < ends))
}

/// Gives back what may have been granted.
struct CleanUp {
    store: Arc<dyn Store>,
    claim: Claim,
    known: Known,
    until: Instant,
    backoff: Backoff,
}

impl Task for CleanUp {
    fn run(&mut self) -> Option<Instant> {
        let released = self.store.release(&self.claim, Duration::ZERO, RELEASE_WITHIN);
        let is_done = match released {
            Ok(Released::Freed) => true,
            Ok(Released::NotOwner) => self.known == Known::Granted,
            Err(_) => false,
        };
        let now = Instant::now();
        (!is_done && now < self.until).then(|| now + self.backoff.pause())
    }
}
