//! The measured loops. Each is compiled once for every contestant.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::contestants::Locks;
use crate::keys::Keys;

/// Taken and given back this often before the clock starts: first allocations, and code that was never run.
const WARM_UP_OPERATIONS: u64 = 1_000;

/// The phases of a round of several threads.
const WARM_UP: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// Nanoseconds per operation of one thread.
pub(crate) fn alone<S: Keys>(locks: &impl Locks<S::Key>, keys: &mut S, operations: u64) -> f64 {
    repeat(operations, || locks.with(black_box(keys.next_key()), || black_box(())))
}

/// The same of any operation.
#[inline]
pub(crate) fn repeat(operations: u64, mut operation: impl FnMut()) -> f64 {
    let mut run = |operations| {
        for _ in 0..operations {
            operation();
        }
    };
    run(WARM_UP_OPERATIONS);
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
        let (operations, elapsed) = self.run(window, |thread, phase, arrived| {
            let (mut keys, mut operations) = (keys(thread), 0_u64);
            locks.with(keys.next_key(), arrived);
            loop {
                locks.with(black_box(keys.next_key()), || section(self.spins));
                match phase.load(Relaxed) {
                    WARM_UP => {}
                    COUNT => operations += 1,
                    _ => return operations,
                }
            }
        });
        // At least one, in case the machine had no time for us at all.
        elapsed.as_nanos() as f64 / operations.iter().sum::<u64>().max(1) as f64
    }

    /// The waits of such a round. Not measured in the same round: reading the clock twice for each operation takes as
    /// long as the operation.
    pub(crate) fn waits<S: Keys>(
        self,
        locks: &impl Locks<S::Key>,
        keys: impl Fn(u64) -> S + Sync,
        window: Duration,
    ) -> Waits {
        let (threads, _) = self.run(window, |thread, phase, arrived| {
            let (mut keys, mut operations, mut longest) = (keys(thread), 0_u64, Duration::ZERO);
            locks.with(keys.next_key(), arrived);
            loop {
                let key = black_box(keys.next_key());
                let (asked, mut waited) = (Instant::now(), Duration::ZERO);
                locks.with(key, || {
                    waited = asked.elapsed();
                    section(self.spins);
                });
                match phase.load(Relaxed) {
                    WARM_UP => continue,
                    COUNT => operations += 1,
                    _ => return (operations, longest.max(waited)),
                }
                longest = longest.max(waited);
            }
        });
        let total: u64 = threads.iter().map(|(operations, _)| operations).sum();
        let least = threads.iter().map(|(operations, _)| *operations).min().unwrap_or(0);
        Waits {
            longest: threads.iter().map(|(_, longest)| *longest).max().unwrap_or_default(),
            least_share: least as f64 * self.threads as f64 / total.max(1) as f64,
        }
    }

    /// Runs `work` on each thread through all phases; it tells of its first operation. Gives what the threads give, and
    /// how long [`COUNT`] was.
    fn run<R: Send>(
        self,
        window: Duration,
        work: impl Fn(u64, &AtomicU8, &dyn Fn()) -> R + Sync,
    ) -> (Vec<R>, Duration) {
        let (phase, arrivals) = (AtomicU8::new(WARM_UP), AtomicU64::new(0));
        let arrived = || {
            arrivals.fetch_add(1, Relaxed);
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (phase, arrived, work) = (&phase, &arrived, &work);
                    scope.spawn(move || work(thread, phase, arrived))
                })
                .collect();
            // As long as one thread has the lock to itself, it does in a millisecond what a crowd does in a hundred. A
            // thread that is starved from the start is waited for only so long.
            let start = Instant::now();
            while arrivals.load(Relaxed) < self.threads && start.elapsed() < window {
                thread::sleep(Duration::from_micros(200));
            }
            // This thread wakes late when the others keep the cores busy, so the window is what the clock says.
            let start = Instant::now();
            phase.store(COUNT, Relaxed);
            thread::sleep(window);
            let elapsed = start.elapsed();
            phase.store(STOP, Relaxed);
            (threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect(), elapsed)
        })
    }
}

#[inline]
fn section(spins: u32) {
    for _ in 0..black_box(spins) {
        spin_loop();
    }
}
