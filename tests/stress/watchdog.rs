//! Ends a run that does not get on.

use std::io::Write;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::target::Target;

#[derive(Default)]
pub(crate) struct Watchdog {
    progress: AtomicU64,
    done: Mutex<bool>,
    bell: Condvar,
}

impl Watchdog {
    /// Somebody got on.
    pub(crate) fn tick(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// The run is over.
    pub(crate) fn finish(&self) {
        *self.done.lock() = true;
        self.bell.notify_all();
    }

    /// Returns true when the run is over, and false when nobody got on for `patience`.
    pub(crate) fn watch(&self, patience: Duration) -> bool {
        let mut done = self.done.lock();
        let mut last = self.progress.load(Ordering::Relaxed);
        let mut deadline = Instant::now() + patience;
        while !*done {
            if self.bell.wait_until(&mut done, deadline).timed_out() {
                let now = self.progress.load(Ordering::Relaxed);
                if now == last {
                    return *done;
                }
                (last, deadline) = (now, Instant::now() + patience);
            }
        }
        true
    }
}

/// Says what is stuck and ends the process: threads that wait for ever cannot be joined.
pub(crate) fn abort<T: Target>(run: &str, patience: Duration, target: &Arc<T>) -> ! {
    // Not `eprintln!`, whose output the test harness keeps back and would lose.
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "\nstuck: nobody got on for {patience:?} in {run}");
    // On a thread of its own: the table may be stuck altogether.
    let described = Arc::new((Mutex::new(None), Condvar::new()));
    thread::spawn({
        let (described, target) = (Arc::clone(&described), Arc::clone(target));
        move || {
            let text = target.describe();
            *described.0.lock() = Some(text);
            described.1.notify_all();
        }
    });
    let mut text = described.0.lock();
    described.1.wait_while_for(&mut text, |text| text.is_none(), Duration::from_secs(10));
    let _ = writeln!(stderr, "snapshot: {}", text.as_deref().unwrap_or("none: the table itself does not answer"));
    process::abort()
}
