//! A soak: every call of every type, at random, for as long as is asked for.
//!
//! It runs in laps of some seconds. Each makes new tables, lets threads make random calls on them while an oracle counts
//! who is inside, and then looks at what is left: nothing in the tables, the threads of the process back to the number it
//! began with, its memory not growing from lap to lap. `--plant` makes one of the mistakes that it is there to find.
//!
//! Not run by a plain `cargo test`:
//!
//! ```text
//! cargo test --release --test soak -- --seconds 120
//! ```
#![forbid(unsafe_code)]

mod cli;
mod keys;
mod lap;
mod locks;
mod oracle;
mod patience;
mod permits;
mod queue;
mod read_writes;
#[path = "../stress/rng.rs"]
#[expect(dead_code, reason = "only the stress test has rounds")]
mod rng;
mod subject;
mod sweeping;
mod values;
mod vitals;
mod watchdog;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;

use cli::Cli;
use oracle::Breaches;
use subject::Progress;
use vitals::{Baseline, Vitals};
use watchdog::Watchdog;

/// Long enough for memory to show, short enough for many beginnings and ends.
const LAP: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let seed = cli.seed.unwrap_or_else(rng::seed);
    let repeat = cli.repeat(seed);
    eprintln!("soak: {} s, {} threads, seed {seed}", cli.seconds, cli.threads);
    if Vitals::now().is_none() {
        eprintln!("soak: no /proc/self/status here: memory and threads are not looked at");
    }

    let breaches = Arc::new(Breaches::default());
    let progress = Arc::new(Progress::default());
    let watchdog = Watchdog::start(&progress, Duration::from_secs(cli.stuck_after), repeat.clone());
    let baseline = Baseline::take();
    let begin = Instant::now();
    let end = begin + Duration::from_secs(cli.seconds);
    let mut warm = None;
    let mut lap = 0;
    while Instant::now() < end && breaches.is_empty() {
        lap::run(
            &lap::Plan {
                number: lap,
                seed: seed.wrapping_add(lap),
                threads: cli.threads,
                until: end.min(Instant::now() + LAP),
                plant: cli.plant,
            },
            &breaches,
            &progress,
            &watchdog,
        );
        baseline.judge_threads(&breaches);
        let now = Vitals::now();
        // The first lap is what the memory of the later ones is held against.
        warm = warm.or(now);
        eprintln!("{:>5.1} s  lap {lap}  {progress}  {}", begin.elapsed().as_secs_f64(), vitals::show(now));
        lap += 1;
    }
    watchdog.stop();
    vitals::judge_memory(warm, cli.memory, &breaches);

    let found = breaches.list();
    if found.is_empty() {
        eprintln!("soak: clean after {lap} laps");
        return ExitCode::SUCCESS;
    }
    for breach in found {
        eprintln!("soak: BREACH {breach}");
    }
    eprintln!("soak: to repeat: {repeat}");
    ExitCode::FAILURE
}
