//! Why an acquisition failed.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

/// Why a key was not acquired.
///
/// Returned by the calls that take a [`Wait`](crate::Wait). If several causes hold at the call, the one reported is
/// the first of: [`Cancelled`](Self::Cancelled), [`OverLimit`](Self::OverLimit), (the grant),
/// [`WouldDeadlock`](Self::WouldDeadlock), [`Busy`](Self::Busy), [`QueueFull`](Self::QueueFull),
/// [`Timeout`](Self::Timeout).
///
/// # Examples
///
/// ```
/// use perkey::{AcquireError, KeyedLock, Wait};
///
/// let locks = KeyedLock::<u32>::new();
/// let _held = locks.lock(&42);
/// let error = std::thread::scope(|scope| {
///     scope.spawn(|| locks.lock_with(&42, Wait::now()).unwrap_err()).join().unwrap()
/// });
/// assert_eq!(error, AcquireError::Busy);
/// assert_eq!(error.to_string(), "the key is taken and the wait allows no time");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The key was not free, and the time was up at the call: [`Wait::now`](crate::Wait::now), a zero duration, or an
    /// instant that has passed. One attempt was made.
    #[error("the key is taken and the wait allows no time")]
    Busy,
    /// The time was up before the key was granted.
    #[error("the key was not granted in time")]
    Timeout,
    /// The [`CancellationToken`](crate::CancellationToken) was cancelled, before the call or during the wait.
    #[error("the wait for the key was cancelled")]
    Cancelled,
    /// As many requests as [`Wait::max_queued`](crate::Wait::max_queued) allows already wait for the key.
    #[error("as many requests as allowed already wait for the key")]
    QueueFull,
    /// The request asks for no permits at all, or for more than the key's limit at that moment.
    #[error("cannot grant {requested} permits of a key whose limit is {limit}")]
    OverLimit {
        /// How many permits were asked for.
        requested: usize,
        /// How many permits the key has.
        limit: usize,
    },
    /// Waiting could never end, because the calling thread already holds the key.
    #[error(transparent)]
    WouldDeadlock(#[from] Deadlock),
}

/// A wait that could never end.
///
/// Its `Display` names the fault, the table and the key's type.
///
/// # Examples
///
/// ```
/// use perkey::{AcquireError, KeyedLock, Options, Wait};
///
/// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
/// let _held = locks.lock(&42);
/// let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) else {
///     panic!("this thread holds the key");
/// };
/// assert_eq!(deadlock.table(), Some("accounts"));
/// assert!(deadlock.to_string().starts_with("this thread already holds the key"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock(Box<Reentry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reentry {
    /// What this thread asked for, and why it cannot have it.
    fault: &'static str,
    table: Option<Cow<'static, str>>,
    table_type: &'static str,
    key_type: &'static str,
    location: &'static Location<'static>,
}

impl Deadlock {
    #[cold]
    pub(crate) fn reentry<K>(
        table: Option<Cow<'static, str>>,
        table_type: &'static str,
        location: &'static Location<'static>,
    ) -> Self {
        Self::new::<K>("this thread already holds the key", table, table_type, location)
    }

    #[cold]
    pub(crate) fn over_own_hold<K>(
        table: Option<Cow<'static, str>>,
        table_type: &'static str,
        location: &'static Location<'static>,
    ) -> Self {
        Self::new::<K>("this thread already holds one of all the keys it asks for", table, table_type, location)
    }

    #[cold]
    pub(crate) fn under_own_hold<K>(
        table: Option<Cow<'static, str>>,
        table_type: &'static str,
        location: &'static Location<'static>,
    ) -> Self {
        Self::new::<K>("this thread already holds every key", table, table_type, location)
    }

    fn new<K>(
        fault: &'static str,
        table: Option<Cow<'static, str>>,
        table_type: &'static str,
        location: &'static Location<'static>,
    ) -> Self {
        Self(Box::new(Reentry { fault, table, table_type, key_type: std::any::type_name::<K>(), location }))
    }

    /// The table's name, if [`Options::name`](crate::Options::name) gave it one.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     assert_eq!(deadlock.table(), Some("accounts"));
    /// }
    /// ```
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }

    /// The type of the table's keys, as [`std::any::type_name`] gives it.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     assert_eq!(deadlock.key_type(), "u32");
    /// }
    /// ```
    pub fn key_type(&self) -> &'static str {
        self.0.key_type
    }

    /// Where the call was made that would have waited for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     println!("asked for again at {}", deadlock.location());
    /// }
    /// ```
    pub fn location(&self) -> &'static Location<'static> {
        self.0.location
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reentry { fault, table, table_type, key_type, location } = &*self.0;
        write!(f, "{fault} and would wait for itself for ever: {table_type}")?;
        match table {
            Some(name) => write!(f, " {name:?}")?,
            None => f.write_str(" without a name")?,
        }
        write!(f, ", key type {key_type}, asked for at {location}")
    }
}

impl std::error::Error for Deadlock {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let deadlock = Deadlock::reentry::<u64>(Some("accounts".into()), "KeyedLock", Location::caller());
        let line = deadlock.location().line();
        let cases = [
            (AcquireError::Busy, "the key is taken and the wait allows no time"),
            (AcquireError::Timeout, "the key was not granted in time"),
            (AcquireError::Cancelled, "the wait for the key was cancelled"),
            (AcquireError::QueueFull, "as many requests as allowed already wait for the key"),
            (AcquireError::OverLimit { requested: 4, limit: 3 }, "cannot grant 4 permits of a key whose limit is 3"),
            (
                deadlock.into(),
                "this thread already holds the key and would wait for itself for ever: KeyedLock \"accounts\", \
                 key type u64, asked for at FILE",
            ),
        ];
        let file = format!("{}:{line}:", file!());
        for (error, message) in cases {
            let said = error.to_string();
            let said = said.split(&file).next().unwrap_or_default();
            assert_eq!(said, message.trim_end_matches("FILE"));
        }
    }
}
