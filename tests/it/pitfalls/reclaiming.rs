//! Entries that go too early, too late, or twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedSemaphore, Wait};

use crate::support::{
    Barrier, Oracle, Random, crowded, elsewhere, panics, quiet_panic, rounds, slow_to_park, soon, threads, until,
};
use crate::support::{watched, watched_in_both_modes, work};

#[test]
fn the_releaser_removes_the_entry_while_somebody_queues() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let (b_is_in, b_may_go) = (AtomicBool::new(false), AtomicBool::new(false));
        threads(|scope| {
            let a = locks.lock(&1);
            scope.spawn(|| {
                let _b = locks.lock(&1);
                b_is_in.store(true, Ordering::Release);
                until(|| b_may_go.load(Ordering::Acquire));
            });
            until(|| locks.waiters(&1) == 1);
            drop(a);
            until(|| b_is_in.load(Ordering::Acquire));

            assert_eq!((locks.len(), locks.is_locked(&1)), (1, true));
            assert!(locks.try_lock(&1).is_none(), "a second lock for the key");
            scope.spawn(|| {
                let _c = locks.lock(&1);
                assert!(b_may_go.load(Ordering::Acquire), "a second lock for the key");
            });
            until(|| locks.waiters(&1) == 1);
            b_may_go.store(true, Ordering::Release);
        });
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn the_releaser_of_the_last_permit_removes_the_entry_while_somebody_queues() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        let (is_in, may_go) = (AtomicBool::new(false), AtomicBool::new(false));
        threads(|scope| {
            let one = permits.acquire(&1);
            let other = permits.acquire(&1);
            scope.spawn(|| {
                let _both = permits.acquire_many(&1, 2, Wait::forever()).unwrap();
                is_in.store(true, Ordering::Release);
                until(|| may_go.load(Ordering::Acquire));
            });
            until(|| permits.waiters(&1) == 1);
            drop(one);
            drop(other);
            until(|| is_in.load(Ordering::Acquire));
            assert_eq!((permits.len(), permits.available_permits(&1)), (1, 0));
            assert!(permits.try_acquire(&1).is_none(), "a second semaphore for the key");
            may_go.store(true, Ordering::Release);
        });
        assert_eq!((permits.len(), permits.available_permits(&1)), (0, 2));
    });
}

#[test]
fn many_threads_on_one_key_find_two_locks() {
    const THREADS: usize = 8;
    let each = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        threads(|scope| {
            for number in 0..THREADS {
                let (locks, oracle) = (&locks, &oracle);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let _guard = locks.lock(&1);
                        oracle.visit(1, || work(&mut random));
                    }
                });
            }
        });
        assert_eq!(oracle.check(), THREADS * each);
        assert_eq!(locks.len(), 0);
    });
}

/// It takes three: one that leaves, one that came for the entry that goes, one that makes a new entry.
#[test]
fn a_caller_slips_between_count_is_zero_and_entry_removed() {
    const THREADS: usize = 3;
    let each = rounds(20_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let barrier = Barrier::new(THREADS);
        threads(|scope| {
            for number in 0..THREADS {
                let (locks, oracle, barrier) = (&locks, &oracle, &barrier);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    barrier.meet();
                    for _ in 0..each {
                        match random.below(8) {
                            0 => {
                                if let Some(_guard) = locks.try_lock(&1) {
                                    oracle.visit(1, || ());
                                }
                            }
                            1 => {
                                if let Some(_guard) = locks.try_lock_for(&1, Duration::from_micros(1)) {
                                    oracle.visit(1, || ());
                                }
                            }
                            _ => locks.with_key(&1, || oracle.visit(1, || ())),
                        }
                    }
                });
            }
        });
        oracle.check();
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_failed_call_leaves_an_entry_behind() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let cancelled = CancellationToken::new();
        cancelled.cancel();

        // On a free key.
        assert_eq!(locks.lock_with(&1, &cancelled).unwrap_err(), AcquireError::Cancelled);
        assert!(panics(|| locks.with_key(&1, || quiet_panic())));
        assert!(panics(|| {
            let _guard = locks.lock(&1);
            quiet_panic();
        }));
        assert_eq!(locks.len(), 0);

        // On one that is held.
        let held = locks.lock(&1);
        assert!(matches!(locks.lock_with(&1, Wait::forever()), Err(AcquireError::WouldDeadlock(_))));
        assert!(locks.try_lock(&1).is_none());
        elsewhere(|| {
            let moment = Duration::from_micros(50);
            assert!(locks.try_lock(&1).is_none());
            assert!(locks.try_lock_for(&1, moment).is_none());
            assert_eq!(locks.lock_with(&1, Wait::now()).unwrap_err(), AcquireError::Busy);
            assert_eq!(locks.lock_with(&1, moment).unwrap_err(), AcquireError::Timeout);
            assert_eq!(locks.lock_with(&1, &cancelled).unwrap_err(), AcquireError::Cancelled);
            assert_eq!(locks.lock_with(&1, Wait::forever().max_queued(0)).unwrap_err(), AcquireError::QueueFull);
            assert_eq!(locks.try_with_key(&1, || ()), None);
            assert_eq!(locks.with_key_within(&1, moment, || ()), Err(AcquireError::Timeout));
        });
        assert_eq!((locks.len(), locks.waiters(&1)), (1, 0));
        drop(held);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_failed_call_for_permits_leaves_an_entry_behind() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        for asked in [0, 3, usize::MAX] {
            assert!(permits.acquire_many(&1, asked, Wait::forever()).is_err());
        }
        assert!(panics(|| permits.with_key(&1, || quiet_panic())));
        assert_eq!(permits.len(), 0);

        let held = permits.acquire(&1);
        for asked in [0, 3, usize::MAX] {
            assert!(permits.acquire_many(&1, asked, Wait::forever()).is_err());
        }
        assert_eq!(permits.acquire_many(&1, 2, Wait::now()).unwrap_err(), AcquireError::Busy);
        assert_eq!(permits.acquire_many(&1, 2, Duration::from_micros(50)).unwrap_err(), AcquireError::Timeout);
        assert_eq!(permits.acquire_many(&1, 2, Wait::forever().max_queued(0)).unwrap_err(), AcquireError::QueueFull);
        assert_eq!((permits.len(), permits.waiters(&1), permits.available_permits(&1)), (1, 0, 1));
        drop(held);
        assert_eq!(permits.len(), 0);
    });
}

#[test]
fn a_mix_of_outcomes_leaves_entries_behind() {
    const THREADS: usize = 4;
    const KEYS: u64 = 3;
    let each = rounds(3_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u64>::with_options(crowded(fairness));
        let oracles: Vec<Oracle> = (0..KEYS).map(|_| Oracle::exclusive()).collect();
        threads(|scope| {
            for number in 0..THREADS {
                let (locks, oracles) = (&locks, &oracles);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let key = random.below(KEYS);
                        let moment = Duration::from_micros(random.below(30));
                        let call = random.below(7);
                        let mut visit = || oracles[key as usize].visit(1, || work(&mut random));
                        match call {
                            0 => drop(locks.try_lock(&key).map(|_guard| visit())),
                            1 => drop(locks.try_lock_for(&key, moment).map(|_guard| visit())),
                            2 => drop(locks.lock_with(&key, Wait::at_most(moment).max_queued(1)).map(|_guard| visit())),
                            3 => locks.with_key(&key, visit),
                            4 => assert!(panics(|| {
                                locks.with_key(&key, || {
                                    visit();
                                    quiet_panic()
                                })
                            })),
                            5 => {
                                let guard = locks.lock(&key);
                                visit();
                                assert!(locks.lock_with(&key, moment).is_err());
                                drop(guard);
                            }
                            _ => {
                                let token = CancellationToken::new();
                                token.cancel();
                                assert!(locks.lock_with(&key, &token).is_err());
                            }
                        }
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

/// The key is released, its last waiter is told so, and gives up before it has looked. Each time on a key that nobody
/// comes back to.
#[test]
fn a_waiter_that_gives_up_on_a_free_key_leaves_an_entry_behind() {
    let times = rounds(300) as u32;
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracle = Oracle::exclusive();
        let barrier = Barrier::new(2);
        let token = Mutex::new(CancellationToken::new());
        threads(|scope| {
            scope.spawn(|| {
                for key in 0..times {
                    barrier.meet();
                    let wait = slow_to_park(&token.lock());
                    if let Ok(_guard) = locks.lock_with(&key, wait) {
                        oracle.visit(1, || ());
                    }
                    barrier.meet();
                }
            });
            for key in 0..times {
                let guard = locks.lock(&key);
                *token.lock() = CancellationToken::new();
                barrier.meet();
                soon(|| locks.waiters(&key) == 1);
                drop(guard);
                token.lock().cancel();
                barrier.meet();
            }
        });
        oracle.check();
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn two_leavers_both_see_that_they_are_not_the_last() {
    let times = rounds(800);
    watched(move || {
        let permits = KeyedSemaphore::<u32, 2>::new();
        let barrier = Barrier::new(2);
        let left_behind = AtomicBool::new(false);
        let leave_together = || {
            for _ in 0..times {
                let permit = permits.acquire(&1);
                barrier.meet();
                drop(permit);
                barrier.meet();
                if !permits.is_empty() {
                    left_behind.store(true, Ordering::Relaxed);
                }
                barrier.meet();
            }
        };
        threads(|scope| {
            scope.spawn(leave_together);
            scope.spawn(leave_together);
        });
        assert!(!left_behind.into_inner());
    });
}

#[test]
fn what_is_used_again_is_not_as_new() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 3>::with_options(crowded(fairness));
        for _ in 0..20 {
            // Wear the key and the threads' waiters: grants, time-outs, a cancelled head, somebody who is overtaken.
            let token = CancellationToken::new();
            threads(|scope| {
                let held = permits.acquire_many(&1, 2, Wait::now()).unwrap();
                scope.spawn(|| assert!(permits.acquire_many(&1, 3, &token).is_err()));
                until(|| permits.waiters(&1) == 1);
                scope.spawn(|| drop(permits.acquire_many(&1, 2, Wait::forever()).unwrap()));
                until(|| permits.waiters(&1) == 2);
                assert!(permits.acquire_many(&1, 2, Duration::from_micros(1)).is_err());
                token.cancel();
                until(|| permits.waiters(&1) == 1);
                drop(held);
            });
            assert_eq!((permits.len(), permits.waiters(&1), permits.available_permits(&1)), (0, 0, 3));

            let all = permits.acquire_many(&1, 3, Wait::now()).expect("a key that nobody holds is free");
            let [status] = &permits.snapshot()[..] else { panic!("one key is held") };
            assert_eq!((status.held, status.limit, status.waiters.len()), (3, 3, 0));
            drop(all);
        }
    });
}
