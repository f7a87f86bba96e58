//! How waits end.

use std::time::{Duration, Instant};

use perkey::distributed::DistributedLock;
use perkey::{AcquireError, CancellationToken, Wait};

use super::{Place, SHORT, cause};
use crate::recorded::Recorded;
use crate::support::{threads, until};

pub(crate) fn a_wait_ends_in_time_and_leaves_nothing<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let held = here.lock("a").unwrap();
    for locks in [&here, &there] {
        let begin = Instant::now();
        assert_eq!(cause(locks.lock_with("a", SHORT)), AcquireError::Timeout);
        assert!(begin.elapsed() >= SHORT, "it has not waited");
    }
    assert!(held.verify().unwrap());
    drop(held);
    place.check_free(&["a"]);
}

pub(crate) fn no_time_is_one_attempt<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let held = here.lock("a").unwrap();
    for locks in [&here, &there] {
        assert_eq!(cause(locks.lock_with("a", Duration::ZERO)), AcquireError::Busy);
        assert_eq!(cause(locks.lock_with("a", Wait::now())), AcquireError::Busy);
        assert!(locks.lock_with("b", Wait::now()).is_ok(), "a free key is granted");
    }
    drop(held);
    place.check_free(&["a", "b"]);
}

pub(crate) fn a_wait_is_cancelled_and_leaves_nothing<P: Place>(place: &P) {
    let store = Recorded::new(place.store());
    let there = DistributedLock::new(store.clone());
    let here = place.locks();
    let held = here.lock("a").unwrap();
    let token = CancellationToken::new();
    threads(|scope| {
        let remote = scope.spawn(|| cause(there.lock_with("a", &token)));
        until(|| store.claims().len() == 1);
        let local = scope.spawn(|| cause(here.lock_with("a", &token)));
        token.cancel();
        assert_eq!(remote.join().unwrap(), AcquireError::Cancelled);
        assert_eq!(local.join().unwrap(), AcquireError::Cancelled);
    });
    assert!(held.verify().unwrap());
    drop(held);
    place.check_free(&["a"]);
}

pub(crate) fn what_is_cancelled_before_is_not_granted<P: Place>(place: &P) {
    let token = CancellationToken::new();
    token.cancel();
    assert_eq!(cause(place.locks().lock_with("a", &token)), AcquireError::Cancelled);
    place.check_free(&["a"]);
}

/// One on another store object and one on the same, while a third does not wait so long.
pub(crate) fn a_waiter_is_granted_after_a_release<P: Place>(place: &P) {
    let store = Recorded::new(place.store());
    let there = DistributedLock::new(store.clone());
    let here = place.locks();
    let held = here.lock("a").unwrap();
    let first = held.fencing_token();
    threads(|scope| {
        let waiters = [&there, &here].map(|locks| {
            scope.spawn(move || {
                let lease = locks.lock("a").unwrap();
                assert!(lease.verify().unwrap());
                lease.fencing_token()
            })
        });
        until(|| store.claims().len() == 1);
        assert_eq!(cause(place.locks().lock_with("a", SHORT)), AcquireError::Timeout);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        held.release().unwrap();
        for token in waiters.map(|waiter| waiter.join().unwrap()) {
            assert!(first.is_none() || token > first, "{token:?} comes after {first:?}");
        }
    });
    place.check_free(&["a"]);
}

pub(crate) fn an_error_names_the_key_and_the_store<P: Place>(place: &P) {
    let _held = place.locks().lock("a\nb").unwrap();
    let error = place.locks().lock_with("a\nb", SHORT).unwrap_err();
    let store = place.store().describe();
    assert_eq!(error.to_string(), format!("key \"a\\nb\" on {store}: the key was not granted in time"));
}
