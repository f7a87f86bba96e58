//! Guards that end in unusual ways and places.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedLockGuard, KeyedSemaphore, Wait};

use crate::support::{crowded, elsewhere, panics, quiet_panic, threads, until, watched, watched_in_both_modes};

#[test]
fn a_guard_dropped_on_another_thread_confuses_the_owner() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let own = locks.lock(&2);
        let moved = locks.lock_arc(&1);
        // A hold by an `Arc` guard has no owner, neither here nor where it goes.
        assert!(!locks.is_locked_by_current_thread(&1));
        elsewhere(|| {
            assert!(!locks.is_locked_by_current_thread(&1) && !locks.is_locked_by_current_thread(&2));
            drop(moved);
            assert!(!locks.is_locked(&1));
            let guard = locks.lock(&1);
            assert!(locks.is_locked_by_current_thread(&1));
            drop(guard);
        });
        assert!(locks.is_locked_by_current_thread(&2));

        // Dropped there while somebody waits here: the waiter is the owner.
        let moved = locks.lock_arc(&1);
        threads(|scope| {
            scope.spawn(|| {
                until(|| locks.waiters(&1) == 1);
                drop(moved);
                assert!(!locks.is_locked_by_current_thread(&1));
            });
            let _guard = locks.lock(&1);
            assert!(locks.is_locked_by_current_thread(&1));
        });
        drop(own);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn taking_a_key_held_by_an_arc_guard_is_called_re_entry() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let guard = locks.lock_arc(&1);
        let moment = Duration::from_micros(50);
        assert_eq!(locks.lock_with(&1, moment).unwrap_err(), AcquireError::Timeout);
        assert_eq!(locks.lock_arc_with(&1, moment).unwrap_err(), AcquireError::Timeout);
        assert_eq!(locks.lock_with(&1, Wait::now()).unwrap_err(), AcquireError::Busy);
        assert!(locks.try_lock(&1).is_none() && locks.try_lock_arc(&1).is_none());
        drop(guard);
        assert_eq!(locks.len(), 0);
    });
}

#[test]
fn a_permit_moved_to_a_worker_is_lost() {
    watched_in_both_modes(|fairness| {
        let permits = Arc::new(KeyedSemaphore::<u32, 4>::with_options(crowded(fairness)));
        let moved = [
            permits.acquire_arc(&1),
            permits.try_acquire_arc(&1).unwrap(),
            permits.acquire_arc_with(&1, Wait::now()).unwrap(),
            permits.acquire_many_arc(&1, 1, Wait::now()).unwrap(),
        ];
        assert_eq!(permits.available_permits(&1), 0);
        let workers = moved.map(|permit| thread::spawn(move || drop(permit)));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!((permits.available_permits(&1), permits.len()), (4, 0));
    });
}

#[test]
fn a_forgotten_guard_breaks_more_than_its_key() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        mem::forget(locks.lock(&0));
        for key in 1..100 {
            drop(locks.lock(&key));
        }
        assert_eq!((locks.len(), locks.is_locked(&0), locks.is_locked_by_current_thread(&0)), (1, true, true));
        elsewhere(|| {
            let timed_out = locks.lock_with(&0, Duration::from_micros(50)).unwrap_err();
            assert_eq!(timed_out, AcquireError::Timeout);
        });
        assert_eq!((locks.len(), locks.waiters(&0)), (1, 0));

        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        mem::forget(permits.acquire(&0));
        assert_eq!(permits.available_permits(&0), 1);
        for _ in 0..100 {
            drop(permits.acquire(&0));
        }
        assert_eq!(permits.acquire_many(&0, 2, Wait::now()).unwrap_err(), AcquireError::Busy);
        mem::forget(permits.acquire(&0));
        assert!(permits.try_acquire(&0).is_none());
        drop(permits.acquire_many(&1, 2, Wait::now()).unwrap());
        assert_eq!((permits.len(), permits.available_permits(&0)), (1, 0));
    });
}

#[test]
fn many_forgotten_guards_overflow() {
    watched(|| {
        let permits = KeyedSemaphore::<u32>::with_limit(usize::MAX);
        for _ in 0..10_000 {
            mem::forget(permits.acquire(&0));
        }
        let limit = permits.limit(&0);
        assert_eq!(limit, u32::MAX as usize);
        assert_eq!(permits.available_permits(&0), limit - 10_000);
        mem::forget(permits.acquire_many(&0, limit - 10_000, Wait::now()).unwrap());
        assert_eq!(permits.available_permits(&0), 0);
        assert!(permits.try_acquire(&0).is_none());
        assert_eq!(permits.acquire_many(&0, limit, Wait::now()).unwrap_err(), AcquireError::Busy);

        let locks = KeyedLock::<u32>::new();
        for key in 0..10_000 {
            mem::forget(locks.lock(&key));
        }
        assert_eq!(locks.len(), 10_000);
    });
}

#[test]
fn a_forgotten_arc_guard_frees_the_table() {
    watched(|| {
        let locks = Arc::new(KeyedLock::<u32>::new());
        mem::forget(locks.lock_arc(&0));
        assert_eq!(Arc::strong_count(&locks), 2);
        assert!(elsewhere(|| locks.try_lock(&0).is_none()));
    });
}

/// Runs a closure when its thread ends.
struct AtExit(Option<Box<dyn FnOnce()>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

thread_local! {
    static AT_EXIT: Cell<Option<AtExit>> = const { Cell::new(None) };
}

fn at_exit(last: impl FnOnce() + 'static) {
    AT_EXIT.set(Some(AtExit(Some(Box::new(last)))));
}

/// A wait of this thread, so that all thread-locals of the library are in use.
fn use_the_library() {
    let locks = Arc::new(KeyedLock::<u32>::new());
    let _held = locks.lock_arc(&0);
    assert_eq!(locks.lock_with(&0, Duration::from_nanos(1)).unwrap_err(), AcquireError::Timeout);
}

/// The library's thread-locals are first used before the destructor was registered, after it, or in it.
#[derive(Clone, Copy, Debug)]
enum FirstUse {
    Before,
    After,
    Within,
}

fn lock_at_the_end_of_a_thread(
    first_use: FirstUse,
    last: impl FnOnce() + Send + 'static,
    beside: impl FnOnce(),
) -> thread::Result<()> {
    let thread = thread::spawn(move || {
        if let FirstUse::Before = first_use {
            use_the_library();
        }
        at_exit(last);
        if let FirstUse::After = first_use {
            use_the_library();
        }
    });
    beside();
    thread.join()
}

const FIRST_USES: [FirstUse; 3] = [FirstUse::Before, FirstUse::After, FirstUse::Within];

#[test]
fn a_lock_in_the_destructor_of_a_thread_local_panics() {
    watched_in_both_modes(|fairness| {
        for first_use in FIRST_USES {
            let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
            let permits = Arc::new(KeyedSemaphore::<u32, 2>::with_options(crowded(fairness)));
            let done = Arc::new(AtomicUsize::new(0));
            let last = {
                let (locks, permits, done) = (Arc::clone(&locks), Arc::clone(&permits), Arc::clone(&done));
                move || {
                    // No assertion in here: a panic would abort the process.
                    let guard = locks.lock(&1);
                    let re_entry = matches!(locks.lock_with(&1, Wait::forever()), Err(AcquireError::WouldDeadlock(_)));
                    let owner = locks.is_locked_by_current_thread(&1);
                    drop(guard);
                    let permit = permits.acquire_many(&1, 2, Wait::forever());
                    let arc_guard = locks.lock_arc(&1);
                    let busy = locks.lock_with(&1, Duration::from_micros(1)).err() == Some(AcquireError::Timeout);
                    drop(arc_guard);
                    let facts = [re_entry, owner, permit.is_ok(), busy];
                    done.fetch_add(facts.into_iter().filter(|&fact| fact).count(), Ordering::Relaxed);
                }
            };
            lock_at_the_end_of_a_thread(first_use, last, || ()).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 4, "{first_use:?}");
            assert!(locks.is_empty() && permits.is_empty());
        }
    });
}

#[test]
fn a_wait_in_the_destructor_of_a_thread_local_is_never_woken() {
    watched_in_both_modes(|fairness| {
        for first_use in FIRST_USES {
            let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
            let token = CancellationToken::new();
            let was_in = Arc::new(AtomicUsize::new(0));
            let last = {
                let (locks, token, was_in) = (Arc::clone(&locks), token.clone(), Arc::clone(&was_in));
                move || {
                    // Twice, so that a waiter is used again, or cannot be.
                    let cancelled = locks.lock_with(&1, &token).err() == Some(AcquireError::Cancelled);
                    let guard = locks.lock(&1);
                    let owner = locks.is_locked_by_current_thread(&1);
                    drop(guard);
                    was_in.fetch_add(usize::from(cancelled) + usize::from(owner), Ordering::Relaxed);
                }
            };
            let held = locks.lock(&1);
            let beside = || {
                until(|| locks.waiters(&1) == 1);
                let line = || locks.snapshot()[0].waiters.first().map(|waiter| waiter.location.line());
                let first = line();
                token.cancel();
                until(|| line().is_some_and(|line| Some(line) != first));
                drop(held);
            };
            lock_at_the_end_of_a_thread(first_use, last, beside).unwrap();
            assert_eq!(was_in.load(Ordering::Relaxed), 2, "{first_use:?}");
            assert_eq!(locks.len(), 0);
        }
    });
}

#[test]
fn a_guard_in_a_thread_local_is_not_released() {
    static LOCKS: LazyLock<KeyedLock<u32>> = LazyLock::new(KeyedLock::new);
    thread_local! {
        static GUARD: Cell<Option<KeyedLockGuard<'static, u32>>> = const { Cell::new(None) };
    }
    watched(|| {
        for first_use in [FirstUse::Before, FirstUse::After] {
            let thread = thread::spawn(move || {
                if let FirstUse::Before = first_use {
                    use_the_library();
                }
                GUARD.set(Some(LOCKS.lock(&1)));
                if let FirstUse::After = first_use {
                    use_the_library();
                }
            });
            thread.join().unwrap();
            assert_eq!(LOCKS.len(), 0, "{first_use:?}");
        }
    });
}

#[test]
fn the_table_goes_while_somebody_waits() {
    /// Says when the table and its keys are gone.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(Arc<u32>);

    watched_in_both_modes(|fairness| {
        let key = Key(Arc::new(1));
        let locks = Arc::new(KeyedLock::<Key>::with_options(crowded(fairness)));
        let gone = Arc::downgrade(&locks);
        let held = locks.lock_arc(&key);
        let waiter = {
            let (locks, key) = (Arc::clone(&locks), key.clone());
            thread::spawn(move || {
                let guard = locks.lock_arc(&key);
                // From here the guard alone keeps the table.
                drop(locks);
                guard
            })
        };
        until(|| locks.waiters(&key) == 1);
        drop(locks);
        drop(held);
        let last = waiter.join().unwrap();
        assert!(gone.upgrade().is_some_and(|locks| locks.is_locked(&key)));
        drop(last);
        assert!(gone.upgrade().is_none());
        assert_eq!(Arc::strong_count(&key.0), 1);
    });
}

#[test]
fn introspection_lies_after_failed_waits() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        let permits = KeyedSemaphore::<u32, 2>::with_options(crowded(fairness));
        for _ in 0..20 {
            let guard = locks.lock(&1);
            let both = permits.acquire_many(&1, 2, Wait::now()).unwrap();
            threads(|scope| {
                for micros in [1, 20, 100] {
                    let (locks, permits) = (&locks, &permits);
                    scope.spawn(move || {
                        assert!(locks.try_lock_for(&1, Duration::from_micros(micros)).is_none());
                        assert!(permits.try_acquire_for(&1, Duration::from_micros(micros)).is_none());
                    });
                }
            });
            assert_eq!((locks.len(), locks.waiters(&1), locks.is_locked(&1)), (1, 0, true));
            assert_eq!((permits.len(), permits.waiters(&1), permits.available_permits(&1)), (1, 0, 0));
            assert!(locks.snapshot()[0].waiters.is_empty() && permits.snapshot()[0].waiters.is_empty());

            drop((guard, both));
            assert_eq!((locks.len(), locks.is_empty(), locks.is_locked(&1)), (0, true, false));
            assert!(!locks.is_locked_by_current_thread(&1));
            assert_eq!((permits.len(), permits.is_locked(&1), permits.available_permits(&1)), (0, false, 2));
            assert!(locks.snapshot().is_empty() && permits.snapshot().is_empty());
        }
    });
}

/// Runs what is inside while it holds the key.
type Section<'a> = &'a dyn Fn(&dyn Fn());

#[test]
fn a_panic_in_the_section_leaves_the_key_stuck() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(crowded(fairness)));
        let permits = KeyedSemaphore::<u32, 1>::with_options(crowded(fairness));
        for somebody_waits in [false, true] {
            let sections: [Section<'_>; 7] = [
                &|inside| {
                    let _guard = locks.lock(&1);
                    inside();
                },
                &|inside| {
                    let _guard = locks.lock_arc(&1);
                    inside();
                },
                &|inside| locks.with_key(&1, inside),
                &|inside| locks.try_with_key(&1, inside).unwrap(),
                &|inside| locks.with_key_within(&1, Duration::MAX, inside).unwrap(),
                &|inside| permits.with_key(&1, || locks.with_key(&1, inside)),
                &|inside| {
                    let _permit = permits.acquire(&1);
                    locks.with_key(&1, inside);
                },
            ];
            for section in sections {
                let [was_in, is_held] = [const { AtomicBool::new(false) }; 2];
                threads(|scope| {
                    if somebody_waits {
                        scope.spawn(|| {
                            until(|| is_held.load(Ordering::Acquire));
                            let _both = (locks.lock(&1), permits.acquire(&1));
                            was_in.store(true, Ordering::Release);
                        });
                    }
                    assert!(panics(|| {
                        section(&|| {
                            is_held.store(true, Ordering::Release);
                            until(|| !somebody_waits || locks.waiters(&1) == 1);
                            quiet_panic();
                        });
                    }));
                });
                assert_eq!(was_in.into_inner(), somebody_waits);
                assert!(locks.is_empty() && permits.is_empty());
            }
        }
    });
}

#[test]
fn a_panic_of_a_thread_that_holds_an_arc_guard_leaves_the_key_stuck() {
    watched(|| {
        let locks = Arc::new(KeyedLock::<u32>::new());
        let guard = locks.lock_arc(&1);
        let worker = thread::spawn(move || {
            panics(|| {
                let _moved = guard;
                quiet_panic();
            })
        });
        assert!(worker.join().unwrap());
        assert_eq!(locks.len(), 0);
    });
}

/// A guard that is dropped by unwinding, and a lock that is taken while that goes on.
#[test]
fn a_lock_taken_while_unwinding_is_not_released() {
    struct LocksOnDrop<'a>(&'a KeyedLock<u32>);
    impl Drop for LocksOnDrop<'_> {
        fn drop(&mut self) {
            assert!(thread::panicking());
            drop(self.0.lock(&2));
            drop(self.0.lock(&1));
        }
    }
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(crowded(fairness));
        assert!(panics(|| {
            let _last = LocksOnDrop(&locks);
            let _guard = locks.lock(&1);
            quiet_panic();
        }));
        assert_eq!(locks.len(), 0);
    });
}
