//! What starts next: the part that shows the library.
//!
//! A worker asks for a line with a permit of its key, keeps the permit while the command runs, and comes back. It gets the
//! first line whose key has a permit free. If no key has, it waits for the key of the first line. That is all, because:
//!
//! * *A scan is short.* It looks at keys and not at lines, and a key without a free permit is held, or about to be taken,
//!   by another worker. So with J workers at most J keys are looked at in vain, however many lines and keys there are.
//! * *To wait for one key misses nothing at another.* A permit comes back with the worker that held it, and makes room for
//!   one line at most; and that worker looks for a line next. So whoever waits is needed only where the permit goes to it,
//!   and then it has the key.
//! * *Lines of one key start in order*, also where several may run: a line is taken and its command started under one
//!   mutex. (Two commands that run at once may still get to their first step in either order.)

use std::sync::{Mutex, MutexGuard};

use perkey::{AcquireError, CancellationToken, KeyedPermit, KeyedSemaphore, Wait};

use super::pending::Pending;
use super::rows::Job;

pub(crate) struct Scheduler<'a> {
    keys: KeyedSemaphore<String>,
    pending: Mutex<Pending<'a>>,
    stop: CancellationToken,
}

/// A line that was started. Its key has that much less room until this is dropped.
pub(crate) struct Started<'s, 'a, T> {
    pub(crate) job: &'a Job,
    pub(crate) what: T,
    _permit: KeyedPermit<'s, String>,
}

impl<'a> Scheduler<'a> {
    /// At most `limit` lines of a key run at a time, and it is at least 1. Once `stop` is cancelled nothing starts.
    pub(crate) fn new(
        jobs: &'a [Job],
        limit: impl Fn(&str) -> usize + Send + Sync + 'static,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            keys: KeyedSemaphore::with_limit_by(move |key: &String| limit(key)),
            pending: Mutex::new(Pending::new(jobs)),
            stop: stop.clone(),
        }
    }

    /// Takes the next line that its key has room for and calls `start` with it, waiting for a key if none has. `None` when
    /// all have been taken, or on `stop`.
    pub(crate) fn next<T>(&self, start: impl FnOnce(&'a Job) -> T) -> Option<Started<'_, 'a, T>> {
        // Not `try_acquire`: this tells a key without room from the end of it all.
        let now = Wait::now().or_cancelled(&self.stop);
        loop {
            let mut pending = self.pending();
            let full = pending.keys().next()?;
            let first_not_full = pending
                .keys()
                .map(|key| (key, self.keys.acquire_with(key, &now)))
                .find(|(_, outcome)| !matches!(outcome, Err(AcquireError::Busy)));
            match first_not_full {
                Some((key, Ok(permit))) => {
                    let job = pending.take(key)?;
                    return Some(Started { job, what: start(job), _permit: permit });
                }
                Some((_, Err(_))) => return None,
                None => {}
            }
            // Whoever has a permit needs the mutex to take a line, so nobody may wait for a permit with it.
            drop(pending);

            let permit = self.keys.acquire_with(full, &self.stop).ok()?;
            let mut pending = self.pending();
            // If a grant and the cancellation meet, the grant wins; but here nothing starts any more.
            if self.stop.is_cancelled() {
                return None;
            }
            if let Some(job) = pending.take(full) {
                return Some(Started { job, what: start(job), _permit: permit });
            }
            // Others have taken the lines of this key meanwhile.
        }
    }

    /// The lines that were not taken.
    pub(crate) fn into_left(self) -> Vec<&'a Job> {
        self.pending.into_inner().expect("no worker panics with the lock").into_left()
    }

    fn pending(&self) -> MutexGuard<'_, Pending<'a>> {
        self.pending.lock().expect("no worker panics with the lock")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn jobs(keys: &str) -> Vec<Job> {
        let rows = keys.chars().zip(1..);
        rows.map(|(key, line)| Job { line, key: key.to_string(), command: "true".into() }).collect()
    }

    /// At most as many as the key says, or one.
    fn limit(key: &str) -> usize {
        key.parse().unwrap_or(1)
    }

    fn wait_for(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    #[test]
    fn the_first_line_whose_key_has_room_is_next() {
        let jobs = jobs("aa2222b");
        let stop = CancellationToken::new();
        let scheduler = Scheduler::new(&jobs, limit, &stop);
        let next = || scheduler.next(|job| job.line).unwrap();
        let (first, second, third, fourth) = (next(), next(), next(), next());
        assert_eq!([first.what, second.what, third.what, fourth.what], [1, 3, 4, 7]);
        drop(fourth);
        drop(third);
        let fifth = next();
        assert_eq!(fifth.what, 5);
        drop(first);
        assert_eq!(next().what, 2);
        drop(fifth);
        assert_eq!(next().what, 6);
        assert!(scheduler.next(|job| job.line).is_none());
        drop(second);
        assert!(scheduler.into_left().is_empty());
    }

    #[test]
    fn a_worker_that_waits_gets_the_line_when_the_key_is_given_back() {
        let jobs = jobs("aab");
        let stop = CancellationToken::new();
        let scheduler = Scheduler::new(&jobs, limit, &stop);
        thread::scope(|scope| {
            let (a, b) = (scheduler.next(|_| ()).unwrap(), scheduler.next(|_| ()).unwrap());
            assert_eq!((a.job.line, b.job.line), (1, 3));
            let waiting = scope.spawn(|| scheduler.next(|_| ()).unwrap().job.line);
            wait_for(|| scheduler.keys.waiters("a") == 1);
            drop(a);
            assert_eq!(waiting.join().unwrap(), 2);
        });
    }

    #[test]
    fn workers_that_wait_for_more_lines_than_there_are_come_back() {
        let jobs = jobs("33333");
        let stop = CancellationToken::new();
        let scheduler = Scheduler::new(&jobs, limit, &stop);
        thread::scope(|scope| {
            let running = [(); 3].map(|()| scheduler.next(|_| ()).unwrap());
            let waiting = [(); 4].map(|()| scope.spawn(|| scheduler.next(|_| ()).map(|started| started.job.line)));
            wait_for(|| scheduler.keys.waiters("3") == 4);
            drop(running);
            let mut lines = waiting.map(|worker| worker.join().unwrap());
            lines.sort_unstable();
            assert_eq!(lines, [None, None, Some(4), Some(5)]);
        });
        assert!(scheduler.keys.is_empty());
    }

    #[test]
    fn stop_ends_waits_and_nothing_starts_any_more() {
        let jobs = jobs("aabab");
        let stop = CancellationToken::new();
        let scheduler = Scheduler::new(&jobs, limit, &stop);
        thread::scope(|scope| {
            let running = [(); 2].map(|()| scheduler.next(|_| ()).unwrap());
            let waiting = [(); 3].map(|()| scope.spawn(|| scheduler.next(|_| panic!("it starts")).is_none()));
            wait_for(|| scheduler.keys.waiters("a") == 3);
            stop.cancel();
            assert!(waiting.into_iter().all(|worker| worker.join().unwrap()));
            drop(running);
        });
        // Both keys are free now.
        assert!(scheduler.next(|_| panic!("it starts")).is_none());
        assert_eq!(scheduler.into_left().iter().map(|job| job.line).collect::<Vec<_>>(), [2, 4, 5]);
    }

    #[test]
    fn all_lines_start_once_in_the_order_of_their_key_and_within_its_limit() {
        let keys: String = (0..3_000).map(|n| ['a', 'b', '2', 'c', '3', 'a', '4'][n * n % 7]).collect();
        let jobs = jobs(&keys);
        let stop = CancellationToken::new();
        let scheduler = Scheduler::new(&jobs, limit, &stop);
        let running: HashMap<&str, AtomicUsize> = jobs.iter().map(|job| (job.key.as_str(), 0.into())).collect();
        let begun = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while let Some(started) = scheduler.next(|job| begun.lock().unwrap().push(job)) {
                        let key = started.job.key.as_str();
                        assert!(running[key].fetch_add(1, Ordering::Relaxed) < limit(key), "too many of {key}");
                        thread::yield_now();
                        running[key].fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let mut begun = begun.into_inner().unwrap();
        for key in running.keys() {
            assert!(begun.iter().filter(|job| job.key == **key).is_sorted_by_key(|job| job.line), "order of {key}");
        }
        begun.sort_unstable_by_key(|job| job.line);
        assert!(begun.into_iter().eq(&jobs));
        assert!(scheduler.keys.is_empty());
        assert!(scheduler.into_left().is_empty());
    }
}
