//! The command line.

use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use perkey::Fairness;

use super::load::{End, Plan};

pub(crate) const EXIT_CHECK_FAILED: u8 = 1;
// 2 is clap's, for a wrong command line.
pub(crate) const EXIT_NO_OUTPUT: u8 = 3;

const DETAILS: &str = "\
What happens:
  Workers read products, and now and then write one: a writer changes the price,
  waits, and changes the discount. Meanwhile one thread rebuilds the whole
  catalog, the next version of every product, and one thread adds all of it up.
  Some products are asked for much more often than others.

Check:
  What a reader sees must be whole, and of the catalog's version; so must every
  product that is added up. In the end every write must be there, and as many
  versions as rebuilds.

Table:
  All times are what a call took from its beginning, with its own work; of a
  rebuild, only what it waited. A read that meets a rebuild waits for all of it,
  whatever the fairness. p50 and p99 are of reads, rounded up by at most 1/16.
  On a machine that does other things, the longest times are the scheduler's.

Exit codes:
  0  the check passed
  1  the check failed: somebody saw what nobody should
  2  the command line is wrong
  3  the output failed

Examples:
  catalog                                  Both kinds of fairness, 2 s each
  catalog --keys 1 --fairness fifo         Everybody wants the same product
  catalog --reads 100000 --writes 50       Until so many reads are made
  catalog --rebuild key-by-key             Half-built catalogs are seen
  catalog --rebuild without-lock           And half-built products";

/// Reads and writes a catalog of products by key, and rebuilds it as a whole while readers keep coming.
///
/// It checks that nobody ever sees a catalog that is half built, and shows what fairness does to how long calls take.
#[derive(Debug, Parser)]
#[command(name = "catalog", after_long_help = DETAILS)]
pub(crate) struct Cli {
    /// How many worker threads [default: four per core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// How many products the catalog has
    #[arg(long, value_name = "K", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,

    /// How long each run is
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seconds: u32,

    /// Ends each run after so many reads, or a few more, instead
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    reads: Option<u64>,

    /// Who goes first where several wait: one kind, or a run of each
    #[arg(long, value_enum, default_value_t = Modes::Both)]
    fairness: Modes,

    /// How often the catalog is rebuilt, evenly over each run, which does not end before
    #[arg(long, value_name = "R", default_value_t = 20)]
    pub(crate) rebuilds: u32,

    /// What a rebuild locks
    #[arg(long, value_enum, default_value_t = Rebuild::WriteAll)]
    pub(crate) rebuild: Rebuild,

    /// How many calls of a hundred write
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(..=99))]
    pub(crate) writes: u8,

    /// How long a write waits with its product half written, in microseconds (it sleeps, so a little longer)
    #[arg(long, value_name = "MICROS", default_value_t = 50)]
    write_time: u32,

    /// How long a rebuild waits half way, in microseconds
    #[arg(long, value_name = "MICROS", default_value_t = 2_000)]
    build_time: u32,
}

/// Which kinds of fairness to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Modes {
    /// Fast: who waits first may be overtaken for a while
    Eventual,
    /// In order of arrival
    Fifo,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Eventual,
    Fifo,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Eventual => "eventual",
            Self::Fifo => "fifo",
        }
    }

    pub(crate) fn fairness(self) -> Fairness {
        match self {
            Self::Eventual => Fairness::Eventual,
            Self::Fifo => Fairness::Fifo,
        }
    }
}

/// What a rebuild locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rebuild {
    /// Every product, in one step
    WriteAll,
    /// One product after the other: each is whole, the catalog is not, and the check says so
    KeyByKey,
    /// Nothing: neither is, and the check says so
    WithoutLock,
}

impl Cli {
    /// Reads the command line; ends the program if it is wrong or asks for help.
    pub(crate) fn from_args() -> Self {
        Self::parse()
    }

    pub(crate) fn threads(&self) -> usize {
        // Writers sleep, so more than there are cores.
        self.threads.map_or_else(|| 4 * thread::available_parallelism().map_or(2, usize::from), usize::from)
    }

    pub(crate) fn modes(&self) -> Vec<Mode> {
        match self.fairness {
            Modes::Eventual => vec![Mode::Eventual],
            Modes::Fifo => vec![Mode::Fifo],
            Modes::Both => vec![Mode::Eventual, Mode::Fifo],
        }
    }

    pub(crate) fn end(&self) -> End {
        self.reads.map_or(End::After(Duration::from_secs(self.seconds.into())), End::Reads)
    }

    pub(crate) fn plan(&self, mode: Mode) -> Plan {
        Plan {
            name: mode.name(),
            threads: self.threads(),
            end: self.end(),
            write_percent: self.writes.into(),
            write_time: Duration::from_micros(self.write_time.into()),
            rebuild: self.rebuild,
            rebuilds: self.rebuilds.into(),
            build_time: Duration::from_micros(self.build_time.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, ErrorKind> {
        Cli::try_parse_from(["catalog"].iter().chain(args)).map_err(|error| error.kind())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_run_ends_after_a_time_or_after_reads() {
        assert_eq!(parse(&[]).unwrap().end(), End::After(Duration::from_secs(2)));
        assert_eq!(parse(&["--seconds", "7"]).unwrap().end(), End::After(Duration::from_secs(7)));
        assert_eq!(parse(&["--reads", "7"]).unwrap().end(), End::Reads(7));
        assert_eq!(parse(&["--reads", "7", "--seconds", "7"]).unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn both_kinds_of_fairness_are_run_unless_one_is_named() {
        assert_eq!(parse(&[]).unwrap().modes(), [Mode::Eventual, Mode::Fifo]);
        assert_eq!(parse(&["--fairness", "both"]).unwrap().modes(), [Mode::Eventual, Mode::Fifo]);
        assert_eq!(parse(&["--fairness", "eventual"]).unwrap().modes(), [Mode::Eventual]);
        assert_eq!(parse(&["--fairness", "fifo"]).unwrap().modes(), [Mode::Fifo]);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for option in [["--threads", "0"], ["--keys", "0"], ["--seconds", "0"], ["--reads", "0"], ["--writes", "100"]] {
            assert_eq!(parse(&option).unwrap_err(), ErrorKind::ValueValidation, "{option:?}");
        }
        assert_eq!(parse(&["--threads", "3"]).unwrap().threads(), 3);
        assert!(parse(&[]).unwrap().threads() >= 4);
    }
}
