//! How leases are taken.

use std::time::Duration;

use super::error::Error;

/// How a [`DistributedLock`](super::DistributedLock) or a [`DistributedSemaphore`](super::DistributedSemaphore) takes leases.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, LeaseOptions, MemoryStore};
///
/// let options = LeaseOptions::new().namespace("billing").ttl(Duration::from_secs(10));
/// let accounts = DistributedLock::with_options(MemoryStore::new(), options);
/// let lease = accounts.lock("account-42")?;
/// assert!(lease.remaining().is_some_and(|left| left <= Duration::from_secs(10)));
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LeaseOptions {
    pub(super) ttl: Duration,
    pub(super) renew: bool,
    pub(super) namespace: String,
    pub(super) max_hold: Option<Duration>,
}

/// Leases that end within their own safety margin would be of no use.
pub(super) const SHORTEST_TTL: Duration = Duration::from_millis(10);
/// Ten years: what is longer is a mistake, and some engines would wrap around.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(30), renew: true, namespace: "perkey".to_owned(), max_hold: None }
    }
}

impl LeaseOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how long a lease ends if it is not renewed: so long others wait for a key whose holder was killed. Default: 30 s;
    /// at least 10 ms. Stores without leases ignore it.
    ///
    /// A pause of the holder that is longer than this (a stopped process, a suspended machine) loses the lease. On Linux the
    /// clock that [`is_held`](super::Lease::is_held) reads stands still while the machine is suspended: see there.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether a background thread renews leases every third of the `ttl`, as long as they are kept. Default: yes.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// What separates these keys from others in the same store. Default: `perkey`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Ends every lease after so long, whatever its holder does: one that was forgotten (`mem::forget`, a hung thread) does not stay
    /// for ever. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.ttl < SHORTEST_TTL {
            return Err(Error::Options(format!("a ttl of {:?} is too short: give {SHORTEST_TTL:?} or more", self.ttl)));
        }
        if self.ttl > LONGEST {
            return Err(Error::Options(format!("a ttl of {:?} is too long: give ten years or less", self.ttl)));
        }
        if self.max_hold == Some(Duration::ZERO) {
            return Err(Error::Options(
                "a max_hold of zero would end every lease at once: give more, or none".to_owned(),
            ));
        }
        Ok(())
    }
}
