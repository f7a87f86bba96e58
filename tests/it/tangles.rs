//! What the tests of deadlocks share.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perkey::{
    AcquireError, CancellationToken, Deadlock, KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore, Options, Wait,
};

pub(crate) type Files = Arc<KeyedRwLock<u32>>;

pub(crate) fn detecting() -> Options {
    Options::new().detect_deadlocks(true)
}

pub(crate) fn files() -> Files {
    Arc::new(KeyedRwLock::with_options(detecting().name("files")))
}

pub(crate) fn locks() -> Arc<KeyedLock<u32>> {
    Arc::new(KeyedLock::with_options(detecting().name("locks")))
}

pub(crate) fn values() -> KeyedMutex<u32, u32> {
    KeyedMutex::with_options(detecting().name("values"))
}

pub(crate) fn permits(limit: usize) -> Arc<KeyedSemaphore<u32>> {
    Arc::new(KeyedSemaphore::with_limit_and_options(limit, detecting().name("permits")))
}

/// Whether so many wait for every key, of which there is one at least.
pub(crate) fn wait_for_all(files: &Files, count: usize) -> bool {
    files.snapshot()[0].waiters_for_all.len() == count
}

/// The deadlock that is reported, of several threads or of one that waits for itself.
pub(crate) fn ring<T>(result: Result<T, AcquireError>) -> Option<Deadlock> {
    match result {
        Err(AcquireError::WouldDeadlock(deadlock)) => {
            assert!(!deadlock.threads().is_empty(), "{deadlock}");
            Some(deadlock)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    }
}

/// How often somebody was told. A ring that is closed by one request is told to one: to that one, or to another that had
/// queued before and looks only now.
#[derive(Default)]
pub(crate) struct Told(AtomicUsize);

impl Told {
    pub(crate) fn note<T>(&self, result: Result<T, AcquireError>) -> bool {
        let told = ring(result).is_some();
        self.0.fetch_add(usize::from(told), Ordering::Relaxed);
        told
    }

    /// Of a call that panics instead.
    pub(crate) fn note_panic<T>(&self, work: impl FnOnce() -> T) -> bool {
        let told = match panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(_) => false,
            Err(payload) => {
                let message = payload.downcast_ref::<String>().expect("a message");
                assert!(message.contains("for ever"), "{message}");
                true
            }
        };
        self.0.fetch_add(usize::from(told), Ordering::Relaxed);
        told
    }

    /// Of a call that gives `None` instead, long before its time is up.
    pub(crate) fn note_none<T>(&self, result: Option<T>) -> bool {
        self.0.fetch_add(usize::from(result.is_none()), Ordering::Relaxed);
        result.is_none()
    }

    pub(crate) fn times(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A wait that looks for a deadlock only long after it has queued.
pub(crate) fn slow() -> Wait {
    let token = CancellationToken::new();
    (0..4_000).fold(Wait::forever(), |wait, _| wait.or_cancelled(&token))
}
