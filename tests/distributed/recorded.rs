//! A store that notes what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perkey::distributed::{Capabilities, Claim, Grant, Holder, Patience, Released, Renewal, Store, StoreError};

/// Passes everything on.
pub(crate) struct Recorded {
    inner: Arc<dyn Store>,
    claims: Mutex<Vec<Claim>>,
}

impl Recorded {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, claims: Mutex::default() })
    }

    /// What it was asked to grant, in this order. An attempt is noted before it is made.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.claims.lock().clone()
    }
}

impl Store for Recorded {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        self.claims.lock().push(claim.clone());
        self.inner.acquire(claim, ttl, patience)
    }

    fn renew(&self, claim: &Claim, ttl: Duration, within: Duration) -> Result<Renewal, StoreError> {
        self.inner.renew(claim, ttl, within)
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        self.inner.release(claim, keep_for, within)
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        self.inner.verify(claim, within)
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.inner.holders(namespace, prefix)
    }
}
