//! Parks one thread, once.
//!
//! A [`Waiter`] belongs to a thread and is used for one wait at a time. A ring is only a hint: it says "look again",
//! never what has happened, so a ring that arrives late, when the waiter is already used for another wait, costs one
//! look and changes nothing.
//!
//! Who waits must clear the signal, *then* look, *then* park if the signal is still clear. [`Waiter::park`] clears it on
//! return, so the order is: `loop { look; park }`. Who rings must change what is looked at *before* it rings.

use std::cell::Cell;
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Instant;

use crate::fault::{Fault, planted};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, spin_loop, thread_local};

pub(crate) struct Waiter {
    thread: Thread,
    rung: Mutex<bool>,
    bell: Condvar,
    /// Whether the thread looks out for a ring on a core of its own. Only a hint.
    looks_out: AtomicBool,
}

/// How long a thread looks out before it parks: so many times eight spins, which is about as long as it takes to park and to be
/// woken. So at most twice the time is spent that the better of the two would have taken.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 32 };

impl Waiter {
    fn new() -> Self {
        Self {
            thread: thread::current(),
            rung: Mutex::new(false),
            bell: Condvar::new(),
            looks_out: AtomicBool::new(false),
        }
    }

    /// The thread that waits.
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Wakes the thread if it is parked; if not, its next [`park`](Self::park) returns at once.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.bell.notify_one();
    }

    /// Whether a ring is noticed at once, without the scheduler: as far as one can know.
    pub(crate) fn looks_out(&self) -> bool {
        self.looks_out.load(Ordering::Relaxed)
    }

    /// Waits for a ring, for a moment, without giving up the core. The ring is left for [`park`](Self::park).
    pub(crate) fn look_out(&self) {
        self.looks_out.store(true, Ordering::Relaxed);
        for _ in 0..LOOKS {
            if *self.rung.lock() {
                break;
            }
            (0..8).for_each(|_| spin_loop());
        }
        self.looks_out.store(false, Ordering::Relaxed);
    }

    /// Blocks until a ring or the deadline, and clears the signal. False if the deadline came without a ring.
    pub(crate) fn park(&self, deadline: Option<Instant>) -> bool {
        let mut rung = self.rung.lock();
        *rung &= !planted(Fault::ClearBeforePark);
        while !*rung {
            match deadline {
                None => self.bell.wait(&mut rung),
                Some(deadline) => {
                    if self.bell.wait_until(&mut rung, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        mem::take(&mut *rung)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("thread", &self.thread).finish_non_exhaustive()
    }
}

thread_local! {
    static SPARE: Cell<Option<Arc<Waiter>>> = const { Cell::new(None) };
}

/// This thread's waiter, taken for the length of one wait; a new one if it is in use, or if the thread is past the end of
/// its thread-locals.
#[derive(Debug)]
pub(crate) struct OwnWaiter(Arc<Waiter>);

impl OwnWaiter {
    pub(crate) fn take() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        Self(spare.unwrap_or_else(|| Arc::new(Waiter::new())))
    }

    pub(crate) fn share(&self) -> Arc<Waiter> {
        Arc::clone(&self.0)
    }
}

impl Deref for OwnWaiter {
    type Target = Waiter;
    fn deref(&self) -> &Waiter {
        &self.0
    }
}

impl Drop for OwnWaiter {
    fn drop(&mut self) {
        // Past the thread-local's end the waiter just goes.
        let _ = SPARE.try_with(|spare| spare.set(Some(Arc::clone(&self.0))));
    }
}
