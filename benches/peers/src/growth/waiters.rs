//! More and more threads that wait for one key and give up together: how long until all are gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use perkey::{AcquireError, CancellationToken, KeyedLock, Wait};

use super::{Figures, Goal, Growth, Part};
use crate::contestants::by_hand::Counted;
use crate::contestants::{Locks, names};
use crate::loads::Entrant;

/// For 10,000 in times of 1,000: each of them leaves its queue in a time that hardly depends on the others.
const TIMES: f64 = 15.0;

/// Enough for a thread that only waits; ten thousand of them have room.
const STACK: usize = 64 << 10;

const KEY: u64 = 7;

pub(super) fn all(waiters: &[u64]) -> Vec<Growth> {
    let timeout = "Threads that wait for one key until the same moment, from then until all are gone";
    let cancel = "Threads that wait for one key with one token, from its cancellation until all are gone";
    vec![growth(waiters, "waiters-timeout", timeout, timing_out), growth(waiters, "waiters-cancel", cancel, cancelled)]
}

fn growth(waiters: &[u64], name: &'static str, title: &str, lineup: fn(u64) -> Vec<Entrant>) -> Growth {
    let last = waiters.len() - 1;
    Growth {
        part: Part::Waiters,
        name,
        title: title.into(),
        of: "waiter",
        sizes: waiters.to_vec(),
        lineups: waiters.iter().map(|&waiters| lineup(waiters)).collect(),
        figures: Figures::Total,
        compared: (waiters[last.saturating_sub(1)], waiters[last]),
        goal: Some(Goal { who: names::PERKEY, times: TIMES }),
    }
}

fn timing_out(waiters: u64) -> Vec<Entrant> {
    vec![
        entrant(names::FLOOR_THREADS, move || {
            Crowd::of(waiters).until_gone_after_deadline(|deadline| thread::sleep(left(deadline)))
        }),
        entrant(names::PERKEY, move || {
            let locks = KeyedLock::<u64>::new();
            let _held = locks.lock(&KEY);
            Crowd::of(waiters).seen(&|| locks.waiters(&KEY)).until_gone_after_deadline(|deadline| {
                assert!(locks.lock_with(&KEY, deadline).is_err());
            })
        }),
        entrant(names::COUNTED, move || {
            let table = Counted::<u64>::new();
            let crowd = Crowd::of(waiters);
            let mut taken = 0.0;
            table.with(&KEY, || {
                taken =
                    crowd.until_gone_after_deadline(|deadline| assert!(!table.try_with_until(&KEY, deadline, || ())));
            });
            taken
        }),
    ]
}

fn cancelled(waiters: u64) -> Vec<Entrant> {
    vec![
        entrant(names::FLOOR_THREADS, move || {
            let over = AtomicBool::new(false);
            let wait = || {
                while !over.load(Relaxed) {
                    thread::park();
                }
            };
            Crowd::of(waiters).until_gone_after_signal(wait, |threads| {
                over.store(true, Relaxed);
                threads.iter().for_each(|thread| thread.unpark());
            })
        }),
        entrant(names::ONE_CONDVAR, move || {
            let (over, changed) = (Mutex::new(false), Condvar::new());
            let wait = || changed.wait_while(&mut over.lock(), |over| !*over);
            Crowd::of(waiters).until_gone_after_signal(wait, |_| {
                *over.lock() = true;
                changed.notify_all();
            })
        }),
        entrant(names::PERKEY, move || {
            let (locks, token) = (KeyedLock::<u64>::new(), CancellationToken::new());
            let _held = locks.lock(&KEY);
            let wait = || {
                let wait = Wait::forever().or_cancelled(&token);
                assert_eq!(locks.lock_with(&KEY, wait).err(), Some(AcquireError::Cancelled));
            };
            Crowd::of(waiters).seen(&|| locks.waiters(&KEY)).until_gone_after_signal(wait, |_| token.cancel())
        }),
    ]
}

fn entrant(name: &'static str, until_gone: impl Fn() -> f64 + 'static) -> Entrant {
    Entrant { name, speed: Box::new(move |_| until_gone()), waits: None }
}

/// Threads that wait.
struct Crowd<'a> {
    waiters: u64,
    /// How many are seen to wait, where somebody tells.
    seen: Option<&'a (dyn Fn() -> usize + Sync)>,
    /// How many are about to wait.
    arrived: AtomicU64,
}

impl<'a> Crowd<'a> {
    fn of(waiters: u64) -> Self {
        Self { waiters, seen: None, arrived: AtomicU64::new(0) }
    }

    fn seen(self, seen: &'a (dyn Fn() -> usize + Sync)) -> Self {
        Self { seen: Some(seen), ..self }
    }

    /// Nanoseconds from the moment until which each thread waits until the last one has returned.
    fn until_gone_after_deadline(&self, wait: impl Fn(Instant) + Sync) -> f64 {
        // Until then all of them have to wait. What that takes depends on who else uses the machine.
        let mut ahead = Duration::from_millis(50) + Duration::from_micros(100) * self.waiters as u32;
        loop {
            let deadline = Instant::now() + ahead;
            self.arrived.store(0, Relaxed);
            let mut in_time = false;
            let gone = self.gone(
                || wait(deadline),
                |_| {
                    self.all_wait(deadline);
                    in_time = left(deadline) > ahead / 8;
                },
            );
            if in_time {
                return gone.saturating_duration_since(deadline).as_nanos() as f64;
            }
            ahead *= 2;
        }
    }

    /// Nanoseconds from `signal`, which ends all the waits, until the last thread has returned.
    fn until_gone_after_signal(&self, wait: impl Fn() + Sync, signal: impl Fn(&[&thread::Thread])) -> f64 {
        let mut start = Instant::now();
        let gone = self.gone(wait, |threads| {
            self.all_wait(start + Duration::from_secs(30));
            start = Instant::now();
            signal(threads);
        });
        gone.saturating_duration_since(start).as_nanos() as f64
    }

    /// When the last thread returned from its wait; `once_started` is called when all have been started.
    fn gone(&self, wait: impl Fn() + Sync, once_started: impl FnOnce(&[&thread::Thread])) -> Instant {
        thread::scope(|scope| {
            let waiter = || {
                self.arrived.fetch_add(1, Relaxed);
                wait();
                Instant::now()
            };
            let spawn = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, waiter);
            let (threads, refused): (Vec<_>, Vec<_>) = (0..self.waiters).map(spawn).partition(Result::is_ok);
            let threads: Vec<_> = threads.into_iter().flatten().collect();
            // Those that wait have to end also if there are too few of them.
            once_started(&threads.iter().map(|thread| thread.thread()).collect::<Vec<_>>());
            let gone = threads.into_iter().map(|thread| thread.join().expect("a waiter panicked")).max();
            if let Some(Err(error)) = refused.into_iter().next() {
                panic!("no {} threads at once: {error}", self.waiters);
            }
            gone.expect("there are waiters")
        })
    }

    /// Until all wait, or `at_most` then; and a little for the last of them to sleep.
    fn all_wait(&self, at_most: Instant) {
        while !self.all_there() && Instant::now() < at_most {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_millis(10) + Duration::from_micros(5) * self.waiters as u32);
    }

    fn all_there(&self) -> bool {
        let seen = self.seen.map_or(self.waiters, |seen| seen() as u64);
        self.arrived.load(Relaxed) == self.waiters && seen == self.waiters
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
