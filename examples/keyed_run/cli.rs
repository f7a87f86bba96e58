//! The command line.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::rows::Job;

pub(crate) const EXIT_FAILED: u8 = 1;
// 2 is clap's, for a wrong command line.
pub(crate) const EXIT_BAD_INPUT: u8 = 3;
// What a shell reports of a program that SIGINT ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

const DETAILS: &str = "\
Input:
  One command a line: a key, a tab, and what `sh -c` is to run. Blanks around the
  key are taken off. A key may have any characters but control characters. Blank
  lines and lines that begin with `#` are skipped. All lines are read before the
  first is run; if one is wrong, none is.

Order:
  Lines of one key start in the order of the input, each when the key has room.
  Of all keys that have room, the one whose next line comes first is next. A key
  that has no room holds up no other.

Commands:
  What a command prints is kept in memory until it has ended and nobody has its
  output open any more, and then printed in one go: stdout to stdout, stderr to
  stderr. Of a key that runs one at a time, outputs are in the order of its lines.
  Commands have no input, and cannot ask at the terminal: a program that tries (a
  password for ssh) is stopped by the system, and its line never ends.

Ctrl-C:
  The first one (or SIGTERM, or a hang-up, even under nohup) starts no further
  commands, waits for those that run, and says what was left. The commands do not
  get it: each is in a process group of its own. (Not on Windows.) The second one ends the program at
  once, without a summary; commands that run are left running, and what they print
  is lost.

Exit codes:
  0    all commands ran and succeeded
  1    a command failed, or could not be started
  2    the command line is wrong
  3    a bad row (nothing was run), or input or output that fails
  130  Ctrl-C, SIGTERM or a hang-up

Examples:
  keyed_run jobs.tsv                           One at a time per key
  keyed_run jobs.tsv --jobs 16 --per-key 2     Two per key, 16 in all
  keyed_run jobs.tsv --limit db=4 --tag        Four of db; each line of output
                                               begins with its key
  cut -f 1 hosts | sed 's/.*/&\\tssh -n & uptime/' | keyed_run --jobs 50";

/// Runs shell commands side by side, at most N of one key at a time.
#[derive(Debug, Parser)]
#[command(name = "keyed_run", after_long_help = DETAILS)]
pub(crate) struct Cli {
    /// File of lines `key<TAB>command`, `-` for standard input [default: standard input, unless that is a terminal]
    file: Option<PathBuf>,

    /// How many commands run at a time in all [default: one per core]
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// How many commands of one key run at a time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    per_key: u16,

    /// The same for a single key; may be given many times, and of a key the last one counts
    #[arg(short, long, value_name = "KEY=N", value_parser = key_limit)]
    limit: Vec<(String, u16)>,

    /// Begins each line of output with its key and a tab
    #[arg(short, long)]
    pub(crate) tag: bool,

    /// Prints the lines that would be run, and runs none
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Where the lines come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    File(&'a Path),
    Stdin,
}

/// How many commands of a key run at a time.
#[derive(Debug)]
pub(crate) struct Limits {
    per_key: usize,
    single: BTreeMap<String, usize>,
}

impl Cli {
    /// Reads the command line; ends the program if it is wrong or asks for help.
    pub(crate) fn from_args() -> Self {
        let cli = Self::parse();
        // A program that silently waits for somebody to type lines looks as if it hung.
        if cli.file.is_none() && io::stdin().is_terminal() {
            let message = "no commands: give a FILE, or `-` for standard input";
            Self::command().error(ErrorKind::MissingRequiredArgument, message).exit();
        }
        cli
    }

    pub(crate) fn source(&self) -> Source<'_> {
        match &self.file {
            Some(path) if path.as_os_str() != "-" => Source::File(path),
            _ => Source::Stdin,
        }
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
    }

    pub(crate) fn limits(&self) -> Limits {
        let single = self.limit.iter().map(|(key, limit)| (key.clone(), usize::from(*limit))).collect();
        Limits { per_key: self.per_key.into(), single }
    }
}

impl Limits {
    pub(crate) fn of(&self, key: &str) -> usize {
        self.single.get(key).copied().unwrap_or(self.per_key)
    }

    /// Keys with a limit of their own that no line has.
    pub(crate) fn unused(&self, jobs: &[Job]) -> Vec<String> {
        let mut unused: HashSet<&str> = self.single.keys().map(String::as_str).collect();
        for job in jobs {
            unused.remove(job.key.as_str());
        }
        self.single.keys().filter(|key| unused.contains(key.as_str())).cloned().collect()
    }
}

/// `KEY=N`. A key may have a `=` in it, a number has not: it is the last one that counts.
fn key_limit(text: &str) -> Result<(String, u16), &'static str> {
    let (key, limit) = text.rsplit_once('=').ok_or("expected KEY=N")?;
    // As where lines are read.
    let key = key.trim();
    if key.is_empty() {
        return Err("the key is empty");
    }
    let limit = limit.parse().ok().filter(|limit| *limit > 0);
    Ok((key.to_owned(), limit.ok_or("N is not a whole number from 1 to 65535")?))
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, ErrorKind> {
        Cli::try_parse_from(["keyed_run"].iter().chain(args)).map_err(|error| error.kind())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn source_is_what_was_named() {
        assert_eq!(parse(&["a.tsv"]).unwrap().source(), Source::File(Path::new("a.tsv")));
        assert_eq!(parse(&["-"]).unwrap().source(), Source::Stdin);
        assert_eq!(parse(&[]).unwrap().source(), Source::Stdin);
    }

    #[test]
    fn defaults_are_a_job_per_core_and_one_per_key() {
        let cli = parse(&[]).unwrap();
        assert_eq!(cli.jobs(), thread::available_parallelism().unwrap().get());
        assert_eq!(cli.limits().of("a"), 1);
        assert_eq!(parse(&["--jobs", "7"]).unwrap().jobs(), 7);
    }

    #[test]
    fn single_keys_have_their_own_limit_and_the_last_one_counts() {
        let args = ["--per-key", "2", "--limit", "db=4", "--limit", "a=b=3", "--limit", "db=5", "--limit", " c =1"];
        let limits = parse(&args).unwrap().limits();
        for (key, limit) in [("db", 5), ("a=b", 3), ("c", 1), ("a", 2), ("", 2)] {
            assert_eq!(limits.of(key), limit, "{key:?}");
        }
    }

    #[test]
    fn limits_that_no_line_asks_for_are_found() {
        let limits = parse(&["--limit", "z=1", "--limit", "a=1", "--limit", "b=1"]).unwrap().limits();
        let job = Job { line: 1, key: "b".into(), command: "true".into() };
        assert_eq!(limits.unused(&[job]), ["a", "z"]);
    }

    #[test]
    fn wrong_numbers_and_keys_are_refused() {
        for option in ["--jobs=0", "--jobs=1025", "--per-key=0", "--per-key=x"] {
            assert_eq!(parse(&[option]).unwrap_err(), ErrorKind::ValueValidation, "{option}");
        }
        for limit in ["db", "db=", "db=0", "db=-1", "db=70000", "=3", " =3"] {
            assert_eq!(parse(&["--limit", limit]).unwrap_err(), ErrorKind::ValueValidation, "{limit}");
        }
    }
}
