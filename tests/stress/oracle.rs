//! What must hold whatever happens, and who finds that it does not.

use std::fmt;
use std::hint::spin_loop;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use crate::rng::Rng;
use crate::target::{Call, Refusal, Seen, Target, Time};

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// More permits of a key were inside than its limit.
    TooManyInside,
    /// The plain counter of a key missed an exclusive section that the atomic one saw.
    CountersDiffer,
    /// At the end not every permit was back.
    PermitsMissing,
    /// At the end the table was not empty.
    EntryLeft,
    /// A call failed, or succeeded, for a reason that did not hold.
    WrongOutcome,
    /// A point query or a snapshot said what cannot be.
    WrongReport,
    /// Nobody got on.
    Stuck,
    /// A thread of the run panicked without having been told to.
    Panicked,
}

#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}

/// A broken lock breaks in the same way over and over; this many breaches of a kind are enough to read.
const MAX_OF_A_KIND: usize = 5;

/// What is counted of one key. All of it is `Relaxed`: that a section sees what the one before it wrote is the lock's
/// work, not the oracle's.
#[derive(Default)]
struct Cell {
    inside: AtomicU32,
    /// Exclusive sections, counted in one step.
    atomic: AtomicU64,
    /// The same, counted by a load and a store with a pause between them: wrong if two were in there at once.
    plain: AtomicU64,
}

pub(crate) struct Oracle {
    limit: u32,
    cells: Vec<Cell>,
    breaches: Mutex<Vec<Breach>>,
    stop_early: bool,
    stop: AtomicBool,
}

impl Oracle {
    /// With `stop_early` the first breach ends the run.
    pub(crate) fn new(limit: u32, keys: usize, stop_early: bool) -> Self {
        let cells = (0..keys).map(|_| Cell::default()).collect();
        Self { limit, cells, breaches: Mutex::new(Vec::new()), stop_early, stop: AtomicBool::new(false) }
    }

    pub(crate) fn report(&self, kind: Kind, detail: String) {
        let mut breaches = self.breaches.lock();
        if breaches.iter().filter(|breach| breach.kind == kind).count() < MAX_OF_A_KIND {
            breaches.push(Breach { kind, detail });
        }
        if self.stop_early || kind == Kind::Stuck {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn into_breaches(self) -> Vec<Breach> {
        self.breaches.into_inner()
    }

    /// To be called when the permits have been granted; the value is dropped before they are given back.
    pub(crate) fn enter(&self, key: usize, weight: u32) -> Inside<'_> {
        let inside = self.cells[key].inside.fetch_add(weight, Ordering::Relaxed) + weight;
        if inside > self.limit {
            self.report(Kind::TooManyInside, format!("{inside} of {} permits of key {key} are inside", self.limit));
        }
        Inside { oracle: self, key, weight }
    }

    /// What [`Inside::leave_to_another`] left here.
    pub(crate) fn stay(&self, key: usize, weight: u32) -> Inside<'_> {
        Inside { oracle: self, key, weight }
    }

    /// A call that was refused: was there a reason?
    pub(crate) fn judge_refusal(&self, call: &Call, refusal: &Refusal, started: Instant) {
        let patience = &call.patience;
        // Lower bounds only: a slow machine makes calls late, never early.
        let time_is_up = || match patience.time {
            Time::Now => true,
            Time::AtMost(duration) => started.elapsed() >= duration,
            Time::Until(instant) => Instant::now() >= instant,
            Time::Forever => false,
        };
        let justified = match refusal {
            Refusal::Untold => time_is_up(),
            Refusal::Busy => match patience.time {
                Time::AtMost(duration) => duration.is_zero(),
                _ => time_is_up(),
            },
            Refusal::Timeout => patience.time != Time::Now && time_is_up(),
            Refusal::Cancelled => patience.is_cancelled(),
            Refusal::QueueFull => patience.max_queued.is_some(),
            Refusal::Unsupported | Refusal::Rescued => true,
            Refusal::Other(_) => false,
        };
        if !justified {
            self.report(Kind::WrongOutcome, format!("{call:?} was refused without a reason: {refusal:?}"));
        }
    }

    /// A call that was granted, although its token may have been cancelled before it was made.
    pub(crate) fn judge_grant(&self, call: &Call, cancelled_before: bool) {
        if cancelled_before {
            self.report(Kind::WrongOutcome, format!("{call:?} was granted with a token that was cancelled before"));
        }
    }

    pub(crate) fn judge_snapshot(&self, seen: &[Seen], head_may_fit: bool) {
        for status in seen {
            let Seen { held, limit, ref waiting } = *status;
            let wrong = if held > limit || limit != self.limit {
                "more is held than the limit"
            } else if held == 0 && waiting.is_empty() {
                "a key that nobody holds or waits for"
            } else if waiting.iter().any(|weight| *weight == 0 || *weight > limit) {
                "a waiter for no permits, or for more than there are"
            } else if !head_may_fit && waiting.first().is_some_and(|weight| *weight <= limit - held) {
                "the head of the queue fits and was not granted"
            } else {
                continue;
            };
            self.report(Kind::WrongReport, format!("{wrong}: {status:?}"));
        }
        if seen.len() > self.cells.len() {
            self.report(Kind::WrongReport, format!("{} keys, where only {} exist", seen.len(), self.cells.len()));
        }
    }

    /// To be called when every thread of the run is done.
    pub(crate) fn judge_end<T: Target>(&self, target: &T) {
        for (key, cell) in self.cells.iter().enumerate() {
            let [atomic, plain] = [&cell.atomic, &cell.plain].map(|counter| counter.load(Ordering::Relaxed));
            if atomic != plain {
                let detail = format!("key {key}: {atomic} exclusive sections, of which the plain counter saw {plain}");
                self.report(Kind::CountersDiffer, detail);
            }
            let inside = cell.inside.load(Ordering::Relaxed);
            assert_eq!(inside, 0, "the run itself is wrong: somebody is still inside key {key}");
            let (free, waiters) = (target.free(key), target.waiters(key));
            if (free, waiters) != (self.limit, 0) {
                let detail = format!("key {key}: {free} of {} permits are back, {waiters} waiters", self.limit);
                self.report(Kind::PermitsMissing, detail);
            }
        }
        self.judge_empty(target, "after the last release");
        // What the queries say is one thing; that the permits can be had is another.
        for key in 0..self.cells.len() {
            if let Err(refusal) = target.enter(&Call::all_at_once(key, self.limit), || ()) {
                let detail = format!("key {key}: {} permits at once are refused: {refusal:?}", self.limit);
                self.report(Kind::PermitsMissing, detail);
            }
        }
        self.judge_empty(target, "after every key was taken once more");
    }

    fn judge_empty<T: Target>(&self, target: &T, when: &str) {
        let (len, seen) = (target.len(), target.snapshot());
        if len != 0 || !seen.is_empty() {
            self.report(Kind::EntryLeft, format!("len() is {len} {when}; snapshot: {}", target.describe()));
        }
    }
}

/// Permits that are inside, until drop.
pub(crate) struct Inside<'a> {
    oracle: &'a Oracle,
    key: usize,
    weight: u32,
}

impl Inside<'_> {
    /// What a holder does: counts, if it is alone, and dawdles.
    pub(crate) fn work(&self, rng: &mut Rng) {
        let cell = &self.oracle.cells[self.key];
        if self.weight == self.oracle.limit {
            cell.atomic.fetch_add(1, Ordering::Relaxed);
            let count = cell.plain.load(Ordering::Relaxed);
            dawdle(rng);
            cell.plain.store(count + 1, Ordering::Relaxed);
        } else {
            dawdle(rng);
        }
    }
}

impl Inside<'_> {
    /// Stays inside; another thread leaves.
    pub(crate) fn leave_to_another(self) {
        mem::forget(self);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.oracle.cells[self.key].inside.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

/// Mostly short; seldom long enough for every other thread to run into the holder.
fn dawdle(rng: &mut Rng) {
    match rng.below(16) {
        0 => thread::yield_now(),
        1 => (0..rng.below(500)).for_each(|_| spin_loop()),
        2..6 => (0..rng.below(40)).for_each(|_| spin_loop()),
        _ => (),
    }
}
