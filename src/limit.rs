//! `Limit`: how many permits a key has.

use std::fmt;
use std::sync::Arc;

/// How many permits each key of a [`KeyedSemaphore`](crate::KeyedSemaphore) has: one number for all keys, or a function of
/// the key.
///
/// Limits above `u32::MAX` count as `u32::MAX`.
///
/// # Examples
///
/// ```
/// use perkey::{KeyedSemaphore, Limit};
///
/// let same_for_all = KeyedSemaphore::<String>::with_limit(4);
/// let by_host = KeyedSemaphore::<String>::with_limit(Limit::by_key(|host: &String| {
///     if host.ends_with(".internal") { 64 } else { 2 }
/// }));
/// assert_eq!(same_for_all.limit("a.example"), 4);
/// assert_eq!(by_host.limit("db.internal"), 64);
/// ```
pub struct Limit<K>(pub(crate) Source<K>);

pub(crate) type LimitFn<K> = Arc<dyn Fn(&K) -> usize + Send + Sync>;

pub(crate) enum Source<K> {
    Same(usize),
    ByKey(LimitFn<K>),
}

impl<K> Limit<K> {
    /// Asks `limit` when an entry is made for a key that has none; the entry keeps the limit it was made with.
    ///
    /// The function runs outside the table's locks and may call the table for other keys (for the same key it would be asked
    /// again, without end). Its time counts in the caller's time limit. If two threads ask for a new key at once it may
    /// run for both, and one answer is used. An answer of 0 refuses the key: calls that give a reason give
    /// [`OverLimit`](crate::AcquireError::OverLimit), `try_` calls give `None`, and those that cannot fail panic.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedSemaphore, Limit, Wait};
    ///
    /// let hosts = KeyedSemaphore::<String>::with_limit(Limit::by_key(|host: &String| match host.as_str() {
    ///     "blocked.example" => 0,
    ///     _ => 2,
    /// }));
    /// let error = hosts.acquire_with("blocked.example", Wait::forever()).unwrap_err();
    /// assert_eq!(error, AcquireError::OverLimit { requested: 1, limit: 0 });
    /// ```
    #[must_use]
    pub fn by_key(limit: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        Self(Source::ByKey(Arc::new(limit)))
    }
}

impl<K> From<usize> for Limit<K> {
    fn from(limit: usize) -> Self {
        Self(Source::Same(limit))
    }
}

impl<K> Clone for Limit<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Source::Same(limit) => Source::Same(*limit),
            Source::ByKey(limit) => Source::ByKey(Arc::clone(limit)),
        })
    }
}

impl<K> fmt::Debug for Limit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Same(limit) => f.debug_tuple("Limit").field(limit).finish(),
            Source::ByKey(_) => f.write_str("Limit::by_key(..)"),
        }
    }
}

/// The engine's number for a limit; so many holders of one key cannot exist.
pub(crate) fn clamp(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
