//! What has to hold when something panics.
//!
//! A `Drop` that panics while its thread unwinds ends the process. So where a panic of the user's code can meet the drop of
//! something else of the user's, the first panic goes on and those after it are survived.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Does `work`. What panics in it has been reported by the panic hook, and goes no further.
pub(crate) fn survive(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        end(panic);
    }
}

fn end(panic: Box<dyn Any + Send>) {
    // The payload's own `Drop` may panic, and what that panics with again, for ever: one is enough.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}

/// The first panic of several pieces of work.
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

    /// Gives `made`. If there was a panic, drops all of it instead, and goes on with that.
    pub(crate) fn resume_or<T>(self, mut made: Vec<T>) -> Vec<T> {
        if self.0.is_some() {
            made.drain(..).for_each(|one| survive(|| drop(one)));
        }
        self.resume();
        made
    }
}

/// Does `work`. Its panic goes on, unless the thread unwinds already.
#[inline]
pub(crate) fn alone(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        resume_alone(panic);
    }
}

#[cold]
fn resume_alone(panic: Box<dyn Any + Send>) {
    if thread::panicking() {
        return end(panic);
    }
    resume_unwind(panic);
}

/// What is dropped [`alone`].
pub(crate) struct Alone<T>(pub(crate) Option<T>);

impl<T> Drop for Alone<T> {
    #[inline]
    fn drop(&mut self) {
        alone(|| self.0 = None);
    }
}

/// Runs `work` while `guard` lives.
///
/// If the guard's `Drop` panics, by a key whose `Drop` does, what `work` gave is dropped, and may panic too. (After
/// `let _guard = ..; work()` it would be leaked.)
#[inline]
pub(crate) fn holding<G, R>(mut guard: G, work: impl FnOnce(&mut G) -> R) -> R {
    let result = work(&mut guard);
    if !mem::needs_drop::<R>() {
        // To take it out of an `Option` is a copy, which is not for nothing where it is large.
        drop(guard);
        return result;
    }
    let mut result = Alone(Some(result));
    drop(guard);
    result.0.take().expect("it was put there")
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
