//! The threads that use a catalog: workers who read and write products, one that sums all of them, one that rebuilds them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::catalog::{Catalog, Faults};
use super::cli::Rebuild;
use super::latencies::Latencies;

/// After so many calls a worker says how far it is.
const REPORT_EVERY: u64 = 64;
const TICK: Duration = Duration::from_micros(500);

/// What to do.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    pub(crate) end: End,
    pub(crate) write_percent: u64,
    pub(crate) write_time: Duration,
    pub(crate) rebuild: Rebuild,
    pub(crate) rebuilds: u64,
    pub(crate) build_time: Duration,
}

/// When workers stop, but never before the last rebuild is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    After(Duration),
    /// Of all workers together; a few more may be made.
    Reads(u64),
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) time: Duration,
    pub(crate) reads: Latencies,
    pub(crate) writes: Latencies,
    pub(crate) sums: Latencies,
    pub(crate) rebuild_waits: Latencies,
    pub(crate) faults: Faults,
}

impl Outcome {
    fn new() -> Self {
        Self {
            time: Duration::ZERO,
            reads: Latencies::new(),
            writes: Latencies::new(),
            sums: Latencies::new(),
            rebuild_waits: Latencies::new(),
            faults: Faults::default(),
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.sums.merge(&other.sums);
        self.rebuild_waits.merge(&other.rebuild_waits);
        self.faults.add(other.faults);
        self
    }
}

pub(crate) fn run(catalog: &Catalog, plan: &Plan) -> Outcome {
    let run =
        Run { plan, begin: Instant::now(), reads: AtomicU64::new(0), rebuilt: AtomicU64::new(0), over: false.into() };
    // Nothing is sent: the channel is closed when the last worker lets go of its end, also by a panic.
    let (working, all_done) = mpsc::channel::<Infallible>();
    thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..plan.threads as u64)
            .map(|number| {
                let working = working.clone();
                scope.spawn(move || {
                    let _working = working;
                    let _end = EndOnPanic(run);
                    work(catalog, run, &mut Rng::new(number))
                })
            })
            .collect();
        let rebuilder = scope.spawn(move || {
            let _end = EndOnPanic(run);
            rebuild(catalog, run)
        });
        let auditor = scope.spawn(move || audit(catalog, run));
        drop(working);
        show_progress(&all_done, run);
        run.over.store(true, Ordering::Relaxed);
        let time = run.begin.elapsed();
        let outcomes =
            workers.into_iter().chain([rebuilder, auditor]).map(|thread| thread.join().expect("no thread panics"));
        Outcome { time, ..outcomes.fold(Outcome::new(), Outcome::and) }
    })
}

struct Run<'a> {
    plan: &'a Plan,
    begin: Instant,
    /// What workers have reported.
    reads: AtomicU64,
    rebuilt: AtomicU64,
    /// Whether the workers have stopped, or have to.
    over: AtomicBool,
}

impl Run<'_> {
    /// How much of the time or the reads is over: 1 for all.
    fn progress(&self) -> f64 {
        match self.plan.end {
            End::After(time) => self.begin.elapsed().as_secs_f64() / time.as_secs_f64().max(1e-9),
            End::Reads(reads) => self.reads.load(Ordering::Relaxed) as f64 / reads.max(1) as f64,
        }
    }

    fn is_over(&self) -> bool {
        let all_rebuilt = self.rebuilt.load(Ordering::Relaxed) == self.plan.rebuilds;
        self.over.load(Ordering::Relaxed) || (all_rebuilt && self.progress() >= 1.0)
    }
}

/// Lets the others stop too: they may wait for what this thread no longer does.
struct EndOnPanic<'a>(&'a Run<'a>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.over.store(true, Ordering::Relaxed);
        }
    }
}

/// Reads, and now and then writes, until the run is over.
fn work(catalog: &Catalog, run: &Run<'_>, rng: &mut Rng) -> Outcome {
    let mut outcome = Outcome::new();
    let write_time = run.plan.write_time;
    loop {
        let mut reads = 0;
        for _ in 0..REPORT_EVERY {
            let product = rng.product(catalog.products());
            let writes = rng.below(100) < run.plan.write_percent;
            let asked = Instant::now();
            if writes {
                let done = catalog.write(product, rng.below(500), || pause(write_time));
                // What it refused to touch is a fault, and not among the writes that must be found in the end.
                if done.is_ok() {
                    outcome.writes.add(asked.elapsed());
                }
                outcome.faults.note(done);
            } else {
                let seen = catalog.read(product);
                outcome.reads.add(asked.elapsed());
                outcome.faults.note(seen);
                reads += 1;
            }
        }
        run.reads.fetch_add(reads, Ordering::Relaxed);
        if run.is_over() {
            return outcome;
        }
    }
}

/// Rebuilds all of it again and again, evenly over the run.
fn rebuild(catalog: &Catalog, run: &Run<'_>) -> Outcome {
    let mut outcome = Outcome::new();
    for number in 1..=run.plan.rebuilds {
        let due = number as f64 / (run.plan.rebuilds + 1) as f64;
        while run.progress() < due {
            if run.over.load(Ordering::Relaxed) {
                return outcome;
            }
            thread::sleep(TICK);
        }
        outcome.rebuild_waits.add(catalog.rebuild(run.plan.rebuild, || pause(run.plan.build_time)));
        run.rebuilt.store(number, Ordering::Relaxed);
    }
    outcome
}

/// Sums all of it, at least once.
fn audit(catalog: &Catalog, run: &Run<'_>) -> Outcome {
    let mut outcome = Outcome::new();
    loop {
        let asked = Instant::now();
        let seen = catalog.sum();
        outcome.sums.add(asked.elapsed());
        outcome.faults.note(seen);
        if run.over.load(Ordering::Relaxed) {
            return outcome;
        }
        thread::sleep(TICK);
    }
}

fn pause(time: Duration) {
    if !time.is_zero() {
        thread::sleep(time);
    }
}

/// Returns when all workers are done. Shows a bar meanwhile if that takes long and stderr is a terminal.
fn show_progress(all_done: &Receiver<Infallible>, run: &Run<'_>) {
    const LONG: Duration = Duration::from_millis(800);
    const TICK: Duration = Duration::from_millis(100);
    const STEPS: u64 = 1_000;
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent} %, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden())
        .with_style(style.expect("the template is well formed"))
        .with_message(run.plan.name);
    let mut shown = false;
    while all_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if !shown && run.begin.elapsed() >= LONG {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            shown = true;
        }
        bar.set_position((run.progress().min(1.0) * STEPS as f64) as u64);
    }
    bar.finish_and_clear();
}

/// SplitMix64, by Sebastiano Vigna.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of so many products, of which the first ones are asked for much more often than the last: of 1,000, the first in
    /// one call of ten.
    fn product(&mut self, products: u32) -> u32 {
        let fraction = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (fraction.powi(3) * f64::from(products)) as u32
    }
}

#[cfg(test)]
mod tests {
    use perkey::Fairness;

    use super::*;

    fn plan() -> Plan {
        Plan {
            name: "test",
            threads: 3,
            end: End::Reads(1_000),
            write_percent: 20,
            write_time: Duration::ZERO,
            rebuild: Rebuild::WriteAll,
            rebuilds: 5,
            build_time: Duration::ZERO,
        }
    }

    #[test]
    fn everything_that_was_asked_for_is_done() {
        for fairness in [Fairness::Eventual, Fairness::Fifo] {
            let catalog = Catalog::new(10, fairness);
            let mut outcome = run(&catalog, &plan());
            let (reads, writes) = (outcome.reads.count(), outcome.writes.count());
            assert!(reads >= 1_000 && reads > writes && writes > 0, "{reads} and {writes}");
            assert_eq!(outcome.rebuild_waits.count(), 5);
            assert!(outcome.sums.count() > 0);
            outcome.faults.add(catalog.judge_end(writes, 5));
            assert_eq!(outcome.faults.first, None);
        }
    }

    #[test]
    fn no_time_and_no_rebuilds_are_no_fault() {
        let catalog = Catalog::new(1, Fairness::Fifo);
        let plan = Plan { end: End::After(Duration::ZERO), rebuilds: 0, write_percent: 0, ..plan() };
        let mut outcome = run(&catalog, &plan);
        assert!(outcome.reads.count() > 0);
        assert_eq!(outcome.writes.count(), 0);
        outcome.faults.add(catalog.judge_end(0, 0));
        assert_eq!(outcome.faults.first, None);
    }

    #[test]
    fn a_thread_that_panics_ends_the_run() {
        let plan = Plan { end: End::Reads(u64::MAX), ..plan() };
        let begin = Instant::now();
        let run = Run { plan: &plan, begin, reads: 0.into(), rebuilt: 0.into(), over: false.into() };
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _end = EndOnPanic(&run);
                // Without the hook, which would print it.
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(thread.join().is_err());
        });
        assert!(run.is_over());
    }

    #[test]
    fn first_products_are_the_busy_ones_and_all_are_asked_for() {
        let mut rng = Rng::new(1);
        let mut asked = [0; 10];
        (0..10_000).for_each(|_| asked[rng.product(10) as usize] += 1);
        assert!(asked.iter().all(|count| *count > 0), "{asked:?}");
        assert!(asked[0] > 4 * asked[9], "{asked:?}");
    }
}
