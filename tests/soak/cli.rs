//! The command line.

use clap::{Parser, ValueEnum};

/// Makes every call of every type at random, with an oracle, and looks for what is left behind. Ends with 0 if all was
/// well, with 1 if not.
#[derive(Debug, Parser)]
#[command(name = "soak", bin_name = "soak")]
pub(crate) struct Cli {
    /// How long, in seconds
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seconds: u64,

    /// How many threads make calls (two more give back what these took)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) threads: u64,

    /// Fixes what each thread asks for; when threads run is the scheduler's business [default: a new one]
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// How many MiB the process may have grown by the end, from the end of the first lap
    #[arg(long, default_value_t = 8, value_name = "MIB")]
    pub(crate) memory: u64,

    /// Makes a mistake on purpose: the run must then end with 1, and name it
    #[arg(long, value_name = "FAULT")]
    pub(crate) plant: Option<Fault>,

    /// After how many seconds without progress the run is stuck
    #[arg(long, default_value_t = 60, hide = true)]
    pub(crate) stuck_after: u64,
}

/// What `--plant` does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// One call in so many enters without the lock
    Overlap,
    /// One call in so many reads without the lock, where others write
    ReaderBesideWriter,
    /// A value is read under its lock and written under a later one
    LostUpdate,
    /// A permit is forgotten
    LostPermit,
    /// Each call keeps some memory
    Leak,
    /// A thread runs on after the end of a lap
    Thread,
    /// A guard is forgotten, and others wait for ever
    Hang,
}

impl Cli {
    /// The command that makes the same calls again.
    pub(crate) fn repeat(&self, seed: u64) -> String {
        let Self { seconds, threads, memory, .. } = self;
        let plant = self.plant.and_then(|fault| fault.to_possible_value());
        let plant = plant.map_or_else(String::new, |fault| format!(" --plant {}", fault.get_name()));
        format!(
            "cargo test --release --test soak -- --seconds {seconds} --threads {threads} --memory {memory} --seed {seed}{plant}"
        )
    }
}
