//! What a table counts.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::error::AcquireError;
use crate::sync::{AtomicU64, Ordering};

/// What has happened to a table since it was made.
///
/// Nothing is counted where a key is taken and given back at once. The numbers are read one after the other, so two of them
/// need not be of the same moment.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use perkey::KeyedLock;
///
/// let locks = KeyedLock::<u32>::new();
/// let held = locks.lock(&7);
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(locks.try_lock_for(&7, Duration::from_millis(1)).is_none()));
/// });
/// let stats = locks.stats();
/// assert_eq!((stats.contended, stats.timeouts), (1, 1));
/// assert!(stats.longest_wait >= Duration::from_millis(1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that had to wait: in the queue of their key, or for, or behind, a lock over every key. Not those that got the
    /// key by looking again for a moment.
    pub contended: u64,
    /// Waits that ended with [`AcquireError::Timeout`], or with the `None` that stands for it.
    pub timeouts: u64,
    /// Waits that ended with [`AcquireError::Cancelled`]. Not calls whose token was cancelled before.
    pub cancellations: u64,
    /// Requests that were refused with [`AcquireError::WouldDeadlock`], or the panic or `None` that stands for it. A `try_` call for
    /// what this thread holds itself may be among them or not.
    pub deadlocks: u64,
    /// The longest wait that is over, however it ended.
    pub longest_wait: Duration,
    /// Entries that a sweep removed because they had been idle for long enough.
    pub evictions: u64,
}

/// The counts behind [`Stats`].
#[derive(Default)]
pub(crate) struct Counters(Box<CachePadded<Counts>>);

#[derive(Default)]
struct Counts {
    contended: AtomicU64,
    timeouts: AtomicU64,
    cancellations: AtomicU64,
    deadlocks: AtomicU64,
    /// In nanoseconds.
    longest_wait: AtomicU64,
    evictions: AtomicU64,
}

impl Counters {
    /// A request begins to wait.
    pub(crate) fn contended(&self) {
        self.0.contended.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has waited for so long.
    pub(crate) fn waited(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.longest_wait.fetch_max(nanos, Ordering::Relaxed);
    }

    /// A wait failed.
    pub(crate) fn failed(&self, error: &AcquireError) {
        let count = match error {
            AcquireError::Timeout => &self.0.timeouts,
            AcquireError::Cancelled => &self.0.cancellations,
            AcquireError::WouldDeadlock(_) => &self.0.deadlocks,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was refused that did not begin to wait, because its wait could never end.
    pub(crate) fn deadlocked(&self) {
        self.0.deadlocks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self, entries: usize) {
        self.0.evictions.fetch_add(entries as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { contended, timeouts, cancellations, deadlocks, longest_wait, evictions } = &**self.0;
        Stats {
            contended: of(contended),
            timeouts: of(timeouts),
            cancellations: of(cancellations),
            deadlocks: of(deadlocks),
            longest_wait: Duration::from_nanos(of(longest_wait)),
            evictions: of(evictions),
        }
    }
}
