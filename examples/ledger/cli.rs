//! The command line.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

pub(crate) const EXIT_CHECK_FAILED: u8 = 1;
// 2 is clap's, for a wrong command line.
pub(crate) const EXIT_BAD_INPUT: u8 = 3;

const DETAILS: &str = "\
Input:
  One transfer a line: from,to,amount. A first line that reads just so is a
  heading. Blank lines are skipped. The amount is a whole number of the smallest
  unit (cents), from 1 up. A name with a comma in it is quoted, as CSV has it. A
  transfer from an account to itself is allowed and changes nothing. Every
  account starts at 0 and may go below, so the order of transfers is no matter.

Check:
  The balances must add up to 0, and each must be what one thread arrives at.

Exit codes:
  0  all transfers were applied, and the check passed
  1  the check failed: money was made or lost
  2  the command line is wrong
  3  a bad row (nothing was applied), or input or output that fails

Examples:
  ledger --generate 200000                        As fast as it goes
  ledger transfers.csv --work 100                 100 us of waiting in each
  ledger transfers.csv --work 100 --lock global   The same with one lock
  ledger transfers.csv --work 100 --lock none     Without: money is lost
  ledger --generate 200000 --state mutex          The balances in the table
  ledger --generate 10000 --print > some.csv      A file to try things with";

/// Applies transfers between accounts with a pool of threads, and checks that no money was made or lost.
///
/// Each transfer reads the balances of its two accounts and writes new ones. The accounts are guarded by key: transfers
/// that share an account go one after the other, all others go side by side.
#[derive(Debug, Parser)]
#[command(name = "ledger", after_long_help = DETAILS)]
pub(crate) struct Cli {
    /// CSV file of transfers, `-` for standard input [default: standard input, unless that is a terminal]
    file: Option<PathBuf>,

    /// Makes up N transfers instead of reading them; the same N, M and SEED give the same transfers
    ///
    /// Some accounts are much busier than others: of 1,000, the busiest is in one transfer of 16.
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    generate: Option<u32>,

    /// How many accounts the made-up transfers are between
    #[arg(long, value_name = "M", requires = "generate", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000_000))]
    accounts: u32,

    /// Start of the random sequence of the made-up transfers
    #[arg(long, requires = "generate", default_value_t = 1)]
    seed: u64,

    /// Writes the made-up transfers as CSV to standard output and applies nothing
    #[arg(long, requires = "generate")]
    pub(crate) print: bool,

    /// How many worker threads [default: one per core and at least 2; with --work, eight times that]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// What guards the accounts
    #[arg(long, value_enum, default_value_t = LockKind::Keyed)]
    pub(crate) lock: LockKind,

    /// Where the accounts lie
    #[arg(long, value_enum, default_value_t = StateKind::Atomics)]
    pub(crate) state: StateKind,

    /// How long each transfer waits between reading the balances and writing them, in microseconds
    ///
    /// It stands for a database, a disk or a service that has to be asked. The thread sleeps (so a little longer than
    /// asked for) and holds its locks, but no core: keyed locks let the others go on. Without it there is little to do
    /// side by side, and one lock around everything is faster.
    #[arg(long, value_name = "MICROS", default_value_t = 0)]
    work: u32,

    /// How many accounts to print, those with the highest balances first
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(crate) top: usize,
}

/// What guards the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockKind {
    /// One lock per account, taken by its name
    Keyed,
    /// One lock around everything
    Global,
    /// No lock: money can be lost (with --work it is), and the check says so
    None,
}

/// Where the accounts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateKind {
    /// Beside the locks, one atomic per balance
    Atomics,
    /// In a KeyedMutex, which owns them and is their lock (so with `--lock keyed`); it counts their transfers too
    Mutex,
}

/// Where the transfers come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    Generated { count: u32, accounts: u32, seed: u64 },
    File(&'a Path),
    Stdin,
}

impl Cli {
    /// Reads the command line; ends the program if it is wrong or asks for help.
    pub(crate) fn from_args() -> Self {
        let cli = Self::checked(env::args_os()).unwrap_or_else(|error| error.exit());
        // A program that silently waits for somebody to type CSV looks as if it hung.
        if cli.file.is_none() && cli.generate.is_none() && io::stdin().is_terminal() {
            let message = "no transfers: give a FILE, `-` for standard input, or --generate N";
            Self::command().error(ErrorKind::MissingRequiredArgument, message).exit();
        }
        cli
    }

    /// What clap checks, and what it cannot: an option that goes with only one value of another.
    fn checked(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(args)?;
        let lock = match cli.lock {
            LockKind::Keyed => return Ok(cli),
            LockKind::Global => "global",
            LockKind::None => "none",
        };
        match cli.state {
            StateKind::Atomics => Ok(cli),
            StateKind::Mutex => {
                let message = format!(
                    "--state mutex cannot be used with --lock {lock}: a KeyedMutex is the lock of each account it owns; \
                     leave out --lock, or use --state atomics"
                );
                Err(Self::command().error(ErrorKind::ArgumentConflict, message))
            }
        }
    }

    pub(crate) fn source(&self) -> Source<'_> {
        match (self.generate, &self.file) {
            (Some(count), _) => Source::Generated { count, accounts: self.accounts, seed: self.seed },
            (None, Some(path)) if path.as_os_str() != "-" => Source::File(path),
            (None, _) => Source::Stdin,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(
            || {
                let busy = thread::available_parallelism().map_or(2, usize::from).max(2);
                // Threads that wait need no core of their own.
                if self.work == 0 { busy } else { busy * 8 }
            },
            usize::from,
        )
    }

    pub(crate) fn work(&self) -> Duration {
        Duration::from_micros(self.work.into())
    }
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generated { .. } => f.write_str("<generated>"),
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, ErrorKind> {
        Cli::checked(["ledger"].iter().chain(args)).map_err(|error| error.kind())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn source_is_what_was_named() {
        assert_eq!(parse(&["a.csv"]).unwrap().source(), Source::File(Path::new("a.csv")));
        assert_eq!(parse(&["-"]).unwrap().source(), Source::Stdin);
        assert_eq!(parse(&[]).unwrap().source(), Source::Stdin);
        let cli = parse(&["--generate", "7", "--accounts", "3", "--seed", "9"]).unwrap();
        assert_eq!(cli.source(), Source::Generated { count: 7, accounts: 3, seed: 9 });
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        assert_eq!(parse(&["a.csv", "--generate", "7"]).unwrap_err(), ErrorKind::ArgumentConflict);
        for option in [&["--accounts", "3"][..], &["--seed", "3"], &["--print"]] {
            assert_eq!(parse(option).unwrap_err(), ErrorKind::MissingRequiredArgument, "{option:?}");
        }
        for option in [["--generate", "7", "--accounts", "1"], ["--generate", "7", "--threads", "0"]] {
            assert_eq!(parse(&option).unwrap_err(), ErrorKind::ValueValidation, "{option:?}");
        }
    }

    #[test]
    fn values_in_a_mutex_have_their_own_locks() {
        for lock in ["global", "none"] {
            let args = ["--state", "mutex", "--lock", lock];
            assert_eq!(parse(&args).unwrap_err(), ErrorKind::ArgumentConflict, "{lock}");
            assert_eq!(parse(&["--state", "atomics", "--lock", lock]).unwrap().state, StateKind::Atomics);
        }
        assert_eq!(parse(&["--state", "mutex", "--lock", "keyed"]).unwrap().state, StateKind::Mutex);
        assert_eq!(parse(&[]).unwrap().state, StateKind::Atomics);
    }

    #[test]
    fn threads_default_to_more_where_they_wait() {
        let busy = parse(&[]).unwrap().threads();
        assert!(busy >= 2);
        assert_eq!(parse(&["--work", "100"]).unwrap().threads(), busy * 8);
        assert_eq!(parse(&["--work", "100", "--threads", "3"]).unwrap().threads(), 3);
    }
}
