//! The calls one by one, uncontended and by two threads.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, Fairness, KeyedLock, KeyedLockGuard, KeyedSemaphore, Options, Wait};

use crate::support::{
    crowded, elsewhere, panic_message, panics, quiet_panic, threads, until, watched, watched_in_both_modes,
};

const LONG: Duration = Duration::from_secs(3600);

/// Each call on a free key, on one that another thread holds and, if it waits, on one that is released meanwhile.
#[test]
fn each_way_to_lock() {
    fn entered<T>(guard: T) -> bool {
        drop(guard);
        true
    }
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<String>::with_options(crowded(fairness)));
        let calls: [&(dyn Fn() -> bool + Sync); 13] = [
            &|| entered(locks.lock("a")),
            &|| entered(locks.lock_arc("a")),
            &|| locks.with_key("a", || true),
            &|| locks.try_lock_for("a", LONG).is_some(),
            &|| locks.lock_with("a", LONG).is_ok(),
            &|| locks.lock_arc_with("a", Wait::forever()).is_ok(),
            &|| locks.with_key_within("a", &CancellationToken::new(), || true).is_ok(),
            // From here they do not wait.
            &|| locks.try_lock("a").is_some(),
            &|| locks.try_lock_arc("a").is_some(),
            &|| locks.try_with_key("a", || true).is_some(),
            &|| locks.try_lock_for("a", Duration::ZERO).is_some(),
            &|| locks.lock_with("a", Wait::now()).is_ok(),
            &|| locks.lock_arc_with("a", Wait::forever().max_queued(0)).is_ok(),
        ];
        for (place, call) in calls.into_iter().enumerate() {
            assert!(call(), "call {place} on a free key");
            assert!(locks.is_empty());
            let held = locks.lock("a");
            if place < 7 {
                threads(|scope| {
                    let waiter = scope.spawn(call);
                    until(|| locks.waiters("a") == 1);
                    drop(held);
                    assert!(waiter.join().unwrap(), "call {place} on a key that comes free");
                });
            } else {
                assert!(!elsewhere(call), "call {place} on a key that is held");
                assert_eq!(locks.waiters("a"), 0);
                drop(held);
            }
            drop(locks.lock("a"));
        }
        assert!(locks.is_empty());
    });
}

#[test]
fn each_way_to_acquire() {
    watched_in_both_modes(|fairness| {
        let permits = Arc::new(KeyedSemaphore::<String, 2>::with_options(crowded(fairness)));
        let calls: [&(dyn Fn() -> bool + Sync); 15] = [
            &|| is_one_of(&permits, permits.acquire("a")),
            &|| is_one_of(&permits, permits.acquire_arc("a")),
            &|| permits.with_key("a", || true),
            &|| permits.try_acquire_for("a", LONG).is_some(),
            &|| permits.acquire_with("a", LONG).is_ok(),
            &|| permits.acquire_arc_with("a", Wait::forever()).is_ok(),
            &|| permits.acquire_many("a", 2, Wait::forever()).is_ok(),
            &|| permits.acquire_many_arc("a", 2, LONG).is_ok(),
            &|| permits.with_key_within("a", &CancellationToken::new(), || true).is_ok(),
            // From here they do not wait.
            &|| permits.try_acquire("a").is_some(),
            &|| permits.try_acquire_arc("a").is_some(),
            &|| permits.try_with_key("a", || true).is_some(),
            &|| permits.try_acquire_for("a", Duration::ZERO).is_some(),
            &|| permits.acquire_many("a", 1, Wait::now()).is_ok(),
            &|| permits.acquire_many_arc("a", 1, Wait::forever().max_queued(0)).is_ok(),
        ];
        for (place, call) in calls.into_iter().enumerate() {
            assert!(call(), "call {place} on a free key");
            assert_eq!(permits.available_permits("a"), 2);
            let held = permits.acquire_many("a", 2, Wait::now()).unwrap();
            if place < 9 {
                threads(|scope| {
                    let waiter = scope.spawn(call);
                    until(|| permits.waiters("a") == 1);
                    drop(held);
                    assert!(waiter.join().unwrap(), "call {place} on a key that comes free");
                });
            } else {
                assert!(!elsewhere(call), "call {place} on a key that is taken");
                assert_eq!(permits.waiters("a"), 0);
                drop(held);
            }
            assert_eq!((permits.available_permits("a"), permits.len()), (2, 0));
        }
    });
}

/// Whether one permit is out, while this one is.
fn is_one_of<T>(permits: &KeyedSemaphore<String, 2>, permit: T) -> bool {
    let is_one = permits.snapshot().first().is_some_and(|status| status.held == 1);
    drop(permit);
    is_one
}

#[test]
fn closures_run_once_inside_and_return() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let permits = KeyedSemaphore::<u32, 2>::new();
        let inside = || {
            assert!(locks.is_locked_by_current_thread(&1));
            "value".to_owned()
        };
        assert_eq!(locks.with_key(&1, inside), "value");
        assert_eq!(locks.try_with_key(&1, inside).as_deref(), Some("value"));
        assert_eq!(locks.with_key_within(&1, LONG, inside).as_deref(), Ok("value"));
        let inside = || permits.available_permits(&1);
        assert_eq!(permits.with_key(&1, inside), 1);
        assert_eq!(permits.try_with_key(&1, inside), Some(1));
        assert_eq!(permits.with_key_within(&1, LONG, inside), Ok(1));

        // A closure may be called once only, and does not run if the key is not had.
        let moved = String::from("moved");
        assert_eq!(locks.with_key(&1, move || moved), "moved");
        let _held = (locks.lock(&1), permits.acquire_many(&1, 2, Wait::now()).unwrap());
        elsewhere(|| {
            assert_eq!(locks.try_with_key(&1, || unreachable!()), None::<()>);
            assert_eq!(locks.with_key_within(&1, Wait::now(), || unreachable!()), Err::<(), _>(AcquireError::Busy));
            assert_eq!(permits.try_with_key(&1, || unreachable!()), None::<()>);
            assert_eq!(permits.with_key_within(&1, Wait::now(), || unreachable!()), Err::<(), _>(AcquireError::Busy));
        });
    });
}

#[test]
fn panics_release() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let permits = KeyedSemaphore::<u32, 2>::new();
        assert!(panics(|| locks.with_key(&1, || quiet_panic())));
        assert!(panics(|| locks.try_with_key(&1, || quiet_panic()).unwrap()));
        assert!(panics(|| locks.with_key_within(&1, LONG, || quiet_panic()).unwrap()));
        assert!(panics(|| permits.with_key(&1, || quiet_panic())));
        assert!(panics(|| permits.try_with_key(&1, || quiet_panic()).unwrap()));
        assert!(panics(|| permits.with_key_within(&1, LONG, || quiet_panic()).unwrap()));
        assert!(panics(|| {
            let _guards = (locks.lock(&1), permits.acquire_many(&1, 2, Wait::now()).unwrap());
            quiet_panic();
        }));
        assert!(locks.is_empty() && permits.is_empty());
        // No poison: it is as if nothing had been.
        assert!(locks.try_lock(&1).is_some() && permits.acquire_many(&1, 2, Wait::now()).is_ok());
    });
}

#[test]
fn a_panic_while_somebody_waits_lets_the_waiter_in() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        threads(|scope| {
            assert!(panics(|| {
                let _guard = locks.lock(&1);
                scope.spawn(|| drop(locks.lock(&1)));
                until(|| locks.waiters(&1) == 1);
                quiet_panic();
            }));
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn unlock_fair_gives_the_key_to_the_first_waiter() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        // With nobody waiting it is a release.
        KeyedLockGuard::unlock_fair(locks.lock(&1));
        assert!(locks.is_empty());

        let [first_is_in, may_go] = [const { AtomicBool::new(false) }; 2];
        threads(|scope| {
            let guard = locks.lock(&1);
            scope.spawn(|| {
                let _guard = locks.lock(&1);
                first_is_in.store(true, Ordering::Release);
                until(|| may_go.load(Ordering::Acquire));
            });
            until(|| locks.waiters(&1) == 1);
            scope.spawn(|| {
                let _guard = locks.lock(&1);
                assert!(may_go.load(Ordering::Acquire));
            });
            until(|| locks.waiters(&1) == 2);
            KeyedLockGuard::unlock_fair(guard);
            assert_eq!((locks.waiters(&1), locks.is_locked(&1)), (1, true));
            assert!(locks.try_lock(&1).is_none());
            until(|| first_is_in.load(Ordering::Acquire));
            may_go.store(true, Ordering::Release);
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn point_queries_of_a_lock() {
    watched(|| {
        let locks = KeyedLock::<String>::new();
        assert!(!locks.is_locked("a") && !locks.is_locked_by_current_thread("a"));
        assert_eq!((locks.waiters("a"), locks.len(), locks.is_empty()), (0, 0, true));
        let first = locks.lock("a");
        let second = locks.lock("b");
        assert!(locks.is_locked("a") && locks.is_locked("b") && !locks.is_locked("c"));
        assert_eq!((locks.waiters("a"), locks.len(), locks.is_empty()), (0, 2, false));
        threads(|scope| {
            for waiting in 1..=3 {
                scope.spawn(|| drop(locks.lock("a")));
                until(|| locks.waiters("a") == waiting);
            }
            assert_eq!((locks.waiters("b"), locks.len()), (0, 2));
            drop(first);
        });
        assert_eq!((locks.is_locked("a"), locks.len()), (false, 1));
        drop(second);
        assert!(locks.is_empty());
    });
}

#[test]
fn point_queries_of_a_semaphore() {
    watched(|| {
        let permits = KeyedSemaphore::<String, 3>::new();
        let state = |key: &str| (permits.available_permits(key), permits.limit(key), permits.is_locked(key));
        assert_eq!(state("a"), (3, 3, false));
        let one = permits.acquire("a");
        assert_eq!((state("a"), state("b")), ((2, 3, true), (3, 3, false)));
        let two = permits.acquire_many("a", 2, Wait::now()).unwrap();
        assert_eq!((state("a"), permits.len(), permits.waiters("a")), ((0, 3, true), 1, 0));
        drop(one);
        assert_eq!(state("a"), (1, 3, true));
        drop(two);
        assert_eq!((state("a"), permits.len(), permits.is_empty()), ((3, 3, false), 0, true));
    });
}

#[test]
fn limits_of_semaphores() {
    watched(|| {
        assert_eq!(KeyedSemaphore::<u32, 1>::new().limit(&1), 1);
        assert_eq!(KeyedSemaphore::<u32>::with_limit(1).limit(&1), 1);
        assert_eq!(KeyedSemaphore::<u32>::with_limit_and_options(9, Options::new()).available_permits(&1), 9);
        // Clamped, as documented.
        let huge = KeyedSemaphore::<u32, { usize::MAX }>::new();
        assert_eq!(huge.limit(&1), u32::MAX as usize);
        let all = huge.acquire_many(&1, u32::MAX as usize, Wait::now()).unwrap();
        assert!(huge.try_acquire(&1).is_none());
        drop(all);
        assert!(huge.is_empty());

        for message in [
            panic_message(|| KeyedSemaphore::<u32>::with_limit(0)),
            panic_message(|| KeyedSemaphore::<u32>::with_limit_and_options(0, Options::new())),
        ] {
            assert!(message.contains("limit of 0"), "{message}");
        }
    });
}

#[test]
fn permits_of_any_number_are_given_back_together() {
    watched_in_both_modes(|fairness| {
        const LIMIT: usize = 7;
        let permits = KeyedSemaphore::<u32>::with_limit_and_options(LIMIT, crowded(fairness));
        for asked in 1..=LIMIT {
            let permit = permits.acquire_many(&1, asked, Wait::now()).unwrap();
            assert_eq!(permits.available_permits(&1), LIMIT - asked);
            assert_eq!(permits.acquire_many(&1, LIMIT - asked + 1, Wait::now()).unwrap_err(), AcquireError::Busy);
            drop(permit);
            assert!(permits.is_empty());
        }
    });
}

#[test]
fn defaults() {
    watched(|| {
        assert!(KeyedLock::<u32>::default().is_empty());
        assert!(KeyedSemaphore::<u32, 3>::default().is_empty());
        assert_eq!(KeyedSemaphore::<u32, 3>::default().limit(&1), 3);
        assert!(format!("{:?}", KeyedLock::<u32>::default()).contains("Eventual"));
        assert_eq!(Fairness::default(), Fairness::Eventual);
        type Fixed = BuildHasherDefault<DefaultHasher>;
        assert!(KeyedLock::<u32, Fixed>::default().is_empty());
        assert!(KeyedSemaphore::<u32, 3, Fixed>::default().is_empty());
    });
}

/// In any order, and each keeps what was set before.
#[test]
fn options() {
    watched(|| {
        type Fixed = BuildHasherDefault<DefaultHasher>;
        let orders = [
            Options::new().hasher(Fixed::default()).name("n").fairness(Fairness::Fifo).shards(3),
            Options::new().shards(3).fairness(Fairness::Fifo).name(String::from("n")).hasher(Fixed::default()),
            Options::<Fixed>::default().name("other").name("n").fairness(Fairness::Fifo),
        ];
        for options in orders {
            for options in [options.clone(), options] {
                let locks = KeyedLock::<String, _>::with_options(options.clone());
                let permits = KeyedSemaphore::<String, 2, _>::with_options(options.clone());
                let dynamic = KeyedSemaphore::<String, 0, _>::with_limit_and_options(2, options);
                for shown in [format!("{locks:?}"), format!("{permits:?}"), format!("{dynamic:?}")] {
                    assert!(shown.contains("\"n\"") && shown.contains("Fifo"), "{shown}");
                }
                let _held = (locks.lock("a"), permits.acquire("a"), dynamic.acquire("a"));
                assert!(locks.is_locked("a") && permits.is_locked("a") && dynamic.is_locked("a"));
            }
        }
    });
}

#[test]
fn any_number_of_shards() {
    watched(|| {
        for shards in [0, 1, 2, 3, 64, 100, usize::MAX] {
            let locks = KeyedLock::<u32>::with_options(Options::new().shards(shards));
            let guards: Vec<_> = (0..200).map(|key| locks.lock(&key)).collect();
            assert_eq!(locks.len(), 200, "{shards} shards");
            drop(guards);
            assert!(locks.is_empty());
        }
    });
}

/// The task that the library is for: what the lock guards is not the lock's.
#[test]
fn guarded_state_is_consistent() {
    const ACCOUNTS: u64 = 5;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u64>::with_options(crowded(fairness));
        let balances: HashMap<u64, parking_lot::Mutex<i64>> = (0..ACCOUNTS).map(|id| (id, 100.into())).collect();
        threads(|scope| {
            for number in 0..4 {
                let (locks, balances) = (&locks, &balances);
                scope.spawn(move || {
                    let mut random = crate::support::Random::new(number);
                    for _ in 0..2_000 {
                        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                        if from == to {
                            continue;
                        }
                        let _guards = (locks.lock(&from.min(to)), locks.lock(&from.max(to)));
                        let (of, ot) = (*balances[&from].lock(), *balances[&to].lock());
                        *balances[&from].lock() = of - 1;
                        *balances[&to].lock() = ot + 1;
                    }
                });
            }
        });
        assert_eq!(balances.values().map(|balance| *balance.lock()).sum::<i64>(), 100 * ACCOUNTS as i64);
        assert!(locks.is_empty());
    });
}
