//! A keyed lock written by hand, for ThreadSanitizer.
//!
//! `race` removes the entry of a key whenever somebody is done with it, although others may wait for it: a third thread
//! then makes a second lock for the same key, and two are inside. `race --sound` keeps the entries: it must not be reported,
//! or a report would mean nothing.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

struct Guarded(UnsafeCell<u64>);

// SAFETY: none, in truth: that is the fault.
unsafe impl Sync for Guarded {}

fn main() {
    let sound = std::env::args().nth(1).is_some_and(|argument| argument == "--sound");
    let locks = Mutex::new(HashMap::<u32, Arc<Mutex<()>>>::new());
    let value = Guarded(UnsafeCell::new(0));
    let work = || {
        let value = &value;
        for _ in 0..2000 {
            let lock = Arc::clone(locks.lock().entry(1).or_default());
            let guard = lock.lock();
            // SAFETY: as said above.
            unsafe { *value.0.get() += 1 };
            drop(guard);
            thread::yield_now();
            if !sound {
                locks.lock().remove(&1);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        // By their handles: the scope's own way to wait is one that ThreadSanitizer does not see.
        for worker in workers {
            worker.join().expect("a worker does not panic");
        }
    });
}
