//! How long threads wait and how even their shares are: the worst cases that a benchmark of averages does not show.
//!
//! `cargo bench --bench fairness` takes half a minute; `-- --quick` a few seconds, with worst cases of less meaning.
//! Figures depend on the machine and on what else runs there, so nothing here passes or fails.
#![forbid(unsafe_code)]

use std::env;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perkey::{CancellationToken, Fairness, KeyedLock, KeyedSemaphore, Options, Wait};

const MODES: [Fairness; 2] = [Fairness::Eventual, Fairness::Fifo];
const THREADS: usize = 8;

fn main() {
    let asked = |flag: &str| env::args().any(|argument| argument == flag);
    if !asked("--bench") || asked("--test") {
        return; // Run as a test: that it builds is all there is to see.
    }
    let time = if asked("--quick") { Duration::from_millis(500) } else { Duration::from_secs(2) };
    println!("{THREADS} threads on one key, {time:?} each; every operation reads the clock twice");
    println!("{:<10}{:>8}{:>14}{:>16}{:>14}", "mode", "spins", "operations/s", "longest wait", "least share");
    for fairness in MODES {
        for spins in [0, 20, 200] {
            let Shares { per_second, longest, least } = shares(fairness, spins, time);
            println!(
                "{:<10}{spins:>8}{per_second:>14.0}{:>16}{least:>14.2}",
                format!("{fairness:?}"),
                milliseconds(longest)
            );
        }
    }
    println!("\na request for all 4 permits against 6 threads that take one for 5 ms, again and again");
    println!("{:<10}{:>8}{:>16}{:>16}", "mode", "grants", "mean wait", "longest wait");
    for fairness in MODES {
        row(fairness, &heavy_against_light(fairness, 2 * time));
    }
    println!("\na thread that waits against one that takes the key again as soon as it has released it, 20 spins");
    println!("{:<10}{:>8}{:>16}{:>16}", "mode", "grants", "mean wait", "longest wait");
    for fairness in MODES {
        row(fairness, &waiter_against_loop(fairness, time));
    }
    println!("\nso many waiters of one key that give up together, from then until the last has returned");
    println!("{:<10}{:>10}{:>12}{:>12}", "mode", "by", "1,000", "10,000");
    for fairness in MODES {
        for by_time in [false, true] {
            let [few, many] = [1_000, 10_000].map(|count| milliseconds(give_up_together(fairness, count, by_time)));
            let by = if by_time { "time-out" } else { "token" };
            println!("{:<10}{by:>10}{few:>12}{many:>12}", format!("{fairness:?}"));
        }
    }
}

/// The median of three.
fn give_up_together(fairness: Fairness, count: usize, by_time: bool) -> Duration {
    let mut times = [(); 3].map(|()| {
        let locks = KeyedLock::<u32>::with_options(Options::new().fairness(fairness));
        let token = CancellationToken::new();
        // Far enough away for all to have queued.
        let deadline = Instant::now() + Duration::from_secs(2);
        let wait = if by_time { Wait::until(deadline) } else { Wait::from(&token) };
        let held = locks.lock(&1);
        let took = thread::scope(|scope| {
            let crowd: Vec<_> = (0..count)
                .map(|_| {
                    let waiter = || {
                        assert!(locks.lock_with(&1, &wait).is_err());
                        Instant::now()
                    };
                    thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, waiter).expect("a thread")
                })
                .collect();
            while locks.waiters(&1) < count {
                thread::yield_now();
            }
            let begin = if by_time { deadline.max(Instant::now()) } else { Instant::now() };
            token.cancel();
            let ends = crowd.into_iter().map(|waiter| waiter.join().expect("a waiter does not panic"));
            ends.max().map_or(Duration::ZERO, |end| end.saturating_duration_since(begin))
        });
        drop(held);
        took
    });
    times.sort();
    times[1]
}

fn row(fairness: Fairness, waits: &[Duration]) {
    let mean = waits.iter().sum::<Duration>() / waits.len().max(1) as u32;
    let longest = waits.iter().max().copied().unwrap_or_default();
    let mode = format!("{fairness:?}");
    println!("{mode:<10}{:>8}{:>16}{:>16}", waits.len(), milliseconds(mean), milliseconds(longest));
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}

fn section(spins: u32) {
    for _ in 0..spins {
        spin_loop();
    }
}

struct Shares {
    per_second: f64,
    /// Of any thread, for any one of its turns.
    longest: Duration,
    /// The fewest turns of a thread, by an eighth of all turns.
    least: f64,
}

fn shares(fairness: Fairness, spins: u32, time: Duration) -> Shares {
    let locks = KeyedLock::<u64>::with_options(Options::new().fairness(fairness));
    let barrier = Barrier::new(THREADS);
    let turns: Vec<(u64, Duration)> = thread::scope(|scope| {
        let take_turns = || {
            let (mut count, mut longest) = (0, Duration::ZERO);
            barrier.wait();
            let end = Instant::now() + time;
            loop {
                let asked = Instant::now();
                if asked >= end {
                    return (count, longest);
                }
                let guard = locks.lock(&42);
                longest = longest.max(asked.elapsed());
                section(spins);
                drop(guard);
                count += 1;
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(take_turns)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a turn does not panic")).collect()
    });
    let all: u64 = turns.iter().map(|(count, _)| count).sum();
    let fewest = turns.iter().map(|(count, _)| *count).min().unwrap_or(0);
    Shares {
        per_second: all as f64 / time.as_secs_f64(),
        longest: turns.iter().map(|(_, longest)| *longest).max().unwrap_or_default(),
        least: fewest as f64 * THREADS as f64 / all.max(1) as f64,
    }
}

fn heavy_against_light(fairness: Fairness, time: Duration) -> Vec<Duration> {
    let permits = KeyedSemaphore::<u64, 4>::with_options(Options::new().fairness(fairness));
    let stop = AtomicBool::new(false);
    let mut waits = Vec::new();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    permits.with_key(&42, || thread::sleep(Duration::from_millis(5)));
                }
            });
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(7));
            let asked = Instant::now();
            let all = permits.acquire_many(&42, 4, Wait::forever());
            waits.push(asked.elapsed());
            drop(all);
        }
        stop.store(true, Ordering::Relaxed);
    });
    waits
}

fn waiter_against_loop(fairness: Fairness, time: Duration) -> Vec<Duration> {
    let locks = KeyedLock::<u64>::with_options(Options::new().fairness(fairness));
    let stop = AtomicBool::new(false);
    let mut waits = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                locks.with_key(&42, || section(20));
            }
        });
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(Duration::from_micros(100));
            let asked = Instant::now();
            let guard = locks.lock(&42);
            waits.push(asked.elapsed());
            drop(guard);
        }
        stop.store(true, Ordering::Relaxed);
    });
    waits
}
