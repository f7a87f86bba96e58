//! Threads that wait for each other, or for themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use perkey::{AcquireError, KeyedLock, KeyedSemaphore, Wait};

use crate::support::{
    crowded, elsewhere, panic_message, quiet_panic, rounds, threads, until, watched, watched_in_both_modes,
};

/// Every method, on keys that share a shard with the one that is held.
#[test]
fn a_closure_that_calls_the_table_hangs() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let permits = Arc::new(KeyedSemaphore::<u32, 3>::with_options(crowded(fairness)));
        let call_everything = || {
            for key in 1..20 {
                drop(locks.lock(&key));
                drop(locks.try_lock(&key));
                drop(locks.try_lock_for(&key, Duration::from_micros(1)));
                drop(locks.lock_with(&key, Wait::forever()));
                drop(locks.lock_arc(&key));
                drop(locks.try_lock_arc(&key));
                drop(locks.lock_arc_with(&key, Wait::forever()));
                locks.with_key(&key, || locks.with_key(&(key + 100), || ()));
                assert!(!locks.is_locked(&key) && !locks.is_locked_by_current_thread(&key));
                assert_eq!((locks.waiters(&key), locks.len(), locks.is_empty()), (0, 1, false));
                assert_eq!(locks.snapshot().len(), 1);

                drop(permits.acquire(&key));
                drop(permits.try_acquire(&key));
                drop(permits.acquire_many(&key, 3, Wait::forever()));
                drop(permits.acquire_arc(&key));
                permits.with_key(&key, || permits.with_key(&key, || ()));
                assert_eq!((permits.available_permits(&key), permits.limit(&key)), (3, 3));
                assert_eq!((permits.waiters(&key), permits.len()), (0, 1));
                assert_eq!(permits.snapshot().len(), 1);
            }
            // The very key.
            assert!(locks.try_lock(&0).is_none());
            assert!(locks.try_lock_for(&0, Duration::MAX).is_none());
            assert!(locks.is_locked(&0) && locks.is_locked_by_current_thread(&0));
            drop(permits.acquire(&0));
            format!("{locks:?} {permits:?}")
        };
        locks.with_key(&0, || permits.with_key(&0, call_everything));
        locks.try_with_key(&0, || permits.try_with_key(&0, call_everything)).flatten().unwrap();
        locks
            .with_key_within(&0, Duration::MAX, || permits.with_key_within(&0, Duration::MAX, call_everything))
            .unwrap()
            .unwrap();
        assert!(locks.is_empty() && permits.is_empty());
    });
}

#[test]
fn keys_that_share_a_stripe_exclude_each_other() {
    const KEYS: u32 = 1_000;
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let guards: Vec<_> = (0..KEYS).map(|key| locks.lock(&key)).collect();
        assert_eq!(locks.len(), KEYS as usize);
        elsewhere(|| {
            let arc_guards: Vec<_> = (KEYS..2 * KEYS).map(|key| locks.lock_arc(&key)).collect();
            assert_eq!(locks.len(), 2 * KEYS as usize);
            assert!((0..KEYS).all(|key| locks.try_lock(&key).is_none()));
            drop(arc_guards);
        });
        assert_eq!(locks.len(), KEYS as usize);
        drop(guards);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_wait_for_a_key_holds_the_table() {
    const KEYS: u32 = 50;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        threads(|scope| {
            let held: Vec<_> = (0..KEYS).map(|key| (locks.lock(&key), permits.acquire(&key))).collect();
            for key in 0..KEYS {
                let (locks, permits) = (&locks, &permits);
                scope.spawn(move || drop(locks.lock(&key)));
                scope.spawn(move || drop(permits.acquire_many(&key, 2, Wait::forever()).unwrap()));
            }
            until(|| (0..KEYS).all(|key| locks.waiters(&key) == 1 && permits.waiters(&key) == 1));
            for key in KEYS..10 * KEYS {
                drop((locks.lock(&key), permits.acquire(&key)));
                elsewhere_every(100, key, || drop((locks.lock(&key), permits.acquire(&key))));
            }
            assert_eq!((locks.len(), locks.snapshot().len()), (KEYS as usize, KEYS as usize));
            assert_eq!((permits.len(), permits.snapshot().len()), (KEYS as usize, KEYS as usize));
            drop(held);
        });
        assert!(locks.is_empty() && permits.is_empty());
    });
}

fn elsewhere_every(nth: u32, number: u32, work: impl FnOnce() + Send) {
    if number.is_multiple_of(nth) {
        elsewhere(work);
    }
}

/// Held keys do not keep others from coming and going, nor from making the shard grow.
#[test]
fn the_table_grows_while_somebody_waits_and_loses_the_waiter() {
    let keys = rounds(20_000) as u32;
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let was_in = AtomicBool::new(false);
        threads(|scope| {
            let held = locks.lock(&0);
            scope.spawn(|| locks.with_key(&0, || was_in.store(true, Ordering::Release)));
            until(|| locks.waiters(&0) == 1);
            let guards: Vec<_> = (1..keys).map(|key| locks.lock(&key)).collect();
            assert_eq!((locks.len(), locks.waiters(&0)), (keys as usize, 1));
            drop(guards);
            assert_eq!((locks.len(), locks.waiters(&0)), (1, 1));
            drop(held);
        });
        assert!(was_in.load(Ordering::Acquire));
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn re_entry_hangs() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let guard = locks.lock(&1);
        for message in [
            panic_message(|| drop(locks.lock(&1))),
            panic_message(|| drop(locks.lock_arc(&1))),
            panic_message(|| locks.with_key(&1, || ())),
        ] {
            assert!(message.starts_with("this thread already holds the key"), "{message}");
        }
        for wait in [Wait::forever(), Wait::at_most(Duration::MAX), Wait::now()] {
            assert!(matches!(locks.lock_with(&1, wait), Err(AcquireError::WouldDeadlock(_))));
        }
        // The key is still this thread's, once.
        assert_eq!((locks.len(), locks.waiters(&1)), (1, 0));
        drop(guard);
        assert_eq!(locks.len(), 0);
    });
}

/// Re-entry is found at once also for a thread that got the key by waiting, and by a hand-over.
#[test]
fn re_entry_of_a_thread_that_waited_hangs() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        threads(|scope| {
            let held = locks.lock(&1);
            let waiter = scope.spawn(|| {
                let _guard = locks.lock(&1);
                assert!(locks.is_locked_by_current_thread(&1));
                matches!(locks.lock_with(&1, Wait::forever()), Err(AcquireError::WouldDeadlock(_)))
            });
            until(|| locks.waiters(&1) == 1);
            drop(held);
            assert!(waiter.join().unwrap());
        });
    });
}

/// Several threads go on to be owners in turn: none is taken for another.
#[test]
fn a_thread_is_taken_for_the_owner_that_it_is_not() {
    const THREADS: u32 = 4;
    let each = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        threads(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..each {
                        assert!(!locks.is_locked_by_current_thread(&1));
                        let _guard = locks.lock(&1);
                        assert!(locks.is_locked_by_current_thread(&1));
                    }
                });
            }
        });
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn thread_ids_are_reused_and_a_new_thread_owns_an_old_lock() {
    const THREADS: usize = 300;
    watched(|| {
        let locks = Arc::new(KeyedLock::<usize>::new());
        for key in 0..THREADS {
            let locks = Arc::clone(&locks);
            // Each ends before the next begins, so that the system gives its id, stack and thread-locals again.
            let thread = thread::spawn(move || {
                for old in 0..key {
                    assert!(locks.is_locked(&old) && !locks.is_locked_by_current_thread(&old));
                }
                if key > 0 {
                    let last = key - 1;
                    assert_eq!(locks.lock_with(&last, Wait::now()).unwrap_err(), AcquireError::Busy);
                    assert_eq!(locks.lock_with(&last, Duration::from_nanos(1)).unwrap_err(), AcquireError::Timeout);
                }
                std::mem::forget(locks.lock(&key));
                assert!(locks.is_locked_by_current_thread(&key));
            });
            thread.join().unwrap();
        }
        assert_eq!(locks.len(), THREADS);
    });
}

/// A hold that ended by unwinding is no hold.
#[test]
fn a_key_released_by_a_panic_counts_as_re_entry() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        assert!(crate::support::panics(|| locks.with_key(&1, || quiet_panic())));
        assert!(!locks.is_locked_by_current_thread(&1));
        drop(locks.lock(&1));
    });
}
