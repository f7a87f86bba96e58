//! `KeyedRwLock`: what each call promises, on one thread or on a few.

use std::fmt::Debug;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perkey::{
    AcquireError, ArcKeyedRwLockReadGuard, ArcKeyedRwLockWriteGuard, CancellationToken, Deadlock, Fairness,
    KeyedRwLock, KeyedRwLockReadAllGuard, KeyedRwLockReadGuard, KeyedRwLockReadKeysGuard, KeyedRwLockWriteAllGuard,
    KeyedRwLockWriteGuard, KeyedRwLockWriteKeysGuard, Options, Sweep, Sweeper, Wait,
};

use crate::support::{
    crowded, elsewhere, panic_message, panics, quiet_panic, rounds, threads, until, watched, watched_in_both_modes,
};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_micros(50);

pub(crate) const K: u32 = 1;
pub(crate) const J: u32 = 2;
/// Nobody holds it.
pub(crate) const OTHER: u32 = 3;

pub(crate) type Locks = Arc<KeyedRwLock<u32>>;
pub(crate) type Guard<'a> = Box<dyn Debug + 'a>;
/// Takes a key, lets another queue, and lets it go.
type Unlock<'a> = &'a dyn Fn(&dyn Fn());
type Call<'a> = Box<dyn Fn() -> bool + Send + Sync + 'a>;

pub(crate) fn table(fairness: Fairness) -> Locks {
    Arc::new(KeyedRwLock::with_options(crowded(fairness).name("files")))
}

/// What a thread holds or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read(u32),
    Write(u32),
    ReadAll,
    WriteAll,
}

use What::{Read, ReadAll, Write, WriteAll};

pub(crate) const ALL: [What; 6] = [Read(K), Write(K), Read(J), Write(J), ReadAll, WriteAll];

pub(crate) fn boxed<'a>(guard: impl Debug + 'a) -> Guard<'a> {
    Box::new(guard)
}

impl What {
    pub(crate) fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (WriteAll, _) | (_, WriteAll) | (ReadAll, Write(_)) | (Write(_), ReadAll) => true,
            (Write(one), Write(other) | Read(other)) | (Read(one), Write(other)) => one == other,
            (ReadAll | Read(_), ReadAll | Read(_)) => false,
        }
    }

    pub(crate) fn lock(self, locks: &Locks) -> Guard<'_> {
        match self {
            Read(key) => Box::new(locks.read(&key)),
            Write(key) => Box::new(locks.write(&key)),
            ReadAll => Box::new(locks.read_all()),
            WriteAll => Box::new(locks.write_all()),
        }
    }

    pub(crate) fn try_lock(self, locks: &Locks) -> Option<Guard<'_>> {
        Some(match self {
            Read(key) => Box::new(locks.try_read(&key)?),
            Write(key) => Box::new(locks.try_write(&key)?),
            ReadAll => Box::new(locks.try_read_all()?),
            WriteAll => Box::new(locks.try_write_all()?),
        })
    }

    fn try_lock_for(self, locks: &Locks, duration: Duration) -> Option<Guard<'_>> {
        Some(match self {
            Read(key) => Box::new(locks.try_read_for(&key, duration)?),
            Write(key) => Box::new(locks.try_write_for(&key, duration)?),
            ReadAll => Box::new(locks.try_read_all_for(duration)?),
            WriteAll => Box::new(locks.try_write_all_for(duration)?),
        })
    }

    pub(crate) fn lock_with(self, locks: &Locks, wait: impl Into<Wait>) -> Result<Guard<'_>, AcquireError> {
        Ok(match self {
            Read(key) => Box::new(locks.read_with(&key, wait)?),
            Write(key) => Box::new(locks.write_with(&key, wait)?),
            ReadAll => Box::new(locks.read_all_with(wait)?),
            WriteAll => Box::new(locks.write_all_with(wait)?),
        })
    }

    /// `None` for what has no such call.
    fn lock_arc_with(self, locks: &Locks, wait: impl Into<Wait>) -> Option<Result<Guard<'static>, AcquireError>> {
        match self {
            Read(key) => Some(locks.read_arc_with(&key, wait).map(boxed)),
            Write(key) => Some(locks.write_arc_with(&key, wait).map(boxed)),
            ReadAll | WriteAll => None,
        }
    }

    /// As one of two keys. `None` for what has no such call.
    fn lock_keys_with(self, locks: &Locks, wait: impl Into<Wait>) -> Option<Result<Guard<'_>, AcquireError>> {
        match self {
            Read(key) => Some(locks.read_keys_with([&OTHER, &key], wait).map(boxed)),
            Write(key) => Some(locks.write_keys_with([&OTHER, &key], wait).map(boxed)),
            ReadAll | WriteAll => None,
        }
    }

    /// Whether a thread that holds nothing waits for this, and nobody else waits.
    fn is_waited_for(self, locks: &Locks) -> bool {
        match self {
            Read(key) | Write(key) => locks.waiters(&key) == 1,
            // It lets nobody past who conflicts with it.
            ReadAll => elsewhere(|| locks.try_write(&OTHER).is_none()),
            WriteAll => elsewhere(|| locks.try_read(&OTHER).is_none()),
        }
    }

    /// The calls that ask for it: those that wait, and those that do not. They say whether they were let in.
    fn calls(self, locks: &Locks) -> [Vec<Call<'_>>; 2] {
        fn entered<T>(guard: T) -> bool {
            drop(guard);
            true
        }
        fn call<'a>(call: impl Fn() -> bool + Send + Sync + 'a) -> Call<'a> {
            Box::new(call)
        }
        let never_queue = || Wait::forever().max_queued(0);
        match self {
            Read(key) => [
                vec![
                    call(move || entered(locks.read(&key))),
                    call(move || entered(locks.read_arc(&key))),
                    call(move || locks.with_read(&key, || true)),
                    call(move || locks.try_read_for(&key, LONG).is_some()),
                    call(move || locks.read_with(&key, LONG).is_ok()),
                    call(move || locks.read_arc_with(&key, Wait::forever()).is_ok()),
                    call(move || entered(locks.read_keys([&OTHER, &key]))),
                    call(move || locks.read_keys_with([&OTHER, &key], &CancellationToken::new()).is_ok()),
                ],
                vec![
                    call(move || locks.try_read(&key).is_some()),
                    call(move || locks.try_read_arc(&key).is_some()),
                    call(move || locks.try_read_for(&key, Duration::ZERO).is_some()),
                    call(move || locks.read_with(&key, Wait::now()).is_ok()),
                    call(move || locks.read_arc_with(&key, never_queue()).is_ok()),
                    call(move || locks.read_keys_with([&OTHER, &key], Wait::now()).is_ok()),
                ],
            ],
            Write(key) => [
                vec![
                    call(move || entered(locks.write(&key))),
                    call(move || entered(locks.write_arc(&key))),
                    call(move || locks.with_write(&key, || true)),
                    call(move || locks.try_write_for(&key, LONG).is_some()),
                    call(move || locks.write_with(&key, LONG).is_ok()),
                    call(move || locks.write_arc_with(&key, Wait::forever()).is_ok()),
                    call(move || entered(locks.write_keys([&OTHER, &key]))),
                    call(move || locks.write_keys_with([&OTHER, &key], &CancellationToken::new()).is_ok()),
                ],
                vec![
                    call(move || locks.try_write(&key).is_some()),
                    call(move || locks.try_write_arc(&key).is_some()),
                    call(move || locks.try_write_for(&key, Duration::ZERO).is_some()),
                    call(move || locks.write_with(&key, Wait::now()).is_ok()),
                    call(move || locks.write_arc_with(&key, never_queue()).is_ok()),
                    call(move || locks.write_keys_with([&OTHER, &key], Wait::now()).is_ok()),
                ],
            ],
            ReadAll => [
                vec![
                    call(|| entered(locks.read_all())),
                    call(|| locks.try_read_all_for(LONG).is_some()),
                    call(|| locks.read_all_with(LONG).is_ok()),
                    call(|| locks.read_all_with(&CancellationToken::new()).is_ok()),
                ],
                vec![
                    call(|| locks.try_read_all().is_some()),
                    call(|| locks.try_read_all_for(Duration::ZERO).is_some()),
                    call(|| locks.read_all_with(Wait::now()).is_ok()),
                    call(move || locks.read_all_with(never_queue()).is_ok()),
                ],
            ],
            WriteAll => [
                vec![
                    call(|| entered(locks.write_all())),
                    call(|| locks.try_write_all_for(LONG).is_some()),
                    call(|| locks.write_all_with(LONG).is_ok()),
                    call(|| locks.write_all_with(&CancellationToken::new()).is_ok()),
                ],
                vec![
                    call(|| locks.try_write_all().is_some()),
                    call(|| locks.try_write_all_for(Duration::ZERO).is_some()),
                    call(|| locks.write_all_with(Wait::now()).is_ok()),
                    call(move || locks.write_all_with(never_queue()).is_ok()),
                ],
            ],
        }
    }
}

/// That nobody holds anything or waits, and that the table knows it.
pub(crate) fn check_free(locks: &Locks) {
    assert!(locks.is_empty());
    let all = locks.try_write_all().expect("nobody holds anything");
    drop(all);
    assert!(!locks.is_locked(&K) && locks.is_empty());
}

pub(crate) fn deadlock<T>(outcome: Result<T, AcquireError>) -> Deadlock {
    match outcome {
        Err(AcquireError::WouldDeadlock(deadlock)) => deadlock,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let in"),
    }
}

/// Each call on a free table, on one where another thread holds what conflicts and, if it waits, on one where that is
/// released meanwhile.
#[test]
fn each_call() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for asked in [Read(K), Write(K), ReadAll, WriteAll] {
            let [waiting, trying] = asked.calls(&locks);
            for call in waiting.iter().chain(&trying) {
                assert!(call(), "for {asked:?} on a free table");
                check_free(&locks);
            }
            for holds in ALL.into_iter().filter(|holds| holds.conflicts(asked)) {
                for (place, call) in waiting.iter().enumerate() {
                    let held = holds.lock(&locks);
                    threads(|scope| {
                        let waiter = scope.spawn(call);
                        until(|| asked.is_waited_for(&locks));
                        drop(held);
                        assert!(waiter.join().unwrap(), "call {place} for {asked:?} after {holds:?}");
                    });
                    check_free(&locks);
                }
                for (place, call) in trying.iter().enumerate() {
                    let held = holds.lock(&locks);
                    assert!(!elsewhere(call), "call {place} for {asked:?} beside {holds:?}");
                    assert_eq!((locks.waiters(&K), locks.waiters(&OTHER)), (0, 0));
                    drop(held);
                    check_free(&locks);
                }
            }
        }
    });
}

/// The conflict table: one thread holds, another asks.
#[test]
fn each_pair_of_two_threads() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for holds in ALL {
            for asked in ALL {
                let held = holds.lock(&locks);
                elsewhere(|| {
                    let expected = if holds.conflicts(asked) { Err(AcquireError::Busy) } else { Ok(()) };
                    let fits = |outcome: Result<Guard<'_>, AcquireError>| {
                        assert_eq!(outcome.map(drop), expected, "{asked:?} beside {holds:?}");
                    };
                    assert_eq!(asked.try_lock(&locks).is_some(), expected.is_ok(), "{asked:?} beside {holds:?}");
                    assert_eq!(asked.try_lock_for(&locks, Duration::ZERO).is_some(), expected.is_ok());
                    fits(asked.lock_with(&locks, Wait::now()));
                    asked.lock_arc_with(&locks, Wait::now()).into_iter().for_each(fits);
                    asked.lock_keys_with(&locks, Wait::now()).into_iter().for_each(fits);
                    if expected.is_err() {
                        assert!(asked.try_lock_for(&locks, SHORT).is_none());
                        assert_eq!(asked.lock_with(&locks, SHORT).map(drop), Err(AcquireError::Timeout));
                        let full = asked.lock_with(&locks, Wait::forever().max_queued(0)).map(drop);
                        assert_eq!(full, Err(AcquireError::QueueFull));
                    } else {
                        drop(asked.lock(&locks));
                    }
                });
                drop(held);
                check_free(&locks);
            }
        }
    });
}

/// The same, asked by the holder itself: what conflicts could never be had.
#[test]
fn each_pair_of_one_thread() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for holds in ALL {
            for asked in ALL {
                let held = holds.lock(&locks);
                if holds.conflicts(asked) {
                    let message = panic_message(|| drop(asked.lock(&locks)));
                    assert!(message.contains("KeyedRwLock \"files\""), "{asked:?} under {holds:?}: {message}");
                    let fault = match (holds, asked) {
                        (_, ReadAll | WriteAll) => "this thread already holds one of all the keys it asks for",
                        (ReadAll | WriteAll, _) => "this thread already holds every key",
                        _ => "this thread already holds the key",
                    };
                    assert!(message.contains(fault), "{asked:?} under {holds:?}: {message}");
                    assert!(asked.try_lock(&locks).is_none(), "{asked:?} under {holds:?}");
                    // At once.
                    assert!(asked.try_lock_for(&locks, LONG).is_none());
                    for wait in [Wait::forever(), Wait::now(), Wait::at_most(LONG), Wait::forever().max_queued(0)] {
                        let by_arc = asked.lock_arc_with(&locks, &wait);
                        let by_keys = asked.lock_keys_with(&locks, &wait);
                        for outcome in [Some(asked.lock_with(&locks, &wait)), by_arc, by_keys].into_iter().flatten() {
                            assert_eq!(deadlock(outcome).table(), Some("files"));
                        }
                    }
                    drop(held);
                } else {
                    drop(asked.lock(&locks));
                    assert!(asked.try_lock(&locks).is_some(), "{asked:?} under {holds:?}");
                    assert!(asked.try_lock_for(&locks, LONG).is_some());
                    assert!(asked.lock_with(&locks, Wait::forever()).is_ok());
                    assert!(asked.lock_arc_with(&locks, Wait::now()).is_none_or(|outcome| outcome.is_ok()));
                    assert!(asked.lock_keys_with(&locks, Wait::now()).is_none_or(|outcome| outcome.is_ok()));
                    // Dropped in the order in which they were taken, too.
                    let beside = asked.lock(&locks);
                    drop(held);
                    drop(beside);
                }
                check_free(&locks);
            }
        }
    });
}

/// An `Arc` guard on the same thread is as one of another thread: nothing is known of it.
#[test]
fn an_arc_guard_has_no_owner() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for holds in [Read(K), Write(K)] {
            for asked in ALL {
                let held = holds.lock_arc_with(&locks, Wait::now()).expect("there is such a call").unwrap();
                assert!(locks.is_locked(&K) && !locks.is_locked_by_current_thread(&K));
                let outcome = asked.lock_with(&locks, SHORT).map(drop);
                let expected = if holds.conflicts(asked) { Err(AcquireError::Timeout) } else { Ok(()) };
                assert_eq!(outcome, expected, "{asked:?} beside an `Arc` guard of {holds:?}");
                assert_eq!(asked.lock_with(&locks, Wait::now()).is_ok(), expected.is_ok());
                drop(held);
                check_free(&locks);
            }
        }
    });
}

#[test]
fn arc_guards_are_dropped_on_other_threads_and_keep_the_table_alive() {
    watched(|| {
        let locks = table(Fairness::Eventual);
        let (one, two): (ArcKeyedRwLockReadGuard<u32>, ArcKeyedRwLockReadGuard<u32>) =
            (locks.read_arc(&K), locks.try_read_arc(&K).unwrap());
        let writer: ArcKeyedRwLockWriteGuard<u32> = locks.write_arc(&J);
        assert_eq!(locks.len(), 2);
        elsewhere(|| drop((one, writer)));
        assert!(locks.is_locked(&K) && !locks.is_write_locked(&K) && !locks.is_locked(&J));
        let weak = Arc::downgrade(&locks);
        drop(locks);
        let locks = weak.upgrade().expect("a guard keeps the table");
        elsewhere(|| drop(two));
        check_free(&locks);
        drop(locks);
        assert!(weak.upgrade().is_none());
    });
}

#[test]
fn what_conflicts_with_ones_own_hold_names_the_call() {
    watched(|| {
        let locks = table(Fairness::Eventual);
        let check = |line: u32, message: String| {
            let place = format!("{}:{line}:", file!());
            for part in ["KeyedRwLock \"files\"", "u32", &place] {
                assert!(message.contains(part), "{part} is not in: {message}");
            }
        };
        let held = locks.write(&K);
        check(line!(), panic_message(|| drop(locks.read(&K))));
        check(line!(), panic_message(|| drop(locks.write(&K))));
        check(line!(), panic_message(|| drop(locks.read_arc(&K))));
        check(line!(), panic_message(|| drop(locks.write_arc(&K))));
        check(line!(), panic_message(|| locks.with_read(&K, || ())));
        check(line!(), panic_message(|| locks.with_write(&K, || ())));
        check(line!(), panic_message(|| drop(locks.read_all())));
        check(line!(), panic_message(|| drop(locks.write_all())));
        check(line!(), panic_message(|| drop(locks.read_keys([&J, &K]))));
        check(line!(), panic_message(|| drop(locks.write_keys([&J, &K]))));
        check(line!(), deadlock(locks.read_with(&K, LONG)).to_string());
        check(line!(), deadlock(locks.write_with(&K, LONG)).to_string());
        check(line!(), deadlock(locks.read_arc_with(&K, LONG)).to_string());
        check(line!(), deadlock(locks.write_arc_with(&K, LONG)).to_string());
        check(line!(), deadlock(locks.read_all_with(LONG)).to_string());
        check(line!(), deadlock(locks.write_all_with(LONG)).to_string());
        check(line!(), deadlock(locks.read_keys_with([&J, &K], LONG)).to_string());
        check(line!(), deadlock(locks.write_keys_with([&J, &K], LONG)).to_string());
        assert!(!locks.is_locked(&J), "what was taken is given back");
        drop(held);
        check_free(&locks);
    });
}

/// A writer waits for k; who reads k already reads it again, and others do not under `Fifo`.
#[test]
fn reading_again_passes_a_waiting_writer() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let first = locks.read(&K);
            let writer = scope.spawn(|| drop(locks.write(&K)));
            until(|| locks.waiters(&K) == 1);
            if fairness == Fairness::Fifo {
                assert!(elsewhere(|| locks.try_read(&K).is_none()));
            }
            // More often than a window allows.
            for _ in 0..100 {
                let again = (locks.read(&K), locks.try_read(&K).unwrap(), locks.read_with(&K, LONG).unwrap());
                locks.with_read(&K, || assert_eq!(locks.snapshot()[0].held, 5));
                drop((again, locks.read_keys([&K, &J])));
            }
            // It would wait for the writer.
            assert!(locks.try_read_all().is_none());
            deadlock(locks.read_all_with(Wait::forever()));
            assert!(panic_message(|| drop(locks.read_all())).contains("\"files\""));
            assert_eq!(locks.waiters(&K), 1);
            drop(first);
            writer.join().unwrap();
        });
        check_free(&locks);
    });
}

/// A lock over all keys waits for what a thread holds: that thread goes past it, and others do not.
#[test]
fn who_is_waited_for_passes() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for (holds, waits) in [(Read(J), WriteAll), (Write(J), WriteAll), (Write(J), ReadAll), (ReadAll, WriteAll)] {
            threads(|scope| {
                let held = holds.lock(&locks);
                let all = scope.spawn(|| drop(waits.lock(&locks)));
                until(|| waits.is_waited_for(&locks));
                for asked in [Read(K), Write(K), Read(OTHER), ReadAll] {
                    if !asked.conflicts(holds) {
                        drop((asked.lock(&locks), asked.try_lock(&locks)));
                        assert!(asked.try_lock(&locks).is_some(), "{asked:?} under {holds:?}, {waits:?} waits");
                        assert!(asked.lock_with(&locks, LONG).is_ok());
                        assert!(asked.lock_keys_with(&locks, LONG).is_none_or(|outcome| outcome.is_ok()));
                    }
                    let passes = !asked.conflicts(waits) && !asked.conflicts(holds);
                    assert_eq!(elsewhere(|| asked.try_lock(&locks).is_some()), passes, "{asked:?}, {waits:?} waits");
                }
                drop(held);
                all.join().unwrap();
            });
            check_free(&locks);
        }
    });
}

/// A `read_all` does not wait for readers, so a reader that asks to write waits behind it.
#[test]
fn who_is_not_waited_for_does_not_pass() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let written = locks.write_arc(&K);
            let all = scope.spawn(|| drop(locks.read_all()));
            until(|| ReadAll.is_waited_for(&locks));
            let reader = locks.read(&J);
            assert!(locks.try_write(&OTHER).is_none());
            assert_eq!(locks.write_with(&OTHER, SHORT).map(drop), Err(AcquireError::Timeout));
            assert!(locks.try_read(&OTHER).is_some());
            drop(written);
            all.join().unwrap();
            assert!(locks.try_write(&OTHER).is_some());
            drop(reader);
        });
        check_free(&locks);
    });
}

/// Under `Eventual` the writer's release rings the reader, who is late; the try counts as an overtake of a head that has waited
/// for more than its window. That is no reason to refuse: nothing conflicts, and who reads every key passes whoever waits.
#[test]
fn the_holder_of_read_all_passes_a_reader_that_was_rung() {
    watched_in_both_modes(|fairness| {
        for _ in 0..rounds(100) {
            let locks = Arc::new(KeyedRwLock::<u32>::with_options(Options::new().shards(2).fairness(fairness)));
            let writer = locks.write_arc(&1);
            threads(|scope| {
                scope.spawn(|| drop(locks.read(&1)));
                until(|| locks.waiters(&1) == 1);
                let queued = Instant::now();
                until(|| queued.elapsed() > Duration::from_millis(1));
                drop(writer);
                let everything = locks.read_all();
                assert!(locks.try_read(&1).is_some());
                drop(everything);
            });
        }
    });
}

/// A writer of k waits for a `read_all`; its holder reads k.
#[test]
fn the_holder_of_read_all_passes_waiting_writers() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let held = locks.read_all();
            let writer = scope.spawn(|| drop(locks.write(&K)));
            until(|| locks.waiters(&K) == 1);
            assert_eq!(locks.len(), 0, "held back, it has no place in a queue");
            let beside = (locks.read(&K), locks.read_all(), locks.read_keys([&K, &J]));
            assert!(locks.try_read(&K).is_some() && locks.try_read_all().is_some());
            assert!(elsewhere(|| locks.try_read(&K).is_some()), "who is held back holds up nobody else");
            drop((held, beside));
            writer.join().unwrap();
        });
        check_free(&locks);
    });
}

/// They are held back by a `write_all` that waits for a reader.
#[test]
fn a_lock_over_all_keys_that_gives_up_lets_others_in() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let token = CancellationToken::new();
        threads(|scope| {
            let held = locks.read(&J);
            let all = scope.spawn(|| locks.write_all_with(&token).map(drop));
            until(|| WriteAll.is_waited_for(&locks));
            let reader = scope.spawn(|| drop(locks.read(&K)));
            let writer = scope.spawn(|| locks.write_with(&OTHER, LONG).is_ok());
            until(|| (locks.waiters(&K), locks.waiters(&OTHER)) == (1, 1));
            token.cancel();
            assert_eq!(all.join().unwrap(), Err(AcquireError::Cancelled));
            reader.join().unwrap();
            assert!(writer.join().unwrap());
            drop(held);
        });
        check_free(&locks);
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let token = CancellationToken::new();
        threads(|scope| {
            let held = locks.read(&K);
            let writer = scope.spawn(|| locks.write_with(&K, &token).map(drop));
            until(|| locks.waiters(&K) == 1);
            let reader = scope.spawn(|| drop(locks.read(&K)));
            if fairness == Fairness::Fifo {
                until(|| locks.waiters(&K) == 2);
            }
            token.cancel();
            assert_eq!(writer.join().unwrap(), Err(AcquireError::Cancelled));
            reader.join().unwrap();
            drop(held);
        });
        check_free(&locks);
    });
}

#[test]
fn downgrade() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let writer: KeyedRwLockWriteGuard<'_, u32> = locks.write(&K);
        assert!(locks.is_locked_by_current_thread(&K));
        let reader: KeyedRwLockReadGuard<'_, u32> = KeyedRwLockWriteGuard::downgrade(writer);
        assert!(locks.is_locked(&K) && !locks.is_write_locked(&K) && !locks.is_locked_by_current_thread(&K));
        assert_eq!(locks.snapshot()[0].held, 1);
        elsewhere(|| {
            assert!(locks.try_read(&K).is_some() && locks.try_read_all().is_some());
            assert!(locks.try_write(&K).is_none() && locks.try_write_all().is_none());
        });
        // It is known as a hold of this thread still.
        drop((locks.read(&K), locks.read_all()));
        deadlock(locks.write_with(&K, Wait::forever()));
        deadlock(locks.write_all_with(Wait::forever()));
        drop(reader);
        check_free(&locks);

        let reader = ArcKeyedRwLockWriteGuard::downgrade(locks.write_arc(&K));
        assert!(locks.is_locked(&K) && !locks.is_write_locked(&K));
        assert!(locks.try_read(&K).is_some() && locks.try_read_all().is_some());
        assert_eq!(locks.write_with(&K, Wait::now()).map(drop), Err(AcquireError::Busy));
        assert_eq!(locks.write_all_with(Wait::now()).map(drop), Err(AcquireError::Busy));
        elsewhere(|| drop(reader));
        check_free(&locks);
    });
}

/// With so many holds that they are not looked through one by one.
#[test]
fn downgrade_and_upgrade_among_many_holds() {
    const MANY: u32 = 200;
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let readers: Vec<_> = (100..100 + MANY).map(|key| locks.read(&key)).collect();
        let writer = locks.write(&K);
        deadlock(locks.read_all_with(Wait::forever()));
        let reader = KeyedRwLockWriteGuard::downgrade(writer);
        drop((locks.read(&K), locks.read_all()));
        deadlock(locks.write_with(&K, Wait::forever()));
        let writer = KeyedRwLockReadGuard::try_upgrade(reader).expect("the only one");
        deadlock(locks.read_all_with(Wait::forever()));
        drop(readers);
        deadlock(locks.read_all_with(Wait::forever()));
        let reader = KeyedRwLockWriteGuard::downgrade(writer);
        drop(locks.read_all());
        deadlock(locks.write_all_with(Wait::forever()));
        drop(reader);
        drop(locks.write_all());
        check_free(&locks);
    });
}

/// Under `Fifo`: a reader that is first in the queue enters, one behind a writer waits.
#[test]
fn downgrade_with_others_queued() {
    watched(|| {
        let locks = table(Fairness::Fifo);
        for arc in [false, true] {
            for [first, second] in [[Read(K), Write(K)], [Write(K), Read(K)]] {
                let release = AtomicBool::new(false);
                threads(|scope| {
                    let (borrowed, owned) =
                        if arc { (None, Some(locks.write_arc(&K))) } else { (Some(locks.write(&K)), None) };
                    for (queued, what) in [first, second].into_iter().enumerate() {
                        let (locks, release) = (&locks, &release);
                        scope.spawn(move || {
                            let _held = what.lock(locks);
                            until(|| release.load(Ordering::Acquire));
                        });
                        until(|| locks.waiters(&K) == queued + 1);
                    }
                    let readers = (
                        borrowed.map(KeyedRwLockWriteGuard::downgrade),
                        owned.map(ArcKeyedRwLockWriteGuard::downgrade),
                    );
                    // Let in by the call.
                    let held_and_waiting = (locks.snapshot()[0].held, locks.waiters(&K));
                    release.store(true, Ordering::Release);
                    assert_eq!(held_and_waiting, if first == Read(K) { (2, 1) } else { (1, 2) });
                    drop(readers);
                });
                check_free(&locks);
            }
        }
    });
}

/// A `read_all` waits for a writer; it is let in beside the reader that this becomes.
#[test]
fn downgrade_with_a_read_all_waiting() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let writer = locks.write(&K);
            let all = scope.spawn(|| drop(locks.read_all()));
            until(|| ReadAll.is_waited_for(&locks));
            let reader = KeyedRwLockWriteGuard::downgrade(writer);
            all.join().unwrap();
            drop(reader);
        });
        check_free(&locks);
    });
}

#[test]
fn upgrade() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let reader = locks.read(&K);
        let beside = locks.read(&J);
        let writer: KeyedRwLockWriteGuard<'_, u32> = KeyedRwLockReadGuard::try_upgrade(reader).expect("the only one");
        assert!(locks.is_write_locked(&K) && locks.is_locked_by_current_thread(&K));
        let status = locks.snapshot().into_iter().find(|status| status.key == K).unwrap();
        assert_eq!(status.held, status.limit);
        elsewhere(|| assert!(locks.try_read(&K).is_none() && locks.try_read_all().is_none()));
        deadlock(locks.read_with(&K, Wait::forever()));
        deadlock(locks.read_all_with(Wait::forever()));
        // There and back.
        let reader = KeyedRwLockWriteGuard::downgrade(writer);
        assert!(elsewhere(|| locks.try_read(&K).is_some() && locks.try_read_all().is_some()));
        drop(KeyedRwLockReadGuard::try_upgrade(reader).expect("the only one, again"));
        assert!(!locks.is_locked(&K));
        drop(beside);
        check_free(&locks);

        let writer: ArcKeyedRwLockWriteGuard<u32> =
            ArcKeyedRwLockReadGuard::try_upgrade(locks.read_arc(&K)).expect("the only one");
        assert!(locks.is_write_locked(&K) && !locks.is_locked_by_current_thread(&K));
        assert_eq!(locks.read_with(&K, Wait::now()).map(drop), Err(AcquireError::Busy));
        assert_eq!(locks.read_all_with(Wait::now()).map(drop), Err(AcquireError::Busy));
        elsewhere(|| drop(writer));
        check_free(&locks);
    });
}

#[test]
fn upgrade_beside_others() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for elsewhere_too in [false, true] {
            let reader = locks.read(&K);
            let other = if elsewhere_too { elsewhere(|| locks.read_arc(&K)) } else { locks.read_arc(&K) };
            let reader = KeyedRwLockReadGuard::try_upgrade(reader).expect_err("there is another reader");
            assert!(locks.is_locked(&K) && !locks.is_write_locked(&K));
            drop(other);
            drop(KeyedRwLockReadGuard::try_upgrade(reader).expect("it is gone"));
            check_free(&locks);
        }
        for beside in [Read(K), ReadAll] {
            let (reader, own) = (locks.read(&K), beside.lock(&locks));
            let reader = KeyedRwLockReadGuard::try_upgrade(reader).expect_err("this thread reads it by another guard");
            drop(own);
            let arc_reader = ArcKeyedRwLockReadGuard::try_upgrade(locks.read_arc(&K)).expect_err("so it does here");
            drop(arc_reader);
            drop(KeyedRwLockReadGuard::try_upgrade(reader).expect("it is gone"));
            check_free(&locks);

            let own = beside.lock(&locks);
            elsewhere(|| {
                let reader = locks.read(&K);
                drop(KeyedRwLockReadGuard::try_upgrade(reader).expect_err("another thread reads it"));
                let reader = locks.read_arc(&K);
                drop(ArcKeyedRwLockReadGuard::try_upgrade(reader).expect_err("another thread reads it"));
            });
            drop(own);
            check_free(&locks);
        }
    });
}

#[test]
fn upgrade_overtakes_who_waits() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for waits in [Write(K), WriteAll] {
            threads(|scope| {
                let reader = locks.read(&K);
                let waiter = scope.spawn(|| drop(waits.lock(&locks)));
                until(|| waits.is_waited_for(&locks));
                let writer = KeyedRwLockReadGuard::try_upgrade(reader).expect("nobody else holds it");
                assert!(locks.is_write_locked(&K) && waits.is_waited_for(&locks));
                let reader = KeyedRwLockWriteGuard::downgrade(writer);
                drop(KeyedRwLockReadGuard::try_upgrade(reader).expect("nobody else holds it"));
                waiter.join().unwrap();
            });
            check_free(&locks);
        }
        // One that did not wait for the reader waits for the writer.
        threads(|scope| {
            let (other, reader) = (locks.write(&J), locks.read(&K));
            let all = scope.spawn(|| {
                let _held = locks.read_all();
                assert!(!locks.is_write_locked(&K), "it came in beside a writer");
            });
            until(|| ReadAll.is_waited_for(&locks));
            let writer = KeyedRwLockReadGuard::try_upgrade(reader).expect("nobody holds a `read_all`");
            drop(other);
            assert!(ReadAll.is_waited_for(&locks) && locks.is_write_locked(&K));
            drop(writer);
            all.join().unwrap();
        });
        check_free(&locks);
    });
}

#[test]
fn unlock_fair_hands_over() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let unlock: [Unlock<'_>; 4] = [
            &|queue| {
                let guard = locks.write(&K);
                queue();
                KeyedRwLockWriteGuard::unlock_fair(guard);
            },
            &|queue| {
                let guard = locks.read(&K);
                queue();
                KeyedRwLockReadGuard::unlock_fair(guard);
            },
            &|queue| {
                let guard = locks.write_arc(&K);
                queue();
                ArcKeyedRwLockWriteGuard::unlock_fair(guard);
            },
            &|queue| {
                let guard = locks.read_arc(&K);
                queue();
                ArcKeyedRwLockReadGuard::unlock_fair(guard);
            },
        ];
        for unlock in unlock {
            let seen = AtomicBool::new(false);
            threads(|scope| {
                unlock(&|| {
                    scope.spawn(|| {
                        let _held = locks.write(&K);
                        until(|| seen.load(Ordering::Acquire));
                    });
                    until(|| locks.waiters(&K) == 1);
                });
                // Granted within the call.
                let granted = (locks.is_write_locked(&K), locks.waiters(&K));
                seen.store(true, Ordering::Release);
                assert_eq!(granted, (true, 0));
            });
            check_free(&locks);
        }
        // Beside another reader there is nothing to hand over.
        threads(|scope| {
            let (one, two) = (locks.read(&K), locks.read(&K));
            scope.spawn(|| drop(locks.write(&K)));
            until(|| locks.waiters(&K) == 1);
            KeyedRwLockReadGuard::unlock_fair(one);
            assert_eq!((locks.is_write_locked(&K), locks.waiters(&K)), (false, 1));
            drop(two);
        });
        check_free(&locks);
    });
}

#[test]
fn guards_show_what_they_are() {
    /// A key that cannot be printed.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Opaque(u32);

    let locks = Arc::new(KeyedRwLock::<Opaque>::with_options(Options::new().name("files").fairness(Fairness::Fifo)));
    let [k, j] = [Opaque(K), Opaque(J)];
    let reader: KeyedRwLockReadGuard<'_, Opaque> = locks.read(&k);
    assert_eq!(format!("{reader:?}"), "KeyedRwLockReadGuard { .. }");
    let arc_reader: ArcKeyedRwLockReadGuard<Opaque> = locks.read_arc(&k);
    assert_eq!(format!("{arc_reader:?}"), "ArcKeyedRwLockReadGuard { .. }");
    let writer: KeyedRwLockWriteGuard<'_, Opaque> = locks.write(&j);
    assert_eq!(format!("{writer:?}"), "KeyedRwLockWriteGuard { .. }");
    let shown = format!("{locks:?}");
    for part in ["KeyedRwLock", "files", "Fifo", "len: 2"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    drop((reader, arc_reader, writer));
    let arc_writer: ArcKeyedRwLockWriteGuard<Opaque> = locks.write_arc(&k);
    assert_eq!(format!("{arc_writer:?}"), "ArcKeyedRwLockWriteGuard { .. }");
    drop(arc_writer);
    let readers: KeyedRwLockReadKeysGuard<'_, Opaque> = locks.read_keys([&k, &j, &k]);
    assert_eq!(format!("{readers:?}"), "KeyedRwLockReadKeysGuard { keys: 2, .. }");
    drop(readers);
    let writers: KeyedRwLockWriteKeysGuard<'_, Opaque> = locks.write_keys([&k, &j, &k]);
    assert_eq!(format!("{writers:?}"), "KeyedRwLockWriteKeysGuard { keys: 2, .. }");
    drop(writers);
    let all: KeyedRwLockReadAllGuard<'_, Opaque> = locks.read_all();
    assert_eq!(format!("{all:?}"), "KeyedRwLockReadAllGuard { .. }");
    drop(all);
    let all: KeyedRwLockWriteAllGuard<'_, Opaque> = locks.write_all();
    assert_eq!(format!("{all:?}"), "KeyedRwLockWriteAllGuard { .. }");
}

#[test]
fn a_reentrant_table_is_refused() {
    let message = panic_message(|| KeyedRwLock::<u32>::with_options(Options::new().reentrant(true)));
    assert!(message.contains("a KeyedRwLock cannot be reentrant"), "{message}");
}

#[test]
fn any_hasher_and_any_form_of_key() {
    type Fixed = BuildHasherDefault<DefaultHasher>;
    let locks = KeyedRwLock::<String, Fixed>::default();
    drop((locks.read("a"), locks.write("b")));
    drop((locks.read_keys(["b", "a"]), locks.read_keys(&["c".to_owned()])));
    drop(locks.write_keys(["b", "a"].iter().copied()));
    let locks = KeyedRwLock::<&'static str, _>::with_options(Options::new().hasher(Fixed::default()));
    assert!(locks.try_write(&"a").is_some() && locks.is_empty());
}

#[test]
fn what_is_known_of_a_key() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let known = |key| (locks.is_locked(&key), locks.is_write_locked(&key), locks.is_locked_by_current_thread(&key));
        assert_eq!((known(K), locks.len(), locks.is_empty()), ((false, false, false), 0, true));
        let (one, two, writer) = (locks.read(&K), locks.read_arc(&K), locks.write(&J));
        assert_eq!(
            (known(K), known(J), known(OTHER)),
            ((true, false, false), (true, true, true), (false, false, false))
        );
        elsewhere(|| assert_eq!((known(K), known(J)), ((true, false, false), (true, true, false))));
        assert_eq!((locks.len(), locks.is_empty(), locks.waiters(&K)), (2, false, 0));
        let mut keys = locks.snapshot();
        keys.sort_by_key(|status| status.key);
        assert_eq!(
            keys.iter().map(|status| (status.key, status.held)).collect::<Vec<_>>(),
            [(K, 2), (J, keys[1].limit)]
        );
        drop((one, two, writer));

        let all = locks.read_all();
        assert_eq!((known(K), locks.len(), locks.is_empty()), ((true, false, false), 0, true));
        drop(all);
        let all = locks.write_all();
        assert_eq!((known(K), locks.len(), locks.is_empty()), ((true, true, false), 0, true));
        elsewhere(|| assert_eq!(known(K), (true, true, false)));
        drop(all);
        let keys = locks.write_keys([&K, &J]);
        assert_eq!((known(K), known(J), locks.len()), ((true, true, true), (true, true, true), 2));
        drop(keys);
        check_free(&locks);
    });
}

#[test]
fn who_waits_is_counted() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let held = locks.write(&K);
            for (count, what) in [Read(K), Write(K), Read(K)].into_iter().enumerate() {
                let locks = &locks;
                scope.spawn(move || drop(what.lock(locks)));
                until(|| locks.waiters(&K) == count + 1);
            }
            let [status] = &locks.snapshot()[..] else { panic!("one key") };
            assert_eq!(status.waiters.iter().map(|waiter| waiter.permits).collect::<Vec<_>>(), [1, status.limit, 1]);
            assert!(status.waiters.iter().all(|waiter| waiter.location.file() == file!()));
            drop(held);
        });
        check_free(&locks);
        // Those that are held back by a lock over every key are counted all the same; their key has no entry.
        threads(|scope| {
            let held = locks.write_all();
            for (count, what) in [Read(K), Write(K), Read(K)].into_iter().enumerate() {
                let locks = &locks;
                scope.spawn(move || drop(what.lock(locks)));
                until(|| locks.waiters(&K) == count + 1);
            }
            assert_eq!((locks.len(), locks.waiters(&J)), (0, 0));
            drop(held);
        });
        check_free(&locks);
    });
}

/// If several outcomes are true at the call.
#[test]
fn which_outcome() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let token = CancellationToken::new();
        token.cancel();
        let cancelled = |asked: What| {
            for wait in [Wait::from(&token), Wait::now().max_queued(0).or_cancelled(&token)] {
                assert_eq!(asked.lock_with(&locks, &wait).map(drop), Err(AcquireError::Cancelled));
                let by_arc = asked.lock_arc_with(&locks, &wait).unwrap_or(Err(AcquireError::Cancelled));
                let by_keys = asked.lock_keys_with(&locks, &wait).unwrap_or(Err(AcquireError::Cancelled));
                assert_eq!(
                    (by_arc.map(drop), by_keys.map(drop)),
                    (Err(AcquireError::Cancelled), Err(AcquireError::Cancelled))
                );
            }
        };
        // Before the grant, the own hold, and the hold of another.
        ALL.into_iter().for_each(cancelled);
        let held = locks.write(&K);
        ALL.into_iter().for_each(cancelled);
        elsewhere(|| {
            ALL.into_iter().for_each(cancelled);
            let past = Instant::now();
            for asked in ALL.into_iter().filter(|asked| asked.conflicts(Write(K))) {
                for wait in [Wait::now(), Duration::ZERO.into(), past.into()] {
                    assert_eq!(asked.lock_with(&locks, wait.max_queued(0)).map(drop), Err(AcquireError::Busy));
                }
                let full = Wait::at_most(Duration::from_nanos(1)).max_queued(0);
                assert_eq!(asked.lock_with(&locks, full).map(drop), Err(AcquireError::QueueFull));
            }
            // What can be had is had, whatever the wait.
            for wait in [Wait::now(), Duration::ZERO.into(), past.into(), Wait::forever().max_queued(0)] {
                assert!(Read(J).lock_with(&locks, &wait).is_ok() && Write(J).lock_with(&locks, &wait).is_ok());
            }
        });
        drop(held);
        for wait in [Wait::now(), Duration::ZERO.into(), Wait::forever().max_queued(0), Wait::from(Duration::MAX)] {
            assert!(ALL.into_iter().all(|asked| asked.lock_with(&locks, &wait).is_ok()));
        }
        check_free(&locks);
    });
}

#[test]
fn closures_run_inside_and_a_panic_releases() {
    watched(|| {
        let locks = table(Fairness::Eventual);
        let value = locks.with_read(&K, || {
            assert!(locks.is_locked(&K) && !locks.is_write_locked(&K));
            "value".to_owned()
        });
        assert_eq!(locks.with_write(&K, || (value, locks.is_locked_by_current_thread(&K))), ("value".to_owned(), true));
        assert!(panics(|| locks.with_read(&K, || quiet_panic())));
        assert!(panics(|| locks.with_write(&K, || quiet_panic())));
        for what in ALL {
            assert!(panics(|| {
                let _held = what.lock(&locks);
                quiet_panic()
            }));
            check_free(&locks);
        }
    });
}

#[test]
fn several_keys_are_taken_each_once_and_given_back() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let nothing: [&u32; 0] = [];
        assert_eq!(format!("{:?}", locks.read_keys(nothing)), "KeyedRwLockReadKeysGuard { keys: 0, .. }");
        assert_eq!(format!("{:?}", locks.write_keys(nothing)), "KeyedRwLockWriteKeysGuard { keys: 0, .. }");
        let readers = (locks.read_keys([&J, &K, &J]), locks.read_keys([&K, &J]));
        assert!(locks.snapshot().iter().all(|status| status.held == 2));
        assert!(elsewhere(|| locks.try_read(&K).is_some() && locks.try_write(&J).is_none()));
        drop(readers);
        let writers = locks.write_keys([&J, &K, &J]);
        assert!(elsewhere(|| locks.try_read(&K).is_none() && locks.try_write(&J).is_none()));
        drop(writers);
        // The last of three is taken: what was had before it is given back.
        let taken = locks.read_arc(&OTHER);
        for wait in [Wait::now(), Wait::at_most(SHORT), Wait::forever().max_queued(0)] {
            assert!(locks.write_keys_with([&K, &OTHER, &J], &wait).is_err());
            assert!(locks.read_keys_with([&K, &OTHER, &J], &wait).is_ok());
            assert_eq!((locks.len(), locks.waiters(&OTHER)), (1, 0));
        }
        drop(taken);
        check_free(&locks);
    });
}

#[test]
fn idle_entries_are_swept() {
    watched(|| {
        let locks = Arc::new(KeyedRwLock::<u32>::with_options(Options::new().idle_ttl(Duration::ZERO)));
        drop((locks.read(&K), locks.write(&J)));
        assert_eq!((locks.len(), locks.is_locked(&K)), (2, false));
        drop(locks.write_all());
        let reader = locks.read(&K);
        assert_eq!((locks.sweep(), locks.len()), (1, 1));
        drop(reader);
        let all = locks.read_all();
        assert_eq!(Sweep::sweep(&*locks), 1, "a lock over every key keeps no entry");
        drop(all);
        assert!(locks.is_empty());
        locks.shrink_to_fit();

        let sweeper = Sweeper::spawn(&locks, Duration::from_millis(1));
        drop(locks.write(&K));
        until(|| locks.is_empty());
        sweeper.stop();
    });
}
