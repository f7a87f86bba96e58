//! A small real program: runs a command while it holds a key that several processes, or machines, ask for. As `flock` does, on any
//! store, with a fencing token; and the command is ended if the key is lost.
//!
//! The part that shows the library is in `main.rs`: which call it is that takes the key. The rest is what a program needs around
//! it: the command line (`cli.rs`), the store that is named there (`stores.rs`), the command and what happens to it
//! (`command.rs`), signals (`signals.rs`), and who holds what (`listing.rs`).
//!
//! # How it works
//!
//! What can happen while the command runs comes to the main thread by one channel: it has ended, the lease is lost, a signal came.
//! The command is in a process group of its own, so that all of it can be ended, and that a Ctrl-C at the terminal,
//! which goes to the group of this program, reaches it once: from here.
//!
//! ```text
//! cargo run --example locked --features distributed -- --store file:/tmp/locks --key nightly-report -- ./report.sh
//! cargo run --example locked --features distributed -- --help
//! ```

#[cfg(unix)]
mod cli;
#[cfg(unix)]
mod command;
#[cfg(unix)]
mod listing;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod stores;

#[cfg(not(unix))]
fn main() {
    eprintln!("locked: it ends commands by signals, so it is for Unix only");
    std::process::exit(1);
}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(unix)]
mod unix {
    use std::io::{self, Write};
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, Sender};

    use perkey::distributed::{DistributedLock, DistributedSemaphore, Error, Job, Lease, Released, Store};
    use perkey::{AcquireError, CancellationToken};

    use super::cli::{self, Cli, How};
    use super::command::{self, Ended, Event};
    use super::{listing, signals, stores};

    pub(super) fn main() -> ExitCode {
        let cli = Cli::from_args();
        let code = run(&cli).unwrap_or_else(|(code, message)| {
            complain(&message);
            code
        });
        ExitCode::from(code)
    }

    type Failure = (u8, String);

    fn run(cli: &Cli) -> Result<u8, Failure> {
        let store = stores::open(&cli.store).map_err(|message| (cli::EXIT_USAGE, message))?;
        let locks = DistributedLock::with_options(Arc::clone(&store), cli.options());
        if cli.list {
            let holders = locks.holders(cli.key()).map_err(|error| failure(&error, None))?;
            listing::print(&holders).map_err(|error| (cli::EXIT_STORE, format!("<stdout>: {error}")))?;
            return Ok(0);
        }
        let (events, happens) = mpsc::channel();
        let stop = CancellationToken::new();
        let signals = signals::pass_on(events.clone(), stop.clone());
        let signals = signals.map_err(|error| (cli::EXIT_STORE, format!("cannot wait for signals: {error}")))?;
        let ended = under_the_key(cli, store, &locks, &stop, &events, &happens);
        ended.map_err(|error| failure(&error, signals.first())).and_then(|ended| report(cli, ended))
    }

    /// Runs the command with the key, or with one of its permits.
    fn under_the_key(
        cli: &Cli,
        store: Arc<dyn Store>,
        locks: &DistributedLock,
        stop: &CancellationToken,
        events: &Sender<Event>,
        happens: &Receiver<Event>,
    ) -> Result<Ended, Error> {
        let (key, wait) = (cli.key(), cli.wait().or_cancelled(stop));
        let command = |lease: &Lease| command::run(cli, lease, events, happens);
        match cli.how() {
            How::Lock => release(locks.lock_with(key, wait)?, command),
            How::Permit(limit) => {
                let permits = DistributedSemaphore::with_options(store, limit, cli.options());
                release(permits.acquire_with(key, wait)?, command)
            }
            How::Job(limits) => match locks.run_job(key, limits, command)? {
                Job::Ran(ended) => Ok(ended),
                Job::Skipped => Ok(Ended::Skipped),
            },
        }
    }

    /// Runs the command, and says if the key was not held to its end.
    fn release(lease: Lease, command: impl FnOnce(&Lease) -> Ended) -> Result<Ended, Error> {
        let ended = command(&lease);
        match lease.release() {
            Ok(Released::NotOwner) => Ok(ended.but_lost()),
            Ok(_) => Ok(ended),
            Err(error) => {
                complain(&error.to_string());
                Ok(ended)
            }
        }
    }

    fn report(cli: &Cli, ended: Ended) -> Result<u8, Failure> {
        match ended {
            Ended::With(code) => Ok(code),
            Ended::Lost => Err((cli::EXIT_LOST, format!("key {:?} was lost before the command had ended", cli.key()))),
            Ended::NotStarted(code, message) => Err((code, message)),
            Ended::Skipped => Err((cli::EXIT_HELD, format!("key {:?} is held, or was a moment ago", cli.key()))),
        }
    }

    fn failure(error: &Error, signal: Option<i32>) -> Failure {
        let code = match (error, error.acquire_error()) {
            (_, Some(AcquireError::Cancelled)) => {
                128 + signal.and_then(|signal| u8::try_from(signal).ok()).unwrap_or(0)
            }
            (_, Some(_)) => cli::EXIT_HELD,
            (Error::Options(_), _) => cli::EXIT_USAGE,
            _ => cli::EXIT_STORE,
        };
        (code, error.to_string())
    }

    /// As `eprintln!`, which panics if nobody reads stderr (`2>&1 | head`).
    pub(super) fn complain(message: &str) {
        let _ = writeln!(io::stderr(), "locked: {message}");
    }
}
