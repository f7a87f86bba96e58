//! What locks and semaphores have in common: the store, and who watches over its leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, StoreError};
use super::options::LeaseOptions;
use super::patience::Backoff;
use super::store::{Claim, Holder, Released, Store};
use super::watchdog::{Task, Watchdog};
use crate::error::AcquireError;

/// How long the store may take to answer where no lease ends meanwhile: to give back, and to say what is held, also by who is late.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How a lease is kept.
#[derive(Clone, Copy)]
pub(super) struct Keeping {
    pub(super) ttl: Duration,
    pub(super) renew: bool,
    pub(super) max_hold: Option<Duration>,
}

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

    pub(super) fn options(&self) -> &LeaseOptions {
        &self.options
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
        let released = self.store.release(&self.claim, Duration::ZERO, ANSWER_WITHIN);
        let is_done = match released {
            Ok(Released::Freed) => true,
            Ok(Released::NotOwner) => self.known == Known::Granted,
            Err(_) => false,
        };
        let now = Instant::now();
        (!is_done && now < self.until).then(|| now + self.backoff.pause())
    }
}
