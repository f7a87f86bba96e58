use std::mem;
use std::sync::Arc;
use std::time::Duration;

use perkey::{AcquireError, KeyedLock, KeyedLockGuard, KeyedSemaphore, Options, Wait};

use crate::support::{Oracle, elsewhere, panic_message, rounds, threads, until, watched};

fn reentrant() -> Options {
    Options::new().reentrant(true).name("again")
}

#[test]
fn each_call_of_the_owner_enters_again_and_the_last_guard_releases() {
    watched(|| {
        let locks = KeyedLock::<String>::with_options(reentrant());
        let guards = [
            locks.lock("a"),
            locks.lock("a"),
            locks.try_lock("a").unwrap(),
            locks.try_lock_for("a", Duration::ZERO).unwrap(),
            locks.lock_with("a", Wait::now().max_queued(0)).unwrap(),
        ];
        assert_eq!(locks.with_key("a", || locks.try_with_key("a", || 7)), Some(7));
        assert_eq!(locks.snapshot()[0].held, guards.len());
        for guard in guards {
            assert!(locks.is_locked_by_current_thread("a"));
            assert!(elsewhere(|| locks.try_lock("a").is_none()));
            drop(guard);
        }
        assert!(locks.is_empty());
    });
}

#[test]
fn a_waiter_enters_when_all_guards_are_gone_and_not_before() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(reentrant());
        let oracle = Oracle::exclusive();
        for hand_over in [false, true] {
            let (outer, inner) = (locks.lock(&1), locks.lock(&1));
            threads(|scope| {
                scope.spawn(|| locks.with_key(&1, || oracle.visit(1, || ())));
                until(|| locks.waiters(&1) == 1);
                // In any order; and handing over what is still held hands nothing over.
                if hand_over {
                    KeyedLockGuard::unlock_fair(outer)
                } else {
                    drop(outer)
                }
                assert_eq!(locks.waiters(&1), 1);
                assert!(locks.is_locked_by_current_thread(&1));
                // The owner re-enters past those who wait: they wait for it.
                oracle.visit(1, || drop(locks.lock(&1)));
                drop(inner);
            });
            assert!(locks.is_empty());
        }
        oracle.check();
    });
}

#[test]
fn a_movable_guard_of_an_owned_key_is_still_an_error() {
    let locks = Arc::new(KeyedLock::<u32>::with_options(reentrant()));
    let held = locks.lock(&1);
    assert!(locks.try_lock_arc(&1).is_none());
    assert!(matches!(locks.lock_arc_with(&1, Wait::forever()), Err(AcquireError::WouldDeadlock(_))));
    assert!(panic_message(|| locks.lock_arc(&1)).contains("already holds the key"));
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn a_forgotten_inner_guard_keeps_the_key_locked() {
    let locks = KeyedLock::<u32>::with_options(reentrant());
    let outer = locks.lock(&1);
    mem::forget(locks.lock(&1));
    drop(outer);
    assert!(locks.is_locked_by_current_thread(&1));
    assert!(elsewhere(|| locks.try_lock(&1).is_none()));
    drop(locks.lock(&1));
}

#[test]
fn threads_that_nest_exclude_each_other() {
    watched(|| {
        let locks = KeyedLock::<usize>::with_options(reentrant());
        let oracles = [(); 3].map(|()| Oracle::exclusive());
        threads(|scope| {
            for thread in 0..8 {
                let (locks, oracles) = (&locks, &oracles);
                scope.spawn(move || {
                    for round in 0..rounds(3_000) {
                        let key = (round + thread) % oracles.len();
                        let _outer = locks.lock(&key);
                        oracles[key].visit(1, || {
                            let _inner = locks.lock(&key);
                            let _innermost = (round % 2 == 0).then(|| locks.lock(&key));
                        });
                    }
                });
            }
        });
        assert_eq!(oracles.iter().map(Oracle::check).sum::<usize>(), 8 * rounds(3_000));
        assert!(locks.is_empty());
    });
}

#[test]
fn a_semaphore_that_should_be_reentrant_is_refused_with_the_reason() {
    for message in [
        panic_message(|| KeyedSemaphore::<u32, 2>::with_options(reentrant())),
        panic_message(|| KeyedSemaphore::<u32>::with_limit_and_options(2, reentrant())),
    ] {
        assert!(message.contains("permits have no owner"), "{message}");
    }
}
