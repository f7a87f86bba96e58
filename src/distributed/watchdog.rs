//! Threads that renew leases, clean up after what went wrong, and look at the clock.
//!
//! Two per lock or semaphore object, from the first lease until there has been nothing to do for a while. Each task says when it is
//! due next; those of one thread run one after the other. So a store that does not answer makes renewals late; that a lease has
//! ended is said by the thread which asks no store, and in time.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};
use crate::unwind::survive;

/// After so long without a task the thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// What has to be done at some time.
pub(super) trait Task: Send {
    /// Does it now. When it is due again, if it is.
    fn run(&mut self) -> Option<Instant>;
}

#[derive(Default)]
pub(super) struct Watchdog {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By when they are due, and by number.
    tasks: BTreeMap<(Instant, u64), Box<dyn Task>>,
    dues: HashMap<u64, Instant>,
    numbers: u64,
    /// The thread, while there is one.
    thread: Option<ThreadId>,
    /// The task that runs.
    running: Option<u64>,
}

impl State {
    fn insert(&mut self, number: u64, due: Instant, task: Box<dyn Task>) {
        self.dues.insert(number, due);
        self.tasks.insert((due, number), task);
    }

    fn remove(&mut self, number: u64) -> Option<Box<dyn Task>> {
        let due = self.dues.remove(&number)?;
        self.tasks.remove(&(due, number))
    }
}

impl Watchdog {
    /// Has a task run when it is due; gives its number. Fails if the system gives no thread.
    pub(super) fn add(self: &Arc<Self>, due: Instant, task: Box<dyn Task>) -> io::Result<u64> {
        let mut state = self.state.lock();
        if state.thread.is_none() {
            let own = Arc::clone(self);
            let thread = thread::Builder::new().name("perkey-watchdog".to_owned()).spawn(move || own.watch())?;
            state.thread = Some(thread.thread().id());
        }
        let number = state.numbers;
        state.numbers += 1;
        state.insert(number, due, task);
        drop(state);
        self.changed.notify_all();
        Ok(number)
    }

    /// Takes a task off, and waits for it if it runs just now.
    pub(super) fn take_off(&self, number: u64) {
        let mut state = self.state.lock();
        // Else it is the task itself that calls, in a call of the user's.
        if state.thread != Some(thread::current().id()) {
            self.changed.wait_while(&mut state, |state| state.running == Some(number));
        }
        let task = state.remove(number);
        drop(state);
        // The thread may sleep until this task was due, and there may be nothing else to do.
        self.changed.notify_all();
        drop(task);
    }

    fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(&(due, number)) = state.tasks.keys().next() else {
                if self.changed.wait_for(&mut state, IDLE).timed_out() && state.tasks.is_empty() {
                    state.thread = None;
                    return;
                }
                continue;
            };
            if due > Instant::now() {
                self.changed.wait_until(&mut state, due);
                continue;
            }
            let Some(mut task) = state.remove(number) else { continue };
            state.running = Some(number);
            drop(state);
            let mut next = None;
            survive(|| next = task.run());
            let mut task = Some(task);
            if next.is_none() {
                // What it owns of the user's may call here when it is dropped, or panic: so not under the lock.
                survive(|| task = None);
            }
            state = self.state.lock();
            state.running = None;
            if let Some((due, task)) = next.zip(task) {
                state.insert(number, due, task);
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Never;

    impl Task for Never {
        fn run(&mut self) -> Option<Instant> {
            None
        }
    }

    #[test]
    fn the_thread_ends_when_there_is_nothing_left_to_do() {
        let watchdog = Arc::new(Watchdog::default());
        let begin = Instant::now();
        let task = watchdog.add(begin + Duration::from_secs(3600), Box::new(Never)).expect("there are threads");
        watchdog.take_off(task);
        let mut state = watchdog.state.lock();
        while state.thread.is_some() {
            assert!(begin.elapsed() < 6 * IDLE, "it waits for a task that was taken off");
            drop(state);
            thread::sleep(Duration::from_millis(20));
            state = watchdog.state.lock();
        }
    }
}
