//! Every contestant that locks must lock: a benchmark of a broken lock is worth nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::by_hand::{Counted, Leaking, Textbook};
use super::floors::OneMutex;
use super::published::{KeyMutex, Keyed, Lockable, Lockmap};
use super::{Locks, perkey};

const THREADS: usize = 4;
const KEYS: usize = 2;
const ROUNDS: u64 = 10_000;

/// Counts without an atomic addition: unless the lock excludes, counts are lost.
fn counts_exactly<Q: ?Sized + Sync>(locks: &impl Locks<Q>, keys: [&Q; KEYS]) {
    let counters = [const { AtomicU64::new(0) }; KEYS];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let counters = &counters;
            scope.spawn(move || {
                for round in 0..ROUNDS as usize {
                    let which = (thread + round) % KEYS;
                    locks.with(keys[which], || {
                        let seen = counters[which].load(Relaxed);
                        std::hint::spin_loop();
                        counters[which].store(seen + 1, Relaxed);
                    });
                }
            });
        }
    });
    let total: u64 = counters.iter().map(|counter| counter.load(Relaxed)).sum();
    assert_eq!(total, THREADS as u64 * ROUNDS);
    assert!(matches!(locks.keys_left(), None | Some(0)), "left behind: {:?}", locks.keys_left());
}

const NUMBERS: [&u64; KEYS] = [&7, &8];
const TEXTS: [&str; KEYS] = ["account-000000000000abcd", "account-000000000000abce"];

macro_rules! contestants {
    ($($test:ident: $make:expr, $keys:expr;)*) => {
        $(
            #[test]
            fn $test() {
                counts_exactly(&$make, $keys);
            }
        )*
    };
}

contestants! {
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
}
