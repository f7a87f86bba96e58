use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, KeyedPermit, KeyedSemaphore, Limit, Wait};

use crate::support::{
    Barrier, MODES, Random, crowded, elsewhere, panic_message, panics, quiet_panic, rounds, spin, threads, until,
    watched, watched_in_both_modes,
};

#[test]
fn a_function_is_asked_when_an_entry_is_made_and_the_entry_keeps_its_answer() {
    let (asked, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(2)));
    let permits = KeyedSemaphore::<String>::with_limit_by({
        let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
        move |key| {
            asked.fetch_add(1, Ordering::Relaxed);
            answer.load(Ordering::Relaxed) + key.len()
        }
    });
    let first = permits.acquire("a");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    answer.store(7, Ordering::Relaxed);
    let others = [permits.try_acquire("a").unwrap(), permits.acquire_with("a", Wait::now()).unwrap()];
    assert_eq!(permits.acquire_with("a", Wait::now()).unwrap_err(), AcquireError::Busy);
    assert_eq!((permits.limit("a"), permits.available_permits("a")), (3, 0));
    assert_eq!(asked.load(Ordering::Relaxed), 1, "a key that is there was asked for again");
    drop((first, others));
    // Absent keys are asked for.
    assert_eq!((permits.limit("a"), permits.available_permits("ab")), (8, 9));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert!(permits.is_empty());
}

#[test]
fn a_limit_of_zero_is_over_limit() {
    let permits = Arc::new(KeyedSemaphore::<u32>::with_limit(Limit::by_key(|key: &u32| *key as usize)));
    let over = |requested| AcquireError::OverLimit { requested, limit: 0 };
    assert!(permits.try_acquire(&0).is_none());
    assert!(permits.try_acquire_arc(&0).is_none());
    assert!(permits.try_acquire_for(&0, Duration::MAX).is_none());
    assert!(permits.try_with_key(&0, || ()).is_none());
    assert_eq!(permits.acquire_with(&0, Wait::forever()).unwrap_err(), over(1));
    assert_eq!(permits.acquire_many(&0, 3, Wait::forever()).unwrap_err(), over(3));
    for message in [
        panic_message(|| permits.acquire(&0)),
        panic_message(|| permits.acquire_arc(&0)),
        panic_message(|| permits.with_key(&0, || ())),
    ] {
        assert!(message.contains("limit is 0"), "{message}");
    }
    assert_eq!(permits.limit(&0), 0);
    assert_eq!(
        permits.acquire_many(&2, 3, Wait::forever()).unwrap_err(),
        AcquireError::OverLimit { requested: 3, limit: 2 }
    );
    assert!(permits.is_empty());
}

#[test]
fn the_function_may_call_its_table() {
    watched(|| {
        static TABLE: OnceLock<KeyedSemaphore<u32>> = OnceLock::new();
        let table = TABLE.get_or_init(|| {
            KeyedSemaphore::<u32>::with_limit_by(|key| {
                let table = TABLE.get().expect("it is asked for its first key later");
                if *key > 0 {
                    // A key below, in the same shard or another, for as long as this runs.
                    let _permit = table.acquire(&(key - 1));
                    assert!(!table.is_empty() && !table.snapshot().is_empty());
                    return table.limit(&(key - 1)) + 1;
                }
                1
            })
        });
        assert_eq!(table.limit(&20), 21);
        drop(table.acquire(&20));
        assert!(table.is_empty());
    });
}

#[test]
fn a_function_that_panics_leaves_nothing_behind() {
    let permits = KeyedSemaphore::<u32>::with_limit_by(|key| if *key == 13 { quiet_panic() } else { 1 });
    for _ in 0..3 {
        assert!(panics(|| drop(permits.acquire(&13))));
        assert!(panics(|| drop(permits.try_acquire(&13))));
        assert!(panics(|| drop(permits.acquire_with(&13, Duration::ZERO))));
        drop(permits.acquire(&14));
    }
    assert!(permits.is_empty());
}

#[test]
fn a_larger_limit_lets_all_in_that_fit_now() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32>::with_limit_and_options(1, crowded(fairness));
        let held = permits.acquire(&1);
        let inside = Barrier::new(4);
        threads(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _permit = permits.acquire(&1);
                    inside.meet();
                });
            }
            until(|| permits.waiters(&1) == 4);
            permits.set_limit(5);
        });
        drop(held);
        assert_eq!((permits.limit(&1), permits.limit(&2)), (5, 5));
        assert!(permits.is_empty());
    });
}

#[test]
fn after_a_smaller_limit_nobody_enters_until_enough_have_left() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32>::with_limit_and_options(5, crowded(fairness));
        let mut held: Vec<KeyedPermit<'_, u32>> = (0..5).map(|_| permits.acquire(&1)).collect();
        permits.set_limit(2);
        let entered = AtomicBool::new(false);
        threads(|scope| {
            scope.spawn(|| {
                let _permit = permits.acquire(&1);
                entered.store(true, Ordering::Release);
            });
            until(|| permits.waiters(&1) == 1);
            while held.len() > 2 {
                held.pop();
                assert!(permits.try_acquire(&1).is_none());
                assert_eq!((permits.waiters(&1), permits.available_permits(&1)), (1, 0));
                assert!(!entered.load(Ordering::Acquire));
            }
            held.pop();
            until(|| entered.load(Ordering::Acquire));
        });
        drop(held);
        assert!(permits.is_empty());
    });
}

#[test]
fn requests_that_can_never_fit_any_more_are_over_limit_and_those_behind_them_enter() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32>::with_limit_and_options(3, crowded(fairness));
        let held = permits.acquire_many(&1, 2, Wait::now()).unwrap();
        threads(|scope| {
            let heavy = scope.spawn(|| permits.acquire_many(&1, 3, Wait::forever()).map(drop));
            until(|| permits.waiters(&1) == 1);
            let timed = scope.spawn(|| permits.acquire_many(&1, 3, Duration::MAX).map(drop));
            until(|| permits.waiters(&1) == 2);
            let light = scope.spawn(|| permits.acquire_many(&1, 2, Wait::forever()).map(drop));
            until(|| permits.waiters(&1) == 3);
            permits.set_limit(2);
            let over = Err(AcquireError::OverLimit { requested: 3, limit: 2 });
            assert_eq!(heavy.join().unwrap(), over);
            assert_eq!(timed.join().unwrap(), over);
            assert_eq!(permits.waiters(&1), 1);
            assert_eq!(permits.acquire_many(&1, 3, Wait::forever()).map(drop), over);
            drop(held);
            assert_eq!(light.join().unwrap(), Ok(()));
        });
        assert!(permits.is_empty());
    });
}

#[test]
fn a_new_limit_replaces_a_function() {
    let permits = KeyedSemaphore::<u32>::with_limit_by(|_| 1);
    let held = permits.acquire(&1);
    permits.set_limit(3);
    assert_eq!((permits.limit(&1), permits.limit(&2)), (3, 3));
    assert!(permits.acquire_many(&1, 2, Wait::now()).is_ok());
    drop(held);
}

#[test]
fn a_limit_of_nothing_is_refused_with_the_way_out() {
    let permits = KeyedSemaphore::<u32>::with_limit(2);
    let message = panic_message(|| permits.set_limit(0));
    assert!(message.contains("at least 1"), "{message}");
    assert_eq!(permits.limit(&1), 2);
    permits.set_limit(usize::MAX);
    assert_eq!(permits.limit(&1), u32::MAX as usize);
}

/// No limit is above it.
const MOST: usize = 5;
const KEYS: usize = 3;

/// One request of any kind. If it gets in: how many are inside with it at least, as counted by those who are.
fn visit(permits: &KeyedSemaphore<u64>, inside: &[AtomicUsize; KEYS], random: &mut Random) -> Option<usize> {
    let key = random.below(KEYS as u64);
    let weight = 1 + random.below(MOST as u64) as usize;
    let token = CancellationToken::new();
    let wait = match random.below(4) {
        0 => Wait::now(),
        1 => Wait::at_most(Duration::from_micros(random.below(100))),
        2 => Wait::forever().max_queued(2),
        // Somebody may have to be told that it can never fit; others wait.
        _ => Wait::forever().or_cancelled(&token),
    };
    let _permit = permits.acquire_many(&key, weight, wait).ok()?;
    let inside = &inside[key as usize];
    let now = inside.fetch_add(weight, Ordering::Relaxed) + weight;
    spin(random.below(50));
    inside.fetch_sub(weight, Ordering::Relaxed);
    Some(now)
}

/// Limits change at full speed beside every kind of request. No more than `MOST` are inside, ever; and at the end nothing is
/// missing.
#[test]
fn limits_that_change_beside_everything_else() {
    watched(|| {
        for fairness in MODES {
            let permits = KeyedSemaphore::<u64>::with_limit_and_options(MOST, crowded(fairness));
            let inside = [(); KEYS].map(|()| AtomicUsize::new(0));
            let done = AtomicUsize::new(0);
            threads(|scope| {
                for thread in 0..6 {
                    let (permits, inside, done) = (&permits, &inside, &done);
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        for _ in 0..rounds(3_000) {
                            if let Some(now) = visit(permits, inside, &mut random) {
                                assert!(now <= MOST, "{now} inside");
                            }
                        }
                        done.fetch_add(1, Ordering::Release);
                    });
                }
                for thread in 6..8 {
                    let (permits, done) = (&permits, &done);
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        while done.load(Ordering::Acquire) < 6 {
                            permits.set_limit(1 + random.below(MOST as u64) as usize);
                            spin(random.below(500));
                        }
                    });
                }
            });
            assert!(permits.is_empty(), "{:?}", permits.snapshot());
            permits.set_limit(MOST);
            for key in 0..KEYS as u64 {
                assert!(elsewhere(|| permits.acquire_many(&key, MOST, Wait::now()).is_ok()));
            }
        }
    });
}

/// One thread changes the limit, so it knows when those who came in before its last change have left: when each of the others
/// has been through since. From then on no more than that limit are inside. Where idle keys are kept their entries are older
/// than the change, elsewhere most are younger.
#[test]
fn a_lower_limit_holds_when_those_from_before_have_left() {
    watched_in_both_modes(|fairness| {
        for kept in [None, Some(Duration::MAX)] {
            let options = kept.map_or(crowded(fairness), |ttl| crowded(fairness).idle_ttl(ttl));
            let permits = KeyedSemaphore::<u64>::with_limit_and_options(MOST, options);
            let inside = [(); KEYS].map(|()| AtomicUsize::new(0));
            let (most_seen, over) = (AtomicUsize::new(0), AtomicBool::new(false));
            let visits = [(); 4].map(|()| AtomicUsize::new(0));
            let too_many = threads(|scope| {
                for (thread, visits) in visits.iter().enumerate() {
                    let (permits, inside, most_seen, over) = (&permits, &inside, &most_seen, &over);
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        while !over.load(Ordering::Acquire) {
                            if let Some(now) = visit(permits, inside, &mut random) {
                                most_seen.fetch_max(now, Ordering::AcqRel);
                            }
                            visits.fetch_add(1, Ordering::Release);
                        }
                    });
                }
                // Every visit that has begun is over.
                let all_have_been_through = || {
                    for visits in &visits {
                        let before = visits.load(Ordering::Acquire);
                        until(|| visits.load(Ordering::Acquire) > before);
                    }
                };
                let mut random = Random::new(visits.len());
                let too_many = (0..rounds(40)).find_map(|_| {
                    for _ in 0..random.below(4) {
                        permits.set_limit(1 + random.below(MOST as u64) as usize);
                        spin(random.below(500));
                    }
                    permits.set_limit(MOST);
                    spin(random.below(500));
                    let limit = 1 + random.below(MOST as u64 - 1) as usize;
                    permits.set_limit(limit);
                    // Those from before have left; and then those who met them inside.
                    all_have_been_through();
                    all_have_been_through();
                    most_seen.store(0, Ordering::Release);
                    all_have_been_through();
                    until(|| most_seen.load(Ordering::Acquire) > 0);
                    let most = most_seen.load(Ordering::Acquire);
                    (most > limit).then_some((most, limit))
                });
                over.store(true, Ordering::Release);
                too_many
            });
            assert_eq!(too_many, None, "so many inside, with that limit; idle keys kept: {}", kept.is_some());
            permits.set_limit(MOST);
            for key in 0..KEYS as u64 {
                assert!(elsewhere(|| permits.acquire_many(&key, MOST, Wait::now()).is_ok()));
            }
        }
    });
}

/// The key was owned for the function, and somebody else made the entry meanwhile: the copy is not needed, and its `Drop`
/// panics.
#[test]
fn a_key_that_was_not_needed_and_panics_on_drop_keeps_no_permit() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key;
    impl Drop for Key {
        fn drop(&mut self) {
            if ARMED.swap(false, Ordering::Relaxed) {
                quiet_panic();
            }
        }
    }
    watched(|| {
        static TABLE: OnceLock<Arc<KeyedSemaphore<Key>>> = OnceLock::new();
        static MEANWHILE: parking_lot::Mutex<Option<perkey::ArcKeyedPermit<Key>>> = parking_lot::Mutex::new(None);
        let first = AtomicBool::new(true);
        let table = TABLE.get_or_init(|| {
            Arc::new(KeyedSemaphore::with_limit_by(move |key| {
                if first.swap(false, Ordering::Relaxed) {
                    let permit = TABLE.get().expect("it is asked later").acquire_arc(key);
                    *MEANWHILE.lock() = Some(permit);
                    ARMED.store(true, Ordering::Relaxed);
                }
                2
            }))
        });
        assert!(panics(|| drop(table.acquire(&Key))));
        drop(MEANWHILE.lock().take());
        assert!(table.is_empty(), "{} permits are out", table.limit(&Key) - table.available_permits(&Key));
    });
}

#[test]
fn a_free_key_is_refused_while_a_function_is_replaced() {
    watched(|| {
        for _ in 0..rounds(2_000) {
            let permits = KeyedSemaphore::<u32>::with_limit_by(|_| 1);
            let both = Barrier::new(2);
            threads(|scope| {
                scope.spawn(|| {
                    both.meet();
                    permits.set_limit(3);
                });
                both.meet();
                for key in 0..20 {
                    assert!(permits.try_acquire(&key).is_some(), "nobody holds it");
                }
            });
        }
    });
}
