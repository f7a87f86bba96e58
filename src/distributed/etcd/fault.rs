//! What can be concluded from what went wrong.

use std::error::Error;
use std::io;
use std::time::Duration;

use ureq::Timeout;

use crate::distributed::error::{StoreError, StoreErrorKind};

/// Whether a request changes something, if it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Changes,
    Looks,
}

/// What went wrong, and what can be concluded.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: StoreErrorKind,
    message: String,
    source: Option<Box<ureq::Error>>,
}

impl Fault {
    fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Transient, message)
    }

    fn permanent(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Permanent, message)
    }

    /// What may have been done, if it changes something.
    fn after_sending(effect: Effect, message: impl Into<String>) -> Self {
        match effect {
            Effect::Changes => Self::new(StoreErrorKind::UnknownOutcome, message),
            Effect::Looks => Self::transient(message),
        }
    }

    fn caused_by(mut self, source: ureq::Error) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The same, with where it happened.
    pub(super) fn at(mut self, endpoint: &str) -> Self {
        let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
        self.message = format!("{host}: {}", self.message);
        self
    }

    /// The same, now that it is sure that nothing is left of it.
    pub(super) fn undone(mut self) -> Self {
        if self.kind == StoreErrorKind::UnknownOutcome {
            self.kind = StoreErrorKind::Transient;
        }
        self
    }

    /// The same, of which something may be left.
    pub(super) fn half_done(mut self) -> Self {
        if self.kind == StoreErrorKind::Transient {
            self.kind = StoreErrorKind::UnknownOutcome;
        }
        self
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let error = match fault.kind {
            StoreErrorKind::Transient => Self::transient(fault.message),
            StoreErrorKind::UnknownOutcome => Self::unknown_outcome(fault.message),
            StoreErrorKind::Permanent => Self::permanent(fault.message),
        };
        match fault.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// There is no reply.
pub(super) fn of_transport(error: ureq::Error, effect: Effect, waited: Duration) -> Fault {
    let fault = match &error {
        ureq::Error::HostNotFound => Fault::transient("no connection: there is no such host; check the URL"),
        ureq::Error::Io(cause) if is_tls(cause) => tls(cause),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => tls(&error),
        ureq::Error::Io(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
            Fault::transient(format!("no connection: {cause}; is the server running there?"))
        }
        // The kind of these errors has no name.
        ureq::Error::Io(cause) if cause.to_string().contains("lookup address") => {
            Fault::transient(format!("no connection: {cause}; check the URL"))
        }
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => Fault::transient(
            "no connection: the server does not answer in time; is it overloaded or stopped, or is only one side set to TLS?",
        ),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            Fault::permanent(format!("no request: {error}; check the URL"))
        }
        ureq::Error::Timeout(_) => Fault::after_sending(
            effect,
            format!("no reply in {waited:.1?}; is the server overloaded or stopped, or is there no majority?"),
        ),
        ureq::Error::Io(cause) => Fault::after_sending(
            effect,
            format!("no reply: {cause}; was the server stopped, or is only one side set to TLS?"),
        ),
        _ => Fault::after_sending(effect, format!("no reply: {error}; is it an etcd server?")),
    };
    fault.caused_by(error)
}

/// A certificate that is not trusted, or no TLS at all.
fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>())
}

fn tls(error: &dyn Error) -> Fault {
    Fault::permanent(format!("no connection: {error}; is this port for TLS, and its certificate trusted?"))
}

/// The reply is none of etcd's.
pub(super) fn of_reply(effect: Effect) -> Fault {
    Fault::after_sending(effect, "the reply makes no sense: is it an etcd server, of version 3.4 or later?")
}

/// Somebody else answers, or nobody knows the request.
pub(super) fn of_status(status: u16, effect: Effect) -> Fault {
    let message = format!(
        "the server answers with the HTTP status {status}: is it etcd, of version 3.4 or later, and are both sides set to TLS, or none?"
    );
    match status {
        // What is between, and may pass.
        500.. => Fault::after_sending(effect, message),
        _ => Fault::permanent(message),
    }
}

/// The server says no.
#[derive(Debug)]
pub(super) struct Refusal {
    /// As gRPC numbers them.
    pub(super) code: u64,
    pub(super) message: String,
}

const NOT_FOUND: u64 = 5;
const PERMISSION_DENIED: u64 = 7;
const UNIMPLEMENTED: u64 = 12;
const UNAUTHENTICATED: u64 = 16;
/// Codes of what was looked at, and not done.
const REFUSED: [u64; 4] = [3, 8, 9, 11];

/// What it says when it cannot do something now, and has not done it, and what then helps.
const TRANSIENT: [(&str, &str); 4] = [
    ("no leader", "is there a majority of its members?"),
    ("too many requests", "it has much to do"),
    ("database space exceeded", "compact and defragment it, and disarm the alarm (etcdctl alarm disarm)"),
    ("has been compacted", "it was compacted while it was read"),
];

/// What it says when it will never do it.
const PERMANENT: [(&str, &str); 4] = [
    ("authentication failed", "check the user name and the password in the URL"),
    ("user name is empty", "it wants a user: write etcd://user:password@host"),
    ("authentication is not enabled", "leave user and password out of the URL, or enable it (etcdctl auth enable)"),
    ("permission denied", "give the user a role with readwrite on the prefix perkey/ (etcdctl role grant-permission)"),
];

impl Refusal {
    /// There is no such lease.
    pub(super) fn is_no_lease(&self) -> bool {
        self.code == NOT_FOUND && self.message.contains("lease not found")
    }

    /// There is a lease with that number.
    pub(super) fn is_known_lease(&self) -> bool {
        self.message.contains("lease already exists")
    }

    /// Who asks has to say again who it is.
    pub(super) fn is_old_login(&self) -> bool {
        self.code == UNAUTHENTICATED || self.message.contains("revision of auth store is old")
    }

    pub(super) fn into_fault(self, effect: Effect) -> Fault {
        let hint = |table: &[(&str, &'static str)]| {
            table.iter().find(|(what, _)| self.message.contains(what)).map(|&(_, hint)| hint)
        };
        let said = format!("the server says \"{}\"", self.message);
        match (hint(&TRANSIENT), hint(&PERMANENT), self.code) {
            (Some(hint), ..) => Fault::transient(format!("{said}: {hint}")),
            (None, Some(hint), _) => Fault::permanent(format!("{said}: {hint}")),
            (None, None, UNIMPLEMENTED | NOT_FOUND) => {
                Fault::permanent(format!("{said}: is it etcd, of version 3.4 or later?"))
            }
            (None, None, UNAUTHENTICATED) => Fault::transient(said),
            (None, None, PERMISSION_DENIED) => Fault::permanent(said),
            (None, None, code) if REFUSED.contains(&code) => Fault::permanent(said),
            // Such as a leader that was lost: the proposal may live on.
            _ => Fault::after_sending(effect, said),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::distributed::error::StoreErrorKind::{Permanent, Transient, UnknownOutcome};

    use super::*;

    #[test]
    fn refusals_say_what_helps() {
        for (code, message, kind, hint) in [
            (14, "etcdserver: no leader", Transient, "a majority"),
            (8, "etcdserver: mvcc: database space exceeded", Transient, "disarm the alarm"),
            (8, "etcdserver: too many requests", Transient, "much to do"),
            (14, "etcdserver: request timed out", UnknownOutcome, "request timed out"),
            (14, "etcdserver: leader changed", UnknownOutcome, "leader changed"),
            (2, "context canceled", UnknownOutcome, "context canceled"),
            (3, "etcdserver: authentication failed, invalid user ID or password", Permanent, "check the user name"),
            (3, "etcdserver: user name is empty", Permanent, "write etcd://user"),
            (9, "etcdserver: authentication is not enabled", Permanent, "out of the URL"),
            (7, "etcdserver: permission denied", Permanent, "on the prefix perkey/"),
            (3, "etcdserver: request is too large", Permanent, "too large"),
            (12, "Method Not Allowed", Permanent, "version 3.4"),
            (5, "Not Found", Permanent, "version 3.4"),
        ] {
            let refused = |effect| StoreError::from(Refusal { code, message: message.to_owned() }.into_fault(effect));
            let error = refused(Effect::Changes);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
            // What changes nothing has no outcome.
            let kind = if kind == UnknownOutcome { Transient } else { kind };
            assert_eq!(refused(Effect::Looks).kind(), kind);
        }
    }

    #[test]
    fn what_was_not_sent_was_not_done() {
        let kind = |error, effect| of_transport(error, effect, Duration::ZERO).kind;
        let io = |kind| ureq::Error::Io(io::Error::from(kind));
        assert_eq!(kind(io(io::ErrorKind::ConnectionRefused), Effect::Changes), Transient);
        assert_eq!(kind(ureq::Error::Timeout(Timeout::Connect), Effect::Changes), Transient);
        assert_eq!(kind(ureq::Error::HostNotFound, Effect::Changes), Transient);
        for (effect, expected) in [(Effect::Changes, UnknownOutcome), (Effect::Looks, Transient)] {
            assert_eq!(kind(io(io::ErrorKind::ConnectionReset), effect), expected);
            assert_eq!(kind(ureq::Error::Timeout(Timeout::Global), effect), expected);
            assert_eq!(of_status(502, effect).kind, expected);
            assert_eq!(of_status(404, effect).kind, Permanent);
            assert_eq!(of_reply(effect).kind, expected);
        }
    }
}
