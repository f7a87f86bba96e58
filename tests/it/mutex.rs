//! `KeyedMutex`: what becomes of the values.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use perkey::{
    AcquireError, ArcKeyedMutexGuard, CancellationToken, Fairness, KeyedMutex, KeyedMutexGuard, Options, Sweep,
    Sweeper, Wait,
};

use crate::keys::{Call, Counting, Counts, Fuse, Hostile};
use crate::support::{
    Random, crowded, elsewhere, panic_message, panics, quiet_panic, rounds, slow_to_park, threads, until, watched,
    watched_in_both_modes,
};

/// A value that is counted while it lives.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(alive))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn swept_at_once(fairness: Fairness) -> Options {
    crowded(fairness).idle_ttl(Duration::ZERO)
}

/// One addition to a counter, by one of the calls; says whether it was made.
fn add_one(counts: &Arc<KeyedMutex<u32, usize>>, key: u32, random: &mut Random) -> bool {
    let add = |count: &mut Option<usize>| {
        let before = count.unwrap_or(0);
        crate::support::work(&mut Random::new(before));
        *count = Some(before + 1);
    };
    let wait = Wait::at_most(Duration::from_nanos(random.below(30_000)));
    match random.below(14) {
        0 => add(&mut counts.lock(&key)),
        1 => counts.with_key(&key, add),
        2 => return counts.try_with_key(&key, add).is_some(),
        3 => return counts.with_key_within(&key, wait, add).is_ok(),
        4 => return counts.try_lock(&key).map(|mut count| add(&mut count)).is_some(),
        5 => return counts.try_lock_for(&key, Duration::from_micros(1)).map(|mut count| add(&mut count)).is_some(),
        6 => return counts.lock_with(&key, wait).map(|mut count| add(&mut count)).is_ok(),
        7 => {
            let mut count = counts.lock_arc(&key);
            elsewhere(move || add(&mut count));
        }
        8 => return counts.lock_arc_with(&key, wait).map(|mut count| add(&mut count)).is_ok(),
        9 => return counts.try_lock_arc(&key).map(|mut count| add(&mut count)).is_some(),
        10 => assert!(panics(|| counts.with_key(&key, |count| {
            add(count);
            quiet_panic()
        }))),
        11 => assert!(panics(|| {
            let mut count = counts.lock(&key);
            add(&mut count);
            quiet_panic()
        })),
        12 => add(&mut counts.lock_keys([&key, &(key + 100)])[&key]),
        _ => {
            let mut count = counts.lock(&key);
            add(&mut count);
            KeyedMutexGuard::unlock_fair(count);
        }
    }
    true
}

#[test]
fn counts_are_exact_whatever_call_is_made_and_whatever_panics() {
    watched_in_both_modes(|fairness| {
        const KEYS: u32 = 3;
        let counts = Arc::new(KeyedMutex::<u32, usize>::with_options(crowded(fairness)));
        let made: [AtomicUsize; KEYS as usize] = Default::default();
        threads(|scope| {
            for thread in 0..8 {
                let (counts, made) = (&counts, &made);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..rounds(1_500) {
                        let key = random.below(KEYS.into()) as u32;
                        if add_one(counts, key, &mut random) {
                            made[key as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for (key, made) in made.into_iter().enumerate() {
            assert_eq!(counts.remove(&(key as u32)), Some(made.into_inner()), "key {key}");
        }
        assert!(counts.is_empty());
    });
}

/// A wait that ends just as the key is granted has the value in hand, and gives it back or uses it.
#[test]
fn a_grant_that_meets_a_cancellation_loses_no_value() {
    watched_in_both_modes(|fairness| {
        let counts = Arc::new(KeyedMutex::<u32, usize>::with_options(crowded(fairness)));
        let mut granted = 0;
        for round in 0..rounds(300) {
            let token = CancellationToken::new();
            counts.with_key(&1, |count| *count = Some(round));
            let held = counts.lock(&1);
            granted += threads(|scope| {
                let waiter = scope.spawn(|| counts.lock_with(&1, slow_to_park(&token)).map(|mut value| value.take()));
                until(|| counts.waiters(&1) == 1);
                let canceller = scope.spawn(|| token.cancel());
                KeyedMutexGuard::unlock_fair(held);
                canceller.join().unwrap();
                match waiter.join().unwrap() {
                    Ok(value) => {
                        assert_eq!(value, Some(round));
                        counts.insert(&1, round);
                        1
                    }
                    Err(error) => {
                        assert_eq!(error, AcquireError::Cancelled);
                        0
                    }
                }
            });
            assert_eq!(counts.remove(&1), Some(round));
            assert!(counts.is_empty());
        }
        assert!(granted > 0, "they never met");
    });
}

#[test]
fn every_value_is_dropped_once() {
    watched_in_both_modes(|fairness| {
        let alive = Arc::new(AtomicUsize::new(0));
        let values = Arc::new(KeyedMutex::<u32, Counted>::with_options(swept_at_once(fairness)));
        threads(|scope| {
            for thread in 0..6 {
                let (values, alive) = (&values, &alive);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..rounds(1_500) {
                        let key = random.below(4) as u32;
                        match random.below(9) {
                            0 => drop(values.insert(&key, Counted::new(alive))),
                            1 => drop(values.remove(&key)),
                            2 => drop(values.get_cloned(&key)),
                            3 => drop(values.lock(&key).take()),
                            4 => drop(values.lock_arc(&key).get_or_insert_with(|| Counted::new(alive)).clone()),
                            5 => assert!(values.retain(|_, _| key > 1) <= 4),
                            6 => assert!(values.sweep() <= 4),
                            7 => assert!(panics(|| values.with_key(&key, |value| {
                                *value = Some(Counted::new(alive));
                                quiet_panic()
                            }))),
                            _ => values.lock_keys([&key, &0])[&key] = Some(Counted::new(alive)),
                        }
                    }
                });
            }
        });
        let left = (0..4).filter(|key| values.get_cloned(key).is_some()).count();
        assert_eq!(alive.load(Ordering::Relaxed), left);
        (0..4).for_each(|key| drop(values.insert(&key, Counted::new(&alive))));
        assert_eq!(alive.load(Ordering::Relaxed), 4);
        drop(values);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_forgotten_guard_keeps_its_value_alone() {
    let alive = Arc::new(AtomicUsize::new(0));
    let values = KeyedMutex::<u32, Counted>::new();
    (0..4).for_each(|key| drop(values.insert(&key, Counted::new(&alive))));
    mem::forget(values.lock(&0));
    drop(values);
    assert_eq!(alive.load(Ordering::Relaxed), 1);
}

/// A value whose `Drop` uses the table that had it: the same key, others, and every scan.
struct CallsBack {
    table: Arc<KeyedMutex<u32, CallsBack>>,
    key: u32,
    dropped: Arc<AtomicUsize>,
}

impl Drop for CallsBack {
    fn drop(&mut self) {
        let Self { table, key, dropped } = self;
        assert!(!table.is_locked_by_current_thread(key), "it is dropped while its key is held");
        drop(table.lock(key));
        assert!(table.try_lock(&(*key + 100)).is_some());
        table.retain(|_, _| true);
        table.sweep();
        let _ = (table.keys(), table.len(), table.snapshot(), table.waiters(key));
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_that_calls_the_table_when_it_is_dropped() {
    watched_in_both_modes(|fairness| {
        for ttl in [Duration::MAX, Duration::ZERO] {
            let table = Arc::new(KeyedMutex::with_options(crowded(fairness).idle_ttl(ttl)));
            let dropped = Arc::new(AtomicUsize::new(0));
            let fill = |key| {
                let value = CallsBack { table: Arc::clone(&table), key, dropped: Arc::clone(&dropped) };
                drop(table.insert(&key, value));
            };
            (1..4).for_each(fill);
            if ttl.is_zero() {
                // A value that is dropped by the sweep sweeps too.
                until(|| {
                    table.sweep();
                    table.is_empty()
                });
            }
            drop(table.remove(&1));
            fill(1);
            fill(1);
            let mut guard = table.lock(&1);
            let value = guard.take();
            drop(guard);
            drop(value);
            fill(2);
            assert_eq!(table.retain(|_, _| false), 0);
            assert_eq!(dropped.load(Ordering::Relaxed), 6);
        }
    });
}

#[test]
fn values_that_may_move_but_not_be_shared() {
    watched(|| {
        let table = KeyedMutex::<u32, Cell<usize>>::new();
        threads(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let mut guard = table.lock(&1);
                        let cell = guard.get_or_insert_default();
                        cell.set(cell.get() + 1);
                    }
                });
            }
        });
        assert_eq!(table.remove(&1).map(Cell::into_inner), Some(4_000));
        // One that may not even move is fine on one thread.
        let table = KeyedMutex::<u32, Rc<u32>>::new();
        table.insert(&1, Rc::new(7));
        assert_eq!(table.get_cloned(&1).as_deref(), Some(&7));
    });
}

/// A value passes from hand to hand while a thread sweeps at full speed, and there is no time in which it may be idle.
#[test]
fn a_value_survives_sweeping_while_its_key_is_held_or_waited_for() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, usize>::with_options(swept_at_once(fairness)));
        let (ended, swept) = (AtomicBool::new(false), AtomicUsize::new(0));
        threads(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    swept.fetch_add(values.sweep(), Ordering::Relaxed);
                    swept.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut guard = values.lock_arc(&1);
            *guard = Some(0);
            for round in 0..rounds(60) {
                let next = scope.spawn(|| values.lock_arc(&1));
                until(|| values.waiters(&1) == 1);
                let sweeps = swept.load(Ordering::Relaxed);
                until(|| swept.load(Ordering::Relaxed) > sweeps);
                drop(guard);
                guard = next.join().unwrap();
                assert_eq!(*guard, Some(round), "the value went");
                *guard = Some(round + 1);
            }
            ended.store(true, Ordering::Relaxed);
        });
        until(|| {
            values.sweep();
            values.is_empty()
        });
    });
}

#[test]
fn a_value_younger_than_its_ttl_survives_sweeping_and_one_without_a_ttl_any() {
    for options in
        [Options::new(), Options::new().idle_ttl(Duration::MAX), Options::new().idle_ttl(Duration::from_secs(3_600))]
    {
        let values = KeyedMutex::<u32, u32>::with_options(options);
        values.insert(&1, 1);
        for _ in 0..100 {
            assert_eq!(values.sweep(), 0);
        }
        assert_eq!(values.get_cloned(&1), Some(1));
    }
}

#[test]
fn a_sweeper_takes_values_that_idle() {
    watched(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let values = Arc::new(KeyedMutex::<u32, Counted>::with_options(swept_at_once(Fairness::Eventual)));
        let held = values.lock_arc(&0);
        (1..100).for_each(|key| drop(values.insert(&key, Counted::new(&alive))));
        let sweeper = Sweeper::spawn(&values, Duration::from_millis(1));
        until(|| alive.load(Ordering::Relaxed) == 0);
        assert_eq!(values.len(), 1);
        sweeper.stop();
        drop(held);
        assert_eq!(Sweep::sweep(&*values), 1);
    });
}

#[test]
fn an_entry_stays_for_its_value_and_goes_with_it() {
    let values = KeyedMutex::<String, u32>::new();
    drop(values.lock("a"));
    assert!(values.is_empty(), "it got no value");
    assert_eq!(values.insert("a", 1), None);
    assert_eq!((values.len(), values.is_locked("a"), values.waiters("a")), (1, false, 0));
    assert_eq!(values.insert("a", 2), Some(1));
    assert_eq!(values.get_cloned("a"), Some(2));
    assert_eq!(values.len(), 1);
    *values.lock("a") = None;
    assert!(values.is_empty());
    values.insert("b", 3);
    assert_eq!(values.remove("b"), Some(3));
    assert_eq!((values.remove("b"), values.get_cloned("b")), (None, None));
    assert!(values.is_empty());
}

#[test]
fn a_waiter_that_leaves_takes_no_value_with_it() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        let mut held = values.lock_arc(&1);
        *held = Some(1);
        assert_eq!(values.lock_with(&1, Duration::from_micros(50)).unwrap_err(), AcquireError::Timeout);
        assert_eq!(values.lock_with(&1, Wait::now()).unwrap_err(), AcquireError::Busy);
        drop(held);
        assert_eq!((values.len(), values.get_cloned(&1)), (1, Some(1)));
    });
}

/// Each call on a free key, on one that another thread holds and, if it waits, on one that is released meanwhile.
#[test]
fn each_way_to_lock_a_value() {
    const LONG: Duration = Duration::from_secs(3_600);
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        let calls: [&(dyn Fn() -> Option<u32> + Sync); 18] = [
            &|| *values.lock(&1),
            &|| *values.lock_arc(&1),
            &|| values.with_key(&1, |value| *value),
            &|| *values.try_lock_for(&1, LONG)?,
            &|| *values.lock_with(&1, LONG).ok()?,
            &|| *values.lock_arc_with(&1, Wait::forever()).ok()?,
            &|| values.with_key_within(&1, &CancellationToken::new(), |value| *value).ok()?,
            &|| values.lock_keys([&1, &2])[&1],
            &|| values.lock_keys_with([&1, &2], LONG).ok()?[&1],
            // From here they do not wait.
            &|| *values.try_lock(&1)?,
            &|| *values.try_lock_arc(&1)?,
            &|| values.try_with_key(&1, |value| *value)?,
            &|| *values.try_lock_for(&1, Duration::ZERO)?,
            &|| *values.lock_with(&1, Wait::now()).ok()?,
            &|| *values.lock_arc_with(&1, Wait::forever().max_queued(0)).ok()?,
            &|| values.with_key_within(&1, Wait::now(), |value| *value).ok()?,
            &|| values.lock_keys_with([&1, &2], Duration::ZERO).ok()?[&1],
            &|| values.lock_keys_with([&1, &2], Wait::forever().max_queued(0)).ok()?[&1],
        ];
        for (place, call) in calls.into_iter().enumerate() {
            values.insert(&1, 7);
            assert_eq!(call(), Some(7), "call {place} on a free key");
            let held = values.lock(&1);
            if place < 9 {
                threads(|scope| {
                    let waiter = scope.spawn(call);
                    until(|| values.waiters(&1) == 1 || waiter.is_finished());
                    drop(held);
                    assert_eq!(waiter.join().unwrap(), Some(7), "call {place} on a key that comes free");
                });
            } else {
                assert_eq!(elsewhere(call), None, "call {place} on a key that is held");
                assert_eq!(values.waiters(&1), 0);
                drop(held);
            }
            assert_eq!((values.len(), values.remove(&1)), (1, Some(7)));
        }
        assert!(values.is_empty());
    });
}

/// Only the thread that holds a key by a guard that stays there owns it.
#[test]
fn an_arc_guard_has_no_owner_and_others_do_not_own_what_they_do_not_hold() {
    let values = Arc::new(KeyedMutex::<u32, u32>::new());
    type Call = fn(&Arc<KeyedMutex<u32, u32>>) -> ArcKeyedMutexGuard<u32, u32>;
    let calls: [Call; 3] = [
        |values| values.lock_arc(&1),
        |values| values.try_lock_arc(&1).expect("it is free"),
        |values| values.lock_arc_with(&1, Wait::now()).expect("it is free"),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        let guard = call(&values);
        assert_eq!((values.is_locked(&1), values.is_locked_by_current_thread(&1)), (true, false), "call {n}");
        // It would wait, and that is no deadlock: the guard may go to another thread.
        let errors = [
            values.lock_with(&1, Wait::now()).map(drop),
            values.lock_arc_with(&1, Wait::now()).map(drop),
            values.lock_keys_with([&1], Wait::now()).map(drop),
        ];
        assert_eq!(errors, [const { Err(AcquireError::Busy) }; 3], "call {n}");
        elsewhere(move || drop(guard));
        assert!(values.is_empty());
    }
    let guard = values.lock(&1);
    assert!(values.is_locked_by_current_thread(&1) && !values.is_locked_by_current_thread(&2));
    elsewhere(|| assert!(values.is_locked(&1) && !values.is_locked_by_current_thread(&1)));
    drop(guard);
}

#[test]
fn insert_get_and_remove_wait_for_a_key_that_is_held() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        type Call = fn(&KeyedMutex<u32, u32>) -> Option<u32>;
        let calls: [Call; 3] =
            [|values| values.insert(&1, 2), |values| values.get_cloned(&1), |values| values.remove(&1)];
        for (call, left) in calls.into_iter().zip([Some(2), Some(1), None]) {
            values.insert(&1, 0);
            let mut held = values.lock(&1);
            threads(|scope| {
                let waiter = scope.spawn(|| call(&values));
                until(|| values.waiters(&1) == 1);
                *held = Some(1);
                drop(held);
                assert_eq!(waiter.join().unwrap(), Some(1));
            });
            assert_eq!(values.get_cloned(&1), left);
        }
    });
}

#[test]
fn retain_and_keys_wait_for_nobody() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        (0..10).for_each(|key| assert!(values.insert(&key, key).is_none()));
        // With a value, by this thread and another; without one, and absent before.
        let (own, others, empty) = (values.lock(&1), elsewhere(|| values.lock_arc(&2)), values.lock(&50));
        threads(|scope| {
            let waiter = scope.spawn(|| *values.lock(&2));
            until(|| values.waiters(&2) == 1);
            let mut seen = BTreeMap::new();
            let skipped = values.retain(|key, value| {
                assert!(values.is_locked_by_current_thread(key));
                assert!(values.try_lock(&(key + 200)).is_some());
                seen.insert(*key, *value);
                *value += 100;
                key % 2 == 0
            });
            assert_eq!(skipped, 3);
            assert_eq!(seen, [0, 3, 4, 5, 6, 7, 8, 9].map(|key| (key, key)).into());
            let mut keys = values.keys();
            keys.sort_unstable();
            assert_eq!(keys, [0, 1, 2, 4, 6, 8, 50]);
            drop(others);
            assert_eq!(waiter.join().unwrap(), Some(2));
        });
        assert_eq!((*own, *empty), (Some(1), None));
        drop((own, empty));
        assert_eq!(values.get_cloned(&4), Some(104));
        assert_eq!(values.retain(|_, _| false), 0);
        assert!(values.is_empty() && values.keys().is_empty());
    });
}

/// While threads add to counters, others retain all of them: no addition is lost, and none is seen half done.
#[test]
fn retain_beside_lockers_loses_nothing() {
    watched_in_both_modes(|fairness| {
        let counts = Arc::new(KeyedMutex::<u32, (usize, usize)>::with_options(crowded(fairness)));
        let ended = AtomicBool::new(false);
        threads(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        counts.retain(|_, (one, other)| {
                            assert_eq!(one, other, "seen half done");
                            *one += 1;
                            *one -= 1;
                            true
                        });
                        assert!(counts.keys().len() <= 3);
                    }
                });
            }
            let adders: Vec<_> = (0..3)
                .map(|key| {
                    let counts = &counts;
                    scope.spawn(move || {
                        for _ in 0..rounds(3_000) {
                            counts.with_key(&key, |count| {
                                let (one, other) = count.get_or_insert_default();
                                *one += 1;
                                crate::support::spin(10);
                                *other += 1;
                            });
                        }
                    })
                })
                .collect();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        assert!((0..3).all(|key| counts.remove(&key) == Some((rounds(3_000), rounds(3_000)))));
    });
}

#[test]
fn a_closure_of_retain_that_panics_leaves_what_it_has_not_refused() {
    let alive = Arc::new(AtomicUsize::new(0));
    let values = KeyedMutex::<u32, Counted>::new();
    (0..10).for_each(|key| drop(values.insert(&key, Counted::new(&alive))));
    let mut seen = 0;
    assert!(panics(|| {
        values.retain(|_, _| {
            seen += 1;
            if seen == 5 { quiet_panic() } else { false }
        });
    }));
    assert_eq!((values.len(), alive.load(Ordering::Relaxed)), (6, 6));
    assert_eq!(values.retain(|_, _| true), 0, "none is held");
    assert!(panic_message(|| values.retain(|key, _| values.lock(key).is_some())).contains("already holds the key"));
    assert_eq!(values.len(), 6);
}

/// Whatever of a key panics: no value is lost, and no key stays held.
#[test]
fn keys_that_panic_lose_no_value() {
    let fuse = Arc::new(Fuse::default());
    let keys: Vec<Hostile> = (0..3).map(|id| Hostile::new(id, &fuse)).collect();
    let values = KeyedMutex::<Hostile, usize>::with_options(Options::new().shards(2));
    for call in Call::ALL {
        for nth in 1..=4 {
            for (key, hostile) in keys.iter().enumerate() {
                values.insert(hostile, key);
            }
            fuse.arm(call, nth);
            let calls: [&dyn Fn(); 6] = [
                &|| drop(values.lock(&keys[0])),
                &|| drop(values.lock_keys(&keys)),
                &|| assert!(values.get_cloned(&keys[1]).is_some()),
                &|| drop(values.keys()),
                &|| assert!(values.retain(|_, _| true) <= 3),
                &|| drop(values.lock(&keys[2])),
            ];
            for call in calls {
                panics(call);
            }
            fuse.disarm();
            for (key, hostile) in keys.iter().enumerate() {
                assert_eq!(values.try_lock(hostile).map(|mut value| value.take()), Some(Some(key)), "{call:?} {nth}");
            }
            assert!(values.is_empty());
        }
    }
}

#[test]
fn keys_are_owned_only_for_new_entries() {
    let counts = Arc::new(Counts::default());
    let (one, two) = (Counting::new(1, &counts), Counting::new(2, &counts));
    let values = KeyedMutex::<Counting, u32>::new();
    assert_eq!((values.get_cloned(&one), values.remove(&one)), (None, None));
    assert_eq!(counts.clones(), 0);
    values.insert(&one, 1);
    assert_eq!(counts.clones(), 1);
    assert_eq!(values.get_cloned(&one), Some(1));
    *values.lock(&one) = Some(2);
    drop(values.lock_keys([&one]));
    assert_eq!(counts.clones(), 1);
    assert_eq!(values.retain(|_, _| true), 0);
    assert_eq!(counts.clones(), 2, "retain shows a clone");
    drop(values.lock(&two));
    assert_eq!(counts.clones(), 3);
}

#[test]
fn re_entry_is_found() {
    let values = Arc::new(KeyedMutex::<u32, u32>::with_options(Options::new().name("balances")));
    values.insert(&1, 1);
    let guard = values.lock(&1);
    assert!(values.is_locked_by_current_thread(&1));
    assert!(values.try_lock(&1).is_none() && values.try_lock_arc(&1).is_none());
    assert!(values.try_lock_for(&1, Duration::MAX).is_none());
    let errors = [
        values.lock_with(&1, Wait::forever()).map(drop),
        values.lock_arc_with(&1, Wait::forever()).map(drop),
        values.lock_keys_with([&1], Wait::forever()).map(drop),
        values.with_key_within(&1, Wait::forever(), |_| ()),
    ];
    for (n, outcome) in errors.into_iter().enumerate() {
        let Err(AcquireError::WouldDeadlock(deadlock)) = outcome else { panic!("call {n}: {outcome:?}") };
        assert!(deadlock.location().file().ends_with("tests/it/mutex.rs"), "call {n}: {deadlock}");
    }
    let calls: [&dyn Fn(); 6] = [
        &|| drop(values.lock(&1)),
        &|| drop(values.lock_arc(&1)),
        &|| drop(values.lock_keys([&2, &1])),
        &|| assert!(values.get_cloned(&1).is_some()),
        &|| assert!(values.insert(&1, 2).is_some()),
        &|| assert!(values.remove(&1).is_some()),
    ];
    for call in calls {
        let message = panic_message(call);
        assert!(message.contains("KeyedMutex \"balances\", key type u32"), "{message}");
        assert!(message.contains("tests/it/mutex.rs"), "it names where the call was made: {message}");
    }
    drop(guard);
    assert_eq!(values.remove(&1), Some(1));
    assert!(values.is_empty());
}

#[test]
fn it_cannot_be_reentrant() {
    let message = panic_message(|| KeyedMutex::<u32, u32>::with_options(Options::new().reentrant(true)));
    assert!(message.contains("KeyedMutex cannot be reentrant"), "{message}");
}

#[test]
fn what_is_printed() {
    let values = Arc::new(KeyedMutex::<u32, u32>::with_options(Options::new().name("balances")));
    assert_eq!(format!("{values:?}"), "KeyedMutex { name: \"balances\", fairness: Eventual, len: 0, .. }");
    values.insert(&1, 7);
    assert_eq!(format!("{:?} {:?}", values.lock(&1), values.lock(&2)), "Some(7) None");
    assert_eq!(format!("{:?}", values.lock_arc(&1)), "Some(7)");
    assert_eq!(format!("{:?}", values.lock_keys([&1, &2])), "KeyedMutexKeysGuard { keys: 2, .. }");
    let status = &values.snapshot()[0];
    assert_eq!((status.key, status.held, status.limit), (1, 0, 1));
    assert!(KeyedMutex::<u32, u32>::default().is_empty());
}

#[test]
fn memory_comes_back_after_a_spike() {
    let values = KeyedMutex::<u32, u32>::new();
    (0..10_000).for_each(|key| assert!(values.insert(&key, key).is_none()));
    assert_eq!(values.retain(|key, _| key % 1_000 == 0), 0);
    values.shrink_to_fit();
    assert!((0..10).all(|key| values.get_cloned(&(key * 1_000)) == Some(key * 1_000)));
    assert_eq!(values.len(), 10);
}

/// By the end of `unlock` the waiter has the key and its value, whether it runs yet or not.
#[test]
fn a_fair_unlock_hands_the_value_over() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        values.insert(&1, 7);
        let hands_over = |unlock: &mut dyn FnMut()| {
            let (may_go, token) = (AtomicBool::new(false), CancellationToken::new());
            threads(|scope| {
                let waiter = scope.spawn(|| {
                    let value = values.lock_with(&1, slow_to_park(&token)).expect("nobody cancels it");
                    until(|| may_go.load(Ordering::Acquire));
                    *value
                });
                crate::support::soon(|| values.waiters(&1) == 1);
                unlock();
                let seen = (values.waiters(&1), values.is_locked(&1), values.try_lock(&1).is_some());
                may_go.store(true, Ordering::Release);
                assert_eq!(waiter.join().unwrap(), Some(7));
                assert_eq!(seen, (0, true, false));
            });
        };
        // A waiter that is only rung may be quick enough to look the same, but not every time.
        for _ in 0..20 {
            let mut guard = Some(values.lock(&1));
            hands_over(&mut || guard.take().into_iter().for_each(KeyedMutexGuard::unlock_fair));
            let mut guard = Some(values.lock_arc(&1));
            hands_over(&mut || guard.take().into_iter().for_each(ArcKeyedMutexGuard::unlock_fair));
        }
    });
}

/// A key whose `Drop` uses the table that it is a key of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Calling {
    id: u32,
    /// Which of the tables.
    mode: usize,
}

static TABLES_OF_CALLING: [OnceLock<KeyedMutex<Calling, u32>>; 2] = [OnceLock::new(), OnceLock::new()];

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(table) = TABLES_OF_CALLING[self.mode].get() {
            assert!(table.len() <= 3);
            assert!(!table.is_locked_by_current_thread(self) || self.id == 0);
        }
    }
}

#[test]
fn a_key_that_calls_the_table_when_it_is_dropped() {
    watched_in_both_modes(|fairness| {
        let mode = usize::from(fairness == Fairness::Fifo);
        let values = TABLES_OF_CALLING[mode].get_or_init(|| KeyedMutex::with_options(swept_at_once(fairness)));
        let keys: Vec<Calling> = (0..3).map(|id| Calling { id, mode }).collect();
        keys.iter().for_each(|key| assert!(values.insert(key, 1).is_none()));
        let held = values.lock(&keys[0]);
        elsewhere(|| assert!(values.try_lock(&keys[0]).is_none()));
        assert_eq!(values.retain(|key, _| key.id == 1), 1);
        drop(values.lock_keys(&keys[1..]));
        drop(values.keys());
        drop(held);
        until(|| {
            values.sweep();
            values.is_empty()
        });
    });
}

/// Both the key and the value panic when they are dropped: one panic comes out, nothing stays held, and no more is lost.
#[test]
fn keys_and_values_that_panic_when_they_are_dropped() {
    #[derive(PartialEq, Eq, Hash)]
    struct Loud(u32, bool);
    impl Clone for Loud {
        fn clone(&self) -> Self {
            Self(self.0, true)
        }
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            if self.1 {
                quiet_panic();
            }
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    struct LoudValue(Arc<AtomicUsize>);
    impl Drop for LoudValue {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            quiet_panic();
        }
    }
    let values = KeyedMutex::<Loud, LoudValue>::with_options(swept_at_once(Fairness::Eventual));
    let keys: Vec<Loud> = (0..3).map(|id| Loud(id, false)).collect();
    let fill = |values: &KeyedMutex<Loud, LoudValue>| {
        keys.iter().for_each(|key| assert!(values.insert(key, LoudValue(Arc::clone(&dropped))).is_none()));
    };
    fill(&values);
    assert!(panics(|| assert_eq!(values.sweep(), 0)));
    assert_eq!((values.len(), dropped.swap(0, Ordering::Relaxed)), (0, 3), "all that go have been dropped");
    let values = KeyedMutex::<Loud, LoudValue>::new();
    fill(&values);
    for left in [2, 1, 0] {
        assert!(panics(|| assert_eq!(values.retain(|_, _| false), 0)));
        assert_eq!((values.len(), dropped.load(Ordering::Relaxed)), (left, 3 - left));
    }
}
