//! What a thread waits for, for a while, from the thread that speaks with the server.

use std::sync::Arc;
use std::time::Instant;

use crate::sync::{Condvar, Mutex};

/// One value, given at most once. Either who waits for it has it, or who gives it knows that nobody does.
pub(super) struct Answer<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Awaited,
    Given(T),
    /// Taken, or nobody waits any more.
    Over,
}

impl<T> Answer<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::Awaited), changed: Condvar::new() }))
    }

    /// Whether somebody waits for it still.
    pub(super) fn give(&self, value: T) -> bool {
        let mut state = self.0.state.lock();
        let is_awaited = matches!(*state, State::Awaited);
        if is_awaited {
            *state = State::Given(value);
            self.0.changed.notify_all();
        }
        is_awaited
    }

    /// Waits for it. If it was not given by then, it will not be.
    pub(super) fn wait(self, until: Instant) -> Option<T> {
        let mut state = self.0.state.lock();
        while matches!(*state, State::Awaited) {
            if self.0.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Given(value) => Some(value),
            State::Awaited | State::Over => None,
        }
    }
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_had_or_refused() {
        let answer = Answer::new();
        assert!(answer.give(1) && !answer.give(2));
        assert_eq!(answer.clone().wait(Instant::now()), Some(1));
        assert!(!answer.give(3));
        let late = Answer::new();
        assert_eq!(late.clone().wait(Instant::now()), None);
        assert!(!late.give(1));
    }
}
