//! Numbers that are never used twice in a process: threads and slots. And what a thread holds
//! (`notes`), and who holds what (`tracked`), where that is asked for.

pub(crate) mod notes;
pub(crate) mod tracked;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::sync::thread_local;

/// Slot ids come in blocks of this many, so that threads write the shared counter seldom.
const BLOCK: u64 = 4096;

// Plain std atomics under loom too: they hand out names and order nothing.
static NEXT_THREAD: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(1));
static NEXT_BLOCK: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(BLOCK));

struct Numbers {
    /// This thread's number, or 0 before its first use.
    thread: Cell<u64>,
    /// The next slot id of this thread's block; a multiple of [`BLOCK`] when a new block is due.
    slot: Cell<u64>,
}

thread_local! {
    // Nothing to drop, so it can be used in the destructors of other thread-locals.
    static NUMBERS: Numbers = const { Numbers { thread: Cell::new(0), slot: Cell::new(0) } };
}

/// This thread's number: never 0, and never given to another thread, unlike the operating system's thread ids, which are used again.
#[inline]
pub(crate) fn thread_number() -> u64 {
    NUMBERS
        .try_with(|numbers| match numbers.thread.get() {
            0 => {
                let number = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
                numbers.thread.set(number);
                number
            }
            number => number,
        })
        // A thread without its thread-locals owns what it locks under a number that nobody else has.
        .unwrap_or_else(|_| NEXT_THREAD.fetch_add(1, Ordering::Relaxed))
}

/// A slot id that no other slot of the process has, in any table.
#[inline]
pub(crate) fn slot_id() -> u64 {
    NUMBERS
        .try_with(|numbers| {
            let mut id = numbers.slot.get();
            if id.is_multiple_of(BLOCK) {
                id = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            }
            numbers.slot.set(id + 1);
            id
        })
        // One id of a block of its own.
        .unwrap_or_else(|_| NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice() {
        let per_thread = 3 * BLOCK as usize + 7;
        let numbers: Vec<(u64, Vec<u64>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (thread_number(), (0..per_thread).map(|_| slot_id()).collect())))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let threads: HashSet<u64> = numbers.iter().map(|(thread, _)| *thread).collect();
        let slots: HashSet<u64> = numbers.iter().flat_map(|(_, slots)| slots).copied().collect();
        assert_eq!(threads.len(), 8);
        assert_eq!(slots.len(), 8 * per_thread);
        assert!(!threads.contains(&0));
        assert_eq!(thread_number(), thread_number());
    }
}
