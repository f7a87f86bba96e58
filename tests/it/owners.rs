//! Who holds what, as `snapshot` shows it where owners are tracked; and that the counts are exact.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use perkey::{
    ArcKeyedRwLockReadGuard, Fairness, HolderStatus, KeyStatus, KeyedLock, KeyedLockGuard, KeyedMutex, KeyedRwLock,
    KeyedRwLockReadGuard, KeyedRwLockWriteGuard, KeyedSemaphore, Options, Wait, WaiterStatus,
};

use crate::support::{Barrier, elsewhere, panics, quiet_panic, rounds, threads, until, watched, watched_in_both_modes};

const LONG: Duration = Duration::from_secs(3600);
const ALL_PERMITS: usize = (u32::MAX >> 2) as usize;

fn tracking() -> Options {
    Options::new().track_owners(true)
}

fn me() -> ThreadId {
    thread::current().id()
}

/// The one key that there is.
#[track_caller]
fn only<K: Debug>(mut keys: Vec<KeyStatus<K>>) -> KeyStatus<K> {
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

/// Who, with how many permits, from which line, and whether it may have moved.
fn said(holders: &[HolderStatus]) -> Vec<(ThreadId, usize, u32, bool)> {
    assert!(holders.iter().all(|holder| holder.location.file() == file!()), "{holders:?}");
    assert!(holders.is_sorted_by_key(|holder| holder.since), "{holders:?}");
    holders.iter().map(|holder| (holder.thread.id(), holder.permits, holder.location.line(), holder.movable)).collect()
}

fn waiting(waiters: &[WaiterStatus]) -> Vec<(ThreadId, usize, u32)> {
    assert!(waiters.iter().all(|waiter| waiter.location.file() == file!()), "{waiters:?}");
    assert!(waiters.is_sorted_by_key(|waiter| waiter.since), "{waiters:?}");
    waiters.iter().map(|waiter| (waiter.thread.id(), waiter.permits, waiter.location.line())).collect()
}

#[test]
fn nobody_is_shown_where_owners_are_not_tracked() {
    let (locks, files) = (KeyedLock::<u32>::new(), KeyedRwLock::<u32>::new());
    let _held = (locks.lock(&1), files.read(&1), files.read_all());
    assert!(only(locks.snapshot()).holders.is_empty());
    let status = only(files.snapshot());
    assert!(status.holders.is_empty() && status.holders_of_all.is_empty());
    assert_eq!((status.held, status.held_with_all), (1, 1));
}

#[test]
fn a_lock_shows_who_holds_it() {
    let locks = Arc::new(KeyedLock::<u32>::with_options(tracking()));
    let before = Instant::now();
    let (held, line) = (locks.lock(&1), line!());
    let holders = only(locks.snapshot()).holders;
    assert_eq!(said(&holders), [(me(), 1, line, false)]);
    assert!(before <= holders[0].since && holders[0].since <= Instant::now());
    drop(held);
    assert!(locks.snapshot().is_empty());

    // By each call.
    let (guard, line) = (locks.try_lock(&1), line!());
    assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line, false)]);
    drop(guard);
    let (guard, line) = (locks.try_lock_for(&1, LONG), line!());
    assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line, false)]);
    drop(guard);
    let (guard, line) = (locks.lock_with(&1, Wait::now()), line!());
    assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line, false)]);
    drop(guard);
    let (guard, line) = (locks.lock_arc(&1), line!());
    assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line, true)]);
    drop(guard);
    let (guard, line) = (locks.try_lock_arc(&1), line!());
    assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line, true)]);
    drop(guard);
    locks.with_key(&1, || assert_eq!(said(&only(locks.snapshot()).holders), [(me(), 1, line!(), false)]));
    KeyedLockGuard::unlock_fair(locks.lock(&1));
    assert!(locks.snapshot().is_empty());
}

#[test]
fn an_arc_guard_is_shown_with_the_thread_that_took_it() {
    let locks = Arc::new(KeyedLock::<u32>::with_options(tracking()));
    let guard = elsewhere(|| (locks.lock_arc(&1), me()));
    assert_ne!(guard.1, me());
    let holders = only(locks.snapshot()).holders;
    assert_eq!((holders[0].thread.id(), holders[0].movable), (guard.1, true));
    assert!(holders[0].to_string().starts_with("taken, and perhaps passed on, by "), "{}", holders[0]);
    elsewhere(move || drop(guard.0));
    assert!(locks.snapshot().is_empty());
}

#[test]
fn each_guard_of_a_reentrant_lock_is_a_hold() {
    let locks = KeyedLock::<u32>::with_options(tracking().reentrant(true));
    let (first, first_line) = (locks.lock(&1), line!());
    let (second, second_line) = (locks.lock(&1), line!());
    let (third, third_line) = (locks.try_lock(&1).unwrap(), line!());
    let status = only(locks.snapshot());
    assert_eq!(status.held, 3);
    let lines = |lines: &[u32]| lines.iter().map(|line| (me(), 1, *line, false)).collect::<Vec<_>>();
    assert_eq!(said(&status.holders), lines(&[first_line, second_line, third_line]));
    drop(first);
    assert_eq!(said(&only(locks.snapshot()).holders), lines(&[second_line, third_line]));
    drop(third);
    assert_eq!(said(&only(locks.snapshot()).holders), lines(&[second_line]));
    drop(second);
    assert!(locks.snapshot().is_empty());
}

#[test]
fn each_of_several_keys_is_a_hold() {
    let locks = KeyedLock::<u32>::with_options(tracking());
    let (held, line) = (locks.lock_keys(&[3, 1, 2, 1]), line!());
    let mut keys = locks.snapshot();
    keys.sort_unstable_by_key(|status| status.key);
    assert_eq!(keys.iter().map(|status| status.key).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(keys.iter().all(|status| said(&status.holders) == [(me(), 1, line, false)]));
    drop(held);
    // Those that it had when it failed are given back.
    let held = locks.lock(&2);
    elsewhere(|| assert!(locks.lock_keys_with(&[1, 2], Duration::from_micros(50)).is_err()));
    assert_eq!(only(locks.snapshot()).holders.len(), 1);
    drop(held);
    assert!(locks.snapshot().is_empty());
}

#[test]
fn a_mutex_shows_who_holds_it_and_who_visits() {
    let values = KeyedMutex::<u32, u32>::with_options(tracking());
    let (mut held, line) = (values.lock(&1), line!());
    *held = Some(5);
    assert_eq!(said(&only(values.snapshot()).holders), [(me(), 1, line, false)]);
    drop(held);
    // It has a value, and nobody holds it.
    let status = only(values.snapshot());
    assert_eq!((status.held, status.holders.len()), (0, 0));

    let mut seen = Vec::new();
    let line = line!() + 1;
    values.retain(|key, _| {
        seen.push((*key, said(&only(values.snapshot()).holders)));
        true
    });
    assert_eq!(seen, [(1, vec![(me(), 1, line, false)])]);
    assert!(panics(|| {
        values.retain(|_, _| quiet_panic());
    }));
    assert!(values.snapshot().iter().all(|status| status.holders.is_empty()));
    assert_eq!((values.insert(&1, 6), values.get_cloned(&1), values.remove(&1)), (Some(5), Some(6), Some(6)));
    assert!(values.snapshot().is_empty());
}

#[test]
fn permits_are_shown_with_their_number_oldest_first() {
    let hosts = Arc::new(KeyedSemaphore::<u32>::with_limit_and_options(10, tracking()));
    let (first, first_line) = (hosts.acquire_many(&1, 4, LONG).unwrap(), line!());
    let (other, (second, second_line)) = elsewhere(|| (me(), (hosts.acquire_many_arc(&1, 2, LONG).unwrap(), line!())));
    let (third, third_line) = (hosts.acquire(&1), line!());
    let status = only(hosts.snapshot());
    assert_eq!((status.held, status.limit), (7, 10));
    let all = [(me(), 4, first_line, false), (other, 2, second_line, true), (me(), 1, third_line, false)];
    assert_eq!(said(&status.holders), all);
    let text = status.to_string();
    assert!(text.starts_with("1: 7 of 10 held, 0 waiting\n  held by thread "), "{text}");
    assert!(text.contains(&format!(" with 4 permits, at {}:{first_line}:", file!())), "{text}");
    drop(first);
    assert_eq!(said(&only(hosts.snapshot()).holders), all[1..]);
    drop((second, third));
    assert!(hosts.snapshot().is_empty());
}

#[test]
fn readers_and_writers_are_shown_and_what_they_become() {
    let files = Arc::new(KeyedRwLock::<u32>::with_options(tracking()));
    let (read, line) = (files.read(&1), line!());
    let (other, (second, second_line)) = elsewhere(|| (me(), (files.read_arc(&1), line!())));
    let both = [(me(), 1, line, false), (other, 1, second_line, true)];
    let status = only(files.snapshot());
    assert_eq!((status.held, said(&status.holders)), (2, both.to_vec()));
    assert!(status.to_string().starts_with("1: held by 2 to read, 0 waiting"), "{status}");
    let read = KeyedRwLockReadGuard::try_upgrade(read).unwrap_err();
    assert_eq!(said(&only(files.snapshot()).holders), both);
    drop(second);

    let since = only(files.snapshot()).holders[0].since;
    let write = KeyedRwLockReadGuard::try_upgrade(read).unwrap();
    let status = only(files.snapshot());
    assert_eq!(said(&status.holders), [(me(), ALL_PERMITS, line, false)]);
    assert_eq!(status.holders[0].since, since);
    assert!(status.to_string().starts_with("1: held to write, 0 waiting"), "{status}");
    assert!(status.holders[0].to_string().contains(" to write, at "), "{status}");
    let read = KeyedRwLockWriteGuard::downgrade(write);
    assert_eq!(said(&only(files.snapshot()).holders), [(me(), 1, line, false)]);
    drop(read);
    assert!(files.snapshot().is_empty());

    let (read, line) = (files.read_arc(&1), line!());
    let write = ArcKeyedRwLockReadGuard::try_upgrade(read).unwrap();
    assert_eq!(said(&only(files.snapshot()).holders), [(me(), ALL_PERMITS, line, true)]);
    drop(write);
    assert!(files.snapshot().is_empty());
}

/// Those who hold and want every key are shown with each key that there is.
#[test]
fn locks_over_every_key_are_shown_with_each() {
    watched(|| {
        let files = KeyedRwLock::<u32>::with_options(tracking());
        threads(|scope| {
            let (first, first_line) = (files.read_all(), line!());
            let (second, second_line) = (files.read_all(), line!());
            let _reads = (files.read(&1), files.read(&2));
            let write_line = line!() + 1;
            let writer = scope.spawn(|| drop(files.write_all()));
            until(|| files.snapshot()[0].waiters_for_all.len() == 1);
            let kept_line = line!() + 1;
            let kept = scope.spawn(|| drop(files.read(&1)));
            until(|| files.waiters(&1) == 1);
            for status in files.snapshot() {
                assert_eq!(said(&status.holders_of_all), [(me(), 1, first_line, false), (me(), 1, second_line, false)]);
                assert_eq!(status.held_with_all, 2);
                let all = waiting(&status.waiters_for_all);
                assert_eq!(all, [(writer.thread().id(), ALL_PERMITS, write_line)]);
                let kept: &[_] = if status.key == 1 { &[(kept.thread().id(), 1, kept_line)] } else { &[] };
                assert_eq!(waiting(&status.waiters), kept);
                let text = status.to_string();
                assert!(
                    text.starts_with(&format!("{}: held by 1 to read, and held with every key", status.key)),
                    "{text}"
                );
                assert_eq!(text.matches("\n  with every key held by thread ").count(), 2, "{text}");
                assert_eq!(text.matches("\n  for every key a thread without a name, ").count(), 1, "{text}");
                assert_eq!(text.lines().count(), 5 + kept.len(), "{text}");
            }
            drop(first);
            assert_eq!(said(&files.snapshot()[0].holders_of_all), [(me(), 1, second_line, false)]);
            drop(second);
        });
        assert!(files.snapshot().is_empty());
        let _all = files.write_all();
        assert!(files.snapshot().is_empty(), "there is no key to show it with");
    });
}

/// The permits are handed over: they are its own from then on, although it has not run.
#[test]
fn who_was_handed_a_key_holds_it_before_it_runs() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(tracking().fairness(Fairness::Fifo));
        for _ in 0..rounds(100) {
            let stays = AtomicBool::new(true);
            threads(|scope| {
                let held = locks.lock(&1);
                let line = line!() + 2;
                let next = scope.spawn(|| {
                    let guard = locks.lock(&1);
                    until(|| !stays.load(Ordering::Relaxed));
                    drop(guard);
                });
                until(|| locks.waiters(&1) == 1);
                let status = only(locks.snapshot());
                assert_eq!(waiting(&status.waiters), [(next.thread().id(), 1, line)]);
                let before = Instant::now();
                drop(held);
                let status = only(locks.snapshot());
                assert_eq!(said(&status.holders), [(next.thread().id(), 1, line, false)]);
                assert!(status.waiters.is_empty());
                assert!(status.holders[0].since >= before, "it holds since it was granted");
                stays.store(false, Ordering::Relaxed);
            });
            assert!(locks.snapshot().is_empty());
        }
    });
}

#[test]
fn a_kept_key_shows_nobody() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(tracking().fairness(fairness).idle_ttl(Duration::ZERO));
        let files = KeyedRwLock::<u32>::with_options(tracking().fairness(fairness).idle_ttl(Duration::ZERO));
        for round in 0..3 {
            let held = (locks.lock(&1), files.write(&1));
            assert_eq!(only(locks.snapshot()).holders.len(), 1);
            assert_eq!(only(files.snapshot()).holders.len(), 1);
            drop(held);
            threads(|scope| {
                let held = locks.lock(&1);
                scope.spawn(|| drop(locks.lock(&1)));
                until(|| locks.waiters(&1) == 1);
                drop(held);
            });
            let (status, file) = (only(locks.snapshot()), only(files.snapshot()));
            assert_eq!((status.held, status.holders.len(), status.waiters.len()), (0, 0, 0));
            assert_eq!((file.held, file.holders.len(), file.waiters.len()), (0, 0, 0));
            assert_eq!(status.to_string(), "1: free, 0 waiting");
            if round == 1 {
                let swept = || {
                    locks.sweep();
                    files.sweep();
                    locks.is_empty() && files.is_empty()
                };
                until(swept);
            }
        }
    });
}

#[test]
fn the_text_names_threads_and_lines() {
    watched(|| {
        let locks = KeyedLock::<String>::with_options(tracking());
        let line = line!() + 4;
        let (held, stays) = (Barrier::new(2), AtomicBool::new(true));
        thread::scope(|scope| {
            let holder = thread::Builder::new().name("holder".to_owned()).spawn_scoped(scope, || {
                let guard = locks.lock("a");
                held.meet();
                until(|| !stays.load(Ordering::Relaxed));
                drop(guard);
            });
            held.meet();
            let waiter = thread::Builder::new().name("waiter".to_owned()).spawn_scoped(scope, || drop(locks.lock("a")));
            let waiter_line = line!() - 1;
            until(|| locks.waiters("a") == 1);
            let text = only(locks.snapshot()).to_string();
            stays.store(false, Ordering::Relaxed);
            holder.unwrap().join().unwrap();
            waiter.unwrap().join().unwrap();
            let [first, second, third] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
            assert_eq!(first, "\"a\": held, 1 waiting");
            assert!(second.starts_with("  held by thread \"holder\" for "), "{text}");
            assert!(second.contains(&format!(", at {}:{line}:", file!())), "{text}");
            assert!(third.starts_with("  thread \"waiter\" waits for "), "{text}");
            assert!(third.contains(&format!(", at {}:{waiter_line}:", file!())), "{text}");
        });
    });
}

/// Right after the last guard is gone, nothing is left, tracked or not.
#[test]
fn counts_are_exact_right_after_the_last_drop() {
    for options in [Options::new(), tracking(), Options::new().detect_deadlocks(true)] {
        for fairness in [Fairness::Eventual, Fairness::Fifo] {
            let options = options.clone().fairness(fairness);
            watched(move || {
                let locks = KeyedLock::<u32>::with_options(options.clone());
                let values = KeyedMutex::<u32, u32>::with_options(options.clone());
                let hosts = KeyedSemaphore::<u32, 3>::with_options(options.clone());
                let files = KeyedRwLock::<u32>::with_options(options);
                let count = rounds(300);
                threads(|scope| {
                    for worker in 0..4 {
                        let (locks, values, hosts, files) = (&locks, &values, &hosts, &files);
                        scope.spawn(move || {
                            for round in 0..count {
                                // Some keys are this thread's own, and some everybody's.
                                let own = 10 + worker;
                                drop(locks.lock(&own));
                                assert!(!locks.is_locked(&own) && locks.waiters(&own) == 0);
                                drop(values.lock(&own));
                                assert!(!values.is_locked(&own) && values.waiters(&own) == 0);
                                drop(hosts.acquire_many(&own, 2, LONG).unwrap());
                                assert_eq!((hosts.available_permits(&own), hosts.waiters(&own)), (3, 0));
                                drop(files.read(&own));
                                drop(files.write(&own));
                                assert_eq!(files.waiters(&own), 0);
                                drop(locks.lock(&0));
                                drop(values.lock(&0));
                                drop(hosts.acquire(&0));
                                match round % 4 {
                                    0 => drop(files.read_all()),
                                    1 => drop(files.write_all()),
                                    2 => drop(files.write(&0)),
                                    _ => drop(files.read(&0)),
                                }
                            }
                        });
                    }
                });
                assert_eq!((locks.len(), values.len(), hosts.len(), files.len()), (0, 0, 0, 0));
                assert!(!locks.is_locked(&0) && !values.is_locked(&0) && !files.is_locked(&0));
                assert_eq!((hosts.available_permits(&0), hosts.waiters(&0)), (3, 0));
                assert_eq!((locks.waiters(&0), values.waiters(&0), files.waiters(&0)), (0, 0, 0));
                assert!(locks.snapshot().is_empty() && values.snapshot().is_empty());
                assert!(hosts.snapshot().is_empty() && files.snapshot().is_empty());
                let deadlocks = [locks.stats(), values.stats(), hosts.stats(), files.stats()];
                assert!(deadlocks.iter().all(|stats| stats.deadlocks == 0));
            });
        }
    }
}

/// What was noted is forgotten: a hundred thousand times over the same keys, which stay.
#[test]
fn the_account_does_not_grow() {
    watched(|| {
        let options = || Options::new().detect_deadlocks(true).idle_ttl(LONG);
        let (locks, files) = (KeyedLock::<u32>::with_options(options()), KeyedRwLock::<u32>::with_options(options()));
        let (readers, held) = (files.read(&0), locks.lock(&0));
        threads(|scope| {
            for worker in 0..2 {
                let (locks, files) = (&locks, &files);
                scope.spawn(move || {
                    for round in 0..rounds(25_000) as u32 {
                        drop(locks.lock(&(1 + (round + worker) % 8)));
                        drop(files.read(&0));
                        assert!(locks.try_lock(&0).is_none());
                    }
                });
            }
        });
        let of = |key: u32| locks.snapshot().into_iter().find(|status| status.key == key).unwrap();
        assert_eq!(of(0).holders.len(), 1);
        assert!((1..=8).all(|key| of(key).holders.is_empty() && of(key).held == 0));
        assert_eq!(only(files.snapshot()).holders.len(), 1);
        drop((readers, held));
        assert!(locks.snapshot().iter().chain(&files.snapshot()).all(|status| status.holders.is_empty()));
    });
}
