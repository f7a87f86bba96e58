//! A store within one process: the reference for tests, with a clock that they can move.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::StoreError;
use super::patience::{Patience, Waker};
use super::store::{Capabilities, Claim, Grant, Holder, Kind, OwnerId, Released, Renewal, Store, Term};
use crate::sync::Mutex;

/// Leases within one process: to test code that is written for a store. Clones are the same store.
///
/// Waiters are granted in no particular order, as by most engines. Token counters stay for as long as the store does.
///
/// # Examples
///
/// Two "machines", and a lease that ends because time passes:
///
/// ```
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, LeaseOptions, MemoryStore};
///
/// let store = MemoryStore::new();
/// let options = || LeaseOptions::new().ttl(Duration::from_secs(30)).renew(false);
/// let here = DistributedLock::with_options(store.clone(), options());
/// let there = DistributedLock::with_options(store.clone(), options());
///
/// let first = here.lock("report")?;
/// assert!(there.try_lock("report")?.is_none());
/// store.advance(Duration::from_secs(31));
/// let second = there.try_lock("report")?.expect("the first has run out");
/// assert!(second.fencing_token() > first.fencing_token());
/// assert!(!first.verify()?);
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// How far the clock was moved.
    advanced: Duration,
    /// By namespace, key, and whether it is a lock.
    names: BTreeMap<(String, String, bool), Entry>,
}

#[derive(Default)]
struct Entry {
    last_token: u64,
    holders: Vec<Held>,
    waiting: Vec<(OwnerId, Waker)>,
}

struct Held {
    /// `None` if it is only kept.
    owner: Option<OwnerId>,
    token: u64,
    ends: Instant,
}

impl Entry {
    /// Drops what has ended.
    fn look(&mut self, now: Instant) {
        self.holders.retain(|held| held.ends > now);
    }

    fn held_by(&mut self, owner: OwnerId) -> Option<&mut Held> {
        self.holders.iter_mut().find(|held| held.owner == Some(owner))
    }

    fn wake(&self) {
        self.waiting.iter().for_each(|(_, waker)| waker.wake());
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock of the store forward, not those of its users: as if these had been stopped for so long.
    pub fn advance(&self, duration: Duration) {
        let mut shared = self.shared.lock();
        shared.advanced += duration;
        shared.names.values().for_each(Entry::wake);
    }

    /// Reads or changes the entry of a claim, in which everything that has ended is gone.
    fn with<R>(&self, claim: &Claim, change: impl FnOnce(&mut Entry, Instant) -> R) -> R {
        let mut shared = self.shared.lock();
        let now = Instant::now() + shared.advanced;
        let name = claim.name();
        let key = (name.namespace().to_owned(), name.key().to_owned(), claim.kind() == Kind::Lock);
        let entry = shared.names.entry(key).or_default();
        entry.look(now);
        change(entry, now)
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leases: true, tokens: true, semaphores: true, lists_holders: true }
    }

    fn describe(&self) -> String {
        "a store in memory".to_owned()
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        let granted = loop {
            let asked = Instant::now();
            let attempt = self.with(claim, |entry, now| {
                if entry.holders.len() >= claim.limit() as usize {
                    if patience.allows_waiting() && !entry.waiting.iter().any(|(owner, _)| *owner == claim.owner()) {
                        entry.waiting.push((claim.owner(), patience.waker()));
                    }
                    let first = entry.holders.iter().map(|held| held.ends).min();
                    return Err(first.map_or(Duration::ZERO, |ends| ends - now));
                }
                entry.last_token += 1;
                let held = Held { owner: Some(claim.owner()), token: entry.last_token, ends: now + ttl };
                entry.holders.push(held);
                Ok(Grant::of_term(Some(entry.last_token), Term { asked, granted: ttl }))
            });
            match attempt {
                Ok(grant) => break Some(grant),
                Err(until_one_ends) if !patience.pause(until_one_ends) => break None,
                Err(_) => {}
            }
        };
        self.with(claim, |entry, _| entry.waiting.retain(|(owner, _)| *owner != claim.owner()));
        Ok(granted)
    }

    fn renew(&self, claim: &Claim, ttl: Duration, _: Duration) -> Result<Renewal, StoreError> {
        let asked = Instant::now();
        Ok(self.with(claim, |entry, now| match entry.held_by(claim.owner()) {
            Some(held) => {
                held.ends = now + ttl;
                Renewal::Renewed(Term { asked, granted: ttl })
            }
            None => Renewal::NotOwner,
        }))
    }

    fn release(&self, claim: &Claim, keep_for: Duration, _: Duration) -> Result<Released, StoreError> {
        Ok(self.with(claim, |entry, now| {
            let Some(held) = entry.held_by(claim.owner()) else { return Released::NotOwner };
            (held.owner, held.ends) = (None, now + keep_for);
            entry.look(now);
            entry.wake();
            Released::Freed
        }))
    }

    fn verify(&self, claim: &Claim, _: Duration) -> Result<bool, StoreError> {
        Ok(self.with(claim, |entry, _| entry.held_by(claim.owner()).is_some()))
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let shared = self.shared.lock();
        let now = Instant::now() + shared.advanced;
        let names = shared.names.iter().filter(|((of, key, _), _)| of == namespace && key.starts_with(prefix));
        let held = names.flat_map(|((_, key, _), entry)| entry.holders.iter().map(move |held| (key, held)));
        let holder = |(key, held): (&String, &Held)| {
            let owner = held.owner.map(|owner| owner.to_string()).unwrap_or_default();
            Holder::new(key, owner, Some(held.token), Some(held.ends - now))
        };
        Ok(held.filter(|(_, held)| held.ends > now).map(holder).collect())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
