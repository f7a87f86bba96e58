//! What the laps know of the tables.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perkey::{KeyStatus, Sweeper};

use crate::keys::Name;
use crate::worker::Worker;

/// A table under test, of any type and with any kind of key.
pub(crate) trait Subject: Send + Sync {
    fn kind(&self) -> Kind;

    /// Makes one random call. May panic as planned.
    fn call(&self, worker: &mut Worker<'_>);

    /// To be called when no other thread uses the table: looks for what is left in it.
    fn judge_end(&self);

    /// Who holds and who waits, for people.
    fn describe(&self) -> String;

    fn spawn_sweeper(&self, every: Duration) -> Sweeper;

    fn try_spawn_sweeper(&self, every: Duration) -> std::io::Result<Sweeper>;

    fn add_to(&self, sweeper: &mut Sweeper);
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Lock,
    Semaphore,
    Mutex,
    RwLock,
    Sweeper,
}

/// How many calls have come back.
#[derive(Default)]
pub(crate) struct Progress([AtomicU64; 5]);

impl Progress {
    pub(crate) fn tick(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|calls| calls.load(Ordering::Relaxed)).sum()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lock, semaphore, mutex, rwlock, sweeper] = self.0.each_ref().map(|calls| calls.load(Ordering::Relaxed));
        write!(f, "calls: lock {lock}, semaphore {semaphore}, mutex {mutex}, rwlock {rwlock}, sweeper {sweeper}")
    }
}

/// For [`Subject::describe`].
pub(crate) fn describe<K: Name>(table: &str, keys: Vec<KeyStatus<K>>) -> String {
    let mut text = format!("{table}: {} keys\n", keys.len());
    for KeyStatus { key, held, limit, waiters, .. } in keys {
        if held == 0 && waiters.is_empty() {
            continue; // Kept, or with a value.
        }
        let _ = writeln!(text, "  {key:?}: held {held} of {limit}, {} waiting", waiters.len());
        for waiter in waiters {
            let (name, since) = (waiter.thread.name().unwrap_or("?").to_owned(), waiter.since.elapsed());
            let _ = writeln!(text, "    {name} for {} since {since:?} at {}", waiter.permits, waiter.location);
        }
    }
    text
}
