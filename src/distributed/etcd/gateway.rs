//! Several servers of one cluster, any of which can be asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::distributed::error::StoreErrorKind;
use crate::sync::{AtomicU32, Mutex, Ordering};

use super::address::{Address, Login};
use super::fault::{self, Effect, Fault, Refusal};
use super::wire::{Reply, Request, Stream, Wire};

pub(super) struct Gateway {
    address: Address,
    wire: Wire,
    /// Which of the servers has answered last.
    current: AtomicU32,
    /// What shows who asks, once that was asked for.
    token: Mutex<Option<Arc<str>>>,
}

/// What a server has answered.
pub(super) struct Answer {
    /// Just before the request was sent.
    pub(super) asked: Instant,
    pub(super) said: Said,
    /// A try before this one may have been done, too.
    pub(super) is_repeated: bool,
}

pub(super) enum Said {
    Yes(Value),
    /// There is no such lease.
    NoLease,
    /// There is such a lease.
    KnownLease,
}

/// One more try is not worthwhile in less.
const SHORTEST_TRY: Duration = Duration::from_millis(5);

impl Gateway {
    pub(super) fn new(address: Address) -> Self {
        let wire = Wire::new(address.is_tls());
        Self { address, wire, current: AtomicU32::new(0), token: Mutex::default() }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The server that has answered last.
    pub(super) fn current(&self) -> &str {
        &self.address.endpoints()[self.number()]
    }

    fn number(&self) -> usize {
        self.current.load(Ordering::Relaxed) as usize
    }

    /// Asks one server after the other, until one answers; one that is alone is asked once more. So it may be done more than
    /// once: a request has to be of a kind that does no harm then.
    pub(super) fn ask(&self, request: &Request, until: Instant) -> Result<Answer, Fault> {
        let (first, count) = (self.number(), self.address.endpoints().len());
        let mut failed: Option<Fault> = None;
        for tried in 0..count.max(2) {
            let left = until.saturating_duration_since(Instant::now());
            if tried > 0 && left < SHORTEST_TRY {
                break;
            }
            let number = (first + tried) % count;
            // One that is stopped leaves time for the others.
            let share = left / u32::try_from(count.saturating_sub(tried).max(1)).unwrap_or(u32::MAX);
            match self.ask_one(number, request, Instant::now() + share) {
                Ok(Reply { asked, said: Ok(said) }) => {
                    return Ok(self.answer(number, asked, Said::Yes(said), &failed));
                }
                Ok(Reply { asked, said: Err(refusal) }) if refusal.is_no_lease() => {
                    return Ok(self.answer(number, asked, Said::NoLease, &failed));
                }
                Ok(Reply { asked, said: Err(refusal) }) if refusal.is_known_lease() => {
                    return Ok(self.answer(number, asked, Said::KnownLease, &failed));
                }
                Ok(Reply { said: Err(refusal), .. }) => {
                    failed = Some(worse(failed, self.named(number, refusal.into_fault(request.effect))));
                }
                Err(fault) => failed = Some(worse(failed, self.named(number, fault))),
            }
            if failed.as_ref().is_some_and(|fault| fault.kind == StoreErrorKind::Permanent) {
                break;
            }
            // So the next request begins with another one.
            let next = ((number + 1) % count) as u32;
            let _ = self.current.compare_exchange(number as u32, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(failed.expect("at least one was tried"))
    }

    /// With the server, if there are several.
    fn named(&self, number: usize, fault: Fault) -> Fault {
        match self.address.endpoints() {
            [_] => fault,
            endpoints => fault.at(&endpoints[number]),
        }
    }

    fn answer(&self, number: usize, asked: Instant, said: Said, failed: &Option<Fault>) -> Answer {
        if failed.is_some() {
            self.current.store(number as u32, Ordering::Relaxed);
        }
        let is_repeated = failed.as_ref().is_some_and(|fault| fault.kind == StoreErrorKind::UnknownOutcome);
        Answer { asked, said, is_repeated }
    }

    /// A connection for one stream, and who asks for it.
    pub(super) fn stream(&self) -> (Stream, Option<Arc<str>>) {
        (self.wire.stream(), self.token.lock().clone())
    }

    fn ask_one(&self, number: usize, request: &Request, until: Instant) -> Result<Reply, Fault> {
        let endpoint = &self.address.endpoints()[number];
        let ask = |token: Option<&str>| self.wire.ask(endpoint, request, token, until);
        let Some(login) = self.address.login() else { return ask(None) };
        let token = self.token(endpoint, login, until)?;
        let reply = ask(Some(&token))?;
        if !reply.said.as_ref().is_err_and(Refusal::is_old_login) {
            return Ok(reply);
        }
        // They end after a while, and with a restart. What was refused so was not done.
        self.token.lock().take_if(|known| *known == token);
        ask(Some(&self.token(endpoint, login, until)?))
    }

    /// What shows who asks.
    fn token(&self, endpoint: &str, login: &Login, until: Instant) -> Result<Arc<str>, Fault> {
        if let Some(token) = self.token.lock().clone() {
            return Ok(token);
        }
        let body = json!({"name": login.user, "password": login.password});
        let request = Request { path: "auth/authenticate", body, effect: Effect::Looks };
        let reply = self.wire.ask(endpoint, &request, None, until)?;
        let said = reply.said.map_err(|refusal| refusal.into_fault(Effect::Looks))?;
        let token: Arc<str> = said["token"].as_str().ok_or_else(|| fault::of_reply(Effect::Looks))?.into();
        *self.token.lock() = Some(Arc::clone(&token));
        Ok(token)
    }
}

/// If one of several tries may have been done, that is what is known of all.
fn worse(one: Option<Fault>, other: Fault) -> Fault {
    match one {
        Some(one) if one.kind == StoreErrorKind::UnknownOutcome && other.kind == StoreErrorKind::Transient => one,
        _ => other,
    }
}
