//! What can be concluded from what went wrong.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::distributed::error::StoreError;

/// Whether a request changes something, if it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Changes,
    Looks,
}

/// What the server says when it cannot do something now, and what then helps.
const TRANSIENT: [(&str, &str); 10] = [
    ("READONLY", "it is a replica: give the address of the master"),
    ("LOADING", "it has just started, and reads its data"),
    ("MASTERDOWN", "it is a replica without a master: give the address of the master"),
    ("CLUSTERDOWN", "its cluster is not complete"),
    ("TRYAGAIN", "its cluster moves these keys just now"),
    ("BUSY", "a script runs in it for a long time: see SCRIPT KILL"),
    ("OOM", "its memory is full: raise its maxmemory"),
    ("MISCONF", "it cannot save its data, and takes no more: see its log"),
    ("NOREPLICAS", "it has fewer replicas than it is told to need"),
    ("max number of clients", "raise its maxclients"),
];

const PERMISSIONS: &str =
    "give the user +@read +@write +@scripting +@connection +@pubsub +time ~perkey:* &perkey:* (see ACL SETUSER)";

/// What it says when it will never do it.
const PERMANENT: [(&str, &str); 8] = [
    ("WRONGPASS", "check the user name and the password in the URL"),
    ("NOAUTH", "it wants a password: write redis://user:password@host"),
    ("NOPERM", PERMISSIONS),
    // From within a script, in version 7.
    ("The user executing the script can't", PERMISSIONS),
    ("DENIED", "it takes no connections from other machines: see its protected-mode"),
    ("WRONGTYPE", "something else uses the names of this key: choose another namespace"),
    ("MOVED", "this node of the cluster does not have the key: a store speaks to one server"),
    ("ASK", "this node of the cluster does not have the key: a store speaks to one server"),
];

/// There was no connection.
pub(super) fn of_connecting(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if is_tls(&error) => {
            let message = format!("no connection: {error}; is this port for TLS, and its certificate trusted?");
            StoreError::permanent(message).caused_by(error)
        }
        ErrorKind::Io if error.is_timeout() => {
            let message = "no connection: the server does not answer in time; is it overloaded or stopped, or is only one side set to TLS?";
            StoreError::transient(message).caused_by(error)
        }
        ErrorKind::Io => {
            StoreError::transient(format!("no connection: {error}; is the server running there?")).caused_by(error)
        }
        _ => StoreError::permanent(format!("no connection: {error}; check the URL")).caused_by(error),
    }
}

/// A certificate that is not trusted, or no TLS at all.
fn is_tls(error: &RedisError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let source = source.and_then(|source| source.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    source.is_some_and(|source| source.is::<rustls::Error>())
}

/// The request was not sent as a whole: then the server does not do it.
pub(super) fn of_sending(error: RedisError) -> StoreError {
    StoreError::transient(format!("the request could not be sent: {error}")).caused_by(error)
}

/// The request was sent, and what came back is no reply.
pub(super) fn of_receiving(error: RedisError, effect: Effect, waited: Duration) -> StoreError {
    let message = match error.is_timeout() {
        true => format!("no reply in {waited:.1?}; is the server overloaded, or stopped?"),
        false => format!("no reply: {error}"),
    };
    match effect {
        Effect::Changes => StoreError::unknown_outcome(message).caused_by(error),
        Effect::Looks => StoreError::transient(message).caused_by(error),
    }
}

/// The reply is none that the request can have.
pub(super) fn of_reply(effect: Effect) -> StoreError {
    let message = "the reply makes no sense: is it a Redis server?";
    match effect {
        Effect::Changes => StoreError::unknown_outcome(message),
        Effect::Looks => StoreError::transient(message),
    }
}

/// The server does not take the password. If it does not know the command, its message contains that.
pub(super) fn of_login(code: &str, details: Option<&str>) -> StoreError {
    match code {
        "ERR" => {
            StoreError::permanent("the server takes no such password: leave it out of the URL, or set its requirepass")
        }
        _ => of_refusal(code, details),
    }
}

/// The server says no.
pub(super) fn of_refusal(code: &str, details: Option<&str>) -> StoreError {
    let details = details.unwrap_or_default();
    // Before version 7 the code is lost if a script meets it.
    let is = |what: &str| code == what || (code == "ERR" && details.contains(what));
    let hint = |table: &[(&str, &'static str)]| table.iter().find(|(what, _)| is(what)).map(|&(_, hint)| hint);
    let said = format!("the server says \"{}\"", format!("{code} {details}").trim());
    match (hint(&TRANSIENT), hint(&PERMANENT)) {
        (Some(hint), _) => StoreError::transient(format!("{said}: {hint}")),
        (None, Some(hint)) => StoreError::permanent(format!("{said}: {hint}")),
        (None, None) => StoreError::permanent(said),
    }
}

#[cfg(test)]
mod tests {
    use crate::distributed::error::StoreErrorKind::{Permanent, Transient};

    use super::*;

    #[test]
    fn refusals_say_what_helps() {
        let script = "Error running script (call to f_1): @user_script:7: -READONLY You can't write against a read only replica.";
        for (code, details, kind, hint) in [
            ("READONLY", "You can't write", Transient, "give the address of the master"),
            ("ERR", script, Transient, "give the address of the master"),
            ("LOADING", "Redis is loading the dataset in memory", Transient, "just started"),
            ("BUSY", "Redis is busy running a script", Transient, "SCRIPT KILL"),
            ("ERR", "max number of clients reached", Transient, "maxclients"),
            ("WRONGPASS", "invalid username-password pair", Permanent, "check the user name"),
            ("WRONGTYPE", "Operation against a key", Permanent, "another namespace"),
            ("NOSCRIPT", "No matching script", Permanent, "NOSCRIPT No matching script"),
        ] {
            let error = of_refusal(code, Some(details));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
