//! `Wait` and `CancellationToken`.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedSemaphore, Wait};

use crate::support::{crowded, elsewhere, threads, until, watched, watched_in_both_modes};

#[test]
fn what_can_be_given_for_a_wait() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let token = CancellationToken::new();
        let wait = Wait::at_most(Duration::from_secs(1));
        let later = Instant::now() + Duration::from_secs(3600);
        assert!(locks.lock_with(&1, Duration::from_secs(1)).is_ok());
        assert!(locks.lock_with(&1, later).is_ok());
        assert!(locks.lock_with(&1, &token).is_ok());
        assert!(locks.lock_with(&1, &wait).is_ok());
        assert!(locks.lock_with(&1, wait).is_ok());
        assert!(locks.lock_with(&1, Wait::until(later)).is_ok());
        assert!(locks.lock_with(&1, Wait::default()).is_ok());
    });
}

#[test]
fn a_duration_starts_at_the_call() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let _held = locks.lock(&1);
        let duration = Duration::from_millis(2);
        // Used twice by reference: the second call has its whole time again.
        let wait = Wait::at_most(duration);
        elsewhere(|| {
            for _ in 0..3 {
                let begin = Instant::now();
                assert_eq!(locks.lock_with(&1, &wait).unwrap_err(), AcquireError::Timeout);
                assert!(begin.elapsed() >= duration, "too early");
            }
        });
    });
}

#[test]
fn an_instant_ends_the_wait() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let _held = locks.lock(&1);
        elsewhere(|| {
            let deadline = Instant::now() + Duration::from_millis(5);
            let error = locks.lock_with(&1, deadline).unwrap_err();
            assert!(matches!(error, AcquireError::Timeout | AcquireError::Busy));
            assert!(Instant::now() >= deadline, "too early");
            // Used again, it has passed.
            assert_eq!(locks.lock_with(&1, deadline).unwrap_err(), AcquireError::Busy);
        });
    });
}

#[test]
fn an_instant_that_has_passed_is_busy_and_tries_once() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let past = Instant::now();
        assert!(locks.lock_with(&1, past).is_ok());
        let _held = locks.lock(&1);
        elsewhere(|| {
            assert_eq!(locks.lock_with(&1, past).unwrap_err(), AcquireError::Busy);
            assert_eq!(locks.lock_with(&1, Wait::until(past)).unwrap_err(), AcquireError::Busy);
        });
    });
}

/// The wait ends if either is cancelled, and names that.
#[test]
fn each_of_two_tokens_counts() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let _held = locks.lock(&1);
        for which in 0..3 {
            let tokens = [(); 3].map(|()| CancellationToken::new());
            let wait = tokens.iter().fold(Wait::at_most(Duration::MAX), Wait::or_cancelled);
            threads(|scope| {
                let waiter = scope.spawn(|| locks.lock_with(&1, &wait).map(drop));
                until(|| locks.waiters(&1) == 1);
                tokens[which].cancel();
                assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
            });
            // From the start, too.
            assert_eq!(elsewhere(|| locks.lock_with(&2, &wait).map(drop)), Err(AcquireError::Cancelled));
            assert_eq!(tokens.iter().filter(|token| token.is_cancelled()).count(), 1);
        }
        assert_eq!(locks.waiters(&1), 0);
    });
}

#[test]
fn the_same_token_twice_is_one_token() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let _held = locks.lock(&1);
        let token = CancellationToken::new();
        let wait = Wait::from(&token).or_cancelled(&token).or_cancelled(&token.clone());
        threads(|scope| {
            let waiter = scope.spawn(|| locks.lock_with(&1, &wait).map(drop));
            until(|| locks.waiters(&1) == 1);
            token.cancel();
            assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
        });
    });
}

#[test]
fn clones_of_a_token_are_the_same_token() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let token = CancellationToken::new();
        let (clone, other) = (token.clone(), CancellationToken::new());
        let wait = Wait::from(&token);
        assert!(!token.is_cancelled() && !clone.is_cancelled());
        threads(|scope| {
            let _held = locks.lock(&1);
            let waiter = scope.spawn(|| locks.lock_with(&1, &wait).map(drop));
            until(|| locks.waiters(&1) == 1);
            clone.cancel();
            assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
        });
        assert!(token.is_cancelled() && clone.is_cancelled() && token.clone().is_cancelled());
        assert!(!other.is_cancelled() && !CancellationToken::default().is_cancelled());
        // A clone of the wait has it too; and a second cancellation does nothing.
        assert_eq!(locks.lock_with(&1, wait.clone()).unwrap_err(), AcquireError::Cancelled);
        token.cancel();
        assert!(locks.lock_with(&1, &other).is_ok());
    });
}

/// One token for waits on several keys and tables, of which some are granted.
#[test]
fn a_token_ends_all_its_waits_and_no_others() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let permits = KeyedSemaphore::<u32, 1>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        threads(|scope| {
            let held = (locks.lock(&1), locks.lock(&2), permits.acquire(&1));
            let kept = locks.lock_with(&3, &token).unwrap();
            let cancelled = [
                scope.spawn(|| locks.lock_with(&1, &token).map(drop)),
                scope.spawn(|| locks.lock_with(&2, Wait::at_most(Duration::MAX).or_cancelled(&token)).map(drop)),
                scope.spawn(|| permits.acquire_with(&1, &token).map(drop)),
                scope.spawn(|| permits.acquire_many(&1, 1, &token).map(drop)),
            ];
            let granted = [
                scope.spawn(|| locks.lock_with(&1, &CancellationToken::new()).map(drop)),
                scope.spawn(|| permits.acquire_with(&1, Wait::forever()).map(drop)),
            ];
            until(|| (locks.waiters(&1), locks.waiters(&2), permits.waiters(&1)) == (2, 1, 3));
            token.cancel();
            for waiter in cancelled {
                assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
            }
            assert_eq!((locks.waiters(&1), locks.waiters(&2), permits.waiters(&1)), (1, 0, 1));
            assert!(locks.is_locked_by_current_thread(&3), "what is held stays held");
            drop((held, kept));
            for waiter in granted {
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
        });
        assert!(locks.is_empty() && permits.is_empty());
    });
}

/// Who cancels may hold the key, or wait on behalf of nobody; it never waits itself.
#[test]
fn a_holder_may_cancel_its_own_waiters() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let token = CancellationToken::new();
        threads(|scope| {
            let waiter = locks.with_key(&1, || {
                let waiter = scope.spawn(|| locks.lock_with(&1, &token).map(drop));
                until(|| locks.waiters(&1) == 1);
                token.cancel();
                waiter
            });
            // A grant may have come first: the holder left right after.
            let outcome = waiter.join().unwrap();
            assert!(matches!(outcome, Ok(()) | Err(AcquireError::Cancelled)));
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn a_token_outlives_the_table_and_the_waits() {
    watched(|| {
        let token = CancellationToken::new();
        let locks = KeyedLock::<u32>::new();
        {
            let _held = locks.lock(&1);
            let outcome = elsewhere(|| {
                locks.lock_with(&1, Wait::at_most(Duration::from_micros(1)).or_cancelled(&token)).map(drop)
            });
            assert_eq!(outcome, Err(AcquireError::Timeout));
        }
        drop(locks);
        token.cancel();
        assert!(token.is_cancelled());
    });
}

#[test]
fn a_wait_is_used_by_many_threads() {
    watched(|| {
        let permits = KeyedSemaphore::<u32, 1>::new();
        let wait = AssertUnwindSafe(Wait::at_most(Duration::MAX).max_queued(4));
        threads(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(permits.acquire_with(&1, &*wait).is_ok()));
            }
        });
        assert!(permits.is_empty());
    });
}
