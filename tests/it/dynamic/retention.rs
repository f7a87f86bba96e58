use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use perkey::{Fairness, KeyedLock, KeyedSemaphore, Options, Wait};

use crate::support::watched_in_both_modes;
use crate::support::{Oracle, Random, crowded, elsewhere, panics, quiet_panic, rounds, spin, threads, until, watched};

fn kept() -> Options {
    Options::new().idle_ttl(Duration::ZERO)
}

#[test]
fn without_a_ttl_nothing_is_kept_and_a_sweep_does_nothing() {
    let locks = KeyedLock::<u32>::new();
    drop(locks.lock(&1));
    assert!(locks.is_empty());
    let held = locks.lock(&2);
    assert_eq!(locks.sweep(), 0);
    assert!(locks.is_locked(&2));
    drop(held);
}

#[test]
fn an_idle_key_is_kept_until_a_sweep_and_counts() {
    let (locks, permits) = (KeyedLock::<u32>::with_options(kept()), KeyedSemaphore::<u32, 2>::with_options(kept()));
    drop((locks.lock(&1), permits.acquire(&1), permits.acquire(&1)));
    assert_eq!((locks.len(), permits.len()), (1, 1));
    assert!(!locks.is_locked(&1) && !locks.is_locked_by_current_thread(&1) && !permits.is_locked(&1));
    assert_eq!(permits.available_permits(&1), 2);
    let [status] = &locks.snapshot()[..] else { panic!("one key is kept") };
    assert_eq!((status.key, status.held, status.waiters.len()), (1, 0, 0));
    assert_eq!((locks.sweep(), permits.sweep()), (1, 1));
    assert!(locks.is_empty() && permits.is_empty());
    assert_eq!(locks.sweep(), 0);
}

/// An own number stands where an idle slot keeps the number of a sweep.
#[test]
fn an_idle_key_is_nobodys() {
    let locks = KeyedLock::<u32>::with_options(kept());
    for key in 0..200 {
        drop(locks.lock(&key));
        locks.sweep();
        drop(locks.lock(&key));
    }
    assert!((0..200).all(|key| elsewhere(|| !locks.is_locked_by_current_thread(&key))));
    assert!((0..200).all(|key| locks.try_lock(&key).is_some()));
}

#[test]
fn failed_calls_leave_only_what_is_kept() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness).idle_ttl(Duration::ZERO));
        let held = permits.acquire_many(&1, 2, Wait::now()).unwrap();
        elsewhere(|| {
            assert!(permits.try_acquire(&1).is_none());
            assert!(permits.try_acquire_for(&1, Duration::from_micros(10)).is_none());
        });
        assert_eq!(permits.sweep(), 0);
        drop(held);
        assert_eq!((permits.len(), permits.sweep(), permits.len()), (1, 1, 0));
    });
}

#[test]
fn what_is_held_or_waited_for_is_never_swept() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness).idle_ttl(Duration::ZERO));
        let oracle = Oracle::exclusive();
        let held = locks.lock(&1);
        threads(|scope| {
            for waiters in 1..=3 {
                scope.spawn(|| locks.with_key(&1, || oracle.visit(1, || ())));
                until(|| locks.waiters(&1) == waiters);
                assert_eq!(locks.sweep(), 0);
            }
            oracle.visit(1, || assert_eq!(locks.sweep(), 0));
            drop(held);
        });
        assert_eq!((oracle.check(), locks.sweep()), (4, 1));
    });
}

#[test]
fn a_key_that_comes_back_is_not_cloned() {
    struct Key(Arc<AtomicUsize>);
    impl Clone for Key {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(&self.0))
        }
    }
    impl PartialEq for Key {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }
    impl Eq for Key {}
    impl Hash for Key {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    let (clones, locks) = (Arc::new(AtomicUsize::new(0)), KeyedLock::<Key>::with_options(kept()));
    let key = Key(Arc::clone(&clones));
    for _ in 0..10 {
        drop(locks.lock(&key));
    }
    assert_eq!(clones.load(Ordering::Relaxed), 1);
    assert_eq!(locks.sweep(), 1);
    drop(locks.lock(&key));
    assert_eq!(clones.load(Ordering::Relaxed), 2);
}

/// A key whose `Drop` does as it is told.
struct Told<F: Fn(u32)>(u32, Arc<F>);

impl<F: Fn(u32)> Clone for Told<F> {
    fn clone(&self) -> Self {
        Self(self.0, Arc::clone(&self.1))
    }
}

impl<F: Fn(u32)> PartialEq for Told<F> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<F: Fn(u32)> Eq for Told<F> {}

impl<F: Fn(u32)> Hash for Told<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<F: Fn(u32)> Drop for Told<F> {
    fn drop(&mut self) {
        (self.1)(self.0);
    }
}

#[test]
fn a_key_that_panics_on_drop_keeps_no_other_from_going() {
    let armed = Arc::new(AtomicBool::new(false));
    let dropped = Arc::new(AtomicUsize::new(0));
    let drop_key = {
        let (armed, dropped) = (Arc::clone(&armed), Arc::clone(&dropped));
        Arc::new(move |number| {
            dropped.fetch_add(1, Ordering::Relaxed);
            if armed.load(Ordering::Relaxed) && number % 2 == 0 {
                quiet_panic();
            }
        })
    };
    let locks = KeyedLock::with_options(kept());
    for number in 0..10 {
        drop(locks.lock(&Told(number, Arc::clone(&drop_key))));
    }
    dropped.store(0, Ordering::Relaxed);
    armed.store(true, Ordering::Relaxed);
    assert!(panics(|| {
        locks.sweep();
    }));
    armed.store(false, Ordering::Relaxed);
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    assert!(locks.is_empty());
    drop(locks.lock(&Told(1, drop_key)));
    assert_eq!(locks.sweep(), 1);
}

#[test]
fn a_key_that_is_swept_may_call_its_table() {
    type Table = KeyedLock<Calls>;
    #[derive(Clone)]
    struct Calls(u32, Weak<Table>, Arc<AtomicUsize>);
    impl PartialEq for Calls {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Calls {}
    impl Hash for Calls {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl Drop for Calls {
        fn drop(&mut self) {
            // Once: what it takes here is dropped too.
            if self.2.fetch_add(1, Ordering::Relaxed) == 0
                && let Some(table) = self.1.upgrade()
            {
                assert!(table.try_lock(self).is_some());
                assert_eq!((table.snapshot().len(), table.len()), (1, 1));
                assert_eq!(table.sweep(), 1);
                table.shrink_to_fit();
            }
        }
    }

    watched(|| {
        let (table, drops) = (Arc::new(Table::with_options(kept())), Arc::new(AtomicUsize::new(1_000)));
        let key = Calls(1, Arc::downgrade(&table), Arc::clone(&drops));
        drop(table.lock(&key));
        drops.store(0, Ordering::Relaxed);
        assert_eq!(table.sweep(), 1);
        assert!(drops.load(Ordering::Relaxed) > 1);
        drops.store(1, Ordering::Relaxed);
    });
}

/// Sweeps at full speed beside lockers and permit holders.
#[test]
fn a_sweep_lets_two_in() {
    watched_in_both_modes(|fairness| nobody_is_let_in_twice(fairness, 2));
}

#[test]
fn a_sweep_beside_three_others_lets_two_in() {
    watched_in_both_modes(|fairness| nobody_is_let_in_twice(fairness, 4));
}

/// So many sweep.
fn nobody_is_let_in_twice(fairness: Fairness, sweepers: usize) {
    const KEYS: u64 = 4;
    let options = || crowded(fairness).idle_ttl(Duration::ZERO);
    let (locks, permits) =
        (KeyedLock::<u64>::with_options(options()), KeyedSemaphore::<u64, 2>::with_options(options()));
    let exclusive: Vec<Oracle> = (0..KEYS).map(|_| Oracle::exclusive()).collect();
    let shared: Vec<Oracle> = (0..KEYS).map(|_| Oracle::new(2)).collect();
    let done = AtomicUsize::new(0);
    threads(|scope| {
        for thread in 0..6 {
            let (locks, permits, exclusive, shared, done) = (&locks, &permits, &exclusive, &shared, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..rounds(5_000) {
                    let key = random.below(KEYS);
                    let wait = match random.below(3) {
                        0 => Wait::now(),
                        1 => Wait::at_most(Duration::from_micros(50)),
                        _ => Wait::forever(),
                    };
                    let work = random.below(20);
                    let _ = locks.with_key_within(&key, &wait, || exclusive[key as usize].visit(1, || spin(work)));
                    let weight = 1 + random.below(2) as usize;
                    if let Ok(_permit) = permits.acquire_many(&key, weight, wait) {
                        shared[key as usize].visit(weight, || spin(work));
                    }
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        for _ in 0..sweepers {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) < 6 {
                    locks.sweep();
                    permits.sweep();
                    permits.shrink_to_fit();
                }
            });
        }
    });
    exclusive.iter().for_each(|oracle| assert!(oracle.check() > 0));
    shared.iter().for_each(|oracle| assert!(oracle.check() > 0));
    locks.sweep();
    permits.sweep();
    assert!(locks.is_empty() && permits.is_empty());
}
