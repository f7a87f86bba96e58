//! Time-outs and cancellation that meet a grant.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedLockGuard, KeyedPermit, KeyedSemaphore, Wait};
use static_assertions::assert_not_impl_any;

use crate::support::{
    Barrier, Oracle, Random, SHORT, crowded, elsewhere, rounds, slow_to_park, soon, spin, threads, until, watched,
    watched_in_both_modes, work,
};

/// All permits are inside or free, and a request that waits without limit gets in: neither a permit nor a wake-up is
/// lost in 100,000 requests, most of which could end by time or by a token.
#[test]
fn a_grant_that_meets_a_timeout_or_a_cancellation_is_lost() {
    const WORKERS: usize = 4;
    const LIMIT: usize = 3;
    let each = rounds(100_000) / 2 / WORKERS;
    watched_in_both_modes(move |fairness| {
        let permits = KeyedSemaphore::<u32, LIMIT>::with_options(crowded(fairness));
        let oracle = Oracle::new(LIMIT);
        let [granted, timed_out, cancelled] = [const { AtomicUsize::new(0) }; 3];
        let tokens: Vec<Mutex<CancellationToken>> = (0..WORKERS).map(|_| Mutex::default()).collect();
        let at_work = AtomicUsize::new(WORKERS);

        let call = |number: usize| {
            let mut random = Random::new(number);
            for _ in 0..each {
                let weight = 1 + random.below(LIMIT as u64) as usize;
                let token = CancellationToken::new();
                let moment = Duration::from_micros(1 + random.below(60));
                let wait = match random.below(8) {
                    0 => Wait::forever(),
                    1..4 => Wait::at_most(moment),
                    4 => Wait::at_most(moment).or_cancelled(&token),
                    _ => Wait::from(&token),
                };
                *tokens[number].lock() = token.clone();
                let outcome = permits.acquire_many(&1, weight, wait);
                let count = match outcome {
                    Ok(_permit) => {
                        oracle.visit(weight, || work(&mut random));
                        &granted
                    }
                    Err(AcquireError::Timeout) => &timed_out,
                    Err(AcquireError::Cancelled) => {
                        assert!(token.is_cancelled());
                        &cancelled
                    }
                    Err(error) => panic!("{error}"),
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
            at_work.fetch_sub(1, Ordering::Release);
        };
        threads(|scope| {
            for number in 0..WORKERS {
                let call = &call;
                scope.spawn(move || call(number));
            }
            let mut random = Random::new(WORKERS);
            while at_work.load(Ordering::Acquire) > 0 {
                let token = tokens[random.below(WORKERS as u64) as usize].lock().clone();
                token.cancel();
                thread::sleep(Duration::from_micros(random.below(20)));
            }
        });

        assert_eq!(oracle.check(), granted.load(Ordering::Relaxed));
        assert_eq!((permits.len(), permits.available_permits(&1)), (0, LIMIT));
        let counts = [granted, timed_out, cancelled].map(AtomicUsize::into_inner);
        println!("{fairness:?}: [granted, timed out, cancelled] = {counts:?}");
        // In a few hundred calls that is chance.
        assert!(SHORT || counts.iter().all(|&count| count > 0), "nothing met: {counts:?}");
    });
}

/// A holder releases at the moment at which the head gives up; whatever comes of that, who is next gets in.
#[test]
fn a_waiter_that_gives_up_swallows_the_wake_up_of_the_next() {
    let times = rounds(400);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let barrier = Barrier::new(4);
        let go = AtomicUsize::new(0);
        let token = Mutex::new(CancellationToken::new());
        let [granted, cancelled] = [const { AtomicUsize::new(0) }; 2];
        threads(|scope| {
            // The head.
            scope.spawn(|| {
                for _ in 0..times {
                    barrier.meet();
                    let token = token.lock().clone();
                    match locks.lock_with(&1, &token) {
                        Ok(_guard) => {
                            oracle.visit(1, || ());
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(error, AcquireError::Cancelled);
                            cancelled.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    barrier.meet();
                }
            });
            // The next.
            scope.spawn(|| {
                for _ in 0..times {
                    barrier.meet();
                    until(|| locks.waiters(&1) == 1);
                    locks.with_key(&1, || oracle.visit(1, || ()));
                    barrier.meet();
                }
            });
            scope.spawn(|| {
                let mut random = Random::new(1);
                for round in 1..=times {
                    barrier.meet();
                    let token = token.lock().clone();
                    until(|| go.load(Ordering::Acquire) == round);
                    spin(1 << random.below(12));
                    token.cancel();
                    barrier.meet();
                }
            });
            let mut random = Random::new(2);
            for round in 1..=times {
                let guard = locks.lock(&1);
                *token.lock() = CancellationToken::new();
                barrier.meet();
                until(|| locks.waiters(&1) == 2);
                let begin = || go.store(round, Ordering::Release);
                let cancel = || token.lock().cancel();
                let mut moment = || spin(1 << random.below(12));
                match round % 5 {
                    0 => {
                        begin();
                        moment();
                        drop(guard);
                    }
                    1 => {
                        cancel();
                        moment();
                        drop(guard);
                        begin();
                    }
                    2 => {
                        drop(guard);
                        moment();
                        cancel();
                        begin();
                    }
                    // Far apart, so that each outcome is among those seen.
                    3 => {
                        cancel();
                        until(|| locks.waiters(&1) == 1);
                        drop(guard);
                        begin();
                    }
                    _ => {
                        drop(guard);
                        until(|| locks.waiters(&1) == 0);
                        begin();
                    }
                }
                barrier.meet();
            }
        });
        let visits = oracle.check();
        let counts = [granted, cancelled].map(AtomicUsize::into_inner);
        println!("{fairness:?}: [granted, cancelled] = {counts:?}");
        assert_eq!(visits, times + counts[0]);
        assert_eq!(counts[0] + counts[1], times);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_heavy_head_that_is_cancelled_leaves_light_ones_asleep() {
    heavy_head_gives_up(|token| Wait::from(token), AcquireError::Cancelled);
}

#[test]
fn a_heavy_head_that_times_out_leaves_light_ones_asleep() {
    heavy_head_gives_up(|_| Wait::at_most(Duration::from_millis(200)), AcquireError::Timeout);
}

fn heavy_head_gives_up(wait: fn(&CancellationToken) -> Wait, gives: AcquireError) {
    watched_in_both_modes(move |fairness| {
        let permits = KeyedSemaphore::<u32, 3>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        let inside = Barrier::new(2);
        let held = permits.acquire(&1);
        threads(|scope| {
            let heavy = scope.spawn(|| permits.acquire_many(&1, 3, wait(&token)).map(drop));
            until(|| permits.waiters(&1) == 1);
            // Until nobody may overtake it any more.
            until(|| permits.try_acquire(&1).is_none() || heavy.is_finished());
            for queued in [2, 3] {
                scope.spawn(|| {
                    let _permit = permits.acquire(&1);
                    inside.meet();
                });
                until(|| permits.waiters(&1) == queued || heavy.is_finished());
            }
            token.cancel();
            assert_eq!(heavy.join().unwrap(), Err(gives.clone()));
        });
        assert_eq!(permits.available_permits(&1), 2);
        drop(held);
        assert_eq!(permits.len(), 0);
    });
}

#[test]
fn a_failed_wait_and_a_release_inflate_the_count() {
    assert_not_impl_any!(KeyedPermit<'static, u32, 2>: Clone, Copy);
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        for _ in 0..50 {
            let first = permits.acquire(&1);
            let second = permits.acquire(&1);
            for _ in 0..3 {
                assert!(permits.try_acquire(&1).is_none());
                assert!(permits.try_acquire_for(&1, Duration::from_micros(1)).is_none());
                assert!(permits.acquire_many(&1, 2, Wait::now()).is_err());
            }
            assert_eq!(permits.available_permits(&1), 0);
            drop(first);
            assert_eq!(permits.available_permits(&1), 1);
            assert!(permits.acquire_many(&1, 2, Wait::now()).is_err());
            drop(second);
            assert_eq!(permits.available_permits(&1), 2);
        }
    });
}

#[test]
fn a_timeout_of_zero_does_not_try() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let past = Instant::now();
        for wait in [Wait::now(), Wait::at_most(Duration::ZERO), Wait::until(past), Wait::now().max_queued(0)] {
            assert!(locks.lock_with(&1, &wait).is_ok(), "{wait:?}");
        }
        assert!(locks.try_lock_for(&1, Duration::ZERO).is_some());
        assert_eq!(locks.with_key_within(&1, Duration::ZERO, || 7), Ok(7));
    });
}

/// Who is held up is seen in the queue: the call itself never gets there.
#[test]
fn a_timeout_of_zero_waits() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let _held = locks.lock(&1);
        let past = Instant::now();
        elsewhere(|| {
            for wait in [Wait::now(), Wait::at_most(Duration::ZERO), Wait::until(past)] {
                // `Busy` says that the call had no time; one that waited says `Timeout`.
                assert_eq!(locks.lock_with(&1, &wait).unwrap_err(), AcquireError::Busy, "{wait:?}");
            }
            assert!(locks.try_lock_for(&1, Duration::ZERO).is_none());
        });
    });
}

#[test]
fn a_very_long_timeout_overflows() {
    let long = [
        Duration::MAX,
        Duration::MAX - Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::from_secs(u64::MAX / 2),
        Duration::from_secs(i64::MAX as u64),
        Duration::from_secs(i64::MAX as u64 - 100_000_000),
        Duration::from_nanos(u64::MAX),
        Duration::from_millis(u64::MAX),
        Duration::from_secs(u64::from(u32::MAX) * 100),
    ];
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        for duration in long {
            threads(|scope| {
                let guard = locks.lock(&1);
                let waiter = scope.spawn(|| locks.lock_with(&1, duration).map(drop));
                let other = scope.spawn(|| locks.try_lock_for(&1, duration).is_some());
                until(|| locks.waiters(&1) == 2 || waiter.is_finished() || other.is_finished());
                // Time for a wait that ends at once to do so.
                spin(5_000);
                assert_eq!(locks.waiters(&1), 2, "{duration:?} is not for ever");
                drop(guard);
                assert_eq!(waiter.join().unwrap(), Ok(()), "{duration:?}");
                assert!(other.join().unwrap(), "{duration:?}");
            });
        }
        if let Some(instant) = Instant::now().checked_add(Duration::from_secs(i64::MAX as u64 / 4)) {
            threads(|scope| {
                let guard = locks.lock(&1);
                let waiter = scope.spawn(|| locks.lock_with(&1, instant).map(drop));
                until(|| locks.waiters(&1) == 1 || waiter.is_finished());
                drop(guard);
                assert_eq!(waiter.join().unwrap(), Ok(()));
            });
        }
    });
}

#[test]
fn a_cancel_between_check_and_wait_is_missed() {
    let times = rounds(1_000);
    watched(move || {
        let locks = KeyedLock::<u32>::new();
        let _held = locks.lock(&1);
        let barrier = Barrier::new(2);
        let token = Mutex::new(CancellationToken::new());
        threads(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(0);
                for _ in 0..times {
                    let token = token.lock().clone();
                    barrier.meet();
                    spin(random.below(400));
                    token.cancel();
                    barrier.meet();
                }
            });
            scope.spawn(|| {
                let mut random = Random::new(1);
                for _ in 0..times {
                    let now = token.lock().clone();
                    barrier.meet();
                    spin(random.below(200));
                    assert_eq!(locks.lock_with(&1, &now).unwrap_err(), AcquireError::Cancelled);
                    *token.lock() = CancellationToken::new();
                    barrier.meet();
                }
            });
        });
        assert_eq!(locks.waiters(&1), 0);
    });
}

#[test]
fn a_cancelled_call_enters() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let permits = KeyedSemaphore::<u32, 3>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        token.cancel();
        for wait in [
            Wait::from(&token),
            Wait::now().or_cancelled(&token),
            Wait::at_most(Duration::MAX).or_cancelled(&token),
            Wait::forever().or_cancelled(&CancellationToken::new()).or_cancelled(&token),
            Wait::forever().or_cancelled(&token).or_cancelled(&CancellationToken::new()),
        ] {
            assert_eq!(locks.lock_with(&1, &wait).unwrap_err(), AcquireError::Cancelled);
            assert_eq!(locks.with_key_within(&1, &wait, || panic!("entered")), Err::<(), _>(AcquireError::Cancelled));
            assert_eq!(permits.acquire_with(&1, &wait).unwrap_err(), AcquireError::Cancelled);
            assert_eq!(permits.acquire_many(&1, 2, &wait).unwrap_err(), AcquireError::Cancelled);
        }
        assert_eq!((locks.len(), permits.len()), (0, 0));
    });
}

/// One outcome for each call: the cause that is named is the cause.
#[test]
fn a_call_reports_what_did_not_happen() {
    const WORKERS: usize = 4;
    let each = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let ends = AtomicBool::new(false);
        let shared = Mutex::new(CancellationToken::new());
        threads(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| {
                    let (locks, oracle, shared) = (&locks, &oracle, &shared);
                    scope.spawn(move || {
                        let mut random = Random::new(number);
                        let mut granted = 0;
                        for _ in 0..each {
                            let token = shared.lock().clone();
                            let moment = Duration::from_micros(random.below(80));
                            let begin = Instant::now();
                            let (timed, cancellable) = (random.below(2) == 0, random.below(2) == 0);
                            let mut wait = if timed { Wait::at_most(moment) } else { Wait::forever() };
                            if cancellable {
                                wait = wait.or_cancelled(&token);
                            }
                            match locks.lock_with(&1, wait) {
                                Ok(_guard) => {
                                    oracle.visit(1, || work(&mut random));
                                    granted += 1;
                                }
                                Err(AcquireError::Cancelled) => assert!(cancellable && token.is_cancelled()),
                                Err(AcquireError::Timeout) => assert!(timed && begin.elapsed() >= moment, "too early"),
                                Err(AcquireError::Busy) => assert!(timed && moment.is_zero()),
                                Err(error) => panic!("{error}"),
                            }
                        }
                        granted
                    })
                })
                .collect();
            scope.spawn(|| {
                while !ends.load(Ordering::Acquire) {
                    let token = std::mem::take(&mut *shared.lock());
                    token.cancel();
                    thread::sleep(Duration::from_micros(50));
                }
            });
            let granted: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            ends.store(true, Ordering::Release);
            assert_eq!(granted.into_iter().map(Result::unwrap).sum::<usize>(), oracle.check());
        });
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_grant_before_the_cancellation_is_taken_back() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        let guard = locks.lock_with(&1, &token).unwrap();
        token.cancel();
        assert!(locks.is_locked_by_current_thread(&1));
        drop(guard);
        assert_eq!(locks.len(), 0);
    });
}

/// Handed over first and cancelled then, mostly before the waiter has come to park: the call gives the grant.
#[test]
fn a_grant_just_before_the_cancellation_is_taken_back() {
    let times = rounds(300);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let barrier = Barrier::new(2);
        let token = Mutex::new(CancellationToken::new());
        threads(|scope| {
            scope.spawn(|| {
                for _ in 0..times {
                    barrier.meet();
                    let wait = slow_to_park(&token.lock());
                    assert_eq!(locks.lock_with(&1, wait).map(drop), Ok(()));
                    barrier.meet();
                }
            });
            for _ in 0..times {
                let guard = locks.lock(&1);
                *token.lock() = CancellationToken::new();
                barrier.meet();
                soon(|| locks.waiters(&1) == 1);
                KeyedLockGuard::unlock_fair(guard);
                token.lock().cancel();
                barrier.meet();
            }
        });
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn one_of_many_waiters_misses_the_cancellation() {
    const WAITERS: usize = 50;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        threads(|scope| {
            let held = locks.lock(&1);
            let waiters: Vec<_> =
                (0..WAITERS).map(|_| scope.spawn(|| locks.lock_with(&1, &token.clone()).map(drop))).collect();
            until(|| locks.waiters(&1) == WAITERS);
            token.cancel();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
            }
            assert_eq!(locks.waiters(&1), 0);
            drop(held);
        });
        assert_eq!(locks.len(), 0);
    });
}

/// A crowd that gives up together leaves nothing behind, and does not keep the one behind it waiting. (What it costs is
/// measured by `cargo bench --bench fairness`.)
#[test]
fn a_thousand_waiters_give_up_together() {
    const CROWD: usize = 1_000;
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        let held = permits.acquire(&1);
        thread::scope(|scope| {
            // Each asks for more than is free, so that nobody is granted while all arrive.
            let crowd: Vec<_> = (0..rounds(CROWD))
                .map(|_| {
                    let waiter = || permits.acquire_many(&1, 2, &token).map(drop) == Err(AcquireError::Cancelled);
                    let builder = thread::Builder::new().stack_size(64 * 1024);
                    builder.spawn_scoped(scope, waiter).expect("a thread of the crowd")
                })
                .collect();
            until(|| permits.waiters(&1) == rounds(CROWD));
            let behind = scope.spawn(|| permits.acquire_with(&1, Wait::forever()).is_ok());
            until(|| permits.waiters(&1) == rounds(CROWD) + 1 || behind.is_finished());
            token.cancel();
            assert!(crowd.into_iter().all(|waiter| waiter.join().unwrap()), "one was not cancelled");
            assert!(behind.join().unwrap());
        });
        drop(held);
        assert!(permits.is_empty());
    });
}
