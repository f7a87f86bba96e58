//! What can be concluded from what went wrong.

use std::error::Error as StdError;
use std::io;

use tokio_postgres::Error;

use crate::distributed::error::StoreError;

/// What the server says when it cannot do something now, and what then helps. By the beginning of the code.
const TRANSIENT: [(&str, &str); 14] = [
    ("57P01", "it was told to end this session"),
    ("57P02", "it has crashed, and starts again"),
    ("57P03", "it has just started, or is about to end"),
    ("57014", "raise its statement_timeout"),
    ("55P03", "another transaction has locked the row in perkey_fence: end it"),
    ("25006", "it is a standby: give the address of the primary server"),
    ("53100", "its disk is full"),
    ("53200", "raise its max_locks_per_transaction, or its memory"),
    ("53300", "raise its max_connections: a store has one for what is held and one for waiting"),
    ("53", "it has no more of something"),
    ("40", "it was in the way of another transaction"),
    ("08", "the connection is broken"),
    ("58", "something outside of it failed: see its log"),
    ("XX", "something in it is broken: see its log"),
];

/// What it says when it will never do it.
const PERMANENT: [(&str, &str); 9] = [
    ("28", "check the user name and the password in the URL, and the server's pg_hba.conf"),
    ("3D000", "give the name of the database in the URL, or create it"),
    (
        "42P01",
        concat!(
            "it is not in the search_path of this user, or it is not there yet: call PostgresStore::create_table once, or run: ",
            include_str!("table.sql")
        ),
    ),
    ("42703", "another table has this name: move it away, and call PostgresStore::create_table"),
    ("42501", "GRANT SELECT, INSERT, UPDATE ON perkey_fence TO this user"),
    ("22003", "the tokens in perkey_fence are used up, or were written by somebody else"),
    ("26000", POOLER),
    ("42P05", POOLER),
    ("0A000", "it is too old, or no PostgreSQL"),
];

const POOLER: &str = "one connection is served by several sessions of the server: this is a pooler in transaction mode, which loses session \
                      locks; give the address of the server itself, or of a pooler in session mode";

/// The server is reached by a pooler that changes the session.
pub(super) fn of_pooler() -> StoreError {
    StoreError::permanent(POOLER)
}

/// There is no connection yet.
pub(super) fn of_late_connection() -> StoreError {
    StoreError::transient("no connection: the server does not answer in time; is it overloaded or stopped?")
}

/// There was no connection.
pub(super) fn of_connecting(error: Error) -> StoreError {
    if let Some(refusal) = error.as_db_error() {
        return of_refusal(refusal.code().code(), refusal.message());
    }
    let said = said(&error);
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_tls = source.and_then(io::Error::get_ref).is_some_and(|source| source.is::<rustls::Error>());
    if is_tls {
        let message = format!(
            "no connection: {said}; is the server's certificate trusted (SSL_CERT_FILE names others), or shall it be sslmode=disable?"
        );
        return StoreError::permanent(message).caused_by(error);
    }
    match source.is_some() || error.is_closed() {
        true => StoreError::transient(format!("no connection: {said}; is the server running there?")).caused_by(error),
        false => StoreError::permanent(format!("no connection: {said}; check the URL")).caused_by(error),
    }
}

/// A request failed. What it may have taken goes with the session, or was given back.
pub(super) fn of_request(error: Error) -> StoreError {
    if let Some(refusal) = error.as_db_error() {
        return of_refusal(refusal.code().code(), refusal.message());
    }
    let said = said(&error);
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match source.is_some() || error.is_closed() {
        true => of_end(&said).caused_by(error),
        false => StoreError::permanent(format!("the reply makes no sense: {said}; is it a PostgreSQL server?")),
    }
}

/// The session is gone, and what it held.
pub(super) fn of_end(said: &str) -> StoreError {
    StoreError::transient(format!("the session has ended: {said}"))
}

/// No answer came.
pub(super) fn of_silence() -> StoreError {
    StoreError::transient("no reply in time; is the server overloaded, or stopped?")
}

/// No answer came, and it may have been done.
pub(super) fn of_unknown() -> StoreError {
    StoreError::unknown_outcome("no reply in time; is the server overloaded, or stopped?")
}

/// The server says no.
pub(super) fn of_refusal(code: &str, message: &str) -> StoreError {
    let hint =
        |table: &[(&str, &'static str)]| table.iter().find(|(is, _)| code.starts_with(is)).map(|&(_, hint)| hint);
    let said = format!("the server says \"{message}\" ({code})");
    match (hint(&TRANSIENT), hint(&PERMANENT)) {
        (Some(hint), _) => StoreError::transient(format!("{said}: {hint}")),
        (None, Some(hint)) => StoreError::permanent(format!("{said}: {}", hint.trim_end())),
        (None, None) => StoreError::permanent(said),
    }
}

/// What the error says, and what is behind it.
fn said(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::distributed::error::StoreErrorKind::{Permanent, Transient};

    use super::*;

    #[test]
    fn refusals_say_what_helps() {
        for (code, kind, hint) in [
            ("57P03", Transient, "just started"),
            ("25006", Transient, "the address of the primary"),
            ("53300", Transient, "max_connections"),
            ("53400", Transient, "no more of something"),
            ("40P01", Transient, "another transaction"),
            ("28P01", Permanent, "the password"),
            ("28000", Permanent, "pg_hba.conf"),
            ("3D000", Permanent, "the name of the database"),
            ("42P01", Permanent, "run: CREATE TABLE perkey_fence ("),
            ("42501", Permanent, "GRANT SELECT, INSERT, UPDATE"),
            ("26000", Permanent, "a pooler in transaction mode"),
            ("22012", Permanent, "the server says \"no\" (22012)"),
        ] {
            let error = of_refusal(code, "no");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
