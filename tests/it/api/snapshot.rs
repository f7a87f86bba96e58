//! What `snapshot` shows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perkey::{CancellationToken, KeyedLock, KeyedMutex, KeyedSemaphore, Wait};

use crate::support::{crowded, threads, until, watched, watched_in_both_modes};

#[test]
fn keys_that_are_held() {
    let locks = KeyedLock::<String>::new();
    assert!(locks.snapshot().is_empty());
    let guards = ["a", "b", "c"].map(|key| locks.lock(key));
    let mut keys = locks.snapshot();
    keys.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(keys.iter().map(|status| status.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(keys.iter().all(|status| (status.held, status.limit, status.waiters.len()) == (1, 1, 0)));
    drop(guards);
    assert!(locks.snapshot().is_empty());
}

#[test]
fn permits_that_are_out() {
    let permits = KeyedSemaphore::<u32, 5>::new();
    let held = (permits.acquire(&1), permits.acquire_many(&1, 3, Wait::now()).unwrap());
    let [status] = &permits.snapshot()[..] else { panic!("one key has permits out") };
    assert_eq!((status.key, status.held, status.limit), (1, 4, 5));
    drop(held);
    let all = KeyedSemaphore::<u32>::with_limit(7);
    let _one = all.acquire(&1);
    assert_eq!((all.snapshot()[0].held, all.snapshot()[0].limit), (1, 7));
}

#[test]
fn waiters_in_order_of_arrival_with_thread_time_and_permits() {
    watched_in_both_modes(|fairness| {
        let permits = KeyedSemaphore::<u32, 4>::with_options(crowded(fairness));
        let held = permits.acquire_many(&1, 4, Wait::now()).unwrap();
        threads(|scope| {
            let mut expected = Vec::new();
            for weight in [3, 1, 4, 2] {
                let before = Instant::now();
                let permits = &permits;
                let waiter = scope.spawn(move || drop(permits.acquire_many(&1, weight, Wait::forever()).unwrap()));
                until(|| permits.waiters(&1) == expected.len() + 1);
                expected.push((waiter.thread().id(), weight, before, Instant::now()));
            }
            let [status] = &permits.snapshot()[..] else { panic!("one key") };
            assert_eq!((status.held, status.limit, status.waiters.len()), (4, 4, 4));
            for (waiter, (thread, weight, before, after)) in status.waiters.iter().zip(expected) {
                assert_eq!((waiter.thread.id(), waiter.permits), (thread, weight));
                assert!((before..=after).contains(&waiter.since));
                assert_eq!(waiter.location.file(), file!());
            }
            drop(held);
        });
        assert!(permits.snapshot().is_empty());
    });
}

#[test]
fn a_waiter_that_left_is_not_shown() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let token = CancellationToken::new();
        let held = locks.lock(&1);
        threads(|scope| {
            let leaves = scope.spawn(|| locks.lock_with(&1, &token).is_err());
            until(|| locks.waiters(&1) == 1);
            let stays = scope.spawn(|| drop(locks.lock(&1)));
            until(|| locks.waiters(&1) == 2);
            token.cancel();
            assert!(leaves.join().unwrap());
            let [status] = &locks.snapshot()[..] else { panic!("one key") };
            assert_eq!(
                status.waiters.iter().map(|waiter| waiter.thread.id()).collect::<Vec<_>>(),
                [stays.thread().id()]
            );
            drop(held);
        });
    });
}

/// A call that waits until the key is free, and the line it is on.
type Call<'a> = (u32, &'a (dyn Fn() + Sync));

/// Makes each call while the key is held, and looks where the snapshot says that it was made.
fn are_shown_at_their_lines<G>(calls: &[Call<'_>], hold: impl Fn() -> G, shown: impl Fn() -> Option<(String, u32)>) {
    for (line, call) in calls {
        threads(|scope| {
            let held = hold();
            let waiter = scope.spawn(call);
            until(|| shown().is_some() || waiter.is_finished());
            assert_eq!(shown(), Some((file!().to_owned(), *line)));
            drop(held);
        });
    }
}

#[test]
#[rustfmt::skip]
fn the_location_is_that_of_the_call_on_a_lock() {
    watched(|| {
        let locks = Arc::new(KeyedLock::<u32>::new());
        let long = Duration::from_secs(3600);
        let calls: [Call<'_>; 10] = [
            (line!(), &|| drop(locks.lock(&1))),
            (line!(), &|| drop(locks.try_lock_for(&1, long))),
            (line!(), &|| drop(locks.lock_with(&1, Wait::forever()))),
            (line!(), &|| drop(locks.lock_arc(&1))),
            (line!(), &|| drop(locks.lock_arc_with(&1, long))),
            (line!(), &|| locks.with_key(&1, || ())),
            (line!(), &|| drop(locks.with_key_within(&1, long, || ()))),
            (line!(), &|| drop(locks.lock_keys([&1, &2]))),
            (line!(), &|| drop(locks.lock_keys_with([&1, &2], long))),
            (line!(), &|| locks.with_keys([&1, &2], || ())),
        ];
        let shown = || {
            let snapshot = locks.snapshot();
            let waiter = snapshot.first()?.waiters.first()?;
            Some((waiter.location.file().to_owned(), waiter.location.line()))
        };
        are_shown_at_their_lines(&calls, || locks.lock(&1), shown);
    });
}

#[test]
#[rustfmt::skip]
fn the_location_is_that_of_the_call_on_a_semaphore() {
    watched(|| {
        let permits = Arc::new(KeyedSemaphore::<u32, 2>::new());
        let long = Duration::from_secs(3600);
        let calls: [Call<'_>; 9] = [
            (line!(), &|| drop(permits.acquire(&1))),
            (line!(), &|| drop(permits.try_acquire_for(&1, long))),
            (line!(), &|| drop(permits.acquire_with(&1, Wait::forever()))),
            (line!(), &|| drop(permits.acquire_many(&1, 2, long))),
            (line!(), &|| drop(permits.acquire_arc(&1))),
            (line!(), &|| drop(permits.acquire_arc_with(&1, long))),
            (line!(), &|| drop(permits.acquire_many_arc(&1, 2, long))),
            (line!(), &|| permits.with_key(&1, || ())),
            (line!(), &|| drop(permits.with_key_within(&1, long, || ()))),
        ];
        let shown = || {
            let snapshot = permits.snapshot();
            let waiter = snapshot.first()?.waiters.first()?;
            Some((waiter.location.file().to_owned(), waiter.location.line()))
        };
        are_shown_at_their_lines(&calls, || permits.acquire_many(&1, 2, Wait::now()).unwrap(), shown);
    });
}

#[test]
#[rustfmt::skip]
fn the_location_is_that_of_the_call_on_a_mutex() {
    watched(|| {
        let values = Arc::new(KeyedMutex::<u32, u32>::new());
        let long = Duration::from_secs(3600);
        let calls: [Call<'_>; 12] = [
            (line!(), &|| drop(values.lock(&1))),
            (line!(), &|| drop(values.try_lock_for(&1, long))),
            (line!(), &|| drop(values.lock_with(&1, Wait::forever()))),
            (line!(), &|| drop(values.lock_arc(&1))),
            (line!(), &|| drop(values.lock_arc_with(&1, long))),
            (line!(), &|| values.with_key(&1, |_| ())),
            (line!(), &|| drop(values.with_key_within(&1, long, |_| ()))),
            (line!(), &|| drop(values.lock_keys([&1, &2]))),
            (line!(), &|| drop(values.lock_keys_with([&1, &2], long))),
            (line!(), &|| assert!(values.get_cloned(&1).is_none())),
            (line!(), &|| assert!(values.insert(&1, 1).is_none())),
            (line!(), &|| assert!(values.remove(&1).is_some())),
        ];
        let shown = || {
            let snapshot = values.snapshot();
            let waiter = snapshot.first()?.waiters.first()?;
            Some((waiter.location.file().to_owned(), waiter.location.line()))
        };
        are_shown_at_their_lines(&calls, || values.lock(&1), shown);
    });
}
