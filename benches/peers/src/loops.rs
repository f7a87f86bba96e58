//! The measured loops. Each is compiled once for every contestant.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::contestants::Locks;
use crate::keys::Keys;

/// Taken and given back this often before the clock starts: first allocations, and code that was never run.
const WARM_UP: u64 = 1_000;

/// Nanoseconds per operation of one thread.
pub(crate) fn alone<S: Keys>(locks: &impl Locks<S::Key>, keys: &mut S, operations: u64) -> f64 {
    let mut run = |operations| {
        for _ in 0..operations {
            locks.with(black_box(keys.next_key()), || black_box(()));
        }
    };
    run(WARM_UP);
    let start = Instant::now();
    run(operations);
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// Several threads that do the same without a pause.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) threads: u64,
    /// The length of the section under the lock, in `spin_loop`s.
    pub(crate) spins: u32,
}

/// How the waits of one round were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) longest: Duration,
    /// What the thread that got least got, relative to a fair share.
    pub(crate) least_share: f64,
}

impl Crowd {
    /// Nanoseconds per operation of all threads together.
    pub(crate) fn throughput<S: Keys>(
        self,
        locks: &impl Locks<S::Key>,
        keys: impl Fn(u64) -> S + Sync,
        window: Duration,
    ) -> f64 {
        let (operations, elapsed) = self.run(window, |thread, stop| {
            let (mut keys, mut operations) = (keys(thread), 0_u64);
            while !stop.load(Relaxed) {
                locks.with(black_box(keys.next_key()), || section(self.spins));
                operations += 1;
            }
            operations
        });
        elapsed.as_nanos() as f64 / operations.iter().sum::<u64>() as f64
    }

    /// The waits of such a round. Not measured in the same round: reading the clock twice for each operation takes as
    /// long as the operation.
    pub(crate) fn waits<S: Keys>(
        self,
        locks: &impl Locks<S::Key>,
        keys: impl Fn(u64) -> S + Sync,
        window: Duration,
    ) -> Waits {
        let (threads, _) = self.run(window, |thread, stop| {
            let (mut keys, mut operations, mut longest) = (keys(thread), 0_u64, Duration::ZERO);
            while !stop.load(Relaxed) {
                let key = black_box(keys.next_key());
                let asked = Instant::now();
                locks.with(key, || {
                    longest = longest.max(asked.elapsed());
                    section(self.spins);
                });
                operations += 1;
            }
            (operations, longest)
        });
        let total: u64 = threads.iter().map(|(operations, _)| operations).sum();
        let least = threads.iter().map(|(operations, _)| *operations).min().unwrap_or(0);
        Waits {
            longest: threads.iter().map(|(_, longest)| *longest).max().unwrap_or_default(),
            least_share: least as f64 * self.threads as f64 / total as f64,
        }
    }

    /// Runs `work` on each thread until the window is over. Gives what the threads give, and how long it took.
    fn run<R: Send>(self, window: Duration, work: impl Fn(u64, &AtomicBool) -> R + Sync) -> (Vec<R>, Duration) {
        let (stop, together) = (AtomicBool::new(false), Barrier::new(self.threads as usize + 1));
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (stop, together, work) = (&stop, &together, &work);
                    scope.spawn(move || {
                        together.wait();
                        let start = Instant::now();
                        (start, work(thread, stop))
                    })
                })
                .collect();
            together.wait();
            thread::sleep(window);
            // This thread may come late from the barrier and from its sleep, as the others keep the cores busy; so the
            // clock starts with the first of them, and is read before they are told to stop.
            let end = Instant::now();
            stop.store(true, Relaxed);
            let (starts, results): (Vec<_>, Vec<_>) =
                threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).unzip();
            let start = starts.into_iter().min().expect("there is at least one thread");
            (results, end.saturating_duration_since(start))
        })
    }
}

#[inline]
fn section(spins: u32) {
    for _ in 0..black_box(spins) {
        spin_loop();
    }
}
