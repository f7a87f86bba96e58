//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Parser;
use perkey::Wait;
use perkey::distributed::{JobLimits, LeaseOptions};

// Those of sysexits.h, where it has one that fits.
pub(crate) const EXIT_USAGE: u8 = 2;
pub(crate) const EXIT_STORE: u8 = 69;
pub(crate) const EXIT_LOST: u8 = 70;
pub(crate) const EXIT_HELD: u8 = 75;
// As shells have it.
pub(crate) const EXIT_CANNOT_RUN: u8 = 126;
pub(crate) const EXIT_NOT_FOUND: u8 = 127;

const DETAILS: &str = "\
Stores:
  file:DIR        Lock files in a directory, for the processes of one machine; not
                  over NFS. The key is held until `locked` ends; --ttl means
                  nothing.
  postgres://HOST/DATABASE
                  A PostgreSQL server, as postgres://user:password@host:port/database,
                  with ?sslmode=require for TLS. The key is held until `locked` ends
                  or its connection does; --ttl means nothing. Needs a table, once: the
                  message that misses it has the SQL. Needs the cargo feature
                  `postgres`.
  redis://HOST    A Redis server, as redis://user:password@host:port/database, or
                  rediss:// for TLS. Needs the cargo feature `redis`.
  etcd://HOST     An etcd cluster, as etcd://user:password@host:port,host:port, or
                  etcds:// for TLS. Needs the cargo feature `etcd`.

The command:
  It is started once the key is held, with the fencing token in the environment
  variable PERKEY_TOKEN: a number that is higher than that of every earlier
  holder. Send it along with what is written, and have lower ones refused.
  If the key is lost (--at-most is over, the store was gone for longer than
  --ttl, the connection to PostgreSQL has ended), the command and what it has started get TERM, and KILL after
  --kill-after.
  The signals INT, TERM, HUP, QUIT, ALRM, USR1 and USR2 are passed on to it. It
  is in a process group of its own: it cannot ask at the terminal, and Ctrl-Z
  stops `locked` alone, which then renews nothing.
  If `locked` itself is killed by KILL, nobody ends the command, and the key is
  free (with a file store or PostgreSQL, at once).

Jobs:
  With --at-most, the command is a job that one of several processes shall run:
  if another has the key, it is not waited for. With --at-least the key is kept
  for so long after the start, even if the command ends sooner, so that a
  machine whose clock is late does not run it again. After --at-most others may
  have the key, while the command still has --kill-after to end.

Durations:
  250ms, 30s, 5m, 2h, or `1h 30m`.

Exit codes:
  that of the command; 128 + N if signal N ended it
  2    the command line is wrong, or names no store
  69   the store failed
  70   the key was lost before the command had ended
  75   the key is held: --no-wait, the end of --wait, or a job that another has
  126  the command cannot be run
  127  there is no such command

Examples:
  locked --store file:/run/locks --key nightly-report -- ./report.sh
  locked --store file:/run/locks --key db --no-wait -- pg_dump -f db.sql
  locked --store file:/run/locks --key cpu --permits 4 --wait 10m -- make
  locked --store file:/run/locks --key mail --at-most 1h --at-least 5m -- ./mail.sh
  locked --store file:/run/locks --list";

/// Runs a command while it holds a key that other processes ask for too.
#[derive(Debug, Parser)]
#[command(name = "locked", after_long_help = DETAILS)]
pub(crate) struct Cli {
    /// Where the key is held: `file:DIR`, or another scheme; see below
    #[arg(short, long, value_name = "STORE")]
    pub(crate) store: String,

    /// What is locked: any text. With --list, what the keys begin with
    #[arg(short, long, required_unless_present = "list")]
    key: Option<String>,

    /// What separates these keys from others in the same store
    #[arg(long, value_name = "NAME", default_value = "perkey")]
    namespace: String,

    /// After how long the key is free if this program is killed or cannot reach the store; renewed until then
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    ttl: Duration,

    /// Waits for the key for so long at the most [default: for ever]
    #[arg(short, long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,

    /// Does not wait: exits with 75 if the key is held
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// So many may hold the key at once; all have to say the same
    #[arg(short, long, value_name = "N")]
    permits: Option<NonZeroU32>,

    /// Ends the command after so long, and does not wait for the key: see Jobs
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["wait", "permits"], value_parser = humantime::parse_duration)]
    at_most: Option<Duration>,

    /// Keeps the key for so long even if the command ends sooner
    #[arg(long, value_name = "DURATION", requires = "at_most", value_parser = humantime::parse_duration)]
    at_least: Option<Duration>,

    /// How long the command may take to end after TERM, if the key is lost
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) kill_after: Duration,

    /// Prints who holds which keys: key, token, owner, and for how long, separated by tabs
    #[arg(short, long, conflicts_with_all = ["wait", "no_wait", "permits", "at_most", "command"])]
    pub(crate) list: bool,

    /// What is run, with its arguments; by no shell
    #[arg(required_unless_present = "list", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// How the key is taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    Lock,
    Permit(NonZeroU32),
    Job(JobLimits),
}

impl Cli {
    /// Reads the command line; ends the program if it is wrong or asks for help.
    pub(crate) fn from_args() -> Self {
        Self::parse()
    }

    /// Empty if there is none: then all are listed.
    pub(crate) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    pub(crate) fn options(&self) -> LeaseOptions {
        LeaseOptions::new().namespace(&self.namespace).ttl(self.ttl)
    }

    pub(crate) fn wait(&self) -> Wait {
        match self.wait {
            _ if self.no_wait => Wait::now(),
            Some(duration) => Wait::at_most(duration),
            None => Wait::forever(),
        }
    }

    pub(crate) fn how(&self) -> How {
        match (self.at_most, self.permits) {
            (Some(at_most), _) => How::Job(JobLimits { at_most, at_least: self.at_least.unwrap_or_default() }),
            (None, Some(limit)) => How::Permit(limit),
            (None, None) => How::Lock,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, ErrorKind> {
        let all = ["locked", "--store", "file:x"].iter().chain(args);
        Cli::try_parse_from(all).map_err(|error| error.kind())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_belongs_to_the_command() {
        for args in [&["--key", "a", "--", "make", "--key", "b"][..], &["--key", "a", "make", "--key", "b"]] {
            let cli = parse(args).unwrap();
            assert_eq!((cli.key(), cli.how()), ("a", How::Lock));
            assert_eq!(cli.command, ["make", "--key", "b"]);
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, ms) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h 30m", 5_400_000), ("0s", 0)] {
            let cli = parse(&["--key", "a", "--ttl", text, "true"]).unwrap();
            assert_eq!(cli.ttl, Duration::from_millis(ms), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1 fortnight", "99999999999999999999s"] {
            let option = format!("--ttl={text}");
            assert_eq!(parse(&["--key", "a", &option, "true"]).unwrap_err(), ErrorKind::ValueValidation, "{text}");
        }
    }

    #[test]
    fn there_are_three_ways() {
        let how = |args: &[&str]| parse(&[&["--key", "a"], args, &["true"]].concat()).unwrap().how();
        assert_eq!(how(&[]), How::Lock);
        assert_eq!(how(&["--permits", "3"]), How::Permit(NonZeroU32::new(3).unwrap()));
        let (at_most, at_least) = (Duration::from_secs(60), Duration::from_secs(1));
        assert_eq!(how(&["--at-most", "1m"]), How::Job(JobLimits { at_most, at_least: Duration::ZERO }));
        assert_eq!(how(&["--at-most", "1m", "--at-least", "1s"]), How::Job(JobLimits { at_most, at_least }));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let conflict = ErrorKind::ArgumentConflict;
        let missing = ErrorKind::MissingRequiredArgument;
        for (args, kind) in [
            (&["--wait", "1s", "--no-wait"][..], conflict),
            (&["--wait", "1s", "--at-most", "1s"], conflict),
            (&["--permits", "2", "--at-most", "1s"], conflict),
            (&["--at-least", "1s"], missing),
            (&["--permits", "0"], ErrorKind::ValueValidation),
            (&["--list"], conflict),
        ] {
            let args = [&["--key", "a"], args, &["--", "true"]].concat();
            assert_eq!(parse(&args).unwrap_err(), kind, "{args:?}");
        }
        assert_eq!(parse(&["true"]).unwrap_err(), missing, "no key");
        assert_eq!(parse(&["--key", "a"]).unwrap_err(), missing, "no command");
        assert_eq!(parse(&["--list"]).unwrap().key(), "");
    }
}
