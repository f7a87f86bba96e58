//! Why an acquisition failed.

use crate::report::Deadlock;

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
    /// Waiting could never end, because the calling thread already holds the key, or, where
    /// [`Options::detect_deadlocks`](crate::Options::detect_deadlocks) is on, because threads would wait for each other. If a
    /// wait was necessary to find that out, it is reported after [`QueueFull`](Self::QueueFull).
    #[error(transparent)]
    WouldDeadlock(#[from] Deadlock),
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::report::About;

    #[test]
    fn every_message() {
        let about = About { name: Some("accounts".into()), table_type: "KeyedLock", key_type: "u64" };
        let deadlock = Deadlock::reentry(&about, Location::caller());
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
