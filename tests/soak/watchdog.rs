//! Ends a run that does not get on.

use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::subject::{Progress, Subject};

pub(crate) type Subjects = Arc<Vec<Box<dyn Subject>>>;

pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    done: Mutex<bool>,
    bell: Condvar,
    /// The tables of this lap.
    watched: Mutex<Option<Subjects>>,
}

impl Watchdog {
    pub(crate) fn start(progress: &Arc<Progress>, patience: Duration, repeat: String) -> Self {
        let shared = Arc::new(Shared::default());
        let (theirs, progress) = (Arc::clone(&shared), Arc::clone(progress));
        let thread = thread::spawn(move || {
            if !theirs.watch(&progress, patience) {
                theirs.give_up(patience, &repeat);
            }
        });
        Self { shared, thread }
    }

    pub(crate) fn stop(self) {
        *self.shared.done.lock() = true;
        self.shared.bell.notify_all();
        self.thread.join().expect("the watchdog does not panic");
    }

    /// What to describe if nobody gets on; nothing between laps, so that the tables go.
    pub(crate) fn look_at(&self, subjects: Option<&Subjects>) {
        let before = {
            let mut watched = self.shared.watched.lock();
            std::mem::replace(&mut *watched, subjects.cloned())
        };
        drop(before);
    }
}

impl Shared {
    /// Returns true when the run is over, and false when no call has come back for `patience`.
    fn watch(&self, progress: &Progress, patience: Duration) -> bool {
        let mut done = self.done.lock();
        let mut last = progress.total();
        let mut deadline = Instant::now() + patience;
        while !*done {
            if self.bell.wait_until(&mut done, deadline).timed_out() && !*done {
                let now = progress.total();
                if now == last {
                    return false;
                }
                (last, deadline) = (now, Instant::now() + patience);
            }
        }
        true
    }

    /// Says what is stuck and ends the process: threads that wait for ever cannot be joined.
    fn give_up(&self, patience: Duration, repeat: &str) -> ! {
        eprintln!("soak: BREACH stuck: no call has come back for {patience:?}");
        let subjects = self.watched.lock().clone();
        for (place, _) in subjects.iter().flat_map(|subjects| subjects.iter().enumerate()) {
            // On threads of their own: a table may be stuck altogether.
            let described = Arc::new((Mutex::new(None), Condvar::new()));
            let (theirs, subjects) = (Arc::clone(&described), subjects.clone());
            thread::spawn(move || {
                let text = subjects.map(|subjects| subjects[place].describe());
                *theirs.0.lock() = text;
                theirs.1.notify_all();
            });
            let mut text = described.0.lock();
            described.1.wait_while_for(&mut text, |text| text.is_none(), Duration::from_secs(5));
            eprint!("{}", text.as_deref().unwrap_or("a table that does not answer\n"));
        }
        eprintln!("soak: to repeat: {repeat}");
        process::exit(1)
    }
}
