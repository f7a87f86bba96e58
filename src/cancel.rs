//! Ends waits from outside.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::waiter::Waiter;

/// A switch that ends every wait it was given to. Clones are the same token.
///
/// Once cancelled it stays so: a later wait with it is [`Cancelled`](crate::AcquireError::Cancelled) at once, even if
/// the key is free. What is already held stays held. If a grant and a cancellation meet, the grant wins: code that must not
/// start anything after a cancellation looks at the token again once it holds the key.
///
/// # Examples
///
/// ```
/// use perkey::{AcquireError, CancellationToken, KeyedLock};
///
/// let locks = KeyedLock::<u32>::new();
/// let shutdown = CancellationToken::new();
/// let held = locks.lock(&42);
/// std::thread::scope(|scope| {
///     let worker = scope.spawn(|| locks.lock_with(&42, &shutdown).map(drop));
///     shutdown.cancel();
///     assert_eq!(worker.join().unwrap(), Err(AcquireError::Cancelled));
/// });
/// ```
#[derive(Clone, Default)]
pub struct CancellationToken {
    shared: Arc<Shared>,
}

struct Shared {
    /// Written under the mutex, so that nobody registers between the store and the rings.
    cancelled: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// Ordered by arrival, so that one of ten thousand waiters leaves in O(log n).
    waiters: BTreeMap<u64, Arc<Waiter>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { cancelled: AtomicBool::new(false), waiting: Mutex::new(Waiting::default()) }
    }
}

impl CancellationToken {
    /// A token that is not cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// let token = perkey::CancellationToken::new();
    /// assert!(!token.is_cancelled());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the token and wakes the threads that wait with it. Never blocks on a key; a second call does nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, CancellationToken, KeyedLock};
    ///
    /// let locks = KeyedLock::<u32>::new();
    /// let token = CancellationToken::new();
    /// assert!(locks.lock_with(&42, &token).is_ok());
    /// token.cancel();
    /// assert_eq!(locks.lock_with(&42, &token).unwrap_err(), AcquireError::Cancelled);
    /// ```
    pub fn cancel(&self) {
        let waiters = {
            let mut waiting = self.shared.waiting.lock();
            self.shared.cancelled.store(true, Ordering::Release);
            mem::take(&mut waiting.waiters)
        };
        for waiter in waiters.into_values() {
            waiter.ring();
        }
    }

    /// Whether [`cancel`](Self::cancel) was called, on this token or a clone. Who sees that it was also sees what was
    /// written before.
    ///
    /// # Examples
    ///
    /// ```
    /// let token = perkey::CancellationToken::new();
    /// let clone = token.clone();
    /// token.cancel();
    /// assert!(clone.is_cancelled());
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Acquire)
    }

    /// Has `waiter` rung at cancellation, for as long as the registration lives. Look at
    /// [`is_cancelled`](Self::is_cancelled) *after* registering: what was cancelled before rings nobody.
    pub(crate) fn register(&self, waiter: Arc<Waiter>) -> Registration<'_> {
        let mut waiting = self.shared.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.waiters.insert(number, waiter);
        Registration { token: self, number }
    }
}

// Nothing of the user's runs under the mutex.
impl UnwindSafe for CancellationToken {}
impl RefUnwindSafe for CancellationToken {}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// A waiter's place in a token's list.
pub(crate) struct Registration<'a> {
    token: &'a CancellationToken,
    number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let removed = self.token.shared.waiting.lock().waiters.remove(&self.number);
        drop(removed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{KeyedLock, Wait};

    /// A token may live as long as the process, and be given to every wait.
    #[test]
    fn waits_that_end_leave_nothing_in_the_token() {
        let (locks, token) = (KeyedLock::<u32>::new(), CancellationToken::new());
        let registered = || token.shared.waiting.lock().waiters.len();
        let held = locks.lock(&1);
        std::thread::scope(|scope| {
            let wait = Wait::at_most(Duration::from_micros(10)).or_cancelled(&token).or_cancelled(&token);
            scope.spawn(|| assert!(locks.lock_with(&1, wait).is_err())).join().unwrap();
            assert_eq!(registered(), 0, "after a time-out");
            let granted = scope.spawn(|| drop(locks.lock_with(&1, &token).unwrap()));
            while registered() == 0 {
                std::thread::yield_now();
            }
            drop(held);
            granted.join().unwrap();
        });
        assert_eq!(registered(), 0, "after a grant");
        let held = locks.lock(&1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(locks.lock_with(&1, &token).is_err()));
            while registered() == 0 {
                std::thread::yield_now();
            }
            token.cancel();
        });
        assert_eq!(registered(), 0, "after a cancellation");
        drop(held);
    }
}
