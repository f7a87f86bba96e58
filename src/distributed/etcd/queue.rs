//! Waits in the queue of a name until it is a claim's turn.
//!
//! Each claim has a lease, and under it a key of its own. Those who have the name, as many as the limit says, are the ones whose
//! keys were made first; the others wait, in the order in which theirs were made.

use std::time::{Duration, Instant};

use crate::distributed::error::StoreErrorKind;
use crate::distributed::patience::{Backoff, Patience};
use crate::distributed::random::part_of;
use crate::distributed::store::{Claim, Grant, Term};

use super::calls::{self, Place};
use super::fault::Fault;
use super::gateway::Gateway;
use super::keys::Keys;
use super::watch::Watch;
use super::{ATTEMPT, end};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// So late a waiter comes if there is no watch.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So late it comes if the watch has missed something.
const LONGEST_WATCH: Duration = Duration::from_secs(10);

/// A claim that waits.
struct Waiting<'a> {
    gateway: &'a Gateway,
    keys: &'a Keys,
    limit: u32,
    patience: &'a Patience<'a>,
    place: Place,
    term: Term,
    /// A majority knows of the term.
    is_sure: bool,
    renew_at: Instant,
    /// The last request has failed: the next is not hurried.
    has_failed: bool,
    watch: Option<Watch>,
}

/// Gets a claim granted. If not, or if it fails, nothing of it is left, or the error says that something may be.
pub(super) fn acquire(
    gateway: &Gateway,
    claim: &Claim,
    ttl: Duration,
    patience: &Patience<'_>,
) -> Result<Option<Grant>, Fault> {
    let (keys, limit) = (&Keys::of(claim), claim.limit());
    let until = || end(attempt_within(patience));
    // So a try in vain writes nothing.
    if !patience.allows_waiting() && gateway.count(keys, until())? >= u64::from(limit) {
        return Ok(None);
    }
    let (term, is_sure) = gateway.grant(keys.lease, ttl, until())?;
    let granted = match gateway.enter(keys, limit, until()) {
        Ok(Some(place)) => {
            let renew_at = renewal(&term);
            let (has_failed, watch) = (false, None);
            Waiting { gateway, keys, limit, patience, place, term, is_sure, renew_at, has_failed, watch }.wait()
        }
        Ok(None) => Err(Fault::transient("the lease has ended at once: is the server overloaded?")),
        Err(fault) => Err(fault),
    };
    match granted {
        Ok(Some(grant)) => Ok(Some(grant)),
        Ok(None) => gateway.revoke(keys.lease, end(ATTEMPT)).map(|_| None).map_err(Fault::half_done),
        // Once the lease has ended, nothing comes under it any more.
        Err(fault) => Err(match gateway.revoke(keys.lease, end(ATTEMPT)) {
            Ok(_) => fault.undone(),
            Err(_) => fault.half_done(),
        }),
    }
}

impl Waiting<'_> {
    /// `None` if the patience is over.
    fn wait(mut self) -> Result<Option<Grant>, Fault> {
        let mut backoff = quick();
        while !(self.is_its_turn() && self.is_term_good()?) {
            if !self.patience.allows_waiting() {
                return Ok(None);
            }
            self.listen();
            if !self.pause(backoff.pause())? {
                return Ok(None);
            }
            match self.gateway.look(self.keys, self.place.revision, self.limit, self.until()) {
                Ok(Some(place)) => {
                    if place.ahead != self.place.ahead {
                        backoff = quick();
                    }
                    self.place = place;
                    self.has_failed = false;
                }
                Ok(None) => return Err(lost()),
                Err(fault) => self.endure(fault)?,
            }
        }
        Ok(Some(Grant::of_term(Some(self.place.revision), self.term)))
    }

    fn is_its_turn(&self) -> bool {
        self.place.ahead.len() < self.limit as usize
    }

    /// Who has waited has used up some of the term, or knows it from one who may not lead any more: then there is another. Whether it is
    /// good to begin with.
    fn is_term_good(&mut self) -> Result<bool, Fault> {
        if self.is_sure && self.term.asked.elapsed() <= self.term.granted / 10 {
            return Ok(true);
        }
        match self.gateway.renew(self.keys, self.until()) {
            Ok(Some(term)) => {
                (self.term, self.is_sure) = (term, true);
                Ok(true)
            }
            Ok(None) => Err(lost()),
            Err(fault) => {
                self.endure(fault)?;
                Ok(self.is_sure)
            }
        }
    }

    /// Sees to it that a watch is kept, on the server that is asked now.
    fn listen(&mut self) {
        let endpoint = self.gateway.current();
        if self.watch.as_ref().is_some_and(|watch| !watch.is_over() && watch.is_of(endpoint)) {
            return;
        }
        let watched = calls::watched(self.keys, &self.place, self.limit);
        self.watch = watched.map(|watched| Watch::start(self.gateway, watched, self.patience.waker()));
    }

    /// Pauses until it is worthwhile to look: for `quick` at the most if no watch is kept. Meanwhile the lease is kept alive. Whether
    /// it is still waited for.
    fn pause(&mut self, quick: Duration) -> Result<bool, Fault> {
        let since = Instant::now();
        let slow = LONGEST_WATCH / 2 + part_of(LONGEST_WATCH / 2);
        loop {
            if self.renew_at <= Instant::now() {
                self.keep_alive()?;
            }
            let now = Instant::now();
            let (is_kept, has_news) = match &self.watch {
                Some(watch) => (watch.has_begun() && !watch.is_over(), watch.has_news() && !self.has_failed),
                None => (false, false),
            };
            let look = since + if is_kept { slow } else { quick };
            if has_news || look <= now {
                return Ok(!self.patience.is_over());
            }
            if !self.patience.pause(look.min(self.renew_at).saturating_duration_since(now)) {
                return Ok(false);
            }
        }
    }

    fn keep_alive(&mut self) -> Result<(), Fault> {
        match self.gateway.keep_alive(self.keys.lease, self.until()) {
            Ok(Some(kept)) => {
                (self.term, self.is_sure) = (kept.term, false);
                self.renew_at = renewal(&self.term);
                Ok(())
            }
            Ok(None) => Err(lost()),
            Err(fault) => {
                self.renew_at = Instant::now() + LONGEST_PAUSE.min(self.term.granted / 8);
                self.endure(fault)
            }
        }
    }

    /// What may pass is waited for, as long as the place in the queue is there.
    fn endure(&mut self, fault: Fault) -> Result<(), Fault> {
        self.has_failed = true;
        let is_over = self.term.ends().is_some_and(|ends| ends <= Instant::now());
        if is_over || fault.kind == StoreErrorKind::Permanent { Err(fault) } else { Ok(()) }
    }

    fn until(&self) -> Instant {
        end(attempt_within(self.patience))
    }
}

/// How long the next attempt may take.
fn attempt_within(patience: &Patience<'_>) -> Duration {
    let remaining = patience.remaining().filter(|_| patience.allows_waiting());
    remaining.unwrap_or(ATTEMPT)
}

fn quick() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

/// So early that there is time for more than one try.
fn renewal(term: &Term) -> Instant {
    term.asked + term.granted / 3
}

fn lost() -> Fault {
    Fault::transient("the place in the queue was lost: its lease has ended, or somebody has deleted its key")
}
