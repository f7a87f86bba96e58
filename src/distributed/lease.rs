//! A key that is held beyond this process.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::{ANSWER_WITHIN, Core, Keeping, Known};
use super::error::{Error, StoreError};
use super::lost::Lost;
use super::store::{Claim, Grant, Released, Renewal, Store};
use super::watchdog::Task;
use crate::lock::ArcKeyedLockGuard;
use crate::semaphore::ArcKeyedPermit;
use crate::sync::Mutex;
use crate::unwind::survive;

/// A key of a [`DistributedLock`](super::DistributedLock), or a permit of a [`DistributedSemaphore`](super::DistributedSemaphore),
/// held until this is dropped or released; or until it is lost, which [`is_held`](Self::is_held) and [`lost`](Self::lost) tell.
///
/// It can move to another thread. Dropping it gives the key back, which takes about four seconds at the most, and cannot say if that
/// failed: [`release`](Self::release) can.
///
/// # Examples
///
/// ```
/// use perkey::distributed::{DistributedLock, MemoryStore, Released};
///
/// let jobs = DistributedLock::new(MemoryStore::new());
/// let lease = jobs.lock("nightly-report")?;
/// for page in 0..3 {
///     if !lease.is_held() {
///         panic!("page {page} may be written by somebody else by now");
///     }
/// }
/// assert_eq!(lease.release()?, Released::Freed);
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[must_use = "dropping the lease gives the key back"]
pub struct Lease {
    held: Arc<Held>,
    core: Arc<Core>,
    /// Its tasks, if it is watched.
    renewing: Option<u64>,
    ending: Option<u64>,
    /// Given back, or given up.
    is_over: bool,
    /// Keeps other threads of this process out, until the lease is given back or lost; the last to go.
    front: Arc<Mutex<Option<Front>>>,
}

/// No try to renew takes longer: giving the lease back waits for one that is on its way.
const LONGEST_TRY: Duration = Duration::from_secs(2);

/// What keeps the other threads of this process from asking the store.
pub(super) enum Front {
    Lock(#[expect(dead_code, reason = "held")] ArcKeyedLockGuard<String>),
    Permit(#[expect(dead_code, reason = "held")] ArcKeyedPermit<String>),
}

/// What the lease shares with the thread that renews it.
struct Held {
    store: Arc<dyn Store>,
    claim: Claim,
    token: Option<u64>,
    keeping: Keeping,
    /// When the claim is over whatever happens.
    hold_ends: Option<Instant>,
    /// Locked for as long as a renewal takes.
    renewal: Mutex<()>,
    /// When the term is over, as far as it was renewed.
    ends: Mutex<Option<Instant>>,
}

impl Held {
    fn ends(&self) -> Option<Instant> {
        *self.ends.lock()
    }

    /// When it is over if nobody renews it.
    fn is_over_at(&self) -> Option<Instant> {
        self.ends().into_iter().chain(self.hold_ends).min()
    }

    fn is_held(&self) -> bool {
        !self.claim.lost().is_set() && self.is_over_at().is_none_or(|over| Instant::now() < over)
    }

    /// Asks the store for another term. Whether it was granted.
    fn renew(&self, within: Duration) -> Result<bool, StoreError> {
        let _one_at_a_time = self.renewal.lock();
        match self.store.renew(&self.claim, self.keeping.ttl, within)? {
            Renewal::Renewed(term) => {
                let mut ends = self.ends.lock();
                *ends = term.ends().zip(*ends).map(|(new, old)| new.max(old));
            }
            Renewal::NotOwner => self.claim.lost().set(),
        }
        Ok(self.is_held())
    }

    fn give_back(&self, keep_for: Duration) -> Result<Released, StoreError> {
        self.store.release(&self.claim, keep_for, ANSWER_WITHIN)
    }
}

impl Lease {
    /// Of what was just granted. Fails if nobody can watch over it: then it is given back.
    pub(super) fn new(
        core: &Arc<Core>,
        claim: Claim,
        grant: Grant,
        keeping: Keeping,
        front: Front,
    ) -> Result<Self, Error> {
        let now = Instant::now();
        let held = Arc::new(Held {
            store: Arc::clone(core.store()),
            claim,
            token: grant.token,
            keeping,
            hold_ends: keeping.max_hold.and_then(|max_hold| now.checked_add(max_hold)),
            renewal: Mutex::new(()),
            ends: Mutex::new(grant.term.and_then(|term| term.ends())),
        });
        let front = Arc::new(Mutex::new(Some(front)));
        // A holder who hangs, or has forgotten the lease, keeps nobody out of what it has lost.
        let outlived = Arc::downgrade(&front);
        held.claim.lost().on_lost(move || drop(outlived.upgrade().and_then(|front| front.lock().take())));
        let mut lease = Self { held, core: Arc::clone(core), renewing: None, ending: None, is_over: false, front };
        lease.watch(now).map_err(|error| {
            let cause = StoreError::transient("no thread to renew the lease with").caused_by(error);
            core.error("watch over", lease.key(), cause)
        })?;
        Ok(lease)
    }

    /// What was granted.
    #[cfg(feature = "etcd")]
    pub(super) fn claim(&self) -> &Claim {
        &self.held.claim
    }

    /// Has it renewed and its end noticed, if it has one.
    fn watch(&mut self, now: Instant) -> io::Result<()> {
        let Some(over) = self.held.is_over_at() else { return Ok(()) };
        let end = End { held: Arc::clone(&self.held) };
        self.ending = Some(self.core.clock().add(over, Box::new(end))?);
        let watch = Watch { held: Arc::clone(&self.held), core: Arc::clone(&self.core) };
        if let Some(due) = watch.next_due(now) {
            self.renewing = Some(self.core.watchdog().add(due, Box::new(watch))?);
        }
        Ok(())
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.held.claim.name().key()
    }

    /// A number that is higher than that of every earlier holder of the key. Send it along with every write, and have the resource
    /// refuse what comes with a lower number than it has seen: then a holder who does not know yet that the lease was lost does no harm.
    /// `None` if the store has none.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.token
    }

    /// Whether the key is held, by the clock of this process, and as far as the store has told. Asks nobody.
    ///
    /// `false` is final unless a renewal is on its way. `true` may be wrong by the time that it is looked at: a thread can be
    /// stopped at any time, for any time. On Linux the clock stands still while the machine is suspended; after that this
    /// is wrong until the next renewal. Where that matters, the resource has to check the [token](Self::fencing_token).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// The time that is left if nobody renews the lease. `None` means that it does not end by itself.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        if !self.is_held() {
            return Some(Duration::ZERO);
        }
        self.held.is_over_at().map(|over| over.saturating_duration_since(Instant::now()))
    }

    /// Tells when the lease is lost.
    #[must_use]
    pub fn lost(&self) -> &Lost {
        self.held.claim.lost()
    }

    /// Asks the store whether the key is held. If not, the lease is lost.
    ///
    /// # Errors
    ///
    /// If the store does not answer: then it is not known.
    pub fn verify(&self) -> Result<bool, Error> {
        match self.held.store.verify(&self.held.claim, ANSWER_WITHIN) {
            Ok(true) => Ok(self.is_held()),
            Ok(false) => {
                self.lost().set();
                Ok(false)
            }
            Err(cause) => Err(self.core.error("verify", self.key(), cause)),
        }
    }

    /// Asks the store for another term now. Whether it is held; `true` at once where the store has no leases.
    ///
    /// # Errors
    ///
    /// If the store does not answer. The lease is as it was.
    pub fn renew(&self) -> Result<bool, Error> {
        let Some(remaining) = self.held.ends().map(|ends| ends.saturating_duration_since(Instant::now())) else {
            return Ok(self.is_held());
        };
        if !self.is_held() {
            return Ok(false);
        }
        self.held.renew(remaining).map_err(|cause| self.core.error("renew", self.key(), cause))
    }

    /// Gives the key back, and says whether it was held until now.
    ///
    /// # Errors
    ///
    /// If the store does not answer. It is asked again in the background, until the lease has ended by itself.
    pub fn release(self) -> Result<Released, Error> {
        self.release_and_keep(Duration::ZERO)
    }

    /// As [`release`](Self::release), but nobody is granted the key for a while.
    pub(super) fn release_and_keep(mut self, keep_for: Duration) -> Result<Released, Error> {
        self.end(keep_for).map_err(|cause| self.core.error("release", self.key(), cause))
    }

    fn end(&mut self, keep_for: Duration) -> Result<Released, StoreError> {
        self.is_over = true;
        if let Some(number) = self.renewing.take() {
            self.core.watchdog().take_off(number);
        }
        if let Some(number) = self.ending.take() {
            self.core.clock().take_off(number);
        }
        let released = self.held.give_back(keep_for);
        // What shall be kept is kept, for as long as the lease lasts.
        if released.is_err() && keep_for.is_zero() {
            self.core.clean_up(&self.held.claim, self.held.keeping.ttl, Known::Granted);
        }
        *self.front.lock() = None;
        released
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_over {
            // A store's panic is reported by the panic hook; here it could end the process.
            survive(|| drop(self.end(Duration::ZERO)));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Says that a lease is lost when its time is up, also if the store hangs.
struct End {
    held: Arc<Held>,
}

impl Task for End {
    fn run(&mut self) -> Option<Instant> {
        let over = self.held.is_over_at()?;
        if self.held.claim.lost().is_set() {
            return None;
        }
        if Instant::now() < over {
            return Some(over);
        }
        self.held.claim.lost().set();
        None
    }
}

/// Renews a lease, and gives it back when it was held for as long as it may be.
struct Watch {
    held: Arc<Held>,
    core: Arc<Core>,
}

impl Watch {
    /// When there is something to do, if there will be.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let renew = self.held.ends().filter(|_| self.held.keeping.renew);
        // So early that there is time for more than one try.
        let renew = renew.map(|ends| now + ends.saturating_duration_since(now) / 3);
        renew.into_iter().chain(self.held.hold_ends).min()
    }

    /// Soon again, after an attempt that failed.
    fn retry_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let over = self.held.is_over_at()?;
        let pause = (over.saturating_duration_since(now) / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
        Some(over.min(now + pause))
    }
}

impl Task for Watch {
    fn run(&mut self) -> Option<Instant> {
        let (held, now) = (Arc::clone(&self.held), Instant::now());
        if held.hold_ends.is_some_and(|ends| ends <= now) {
            held.claim.lost().set();
            if held.give_back(Duration::ZERO).is_err() {
                self.core.clean_up(&held.claim, held.keeping.ttl, Known::Granted);
            }
            return None;
        }
        let remaining = held.ends().map(|ends| ends.saturating_duration_since(now));
        match remaining {
            _ if held.claim.lost().is_set() => None,
            Some(Duration::ZERO) => {
                held.claim.lost().set();
                None
            }
            Some(remaining) if held.keeping.renew => {
                // A store that panics has not renewed; the panic hook has reported it.
                let mut renewed = None;
                survive(|| renewed = held.renew((remaining / 2).min(LONGEST_TRY)).ok());
                match renewed {
                    Some(true) => self.next_due(Instant::now()),
                    // It came too late, or failed.
                    _ => self.retry_due(),
                }
            }
            _ => held.hold_ends,
        }
    }
}
