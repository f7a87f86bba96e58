//! How long a call may wait, and what ends it early.

use std::time::{Duration, Instant};

use crate::cancel::CancellationToken;
use crate::sync;

/// How long a call may wait for a key, and what ends the wait early.
///
/// Every `_with` and `_within` call takes `impl Into<Wait>`: a [`Duration`], an [`Instant`], a
/// [`&CancellationToken`](CancellationToken), or a `Wait` that combines them. A duration starts at the call, so one
/// `Wait` can be used for many calls by reference.
///
/// * A duration too long for the clock means "for ever".
/// * With no time at all (`Wait::now()`, [`Duration::ZERO`], an instant that has passed) exactly one attempt is made.
/// * A wait with an already cancelled token fails with [`Cancelled`](crate::AcquireError::Cancelled) even if the key is
///   free.
/// * If a grant and a time-out or a cancellation meet, the grant wins.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::{CancellationToken, KeyedLock, Wait};
///
/// let locks = KeyedLock::<String>::new();
/// let shutdown = CancellationToken::new();
/// let wait = Wait::at_most(Duration::from_secs(2)).or_cancelled(&shutdown).max_queued(100);
/// for host in ["a.example", "b.example"] {
///     match locks.lock_with(host, &wait) {
///         Ok(_guard) => println!("{host} is ours"),
///         Err(error) => println!("{host}: {error}"),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a `Wait` does nothing until a call takes it"]
pub struct Wait {
    time: Time,
    // One token is the common case, and costs no allocation.
    token: Option<CancellationToken>,
    more_tokens: Vec<CancellationToken>,
    max_queued: usize,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Forever,
    AtMost(Duration),
    Until(Instant),
}

/// When a wait that has begun ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Before it began: one attempt is all.
    Passed,
    At(Instant),
    Never,
}

impl Deadline {
    /// When a wait that has begun is over, if it will be.
    pub(crate) fn instant(self) -> Option<Instant> {
        match self {
            Self::At(instant) => Some(instant),
            Self::Never => None,
            Self::Passed => unreachable!("a request without time does not queue"),
        }
    }
}

impl Wait {
    pub(crate) const FOREVER: Self = Self::new(Time::Forever);

    const fn new(time: Time) -> Self {
        Self { time, token: None, more_tokens: Vec::new(), max_queued: usize::MAX }
    }

    /// Waits until the key is granted. The default.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{CancellationToken, KeyedLock, Wait};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let shutdown = CancellationToken::new();
    /// let guard = locks.lock_with(&1, Wait::forever().or_cancelled(&shutdown))?;
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    pub const fn forever() -> Self {
        Self::FOREVER
    }

    /// Does not wait: one attempt.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{KeyedLock, Wait};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// assert!(locks.lock_with(&1, Wait::now()).is_ok());
    /// ```
    pub const fn now() -> Self {
        Self::new(Time::AtMost(Duration::ZERO))
    }

    /// Waits for at most `duration`, which starts at the call that takes the `Wait`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Wait};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let wait = Wait::at_most(Duration::from_secs(1));
    /// let first = locks.lock_with(&1, &wait)?; // up to a second
    /// let second = locks.lock_with(&2, &wait)?; // up to another second
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    pub const fn at_most(duration: Duration) -> Self {
        Self::new(Time::AtMost(duration))
    }

    /// Waits until `instant`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use perkey::{KeyedLock, Wait};
    ///
    /// // One deadline for both.
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// let locks = KeyedLock::<u32>::new();
    /// let first = locks.lock_with(&1, Wait::until(deadline))?;
    /// let second = locks.lock_with(&2, Wait::until(deadline))?;
    /// # Ok::<(), perkey::AcquireError>(())
    /// ```
    pub const fn until(instant: Instant) -> Self {
        Self::new(Time::Until(instant))
    }

    /// Ends the wait when `token` is cancelled. Called twice, both tokens count.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, CancellationToken, KeyedLock, Wait};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let (request, shutdown) = (CancellationToken::new(), CancellationToken::new());
    /// shutdown.cancel();
    /// let wait = Wait::forever().or_cancelled(&request).or_cancelled(&shutdown);
    /// assert_eq!(locks.lock_with(&42, wait).unwrap_err(), AcquireError::Cancelled);
    /// ```
    pub fn or_cancelled(mut self, token: &CancellationToken) -> Self {
        match self.token {
            None => self.token = Some(token.clone()),
            Some(_) => self.more_tokens.push(token.clone()),
        }
        self
    }

    /// Gives up at once, with [`QueueFull`](crate::AcquireError::QueueFull), if `count` requests already wait for the
    /// key. With 0 the call never queues. Default: no bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedSemaphore, Wait};
    ///
    /// let hosts = KeyedSemaphore::<String, 1>::new();
    /// let _permit = hosts.acquire("a.example");
    /// let error = hosts.acquire_with("a.example", Wait::forever().max_queued(0)).unwrap_err();
    /// assert_eq!(error, AcquireError::QueueFull);
    /// ```
    pub fn max_queued(mut self, count: usize) -> Self {
        self.max_queued = count;
        self
    }

    /// When a wait that begins now ends.
    pub(crate) fn deadline(&self) -> Deadline {
        match self.time {
            Time::Forever => Deadline::Never,
            Time::AtMost(Duration::ZERO) => Deadline::Passed,
            Time::AtMost(duration) => sync::now().checked_add(duration).map_or(Deadline::Never, Deadline::At),
            Time::Until(instant) if instant <= sync::now() => Deadline::Passed,
            Time::Until(instant) => Deadline::At(instant),
        }
    }

    /// The same, with the time that is left of a wait that has begun.
    #[cfg(feature = "distributed")]
    pub(crate) fn ending(&self, deadline: Deadline) -> Self {
        let time = match deadline {
            Deadline::Passed => Time::AtMost(Duration::ZERO),
            Deadline::At(instant) => Time::Until(instant),
            Deadline::Never => Time::Forever,
        };
        Self { time, ..self.clone() }
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &CancellationToken> {
        self.token.iter().chain(&self.more_tokens)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.tokens().any(CancellationToken::is_cancelled)
    }

    /// Whether nothing ends the wait but the grant.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.time, Time::Forever) && self.token.is_none()
    }

    /// Whether it matters how many wait.
    pub(crate) fn limits_the_queue(&self) -> bool {
        self.max_queued != usize::MAX
    }

    /// Whether a request may queue behind `waiters` others.
    pub(crate) fn may_queue_behind(&self, waiters: usize) -> bool {
        waiters < self.max_queued
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::FOREVER
    }
}

impl From<Duration> for Wait {
    fn from(duration: Duration) -> Self {
        Self::at_most(duration)
    }
}

impl From<Instant> for Wait {
    fn from(instant: Instant) -> Self {
        Self::until(instant)
    }
}

impl From<&CancellationToken> for Wait {
    fn from(token: &CancellationToken) -> Self {
        Self::FOREVER.or_cancelled(token)
    }
}

impl From<&Wait> for Wait {
    fn from(wait: &Wait) -> Self {
        wait.clone()
    }
}
