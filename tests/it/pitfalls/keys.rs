//! Keys that panic, that are cloned too often, that all hash alike, that are only looked at.

use std::hash::{Hash, Hasher};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perkey::{CancellationToken, KeyedLock, KeyedSemaphore, Wait};

use crate::keys::{Alike, Call, Counting, Counts, Hostile};
use crate::support::{
    Oracle, Random, crowded, elsewhere, panics, rounds, spin, threads, until, watched_in_both_modes, work,
};

/// The shards grow with the keys; were `Hash` called in that, it would be called more than once for a call.
#[test]
fn hash_runs_when_a_shard_grows() {
    const KEYS: usize = 2_000;
    watched_in_both_modes(|fairness| {
        let counts = Arc::new(Counts::default());
        let locks = KeyedLock::<Counting>::with_options(crowded(fairness));
        let keys: Vec<_> = (0..KEYS as u32).map(|id| Counting::new(id, &counts)).collect();
        let guards: Vec<_> = keys.iter().map(|key| locks.lock(key)).collect();
        assert_eq!(counts.hashes(), KEYS);
        assert_eq!((locks.len(), locks.snapshot().len()), (KEYS, KEYS));
        drop(guards);
        // Nor does a release hash.
        assert_eq!(counts.hashes(), KEYS);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_panic_of_hash_loses_other_entries() {
    each_call_panics_in_turn(Call::Hash);
}

#[test]
fn a_panic_of_eq_poisons_a_shard() {
    each_call_panics_in_turn(Call::Eq);
}

#[test]
fn a_panic_of_clone_poisons_a_shard() {
    each_call_panics_in_turn(Call::Clone);
}

#[test]
fn a_panic_of_drop_poisons_a_shard() {
    each_call_panics_in_turn(Call::Drop);
}

/// Runs the same calls again and again, and has the first, the second, ... call of that method panic.
fn each_call_panics_in_turn(call: Call) {
    const OTHERS: u32 = 40;
    watched_in_both_modes(move |fairness| {
        let fuse = Arc::new(crate::keys::Fuse::default());
        let locks = KeyedLock::<Hostile>::with_options(crowded(fairness));
        let permits = KeyedSemaphore::<Hostile, 2>::with_options(crowded(fairness));
        let others: Vec<_> = (1..=OTHERS).map(|id| Hostile::new(id, &fuse)).collect();
        let key = Hostile::new(0, &fuse);
        let held: Vec<_> = others.iter().map(|other| (locks.lock(other), permits.acquire(other))).collect();

        let use_the_key = || {
            let guard = locks.lock(&key);
            elsewhere(|| {
                assert!(locks.try_lock(&key).is_none());
                assert!(locks.try_lock_for(&key, Duration::from_micros(1)).is_none());
            });
            assert_eq!(locks.waiters(&key), 0);
            assert_eq!(locks.snapshot().len(), OTHERS as usize + 1);
            drop(guard);
            locks.with_key(&key, || ());
            let one = permits.acquire(&key);
            let other = permits.acquire_many(&key, 1, Wait::forever()).unwrap();
            assert!(permits.try_acquire(&key).is_none());
            drop(one);
            assert_eq!(permits.available_permits(&key), 1);
            drop(other);
        };

        let mut nth = 0;
        loop {
            nth += 1;
            fuse.arm(call, nth);
            let panicked = panics(use_the_key);
            fuse.disarm();

            // The key is free again, and the others are as they were.
            assert_eq!((locks.len(), permits.len()), (OTHERS as usize, OTHERS as usize), "{call:?} number {nth}");
            assert!(!locks.is_locked(&key) && locks.waiters(&key) == 0);
            assert_eq!(permits.available_permits(&key), 2);
            for other in &others {
                assert!(locks.is_locked_by_current_thread(other));
                assert_eq!(permits.available_permits(other), 1);
            }
            drop((locks.lock(&key), permits.acquire(&key)));
            if !panicked {
                break;
            }
        }
        assert!(nth > 3, "{call:?} ran {nth} times only");
        println!("{fairness:?}: {call:?} ran {} times", nth - 1);
        drop(held);
        assert_eq!((locks.len(), permits.len()), (0, 0));
    });
}

/// Panics out of everything that a key does, in threads that compete.
#[test]
fn a_panic_of_a_key_makes_counts_drift() {
    const THREADS: usize = 4;
    const KEYS: u32 = 3;
    let each = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let fuse = Arc::new(crate::keys::Fuse::default());
        let permits = KeyedSemaphore::<Hostile, 2>::with_options(crowded(fairness));
        let locks = KeyedLock::<Hostile>::with_options(crowded(fairness));
        let keys: Vec<_> = (0..KEYS).map(|id| Hostile::new(id, &fuse)).collect();
        let oracles: Vec<_> = keys.iter().map(|_| (Oracle::exclusive(), Oracle::new(2))).collect();
        let panicked = AtomicUsize::new(0);
        threads(|scope| {
            for number in 0..THREADS {
                let (permits, locks, keys, oracles, panicked) = (&permits, &locks, &keys, &oracles, &panicked);
                let fuse = &fuse;
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let place = random.below(u64::from(KEYS)) as usize;
                        let (key, (one, two)) = (&keys[place], &oracles[place]);
                        let moment = Duration::from_micros(random.below(30));
                        let call = Call::ALL[random.below(4) as usize];
                        fuse.arm(call, 1 + random.below(6) as usize);
                        let stopped = panics(|| match random.below(5) {
                            0 => drop(locks.try_lock_for(key, moment).map(|_guard| one.visit(1, || work(&mut random)))),
                            1 => drop(locks.snapshot()),
                            2 => drop(permits.try_acquire_for(key, moment).map(|_permit| two.visit(1, || ()))),
                            3 => {
                                let permit = permits.acquire_many(key, 2, Wait::forever()).unwrap();
                                two.visit(2, || work(&mut random));
                                drop(permit);
                            }
                            _ => locks.with_key(key, || one.visit(1, || ())),
                        });
                        panicked.fetch_add(usize::from(stopped), Ordering::Relaxed);
                    }
                });
            }
        });
        fuse.disarm();
        for (one, two) in &oracles {
            one.check();
            two.check();
        }
        println!("{fairness:?}: {} panics", panicked.load(Ordering::Relaxed));
        assert!(panicked.into_inner() > 0);
        assert_eq!((locks.len(), permits.len()), (0, 0));
        for key in &keys {
            assert_eq!(permits.available_permits(key), 2);
            drop((locks.try_lock(key).unwrap(), permits.acquire_many(key, 2, Wait::now()).unwrap()));
        }
    });
}

/// The release itself panics, because the key's `Drop` does; the key is free all the same, and a waiter is woken.
#[test]
fn a_panic_of_drop_in_a_release_keeps_the_key() {
    watched_in_both_modes(|fairness| {
        let fuse = Arc::new(crate::keys::Fuse::default());
        let locks = Arc::new(KeyedLock::<Hostile>::with_options(crowded(fairness)));
        let key = Hostile::new(0, &fuse);
        for arc in [false, true] {
            let (guard, arc_guard) =
                if arc { (None, Some(locks.lock_arc(&key))) } else { (Some(locks.lock(&key)), None) };
            fuse.arm(Call::Drop, 1);
            assert!(panics(|| drop((guard, arc_guard))));
            assert_eq!((locks.len(), Arc::strong_count(&locks)), (0, 1));
            drop(locks.try_lock(&key).expect("it is free"));
        }
    });
}

#[test]
fn every_hit_clones_the_key() {
    watched_in_both_modes(|fairness| {
        let counts = Arc::new(Counts::default());
        let locks = Arc::new(KeyedLock::<Counting>::with_options(crowded(fairness)));
        let key = Counting::new(1, &counts);

        for absent in 1..=3 {
            drop(locks.lock(&key));
            assert_eq!(counts.clones(), absent, "a miss owns the key once");
        }
        drop(locks.try_lock(&key));
        drop(locks.try_lock_for(&key, Duration::ZERO));
        drop(locks.lock_with(&key, Wait::forever()));
        drop(locks.lock_arc(&key));
        drop(locks.try_lock_arc(&key));
        drop(locks.lock_arc_with(&key, Wait::forever()));
        locks.with_key(&key, || ());
        assert_eq!(counts.clones(), 10);

        // From here the key is there.
        let held = locks.lock(&key);
        assert_eq!(counts.clones(), 11);
        let token = CancellationToken::new();
        let was_cancelled = AtomicBool::new(false);
        threads(|scope| {
            assert!(locks.try_lock(&key).is_none() && locks.lock_with(&key, Wait::forever()).is_err());
            scope.spawn(|| {
                assert!(locks.lock_with(&key, Wait::now()).is_err());
                assert!(locks.lock_with(&key, Duration::from_micros(1)).is_err());
                assert!(locks.lock_with(&key, Wait::forever().max_queued(0)).is_err());
                assert!(locks.lock_with(&key, &token).is_err());
                was_cancelled.store(true, Ordering::Release);
                drop(locks.lock(&key));
            });
            until(|| locks.waiters(&key) == 1);
            token.cancel();
            until(|| was_cancelled.load(Ordering::Acquire) && locks.waiters(&key) == 1);
            scope.spawn(|| drop(locks.lock(&key)));
            until(|| locks.waiters(&key) == 2);
            assert!(locks.is_locked(&key) && locks.is_locked_by_current_thread(&key));
            assert_eq!((locks.len(), locks.is_empty()), (1, false));
            let _ = format!("{locks:?} {held:?}");
            assert_eq!(counts.clones(), 11, "neither a wait nor a query owns the key");
            drop(held);
        });
        assert_eq!(counts.clones(), 11, "nor does a hand-over");
        assert_eq!(locks.len(), 0);

        let _held = locks.lock(&key);
        drop(locks.snapshot());
        assert_eq!(counts.clones(), 13, "a snapshot owns it once");
    });
}

#[test]
fn every_hit_of_a_semaphore_clones_the_key() {
    watched_in_both_modes(|fairness| {
        let counts = Arc::new(Counts::default());
        let permits = Arc::new(KeyedSemaphore::<Counting, 3>::with_options(crowded(fairness)));
        let key = Counting::new(1, &counts);
        assert!(permits.acquire_many(&key, 4, Wait::forever()).is_err());
        assert_eq!((permits.available_permits(&key), permits.limit(&key), counts.clones()), (3, 3, 0));

        let first = permits.acquire(&key);
        assert_eq!(counts.clones(), 1);
        drop(permits.acquire(&key));
        drop(permits.try_acquire(&key).unwrap());
        drop(permits.acquire_many(&key, 2, Wait::forever()).unwrap());
        drop(permits.acquire_arc(&key));
        permits.with_key(&key, || ());
        assert!(permits.acquire_many(&key, 3, Wait::now()).is_err());
        threads(|scope| {
            scope.spawn(|| drop(permits.acquire_many(&key, 3, Wait::forever()).unwrap()));
            until(|| permits.waiters(&key) == 1);
            drop(first);
        });
        assert_eq!(counts.clones(), 1);
        assert_eq!(permits.len(), 0);
    });
}

/// In threads that compete, each entry that is made owns its key once, and each call hashes once, however often it looks.
#[test]
fn a_contended_hit_clones_the_key() {
    const THREADS: usize = 4;
    let each = rounds(1_000);
    watched_in_both_modes(move |fairness| {
        let counts = Arc::new(Counts::default());
        let locks = KeyedLock::<Counting>::with_options(crowded(fairness));
        let key = Counting::new(1, &counts);
        // The entry does not go while this thread is inside or waits.
        let held = locks.lock(&key);
        threads(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..each {
                        drop(locks.try_lock_for(&key, Duration::from_micros(1)));
                    }
                });
            }
        });
        assert_eq!((counts.clones(), counts.hashes()), (1, 1 + THREADS * each));
        drop(held);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn keys_that_hash_alike_exclude_each_other() {
    const KEYS: u32 = 200;
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<Alike>::with_options(crowded(fairness));
        let guards: Vec<_> = (0..KEYS).map(|id| locks.lock(&Alike(id))).collect();
        assert_eq!(locks.len(), KEYS as usize);
        elsewhere(|| {
            assert!((0..KEYS).all(|id| locks.try_lock(&Alike(id)).is_none()));
            assert!(locks.try_lock(&Alike(KEYS)).is_some());
        });
        // The right one is released.
        for (id, guard) in guards.into_iter().enumerate() {
            let next = Alike(id as u32 + 1);
            drop(guard);
            assert!(!locks.is_locked(&Alike(id as u32)));
            assert_eq!(locks.is_locked(&next), next.0 < KEYS);
        }
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn keys_that_hash_alike_are_taken_for_one_another() {
    const THREADS: usize = 4;
    const KEYS: u64 = 12;
    let each = rounds(2_000);
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<Alike>::with_options(crowded(fairness));
        let oracles: Vec<_> = (0..KEYS).map(|_| Oracle::exclusive()).collect();
        threads(|scope| {
            for number in 0..THREADS {
                let (locks, oracles) = (&locks, &oracles);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let id = random.below(KEYS);
                        locks.with_key(&Alike(id as u32), || {
                            oracles[id as usize].visit(1, || work(&mut random));
                        });
                    }
                });
            }
        });
        assert_eq!(oracles.iter().map(Oracle::check).sum::<usize>(), THREADS * each);
        assert_eq!(locks.len(), 0);
    });
}

/// A key that is slow to be looked at, so that who polls it has the shard's lock most of the time.
struct Slow(u32);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        spin(SLOW);
        self.0 == other.0
    }
}

impl Eq for Slow {}

impl Clone for Slow {
    fn clone(&self) -> Self {
        spin(SLOW);
        Self(self.0)
    }
}

const SLOW: u64 = 2_000;

#[test]
fn threads_that_poll_keep_lockers_out() {
    poll_beside_a_locker(|locks, key| {
        assert!(locks.is_locked(key) && !locks.is_locked_by_current_thread(key));
        assert_eq!(locks.waiters(key), 0);
    });
}

#[test]
fn threads_that_count_keep_lockers_out() {
    poll_beside_a_locker(|locks, _| assert!(locks.len() >= POLLED as usize && !locks.is_empty()));
}

#[test]
fn threads_that_take_snapshots_keep_lockers_out() {
    poll_beside_a_locker(|locks, _| assert!(locks.snapshot().len() >= POLLED as usize));
}

const POLLED: u32 = 8;

/// One thread locks so many times while three do nothing but poll keys of the same shards.
fn poll_beside_a_locker(poll: fn(&KeyedLock<Slow>, &Slow)) {
    const POLLERS: usize = 3;
    let times = rounds(500) as u32;
    watched_in_both_modes(move |fairness| {
        let locks = KeyedLock::<Slow>::with_options(crowded(fairness));
        let held: Vec<_> = (0..POLLED).map(|key| locks.lock(&Slow(key))).collect();
        let done = AtomicBool::new(false);
        threads(|scope| {
            for _ in 0..POLLERS {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        (0..POLLED).for_each(|key| poll(&locks, &Slow(key)));
                    }
                });
            }
            for key in POLLED..POLLED + times {
                locks.with_key(&Slow(key), || ());
            }
            done.store(true, Ordering::Release);
        });
        drop(held);
        assert_eq!(locks.len(), 0);
    });
}

/// `panic::resume_unwind` is a panic too: the tests above rely on it.
#[test]
fn a_quiet_panic_unwinds() {
    let seen = panic::catch_unwind(|| crate::support::quiet_panic());
    assert!(seen.is_err());
    assert!(panics(|| crate::support::quiet_panic()));
}
