//! What goes wrong beyond one process.

use std::error::Error as StdError;
use std::fmt;

use crate::error::AcquireError;

/// Why a call of a distributed lock or semaphore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key was not granted: the time was up, the wait was cancelled, or it allows no wait. Nothing of the request is left in
    /// the store; or, if an answer of the store was missed, it is given back in the background.
    #[error("key {key:?} on {store}: {cause}")]
    NotGranted {
        /// The key that was asked for.
        key: String,
        /// The store, as it describes itself.
        store: String,
        /// Why.
        #[source]
        cause: AcquireError,
    },
    /// The store failed, for good or for as long as the caller would wait.
    #[error("cannot {doing} key {key:?} on {store}: {cause}")]
    Store {
        /// What was tried: `acquire`, `renew`, `release` and the like.
        doing: &'static str,
        /// The key it was tried with.
        key: String,
        /// The store, as it describes itself.
        store: String,
        /// What the store says.
        #[source]
        cause: StoreError,
    },
    /// The options contradict each other, or what the store can do.
    #[error("{0}")]
    Options(String),
}

impl Error {
    pub(super) fn not_granted(key: &str, store: String, cause: AcquireError) -> Self {
        Self::NotGranted { key: key.to_owned(), store, cause }
    }

    pub(super) fn store(doing: &'static str, key: &str, store: String, cause: StoreError) -> Self {
        Self::Store { doing, key: key.to_owned(), store, cause }
    }

    /// Why the key was not granted, if the store did not fail.
    #[must_use]
    pub fn acquire_error(&self) -> Option<&AcquireError> {
        match self {
            Self::NotGranted { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// What a [`Store`](super::Store) could not do.
///
/// # Examples
///
/// ```
/// use perkey::distributed::{StoreError, StoreErrorKind};
///
/// let error = StoreError::transient("connection refused; is the server running?");
/// assert_eq!(error.kind(), StoreErrorKind::Transient);
/// ```
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What can be concluded from a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Nothing was done, and it may work later.
    Transient,
    /// It may have been done: the reply never came. It may work later.
    UnknownOutcome,
    /// It will not work later either: a wrong address, a wrong password, something that the engine cannot do.
    Permanent,
}

impl StoreError {
    fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Nothing was done, and it may work later.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Transient, message)
    }

    /// It may have been done, and it may work later.
    #[must_use]
    pub fn unknown_outcome(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::UnknownOutcome, message)
    }

    /// It will not work later either.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Permanent, message)
    }

    /// Adds what it was caused by.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What can be concluded.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.kind == StoreErrorKind::UnknownOutcome {
            f.write_str(" (it is not known whether it was done)")?;
        }
        Ok(())
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
