//! Waiters that are overtaken, woken for nothing, or not woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::{ArcKeyedLockGuard, CancellationToken, Fairness, KeyedLock, KeyedLockGuard, KeyedSemaphore, Wait};

use crate::support::{
    Barrier, Oracle, Random, crowded, rounds, spin, threads, until, watched, watched_in_both_modes, work,
};

/// A heavy request against light ones with sections of 5 ms, which do not stop until it got in.
#[test]
fn small_requests_starve_a_large_one() {
    const LIGHT: usize = 6;
    const LIMIT: usize = 4;
    let times = rounds(10);
    watched_in_both_modes(move |fairness| {
        let permits = KeyedSemaphore::<u32, LIMIT>::with_options(crowded(fairness));
        let oracle = Oracle::new(LIMIT);
        let mut longest = Duration::ZERO;
        let mut overtaken = 0;
        for _ in 0..times {
            // An overtake for certain: called after the heavy one was seen at the head, and granted before it.
            let [heavy_waits, heavy_was_in] = [const { AtomicBool::new(false) }; 2];
            let overtakes = AtomicUsize::new(0);
            threads(|scope| {
                for _ in 0..LIGHT {
                    scope.spawn(|| {
                        while !heavy_was_in.load(Ordering::Acquire) {
                            let behind = heavy_waits.load(Ordering::Acquire);
                            let _permit = permits.acquire(&1);
                            if behind && !heavy_was_in.load(Ordering::Acquire) {
                                overtakes.fetch_add(1, Ordering::Relaxed);
                            }
                            oracle.visit(1, || thread::sleep(Duration::from_millis(5)));
                        }
                    });
                }
                until(|| permits.available_permits(&1) == 0);
                let heavy = scope.spawn(|| {
                    let begin = Instant::now();
                    let _all = permits.acquire_many(&1, LIMIT, Wait::forever()).unwrap();
                    heavy_was_in.store(true, Ordering::Release);
                    oracle.visit(LIMIT, || ());
                    begin.elapsed()
                });
                let is_head = || match &permits.snapshot()[..] {
                    [status] => status.waiters.first().is_some_and(|waiter| waiter.permits == LIMIT),
                    _ => false,
                };
                until(|| is_head() || heavy.is_finished());
                heavy_waits.store(true, Ordering::Release);
                longest = longest.max(heavy.join().unwrap());
            });
            overtaken += overtakes.into_inner();
        }
        println!("{fairness:?}: longest wait of the heavy request {longest:?}, overtaken {overtaken} times in {times}");
        if fairness == Fairness::Fifo {
            assert_eq!(overtaken, 0);
        }
        oracle.check();
        assert_eq!(permits.len(), 0);
    });
}

/// Once the head is due it stays so, however many come.
#[test]
fn newcomers_overtake_a_head_without_end() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 3>::with_options(crowded(fairness));
        let may_go = AtomicBool::new(false);
        let held = permits.acquire(&1);
        threads(|scope| {
            scope.spawn(|| {
                let _all = permits.acquire_many(&1, 3, Wait::forever()).unwrap();
                until(|| may_go.load(Ordering::Acquire));
            });
            until(|| permits.waiters(&1) == 1);
            let mut overtakes = 0;
            while permits.try_acquire(&1).is_some() {
                overtakes += 1;
            }
            println!("{fairness:?}: {overtakes} overtakes");
            assert!(fairness == Fairness::Eventual || overtakes == 0);
            for _ in 0..1_000 {
                assert!(permits.try_acquire(&1).is_none(), "the head was due");
            }
            assert!(permits.acquire_with(&1, Wait::forever().max_queued(1)).is_err());

            // The release hands over: by its end the head has all permits, whether it runs or not.
            drop(held);
            assert_eq!((permits.waiters(&1), permits.available_permits(&1)), (0, 0));
            assert!(permits.try_acquire(&1).is_none());
            may_go.store(true, Ordering::Release);
        });
        assert_eq!(permits.len(), 0);
    });
}

#[test]
fn fifo_lets_a_newcomer_in_before_those_who_wait() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(crowded(Fairness::Fifo));
        let may_go = AtomicBool::new(false);
        let held = locks.lock(&1);
        threads(|scope| {
            scope.spawn(|| {
                let _guard = locks.lock(&1);
                until(|| may_go.load(Ordering::Acquire));
            });
            until(|| locks.waiters(&1) == 1);
            drop(held);
            // Handed over already: this thread cannot have it back, though the waiter may not run yet.
            assert_eq!((locks.waiters(&1), locks.is_locked(&1)), (0, true));
            assert!(!locks.is_locked_by_current_thread(&1));
            assert!(locks.try_lock(&1).is_none());
            may_go.store(true, Ordering::Release);
        });
    });
}

#[test]
fn waiters_are_served_out_of_order() {
    const WAITERS: usize = 12;
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 4>::with_options(crowded(fairness));
        let order = Mutex::new(Vec::new());
        let held = permits.acquire_many(&1, 4, Wait::now()).unwrap();
        threads(|scope| {
            for number in 0..WAITERS {
                let (permits, order) = (&permits, &order);
                // All of the permits, so that one is inside at a time; every other waiter by another call.
                scope.spawn(move || {
                    let wait = if number % 2 == 0 { Wait::forever() } else { Wait::at_most(Duration::MAX) };
                    let _all = permits.acquire_many(&1, 4, wait).unwrap();
                    order.lock().push(number);
                });
                until(|| permits.waiters(&1) == number + 1);
            }
            drop(held);
        });
        assert_eq!(order.into_inner(), (0..WAITERS).collect::<Vec<_>>());
    });
}

#[test]
fn a_waiter_that_leaves_disturbs_the_order() {
    const WAITERS: usize = 12;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let order = Mutex::new(Vec::new());
        let token = CancellationToken::new();
        let held = locks.lock(&1);
        threads(|scope| {
            for number in 0..WAITERS {
                let (locks, order, token) = (&locks, &order, &token);
                scope.spawn(move || {
                    let leaves = number % 3 == 0;
                    let wait = if leaves { Wait::from(token) } else { Wait::forever() };
                    match locks.lock_with(&1, wait) {
                        Ok(_guard) => order.lock().push(number),
                        Err(_) => assert!(leaves),
                    }
                });
                until(|| locks.waiters(&1) == number + 1);
            }
            token.cancel();
            until(|| locks.waiters(&1) == WAITERS - WAITERS / 3);
            drop(held);
        });
        assert_eq!(order.into_inner(), (0..WAITERS).filter(|number| number % 3 != 0).collect::<Vec<_>>());
    });
}

#[test]
fn a_light_request_in_the_queue_overtakes_a_heavy_one() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 3>::with_options(crowded(fairness));
        let heavy_was_in = AtomicBool::new(false);
        let held = permits.acquire(&1);
        threads(|scope| {
            scope.spawn(|| {
                let _all = permits.acquire_many(&1, 3, Wait::forever()).unwrap();
                heavy_was_in.store(true, Ordering::Release);
            });
            until(|| permits.waiters(&1) == 1);
            until(|| permits.try_acquire(&1).is_none());
            // Two permits are free, and these stay behind the three that are asked for.
            for queued in 2..=4 {
                scope.spawn(|| {
                    let _permit = permits.acquire(&1);
                    assert!(heavy_was_in.load(Ordering::Acquire));
                });
                until(|| permits.waiters(&1) == queued);
            }
            assert_eq!(permits.available_permits(&1), 2);
            drop(held);
        });
        assert_eq!(permits.len(), 0);
    });
}

#[test]
fn a_re_taking_loop_keeps_a_waiter_out() {
    let times = rounds(100);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let mut longest = Duration::ZERO;
        let mut re_taken = 0_usize;
        for round in 0..times {
            let was_in = AtomicBool::new(false);
            threads(|scope| {
                let first = locks.lock(&1);
                let waiter = scope.spawn(|| {
                    let begin = Instant::now();
                    locks.with_key(&1, || oracle.visit(1, || was_in.store(true, Ordering::Release)));
                    begin.elapsed()
                });
                until(|| locks.waiters(&1) == 1);
                drop(first);
                while !was_in.load(Ordering::Acquire) {
                    let guard = locks.lock(&1);
                    oracle.visit(1, || spin(if round % 2 == 0 { 0 } else { 100 }));
                    drop(guard);
                    re_taken += 1;
                }
                longest = longest.max(waiter.join().unwrap());
            });
        }
        println!("{fairness:?}: longest wait {longest:?}, re-taken {re_taken} times in {times}");
        // The first request of the loop is behind the waiter.
        assert!(fairness == Fairness::Eventual || re_taken <= times);
        oracle.check();
    });
}

/// The same with sections that are long beside the window: the waiter is due by the first release.
#[test]
fn a_re_taking_loop_with_long_sections_keeps_a_waiter_out() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let was_in = AtomicBool::new(false);
        threads(|scope| {
            let first = locks.lock(&1);
            scope.spawn(|| locks.with_key(&1, || was_in.store(true, Ordering::Release)));
            until(|| locks.waiters(&1) == 1);
            drop(first);
            let mut re_taken = 0;
            while !was_in.load(Ordering::Acquire) {
                locks.with_key(&1, || thread::sleep(Duration::from_millis(5)));
                re_taken += 1;
            }
            println!("{fairness:?}: re-taken {re_taken} times");
        });
    });
}

#[test]
fn one_of_eight_threads_gets_nothing() {
    const THREADS: usize = 8;
    let least = rounds(300);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let barrier = Barrier::new(THREADS);
        // Nobody stops before everybody has had enough.
        let hungry = AtomicUsize::new(THREADS);
        let (mut shares, mut longest) = (Vec::new(), Duration::ZERO);
        threads(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.meet();
                        let (mut share, mut longest) = (0, Duration::ZERO);
                        while hungry.load(Ordering::Acquire) > 0 {
                            let begin = Instant::now();
                            let _guard = locks.lock(&1);
                            longest = longest.max(begin.elapsed());
                            oracle.visit(1, || spin(20));
                            share += 1;
                            if share == least {
                                hungry.fetch_sub(1, Ordering::Release);
                            }
                        }
                        (share, longest)
                    })
                })
                .collect();
            for thread in threads {
                let (share, wait) = thread.join().unwrap();
                shares.push(share);
                longest = longest.max(wait);
            }
        });
        println!("{fairness:?}: shares {shares:?}, longest wait {longest:?}");
        assert_eq!(shares.iter().sum::<usize>(), oracle.check());
        assert_eq!(locks.len(), 0);
    });
}

/// Counts the times that waiting threads were woken; if each release woke all of them, it would be some thousands.
#[test]
#[cfg(target_os = "linux")]
fn everybody_wakes_and_one_proceeds() {
    const WAITERS: usize = 100;

    /// How often this thread went to sleep.
    fn sleeps() -> usize {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse().unwrap()
    }

    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let in_all = AtomicUsize::new(0);
        threads(|scope| {
            let held = locks.lock(&1);
            for queued in 1..=WAITERS {
                scope.spawn(|| {
                    let before = sleeps();
                    let guard = locks.lock(&1);
                    in_all.fetch_add(sleeps() - before, Ordering::Relaxed);
                    drop(guard);
                });
                until(|| locks.waiters(&1) == queued);
            }
            drop(held);
        });
        let in_all = in_all.into_inner();
        println!("{fairness:?}: {WAITERS} waiters went to sleep {in_all} times");
        assert!(in_all < 10 * WAITERS);
    });
}

#[test]
fn several_permits_come_free_at_once_and_one_waiter_wakes() {
    const PERMITS: usize = 4;
    let times = rounds(100);
    watched_in_both_modes(move |fairness| {
        let permits = KeyedSemaphore::<u32, PERMITS>::with_options(crowded(fairness));
        let inside = Barrier::new(PERMITS);
        for _ in 0..times {
            let all = permits.acquire_many(&1, PERMITS, Wait::now()).unwrap();
            threads(|scope| {
                for queued in 1..=PERMITS {
                    scope.spawn(|| {
                        let _permit = permits.acquire(&1);
                        inside.meet();
                    });
                    until(|| permits.waiters(&1) == queued);
                }
                drop(all);
            });
        }
        assert_eq!(permits.len(), 0);
    });
}

/// Two permits, two holders that leave at the same time, two waiters that then must be inside together.
#[test]
fn two_releases_at_once_wake_one_waiter() {
    let times = rounds(300);
    watched_in_both_modes(move |fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        let (begin, inside, end) = (Barrier::new(4), Barrier::new(2), Barrier::new(4));
        let go = AtomicUsize::new(0);
        let hold = |number: usize| {
            let mut random = Random::new(number);
            for round in 1..=times {
                let permit = permits.acquire(&1);
                begin.meet();
                until(|| go.load(Ordering::Acquire) == round || permits.waiters(&1) == 2);
                go.store(round, Ordering::Release);
                spin(random.below(200));
                drop(permit);
                end.meet();
            }
        };
        let wait = || {
            for _ in 0..times {
                begin.meet();
                let permit = permits.acquire(&1);
                inside.meet();
                drop(permit);
                end.meet();
            }
        };
        threads(|scope| {
            scope.spawn(|| hold(1));
            scope.spawn(|| hold(2));
            scope.spawn(wait);
            scope.spawn(wait);
        });
        assert_eq!(permits.len(), 0);
    });
}

/// A thread's waits follow each other closely, so that the ring of one arrives in the next.
#[test]
fn a_wake_up_for_an_earlier_wait_is_taken_for_this_one() {
    let times = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracles = [Oracle::exclusive(), Oracle::exclusive()];
        let at_work = AtomicUsize::new(2);
        let tokens = [const { Mutex::new(None::<CancellationToken>) }; 2];
        threads(|scope| {
            for number in 0..2 {
                let (locks, oracles, at_work, tokens) = (&locks, &oracles, &at_work, &tokens);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..times {
                        let token = CancellationToken::new();
                        *tokens[number].lock() = Some(token.clone());
                        let moment = Duration::from_micros(1 + random.below(40));
                        if let Ok(_guard) = locks.lock_with(&0, Wait::at_most(moment).or_cancelled(&token)) {
                            oracles[0].visit(1, || ());
                        }
                        locks.with_key(&1, || oracles[1].visit(1, || ()));
                    }
                    at_work.fetch_sub(1, Ordering::Release);
                });
            }
            for key in 0..2 {
                let (locks, oracles, at_work, tokens) = (&locks, &oracles, &at_work, &tokens);
                scope.spawn(move || {
                    let mut random = Random::new(10 + key);
                    while at_work.load(Ordering::Acquire) > 0 {
                        locks.with_key(&(key as u32), || oracles[key].visit(1, || spin(random.below(200))));
                        if let Some(token) = tokens[key].lock().take() {
                            token.cancel();
                        }
                        work(&mut random);
                    }
                });
            }
        });
        for oracle in &oracles {
            oracle.check();
        }
        assert_eq!(locks.len(), 0);
    });
}

/// All who wait together and fit are let in when a request for everything leaves.
#[test]
fn after_an_exclusive_holder_one_of_several_enters() {
    const PERMITS: usize = 6;
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32>::with_limit_and_options(PERMITS, crowded(fairness));
        let inside = Barrier::new(3);
        let all = permits.acquire_many(&1, PERMITS, Wait::now()).unwrap();
        threads(|scope| {
            for (place, weight) in [1, 2, 3].into_iter().enumerate() {
                let (permits, inside) = (&permits, &inside);
                scope.spawn(move || {
                    let _permit = permits.acquire_many(&1, weight, Wait::forever()).unwrap();
                    inside.meet();
                });
                until(|| permits.waiters(&1) == place + 1);
            }
            drop(all);
        });
        assert_eq!(permits.len(), 0);
    });
}

#[test]
fn a_fair_unlock_does_not_hand_over() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let guard = locks.lock(&1);
        hands_over(&locks, || KeyedLockGuard::unlock_fair(guard));
        let guard = locks.lock_arc(&1);
        hands_over(&locks, || ArcKeyedLockGuard::unlock_fair(guard));
        assert_eq!((locks.len(), Arc::strong_count(&locks)), (0, 1));
    });
}

/// By the end of `unlock` the waiter has the key, whether it runs yet or not.
fn hands_over(locks: &KeyedLock<u32>, unlock: impl FnOnce()) {
    let may_go = AtomicBool::new(false);
    threads(|scope| {
        scope.spawn(|| {
            let _guard = locks.lock(&1);
            until(|| may_go.load(Ordering::Acquire));
        });
        until(|| locks.waiters(&1) == 1);
        unlock();
        assert_eq!((locks.waiters(&1), locks.is_locked(&1)), (0, true));
        assert!(locks.try_lock(&1).is_none());
        may_go.store(true, Ordering::Release);
    });
}
