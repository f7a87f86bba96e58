//! Work for other threads.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// With parking_lot's locks, which ThreadSanitizer sees, in place of std's channels.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

impl Queue {
    pub(crate) fn push(&self, job: Job) {
        self.state.lock().jobs.push_back(job);
        self.bell.notify_one();
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.bell.notify_all();
    }

    /// Does what is pushed, until the queue is closed and empty.
    pub(crate) fn work_off(&self) {
        while let Some(job) = self.pop() {
            job();
        }
    }

    fn pop(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.bell.wait(&mut state);
        }
    }
}
