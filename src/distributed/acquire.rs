//! How a key is got from a store, with all that may fail on the way.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::{Core, Keeping, Known};
use super::error::{Error, StoreError, StoreErrorKind};
use super::lease::{Front, Lease};
use super::name::Name;
use super::patience::{Backoff, Patience};
use super::store::{Claim, Grant, Kind};
use crate::error::AcquireError;
use crate::wait::{Deadline, Wait};

/// A store that fails has said so by then.
const LONGEST_FAILURE: Duration = Duration::from_secs(10);

impl Core {
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
        self.options().check()?;
        let patience = Patience::new(wait, deadline);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let mut failing_since = None;
        loop {
            let claim = Claim::fresh(Name::new(self.options().namespace.clone(), key), kind);
            let begin = Instant::now();
            let unknown = Unknown { core: self, claim: &claim, ttl: keeping.ttl };
            let acquired = self.store().acquire(&claim, keeping.ttl, &patience);
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
