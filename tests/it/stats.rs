//! What `stats()` counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perkey::{CancellationToken, KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore, Options, Stats, Sweeper, Wait};

use crate::support::{elsewhere, threads, until, watched};

const SHORT: Duration = Duration::from_millis(2);

/// Of waits that are over: contended, timeouts, cancellations, deadlocks.
fn counts(stats: &Stats) -> [u64; 4] {
    [stats.contended, stats.timeouts, stats.cancellations, stats.deadlocks]
}

#[test]
fn nothing_is_counted_where_nobody_waits() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        locks.with_key(&1, || ());
        let held = locks.lock(&1);
        elsewhere(|| {
            assert!(locks.try_lock(&1).is_none());
            assert!(locks.lock_with(&1, Wait::now()).is_err());
            assert!(locks.lock_with(&1, Wait::forever().max_queued(0)).is_err());
        });
        drop(held);
        assert_eq!(locks.stats(), Stats::default());
    });
}

#[test]
fn each_end_of_a_wait_is_counted_once() {
    watched(|| {
        let locks = KeyedLock::<u32>::new();
        let token = CancellationToken::new();
        let held = locks.lock(&1);
        elsewhere(|| {
            assert!(locks.try_lock_for(&1, SHORT).is_none());
            assert!(locks.lock_with(&1, SHORT).is_err());
        });
        assert_eq!(counts(&locks.stats()), [2, 2, 0, 0]);
        assert!(locks.stats().longest_wait >= SHORT);
        threads(|scope| {
            scope.spawn(|| assert!(locks.lock_with(&1, &token).is_err()));
            until(|| locks.waiters(&1) == 1);
            assert_eq!(counts(&locks.stats()), [3, 2, 0, 0], "it is counted while it waits");
            token.cancel();
        });
        assert_eq!(counts(&locks.stats()), [3, 2, 1, 0]);
        let before = Instant::now();
        threads(|scope| {
            scope.spawn(|| drop(locks.lock(&1)));
            until(|| locks.waiters(&1) == 1);
            let queued = Instant::now();
            until(|| queued.elapsed() > SHORT);
            drop(held);
        });
        let stats = locks.stats();
        assert_eq!(counts(&stats), [4, 2, 1, 0]);
        assert!(stats.longest_wait > SHORT && stats.longest_wait <= before.elapsed().max(stats.longest_wait));
        // Two kinds of asking for what one holds.
        let _held = locks.lock(&1);
        assert!(locks.lock_with(&1, Wait::forever()).is_err());
        assert!(locks.lock_keys_with([&1, &2], Wait::forever()).is_err());
        assert_eq!(counts(&locks.stats()), [4, 2, 1, 2]);
    });
}

#[test]
fn every_type_counts() {
    watched(|| {
        let values = KeyedMutex::<u32, u32>::new();
        let held = values.lock(&1);
        elsewhere(|| assert!(values.lock_with(&1, SHORT).is_err()));
        drop(held);
        assert_eq!(counts(&values.stats()), [1, 1, 0, 0]);

        let hosts = KeyedSemaphore::<u32, 2>::new();
        let held = hosts.acquire_many(&1, 2, Wait::now()).unwrap();
        elsewhere(|| assert!(hosts.acquire_with(&1, SHORT).is_err()));
        drop(held);
        assert_eq!(counts(&hosts.stats()), [1, 1, 0, 0]);
    });
}

/// A request that waits at the gate and then in its key's queue is one.
#[test]
fn waits_at_the_gate_are_counted_once() {
    watched(|| {
        let locks = KeyedRwLock::<u32>::new();
        let all = locks.write_all();
        elsewhere(|| {
            assert!(locks.read_with(&1, SHORT).is_err());
            assert!(locks.read_all_with(SHORT).is_err());
        });
        assert_eq!(counts(&locks.stats()), [2, 2, 0, 0]);
        threads(|scope| {
            scope.spawn(|| drop(locks.write(&1)));
            until(|| locks.waiters(&1) == 1);
            scope.spawn(|| drop(locks.write(&1)));
            until(|| locks.waiters(&1) == 2);
            drop(all);
        });
        assert_eq!(counts(&locks.stats()), [4, 2, 0, 0]);
        let _all = locks.write_all();
        assert!(locks.read_with(&1, Wait::forever()).is_err());
        assert!(locks.read_all_with(Wait::forever()).is_err());
        assert_eq!(counts(&locks.stats()), [4, 2, 0, 2]);
    });
}

#[test]
fn sweeps_count_what_they_remove() {
    watched(|| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(Options::new().idle_ttl(Duration::ZERO)));
        let _held = locks.lock(&0);
        (1..=5).for_each(|key| locks.with_key(&key, || ()));
        let sweeper = Sweeper::spawn(&locks, Duration::from_millis(1));
        until(|| locks.len() == 1);
        until(|| locks.stats().evictions == 5);
        sweeper.stop();
        assert_eq!(counts(&locks.stats()), [0; 4]);
    });
}
