//! `lock_keys`: several keys at once.

use std::cell::RefCell;
use std::cmp::Ordering as Order;
use std::hash::{Hash, Hasher};
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perkey::{AcquireError, CancellationToken, Fairness, KeyedLock, KeyedMutex, Options, Wait};

use crate::keys::{Call, Counting, Counts, Fuse, Hostile};
use crate::support::{
    Oracle, Random, crowded, elsewhere, panic_message, panics, quiet_panic, rounds, threads, until, watched,
    watched_in_both_modes,
};

/// Eight threads, each naming two keys in its own order, and some twice.
fn opposite_orders(fairness: Fairness, rounds: usize) {
    const LISTS: [&[u32]; 4] = [&[1, 2], &[2, 1], &[1, 2, 1], &[2, 2, 1, 1, 2]];
    let locks = KeyedLock::<u32>::with_options(crowded(fairness));
    let oracles = [Oracle::exclusive(), Oracle::exclusive()];
    threads(|scope| {
        for thread in 0..8 {
            let (locks, oracles) = (&locks, &oracles);
            scope.spawn(move || {
                for round in 0..rounds {
                    let visit = || oracles[0].visit(1, || oracles[1].visit(1, || ()));
                    let keys = LISTS[(thread + round / 100) % LISTS.len()];
                    if round % 1_000 == 999 {
                        assert!(panics(|| locks.with_keys(keys, || {
                            visit();
                            quiet_panic()
                        })));
                    } else {
                        locks.with_keys(keys, visit);
                    }
                }
            });
        }
    });
    assert!(oracles.iter().all(|oracle| oracle.check() == 8 * rounds));
    assert!(locks.is_empty());
}

#[test]
fn opposite_orders_with_duplicates() {
    watched(|| opposite_orders(Fairness::Eventual, rounds(100_000)));
}

#[test]
fn opposite_orders_with_duplicates_in_order_of_arrival() {
    watched(|| opposite_orders(Fairness::Fifo, rounds(12_500)));
}

/// Five threads that take random keys of six, as philosophers with more forks.
#[test]
fn threads_that_take_random_keys_all_get_on() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracles: [Oracle; 6] = std::array::from_fn(|_| Oracle::exclusive());
        threads(|scope| {
            for thread in 0..5 {
                let (locks, oracles) = (&locks, &oracles);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..rounds(2_000) {
                        let keys: Vec<u32> = (0..random.below(8)).map(|_| random.below(6) as u32).collect();
                        let _guard = locks.lock_keys(&keys);
                        for (key, oracle) in oracles.iter().enumerate() {
                            if keys.contains(&(key as u32)) {
                                oracle.visit(1, || ());
                            }
                        }
                    }
                });
            }
        });
        oracles.iter().for_each(|oracle| assert!(oracle.check() > 0));
        assert!(locks.is_empty());
    });
}

#[test]
fn any_number_of_keys_each_once() {
    let locks = KeyedLock::<u32>::new();
    assert_eq!(format!("{:?}", locks.lock_keys(iter::empty::<&u32>())), "KeyedLockKeysGuard { keys: 0, .. }");
    for count in (0..10).chain([1_000]) {
        let keys: Vec<u32> = (0..count).rev().chain(0..count).collect();
        let guard = locks.lock_keys(&keys);
        assert_eq!(locks.len(), count as usize);
        assert_eq!(format!("{guard:?}"), format!("KeyedLockKeysGuard {{ keys: {count}, .. }}"));
        assert!((0..count).all(|key| locks.is_locked_by_current_thread(&key)));
        drop(guard);
        assert!(locks.is_empty());
    }
}

#[test]
fn keys_are_named_in_their_borrowed_form() {
    let locks = KeyedLock::<String>::new();
    let names: &[&str] = &["b", "a", "b"];
    drop(locks.lock_keys(names.iter().copied()));
    drop(locks.lock_keys(["b", "a"]));
    let owned = vec!["b".to_owned(), "a".to_owned()];
    drop(locks.lock_keys(&owned));
    drop(locks.lock_keys(owned.iter().map(String::as_str).filter(|name| *name != "b")));
    assert_eq!(locks.with_keys(["x"], || locks.len()), 1);
}

#[test]
fn a_key_that_is_present_is_not_cloned_and_one_that_is_absent_once() {
    let locks = KeyedLock::<Counting>::new();
    let counts = Arc::new(Counts::default());
    let keys: Vec<Counting> = [3, 1, 2, 1, 3].iter().map(|id| Counting::new(*id, &counts)).collect();
    drop(locks.lock_keys(&keys));
    assert_eq!((counts.clones(), counts.hashes()), (3, 3));
    let held = Arc::new(KeyedLock::<Counting>::with_options(Options::new().idle_ttl(Duration::MAX)));
    drop(held.lock_keys(&keys));
    let before = counts.clones();
    drop(held.lock_keys(&keys));
    assert_eq!(counts.clones(), before);
}

impl PartialOrd for Counting {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Counting {
    fn cmp(&self, other: &Self) -> Order {
        self.id().cmp(&other.id())
    }
}

impl PartialOrd for Hostile {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Hostile {
    fn cmp(&self, other: &Self) -> Order {
        self.id().cmp(&other.id())
    }
}

/// Notes the order in which keys of a table are dropped.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Noted(u32);

thread_local! {
    static DROPPED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl Clone for Noted {
    fn clone(&self) -> Self {
        Self(self.0 + 100)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if self.0 >= 100 {
            DROPPED.with_borrow_mut(|dropped| dropped.push(self.0 - 100));
        }
    }
}

#[test]
fn keys_are_released_in_reverse_order() {
    for count in [2, 4, 5, 9] {
        // Their clones compare unequal, so no key may be asked for twice.
        let keys: Vec<Noted> = (0..count).map(Noted).collect();
        let locks = KeyedLock::<Noted>::new();
        let guard = locks.lock_keys(keys.iter().rev());
        assert_eq!(DROPPED.take(), [0_u32; 0]);
        drop(guard);
        assert_eq!(DROPPED.take(), (0..count).rev().collect::<Vec<_>>());
    }
}

/// Every way to fail, with the last of three keys taken by another.
#[test]
fn a_call_that_fails_gives_everything_back() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let taken = locks.lock_arc(&3);
        let keys = [2, 3, 1];
        let gone = || assert_eq!((locks.len(), locks.waiters(&3)), (1, 0), "something is left behind");
        let fails = |wait: Wait, error: AcquireError| {
            assert_eq!(locks.lock_keys_with(&keys, wait).unwrap_err(), error);
            gone();
        };
        fails(Wait::now(), AcquireError::Busy);
        fails(Wait::until(Instant::now()), AcquireError::Busy);
        fails(Wait::at_most(Duration::from_micros(50)), AcquireError::Timeout);
        fails(Wait::forever().max_queued(0), AcquireError::QueueFull);
        let token = CancellationToken::new();
        threads(|scope| {
            let waiter = scope.spawn(|| locks.lock_keys_with(&keys, &token).map(drop));
            until(|| locks.waiters(&3) == 1);
            assert!(locks.is_locked(&1) && locks.is_locked(&2));
            token.cancel();
            assert_eq!(waiter.join().unwrap(), Err(AcquireError::Cancelled));
        });
        gone();
        fails(Wait::from(&token), AcquireError::Cancelled);
        assert_eq!(
            locks.lock_keys_with(iter::empty::<&u32>(), &token).unwrap_err(),
            AcquireError::Cancelled,
            "an already cancelled wait is cancelled, even for nothing"
        );
        drop(taken);
        assert!(locks.is_empty());
    });
}

/// The time is up, or the wait is cancelled, just as one key is granted and before the next is asked for.
#[test]
fn failures_that_meet_grants_leave_nothing_behind() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let oracles: [Oracle; 3] = std::array::from_fn(|_| Oracle::exclusive());
        let granted = AtomicUsize::new(0);
        threads(|scope| {
            for thread in 0..6 {
                let (locks, oracles, granted) = (&locks, &oracles, &granted);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..rounds(3_000) {
                        let keys = [random.below(3) as u32, random.below(3) as u32];
                        let wait = Wait::at_most(Duration::from_nanos(random.below(20_000)));
                        let Ok(_guard) = locks.lock_keys_with(&keys, wait) else { continue };
                        granted.fetch_add(1, Ordering::Relaxed);
                        oracles[keys[0] as usize].visit(1, || crate::support::work(&mut random));
                        if keys[0] != keys[1] {
                            oracles[keys[1] as usize].visit(1, || ());
                        }
                    }
                });
            }
        });
        oracles.iter().for_each(|oracle| assert!(oracle.check() > 0));
        assert!(granted.into_inner() > 0);
        assert!(locks.is_empty());
    });
}

fn would_deadlock(outcome: Result<impl Sized, AcquireError>) {
    let Err(AcquireError::WouldDeadlock(deadlock)) = outcome else { panic!("it would deadlock") };
    assert!(deadlock.location().file().ends_with("several.rs"), "{deadlock}");
}

#[test]
fn a_key_of_ones_own_is_found_before_anything_is_waited_for() {
    watched_in_both_modes(|fairness| {
        for reentrant in [false, true] {
            let options = crowded(fairness).reentrant(reentrant).name("accounts");
            let locks = Arc::new(KeyedLock::<u32>::with_options(options));
            let own = locks.lock(&2);
            let others = elsewhere(|| locks.lock_arc(&1));
            // 1 would be waited for, 3 is free.
            for wait in [Wait::forever(), Wait::at_most(Duration::MAX), Wait::now()] {
                would_deadlock(locks.lock_keys_with([&3, &2, &1], wait));
            }
            drop(others);
            would_deadlock(locks.lock_keys_with([&3, &2, &1], Wait::forever()));
            would_deadlock(locks.lock_keys_with([&2], Wait::forever()));
            let message = panic_message(|| locks.lock_keys([&1, &2]));
            assert!(message.contains("this thread already holds the key") && message.contains("accounts"), "{message}");
            assert_eq!((locks.len(), locks.is_locked(&2)), (1, true), "nothing was taken");
            drop(own);

            let several = locks.lock_keys([&1, &2]);
            would_deadlock(locks.lock_keys_with([&2, &3], Wait::forever()));
            assert_eq!(locks.try_lock(&2).is_some(), reentrant);
            assert!(locks.try_lock_arc(&2).is_none());
            drop(several);
            assert!(locks.is_empty());
        }
    });
}

/// A key that was locked again is held until the last of its guards is gone, the one of several keys among them.
#[test]
fn a_reentrant_lock_may_come_on_top_of_several_keys() {
    let locks = KeyedLock::<u32>::with_options(Options::new().reentrant(true));
    let several = locks.lock_keys([&1, &2]);
    let again = locks.lock(&2);
    drop(several);
    assert!(!locks.is_locked(&1) && locks.is_locked(&2));
    drop(again);
    assert!(locks.is_empty());
}

/// The key's own code, the iterator, the closure: wherever it panics, the rest is given back.
#[test]
fn a_panic_in_the_middle_gives_everything_back() {
    let fuse = Arc::new(Fuse::default());
    let keys: Vec<Hostile> = [4, 2, 3, 1, 2, 5].iter().map(|id| Hostile::new(*id, &fuse)).collect();
    for idle_ttl in [None, Some(Duration::ZERO)] {
        let mut options = Options::new().shards(2);
        if let Some(ttl) = idle_ttl {
            options = options.idle_ttl(ttl);
        }
        let locks = KeyedLock::<Hostile>::with_options(options);
        let all_free = |what: &str| {
            fuse.disarm();
            for key in &keys {
                assert!(locks.try_lock(key).is_some(), "{what}");
            }
            locks.sweep();
            assert!(locks.is_empty(), "{what}");
        };
        let mut panicked = 0;
        for call in Call::ALL {
            for nth in 1..=12 {
                fuse.arm(call, nth);
                panicked += usize::from(panics(|| drop(locks.lock_keys(&keys))));
                all_free(&format!("{call:?} {nth}"));
            }
        }
        assert!(panicked >= 10, "{panicked} panics in all");
        for nth in 0..keys.len() {
            let poisoned = keys.iter().enumerate().map(|(n, key)| if n == nth { quiet_panic() } else { key });
            assert!(panics(|| drop(locks.lock_keys(poisoned))));
            all_free("the iterator");
        }
        assert!(panics(|| locks.with_keys(&keys, || quiet_panic())));
        all_free("the closure");
    }
}

/// Two keys' `Drop`s panic at one release; the others are released, and the first panic comes out.
#[test]
fn keys_that_panic_when_they_are_dropped_keep_no_other_locked() {
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Loud(u32, bool);
    static DROPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    impl Clone for Loud {
        fn clone(&self) -> Self {
            Self(self.0, true)
        }
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            if self.1 {
                DROPS.lock().unwrap().push(self.0);
                std::panic::resume_unwind(Box::new(self.0));
            }
        }
    }
    let keys: Vec<Loud> = (1..=6).map(|id| Loud(id, false)).collect();
    let locks = KeyedLock::<Loud>::new();
    let guard = locks.lock_keys(&keys);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard))).unwrap_err();
    assert_eq!(panic.downcast_ref::<u32>(), Some(&6), "the first panic");
    assert_eq!(DROPS.lock().unwrap()[..], [6, 5, 4, 3, 2, 1]);
    assert!(locks.is_empty());
}

/// An order that contradicts itself may spoil the search for duplicates: then it is an error, never a hang.
#[test]
fn an_order_that_lies_is_an_error_at_worst() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Liar(u32);
    impl PartialOrd for Liar {
        fn partial_cmp(&self, other: &Self) -> Option<Order> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Liar {
        fn cmp(&self, _: &Self) -> Order {
            Order::Less
        }
    }
    watched(|| {
        let keys: Vec<Liar> = [1, 2, 1, 3, 2, 1].map(Liar).into();
        let locks = KeyedLock::<Liar>::new();
        if let Err(error) = locks.lock_keys_with(&keys, Wait::forever()) {
            assert!(matches!(error, AcquireError::WouldDeadlock(_)));
        }
        assert!(locks.is_empty());
    });
}

#[test]
fn values_are_reached_by_their_keys() {
    let values = KeyedMutex::<String, u32>::new();
    values.insert("b", 2);
    for names in [&["c", "b", "a", "b"][..], &["f", "b", "a", "c", "e", "d"]] {
        let mut guard = values.lock_keys(names.iter().copied());
        assert_eq!((guard.get("a"), guard.get("b"), guard.get("x")), (Some(&None), Some(&Some(2)), None));
        assert_eq!((guard["a"], guard["b"]), (None, Some(2)));
        guard["c"] = Some(3);
        *guard.get_mut("a").unwrap() = Some(1);
        assert!(guard.get_mut("x").is_none());
        let [b, x, a] = guard.get_disjoint_mut(["b", "x", "a"]);
        assert!(x.is_none());
        std::mem::swap(a.unwrap(), b.unwrap());
        drop(guard);
        let cloned = ["a", "b", "c", "x"].map(|name| values.get_cloned(name));
        assert_eq!(cloned, [Some(2), Some(1), Some(3), None]);
        assert_eq!(values.len(), 3);
        for (name, value) in [("a", None), ("b", Some(2)), ("c", None)] {
            *values.lock(name) = value;
        }
    }
}

#[test]
fn values_of_other_keys_are_out_of_reach() {
    let values = KeyedMutex::<u32, u32>::new();
    values.insert(&3, 3);
    elsewhere(|| std::mem::forget(values.lock(&4)));
    let mut guard = values.lock_keys([&1, &2]);
    // There, but not among those held; and held, but not by this guard.
    assert_eq!((guard.get(&3), guard.get(&4)), (None, None));
    let own = values.lock(&5);
    assert!(guard.get_mut(&5).is_none());
    assert!(panic_message(|| guard[&3]).contains("not one of those that this guard holds"));
    assert!(panic_message(|| guard[&3] = None).contains("not one of those that this guard holds"));
    assert!(panic_message(|| guard.get_disjoint_mut([&1, &1]).is_empty()).contains("asked for twice"));
    drop(own);
}

/// A key that is named twice and not held is just not held, whether others have it in the table or not.
#[test]
fn a_key_that_is_named_twice_and_not_held_is_no_fault() {
    let values = KeyedMutex::<u32, u32>::new();
    let mut guard = values.lock_keys([&1, &2]);
    assert_eq!(guard.get_disjoint_mut([&3, &3]), [None, None]);
    elsewhere(|| assert!(values.insert(&3, 3).is_none()));
    assert_eq!(guard.get_disjoint_mut([&3, &1, &3]), [None, Some(&mut None), None]);
}

#[test]
fn values_of_many_keys_are_reached_by_their_keys() {
    let values = KeyedMutex::<u32, u32>::new();
    let keys: Vec<u32> = (0..20_000).rev().collect();
    (0..100).for_each(|key| assert!(values.insert(&(key * 7), key * 7).is_none()));
    let mut guard = values.lock_keys(&keys);
    for key in &keys {
        let value = guard.get_mut(key).expect("it is held");
        assert_eq!(*value, (key % 7 == 0 && *key < 700).then_some(*key));
        *value = Some(*key);
    }
    assert!(guard.get(&20_000).is_none());
    let [last, none, first] = guard.get_disjoint_mut([&19_999, &20_000, &0]);
    assert_eq!((last, none, first), (Some(&mut Some(19_999)), None, Some(&mut Some(0))));
    drop(guard);
    assert!(keys.iter().all(|key| values.get_cloned(key) == Some(*key)));
}

/// The iterator takes longer than the call may: the time was not up at the call, and is up now.
#[test]
fn the_time_runs_from_the_call() {
    let locks = Arc::new(KeyedLock::<u32>::new());
    let _taken = locks.lock_arc(&2);
    for patient in [Duration::from_millis(1), Duration::from_millis(5)] {
        let limit = Instant::now() + patient;
        let slow = || [1, 2].iter().inspect(move |_| until(|| Instant::now() > limit));
        assert_eq!(locks.lock_keys_with(slow(), Wait::until(limit)).unwrap_err(), AcquireError::Timeout);
    }
    let hour = Instant::now() + Duration::from_secs(3_600);
    // One that is over at the call allows one attempt.
    assert_eq!(locks.lock_keys_with([&1, &2], Wait::until(Instant::now())).unwrap_err(), AcquireError::Busy);
    assert!(locks.lock_keys_with([&1, &3], Wait::until(hour)).is_ok());
    assert_eq!(locks.len(), 1);
}

/// What was taken before one's own key is given back before the call panics.
#[test]
fn a_panic_of_a_key_that_is_given_back_does_not_meet_another() {
    let fuse = Arc::new(Fuse::default());
    let [first, own] = [1, 2].map(|id| Hostile::new(id, &fuse));
    let (locks, values) = (KeyedLock::<Hostile>::new(), KeyedMutex::<Hostile, u32>::new());
    let _own = (locks.lock(&own), values.lock(&own));
    let calls: [&dyn Fn(); 2] = [&|| drop(locks.lock_keys([&first, &own])), &|| drop(values.lock_keys([&first, &own]))];
    for call in calls {
        fuse.arm(Call::Drop, 1);
        assert!(panics(call));
        assert!(!locks.is_locked(&first) && !values.is_locked(&first));
    }
}

/// The same is true of `KeyedMutex`, whose values stay.
#[test]
fn a_call_for_values_that_fails_gives_everything_back() {
    watched_in_both_modes(|fairness| {
        let values = Arc::new(KeyedMutex::<u32, u32>::with_options(crowded(fairness)));
        (1..4).for_each(|key| assert!(values.insert(&key, key).is_none()));
        let taken = values.lock_arc(&3);
        let token = CancellationToken::new();
        token.cancel();
        for (wait, error) in [
            (Wait::now(), AcquireError::Busy),
            (Wait::at_most(Duration::from_micros(50)), AcquireError::Timeout),
            (Wait::forever().max_queued(0), AcquireError::QueueFull),
            (Wait::from(&token), AcquireError::Cancelled),
        ] {
            assert_eq!(values.lock_keys_with([&2, &3, &1], wait).unwrap_err(), error);
            assert_eq!([1, 2, 3].map(|key| values.is_locked(&key)), [false, false, true]);
            assert_eq!(values.waiters(&3), 0);
        }
        drop(taken);
        assert_eq!([1, 2, 3].map(|key| values.remove(&key)), [Some(1), Some(2), Some(3)]);
        assert!(values.is_empty());
    });
}

/// A key that is hashed for the second time comes free just before: a call without time has had its attempt by then.
#[test]
fn several_keys_without_time_are_one_attempt() {
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Hooked(u32);
    type Hook = (usize, Option<Box<dyn FnOnce()>>);
    thread_local! {
        static HOOK: RefCell<Hook> = const { RefCell::new((0, None)) };
    }
    impl Hash for Hooked {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
            let hook = HOOK.with_borrow_mut(|(left, hook)| {
                *left = left.saturating_sub(1);
                if *left == 0 { hook.take() } else { None }
            });
            hook.into_iter().for_each(|hook| hook());
        }
    }
    let (locks, values) = (Arc::new(KeyedLock::<Hooked>::new()), Arc::new(KeyedMutex::<Hooked, u32>::new()));
    let key = Hooked(1);
    for wait in [Wait::now(), Wait::at_most(Duration::ZERO), Wait::until(Instant::now())] {
        let taken = (locks.lock_arc(&key), values.lock_arc(&key));
        HOOK.set((2, Some(Box::new(move || drop(taken)))));
        assert_eq!(locks.lock_keys_with([&key], &wait).unwrap_err(), AcquireError::Busy);
        assert!(locks.is_empty() && values.is_empty(), "they came free");
        let taken = (locks.lock_arc(&key), values.lock_arc(&key));
        HOOK.set((2, Some(Box::new(move || drop(taken)))));
        assert_eq!(values.lock_keys_with([&key], &wait).unwrap_err(), AcquireError::Busy);
        assert!(locks.is_empty() && values.is_empty(), "they came free");
    }
}

/// The caller's iterator, however many keys it gives: nothing is taken or waited for while it lives.
#[test]
fn the_iterator_is_gone_before_a_key_is_taken() {
    /// Ends for good, as most iterators do: `Fuse` keeps such a one.
    struct Keys<'a, G>(std::slice::Iter<'a, u32>, G);
    impl<'a, G> Iterator for Keys<'a, G> {
        type Item = &'a u32;
        fn next(&mut self) -> Option<&'a u32> {
            self.0.next()
        }
    }
    impl<G> iter::FusedIterator for Keys<'_, G> {}
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let values = KeyedMutex::<u32, u32>::new();
        for count in 0..6 {
            let keys: Vec<u32> = (1..=count).rev().collect();
            // It owns a guard of each.
            let owning = || {
                let guards: Vec<_> = keys.iter().map(|key| (locks.lock(key), values.lock(key))).collect();
                keys.iter().inspect(move |_| assert_eq!(guards.len(), count as usize))
            };
            drop(locks.lock_keys(owning()));
            drop(values.lock_keys(owning()));
            assert!(locks.lock_keys_with(owning(), Wait::now()).is_ok(), "{count} keys");
            assert!(values.lock_keys_with(owning(), Wait::now()).is_ok(), "{count} keys");
            assert_eq!(locks.with_keys(owning(), || locks.len()), count as usize);
            let owning = || Keys(keys.iter(), keys.iter().map(|key| locks.lock(key)).collect::<Vec<_>>());
            assert!(locks.lock_keys_with(owning(), Wait::forever()).is_ok(), "{count} keys");
            assert!(locks.is_empty() && values.is_empty());
        }
    });
}
