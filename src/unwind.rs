//! What has to hold when something panics.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Does `work`. What panics in it has been reported by the panic hook, and goes no further.
pub(crate) fn survive(work: impl FnOnce()) {
    // The payload's own `Drop` may panic, and what that panics with again, for ever: one is enough.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work))
        && let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic)))
    {
        mem::forget(again);
    }
}

/// The first panic of several pieces of work. Two at once would end the process.
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Does `work`, and catches its panic.
    pub(crate) fn catch(&mut self, work: impl FnOnce()) {
        match self.0 {
            None => self.0 = catch_unwind(AssertUnwindSafe(work)).err(),
            Some(_) => survive(work),
        }
    }

    /// Goes on with the first panic, if there was one.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}

/// Runs `work` while `guard` lives.
///
/// Not `let _guard = ..; work()`: if the guard's `Drop` panics then, by a key whose `Drop` does, what `work` gave is leaked.
#[inline]
pub(crate) fn holding<G, R>(mut guard: G, work: impl FnOnce(&mut G) -> R) -> R {
    let result = work(&mut guard);
    drop(guard);
    result
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A payload that panics with another when it is dropped.
    struct Loud(Arc<()>, u32);

    impl Drop for Loud {
        fn drop(&mut self) {
            if self.1 > 0 {
                resume_unwind(Box::new(Self(Arc::clone(&self.0), self.1 - 1)));
            }
        }
    }

    #[test]
    fn payloads_are_dropped_even_if_their_own_drop_panics() {
        let payload = Arc::new(());
        let panic_with = |more| resume_unwind(Box::new(Loud(Arc::clone(&payload), more)));
        survive(|| panic_with(0));
        assert_eq!(Arc::strong_count(&payload), 1);
        let mut first = FirstPanic::default();
        first.catch(|| resume_unwind(Box::new(1)));
        first.catch(|| panic_with(0));
        assert_eq!(Arc::strong_count(&payload), 1);
        let resumed = catch_unwind(AssertUnwindSafe(|| first.resume()));
        assert_eq!(resumed.unwrap_err().downcast_ref(), Some(&1));
        survive(|| panic_with(1));
        assert_eq!(Arc::strong_count(&payload), 2, "what the payload panics with is forgotten");
    }
}
