//! Which outcome a call has if several are true when it is made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedSemaphore, Wait};

use crate::support::{crowded, elsewhere, threads, until, watched, watched_in_both_modes};

const HOUR: Duration = Duration::from_secs(3600);

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

fn is_deadlock<T>(outcome: Result<T, AcquireError>) -> bool {
    matches!(outcome, Err(AcquireError::WouldDeadlock(_)))
}

/// The waits with no time at all.
fn no_time() -> [Wait; 4] {
    let now = Instant::now();
    [Wait::now(), Duration::ZERO.into(), now.into(), now.checked_sub(HOUR).unwrap_or(now).into()]
}

#[test]
fn cancelled_before_everything() {
    watched(|| {
        let locks = Arc::new(KeyedLock::<u32>::new());
        let permits = Arc::new(KeyedSemaphore::<u32, 2>::new());
        let token = cancelled();
        let everything = Wait::now().max_queued(0).or_cancelled(&token);
        let check = || {
            for wait in [&Wait::from(&token), &everything, &Wait::at_most(HOUR).or_cancelled(&token)] {
                let error = AcquireError::Cancelled;
                assert_eq!(locks.lock_with(&1, wait).unwrap_err(), error);
                assert_eq!(locks.lock_arc_with(&1, wait).unwrap_err(), error);
                assert_eq!(locks.with_key_within(&1, wait, || ()).unwrap_err(), error);
                assert_eq!(permits.acquire_with(&1, wait).unwrap_err(), error);
                assert_eq!(permits.acquire_arc_with(&1, wait).unwrap_err(), error);
                assert_eq!(permits.with_key_within(&1, wait, || ()).unwrap_err(), error);
                for asked in [0, 1, 2, 3, usize::MAX] {
                    assert_eq!(permits.acquire_many(&1, asked, wait).unwrap_err(), error);
                    assert_eq!(permits.acquire_many_arc(&1, asked, wait).unwrap_err(), error);
                }
            }
        };
        // Before the grant; before the own hold; before the hold of another.
        check();
        let held = (locks.lock(&1), permits.acquire_many(&1, 2, Wait::now()).unwrap());
        check();
        elsewhere(check);
        drop(held);
        assert!(locks.is_empty() && permits.is_empty());
    });
}

#[test]
fn over_limit_before_grant_busy_and_queue_full() {
    watched(|| {
        let fixed = Arc::new(KeyedSemaphore::<u32, 2>::new());
        let dynamic = Arc::new(KeyedSemaphore::<u32>::with_limit(2));
        let not_cancelled = CancellationToken::new();
        let check = || {
            for requested in [0, 3, 1 << 31, u32::MAX as usize, u32::MAX as usize + 3, usize::MAX] {
                for wait in [
                    Wait::forever(),
                    Wait::now(),
                    Wait::forever().max_queued(0),
                    Wait::at_most(HOUR),
                    Wait::from(&not_cancelled),
                ] {
                    let error = AcquireError::OverLimit { requested, limit: 2 };
                    assert_eq!(fixed.acquire_many(&1, requested, &wait).unwrap_err(), error);
                    assert_eq!(fixed.acquire_many_arc(&1, requested, &wait).unwrap_err(), error);
                    assert_eq!(dynamic.acquire_many(&1, requested, &wait).unwrap_err(), error);
                    assert_eq!(dynamic.acquire_many_arc(&1, requested, &wait).unwrap_err(), error);
                }
            }
        };
        check();
        let held = (fixed.acquire(&1), dynamic.acquire_many(&1, 2, Wait::now()).unwrap());
        check();
        drop(held);
        assert!(fixed.is_empty() && dynamic.is_empty());
    });
}

#[test]
fn grant_before_busy_and_queue_full() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let permits = Arc::new(KeyedSemaphore::<u32, 2>::with_options(crowded(fairness)));
        for wait in no_time().into_iter().chain([Wait::forever().max_queued(0), Wait::now().max_queued(0)]) {
            assert!(locks.lock_with(&1, &wait).is_ok());
            assert!(locks.lock_arc_with(&1, &wait).is_ok());
            assert_eq!(locks.with_key_within(&1, &wait, || 7), Ok(7));
            // Beside somebody who is inside, too.
            let _one = permits.acquire(&1);
            assert!(permits.acquire_with(&1, &wait).is_ok());
            assert!(permits.acquire_arc_with(&1, &wait).is_ok());
            assert!(permits.acquire_many(&1, 1, &wait).is_ok());
            assert_eq!(permits.with_key_within(&1, &wait, || 7), Ok(7));
        }
        assert!(locks.is_empty() && permits.is_empty());
    });
}

#[test]
fn ones_own_hold_before_busy_queue_full_and_timeout() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        threads(|scope| {
            let held = locks.lock(&1);
            let check = || {
                for wait in no_time().into_iter().chain([
                    Wait::forever(),
                    Wait::forever().max_queued(0),
                    Wait::now().max_queued(0),
                    Wait::at_most(HOUR),
                    Wait::from(&CancellationToken::new()),
                ]) {
                    assert!(is_deadlock(locks.lock_with(&1, &wait)), "{wait:?}");
                    assert!(is_deadlock(locks.lock_arc_with(&1, &wait)), "{wait:?}");
                    assert!(is_deadlock(locks.with_key_within(&1, &wait, || ())), "{wait:?}");
                }
                assert!(locks.try_lock_for(&1, HOUR).is_none());
            };
            check();
            // Behind somebody who waits, too.
            scope.spawn(|| drop(locks.lock(&1)));
            until(|| locks.waiters(&1) == 1);
            check();
            drop(held);
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn busy_before_queue_full() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let permits = Arc::new(KeyedSemaphore::<u32, 2>::with_options(crowded(fairness)));
        let held = (locks.lock(&1), permits.acquire_many(&1, 2, Wait::now()).unwrap());
        elsewhere(|| {
            for wait in no_time() {
                for wait in [wait.clone(), wait.max_queued(0)] {
                    assert_eq!(locks.lock_with(&1, &wait).unwrap_err(), AcquireError::Busy);
                    assert_eq!(locks.lock_arc_with(&1, &wait).unwrap_err(), AcquireError::Busy);
                    assert_eq!(permits.acquire_with(&1, &wait).unwrap_err(), AcquireError::Busy);
                    assert_eq!(permits.acquire_many(&1, 2, &wait).unwrap_err(), AcquireError::Busy);
                    assert_eq!(permits.acquire_many_arc(&1, 1, &wait).unwrap_err(), AcquireError::Busy);
                }
            }
        });
        drop(held);
    });
}

#[test]
fn queue_full_before_timeout() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let _held = locks.lock(&1);
        elsewhere(|| {
            for wait in [Wait::forever(), Wait::at_most(Duration::from_nanos(1)), Wait::at_most(HOUR)] {
                assert_eq!(locks.lock_with(&1, wait.max_queued(0)).unwrap_err(), AcquireError::QueueFull);
            }
            assert_eq!(locks.lock_with(&1, Duration::from_nanos(1)).unwrap_err(), AcquireError::Timeout);
        });
    });
}

/// `max_queued` counts who waits for the key, at the call.
#[test]
fn queue_full_at_the_number_given() {
    const BOUND: usize = 3;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let bounded = Wait::forever().max_queued(BOUND);
        threads(|scope| {
            let held = locks.lock(&1);
            for queued in 0..BOUND {
                scope.spawn(|| assert!(locks.lock_with(&1, &bounded).is_ok()));
                until(|| locks.waiters(&1) == queued + 1);
            }
            elsewhere(|| {
                assert_eq!(locks.lock_with(&1, &bounded).unwrap_err(), AcquireError::QueueFull);
                assert_eq!(locks.lock_with(&1, Wait::forever().max_queued(0)).unwrap_err(), AcquireError::QueueFull);
                assert!(locks.lock_with(&2, &bounded).is_ok(), "another key has a queue of its own");
            });
            // One more goes when it is larger.
            scope.spawn(|| assert!(locks.lock_with(&1, bounded.clone().max_queued(BOUND + 1)).is_ok()));
            until(|| locks.waiters(&1) == BOUND + 1);
            drop(held);
        });
        assert!(locks.is_empty());
    });
}
