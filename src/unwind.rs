//! What has to hold when something panics.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Does `work`. What panics in it has been reported by the panic hook, and goes no further.
pub(crate) fn survive(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        // Its own `Drop` could panic.
        mem::forget(panic);
    }
}

/// The first panic of several pieces of work. Two at once would end the process.
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Does `work`, and catches its panic.
    pub(crate) fn catch(&mut self, work: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            match self.0 {
                None => self.0 = Some(panic),
                Some(_) => mem::forget(panic), // as in `survive`
            }
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
