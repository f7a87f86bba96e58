//! Every contestant that locks must lock: a benchmark of a broken lock is worth nothing.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::by_hand::{Counted, Leaking, Textbook};
use super::floors::OneMutex;
use super::pairs::{Both, BothValues, First};
use super::published::{KeyMutex, Keyed, Lockable, Lockmap};
use super::read_write::{self, Access};
use super::{Locks, counters, perkey};

const THREADS: usize = 4;
const KEYS: usize = 2;
const ROUNDS: u64 = 10_000;

/// Takes all keys equally often, and counts without an atomic addition: unless the lock excludes, counts are lost. The keys
/// whose places in `counters` are the same have to exclude each other.
fn excludes<Q: ?Sized + Sync>(locks: &impl Locks<Q>, keys: [&Q; KEYS], counter_of: [usize; KEYS]) {
    let counters = [const { AtomicU64::new(0) }; KEYS];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let counters = &counters;
            scope.spawn(move || {
                for round in 0..ROUNDS as usize {
                    let which = (thread + round) % KEYS;
                    let counter = &counters[counter_of[which]];
                    locks.with(keys[which], || {
                        let seen = counter.load(Relaxed);
                        // Also where this thread has its core to itself, another one has to come between now and then.
                        if round % 16 == 0 {
                            thread::yield_now();
                        }
                        counter.store(seen + 1, Relaxed);
                    });
                }
            });
        }
    });
    let total: u64 = counters.iter().map(|counter| counter.load(Relaxed)).sum();
    assert_eq!(total, THREADS as u64 * ROUNDS);
}

fn counts_exactly<Q: ?Sized + Sync>(locks: &impl Locks<Q>, keys: [&Q; KEYS]) {
    excludes(locks, keys, [0, 1]);
    assert!(matches!(locks.keys_left(), None | Some(0)), "left behind: {:?}", locks.keys_left());
}

/// The table's own counters have to be exact too, and stay.
fn adds_exactly(table: &impl Locks<u64>, keys: [&u64; KEYS]) {
    excludes(table, keys, [0, 1]);
    for key in keys {
        assert_eq!(table.counter(key), Some(THREADS as u64 * ROUNDS / KEYS as u64), "of {key}");
    }
    assert_eq!(table.keys_left(), Some(KEYS));
}

/// The same two keys in both orders: unless each call takes both, they do not exclude each other.
fn takes_both(locks: &impl Locks<[u64; 2]>) {
    locks.with(&[7, 8], || assert_eq!(locks.keys_left(), Some(2)));
    excludes(locks, [&[7, 8], &[8, 7]], [0, 0]);
    assert_eq!(locks.keys_left(), Some(0));
}

const NUMBERS: [&u64; KEYS] = [&7, &8];
const WRITES: [&Access; KEYS] = [&Access { key: 7, writes: true }, &Access { key: 8, writes: true }];
const TEXTS: [&str; KEYS] = ["account-000000000000abcd", "account-000000000000abce"];

macro_rules! contestants {
    ($check:ident: $($test:ident: $make:expr, $keys:expr;)*) => {
        $(
            #[test]
            fn $test() {
                $check(&$make, $keys);
            }
        )*
    };
}

contestants! { counts_exactly:
    perkey_u64: perkey::Guard::<u64>::new(), NUMBERS;
    perkey_str: perkey::Guard::<String>::new(), TEXTS;
    perkey_fifo_u64: perkey::Guard::<u64>::fifo(), NUMBERS;
    perkey_with_key_u64: perkey::Closure::<u64>::new(), NUMBERS;
    perkey_semaphore_u64: perkey::Permit::<u64, 1>::new(), NUMBERS;
    lockmap_u64: Lockmap::<u64>::new(), NUMBERS;
    lockmap_str: Lockmap::<String>::new(), TEXTS;
    lockable_u64: Lockable::<u64>::new(), NUMBERS;
    lockable_str: Lockable::<String>::new(), TEXTS;
    keyed_lock_u64: Keyed::<u64>::new(), NUMBERS;
    keyed_lock_str: Keyed::<String>::new(), TEXTS;
    key_mutex_u64: KeyMutex::<u64>::new(), NUMBERS;
    key_mutex_str: KeyMutex::<String>::new(), TEXTS;
    counted_u64: Counted::<u64>::new(), NUMBERS;
    counted_str: Counted::<String>::new(), TEXTS;
    leaking_u64: Leaking::<u64>::new(), NUMBERS;
    leaking_str: Leaking::<String>::new(), TEXTS;
    textbook_u64: Textbook::<u64>::new(), NUMBERS;
    textbook_str: Textbook::<String>::new(), TEXTS;
    one_mutex_u64: OneMutex::new(), NUMBERS;
    perkey_mutex_u64: perkey::Value::<u64>::new(), NUMBERS;
    perkey_write_u64: read_write::Write::new(), NUMBERS;
    perkey_writes: read_write::Perkey::new(), WRITES;
    perkey_fifo_writes: read_write::Perkey::fifo(), WRITES;
    counted_writes: read_write::Counted::new(), WRITES;
    first_of_pair: First(perkey::Guard::<u64>::new()), [&[7, 0], &[8, 0]];
}

contestants! { adds_exactly:
    perkey_counters: counters::Perkey::new(), NUMBERS;
    lockmap_counters: counters::Lockmap::new(), NUMBERS;
    lockable_counters: counters::Lockable::new(), NUMBERS;
    key_mutex_counters: counters::KeyMutex::new(), NUMBERS;
    leaking_counters: counters::Leaking::new(), NUMBERS;
}

#[test]
fn perkey_lock_keys_takes_both() {
    takes_both(&Both::new());
}

#[test]
fn perkey_mutex_lock_keys_takes_both() {
    takes_both(&BothValues::new());
}

#[test]
fn perkey_write_all_takes_every_key() {
    excludes(&read_write::WriteAll::new(), NUMBERS, [0, 0]);
}

/// Unless readers are inside together, none gets past the barrier.
fn readers_meet<Q: ?Sized + Sync>(locks: &impl Locks<Q>, reads: &Q) {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| locks.with(reads, || _ = barrier.wait()));
        }
    });
    assert_eq!(locks.keys_left(), Some(0));
}

#[test]
fn readers_share() {
    let reads = Access { key: 7, writes: false };
    readers_meet(&read_write::Perkey::new(), &reads);
    readers_meet(&read_write::Perkey::fifo(), &reads);
    readers_meet(&read_write::Counted::new(), &reads);
    readers_meet(&read_write::Read::new(), &7);
    readers_meet(&read_write::ReadAll::new(), &7);
}

#[test]
fn four_requests_have_room_together_and_a_fifth_waits() {
    for fifo in [false, true] {
        let table = perkey::Weighted::new(10, fifo);
        readers_meet(&table, &7);
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 * THREADS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        table.with(&7, || {
                            most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                            thread::yield_now();
                            inside.fetch_sub(1, Relaxed);
                        });
                    }
                });
            }
        });
        assert!(most.into_inner() <= 4);
    }
}

#[test]
fn a_counted_lock_can_be_given_up() {
    let table = Counted::<u64>::new();
    let soon = || Instant::now() + Duration::from_millis(5);
    table.with(&7, || {
        thread::scope(|scope| {
            scope.spawn(|| assert!(!table.try_with_until(&7, soon(), || panic!("it is held"))));
        });
    });
    assert!(table.try_with_until(&7, soon(), || ()));
    assert_eq!(Locks::<u64>::keys_left(&table), Some(0));
}

/// Two stores by each writer, which a reader must see together.
fn readers_see_whole_writes(locks: &impl Locks<Access>) {
    let numbers = [const { AtomicU64::new(0) }; 2];
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let numbers = &numbers;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let access = Access { key: 7, writes: round % 4 == thread % 4 };
                    locks.with(&access, || {
                        let [one, two] = numbers;
                        assert_eq!(one.load(Relaxed), two.load(Relaxed));
                        if access.writes {
                            one.store(one.load(Relaxed) + 1, Relaxed);
                            if round % 16 == 0 {
                                thread::yield_now();
                            }
                            two.store(one.load(Relaxed), Relaxed);
                        }
                    });
                }
            });
        }
    });
    assert_eq!(numbers.map(AtomicU64::into_inner), [THREADS as u64 * ROUNDS / 4; 2]);
}

#[test]
fn writers_exclude_readers() {
    readers_see_whole_writes(&read_write::Perkey::new());
    readers_see_whole_writes(&read_write::Perkey::fifo());
    readers_see_whole_writes(&read_write::Counted::new());
}
