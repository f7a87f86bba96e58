//! A small real program: runs shell commands side by side, at most N of one key at a time. (Think of a key as a host that
//! must not be asked by more than one command at once, or a directory, or a database.)
//!
//! The part that shows the library is `scheduler.rs`, which decides what starts next. The rest is what a program needs
//! around it: the command line (`cli.rs`), the input (`rows.rs`), the lines that have not started (`pending.rs`), the
//! threads and the commands (`pool.rs`), and the output (`console.rs`, `summary.rs`).
//!
//! # How it works
//!
//! There are J workers, each a thread that runs one command at a time. A worker that simply took the next line and then
//! waited for its key would be the wrong shape: with J lines of one slow key at the front, all J would wait there, and no
//! other key would move. A thread for each line is none either, as there may be a million. So a worker starts the *first
//! line whose key has a permit left*, and waits only if there is no such line. `scheduler.rs` says why that leaves no
//! worker idle for nothing, and what it costs.
//!
//! Workers hand the output of a command that ended to the main thread, which alone prints. The first Ctrl-C cancels a
//! [`perkey::CancellationToken`], which every wait for a key was given. Commands are in process groups of their own: a
//! terminal sends Ctrl-C to the program's group, and commands that are waited for must not get it too.
//!
//! ```text
//! cargo run --release --example keyed_run -- examples/keyed_run/jobs.tsv --jobs 4
//! cargo run --release --example keyed_run -- --help
//! ```

mod cli;
mod console;
mod pending;
mod pool;
mod rows;
mod scheduler;
mod summary;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::{self, ExitCode};

use cli::{Cli, Source};
use console::Console;
use perkey::CancellationToken;
use rows::{Job, ReadError};
use scheduler::Scheduler;
use summary::Summary;

fn main() -> ExitCode {
    match run(&Cli::from_args()) {
        Ok(code) => code,
        Err(message) => {
            complain(&message);
            cli::EXIT_BAD_INPUT.into()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    let source = cli.source();
    let jobs = load(&source)?;
    let limits = cli.limits();
    // Most likely the key is misspelt, and then another one has not the limit that was meant for it.
    for key in limits.unused(&jobs) {
        complain(&format!("--limit: no line has the key {key:?}"));
    }
    if cli.dry_run {
        print(|out| jobs.iter().try_for_each(|job| writeln!(out, "{job}")))?;
        return Ok(ExitCode::SUCCESS);
    }

    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let scheduler = Scheduler::new(&jobs, move |key| limits.of(key), &stop);
    let mut console = Console::new(jobs.len(), cli.tag);
    let mut summary = Summary::new(&source);
    pool::run(&scheduler, cli.jobs(), |event| match event {
        pool::Event::Tick { running } => console.tick(summary.ran(), running, stop.is_cancelled()),
        pool::Event::Ended(job, result) => {
            // Without a place for what the commands print there is no point in running more of them.
            if let Ok(output) = &result
                && console.print(&job.key, output).is_err()
            {
                stop.cancel();
            }
            summary.add(job, &result);
        }
    });

    let (time, output_error) = console.finish();
    let left = scheduler.into_left();
    complain(&summary.text(&left, time));
    if let Some(error) = output_error {
        return Err(format!("<stdout>: {error}"));
    }
    Ok(match (stop.is_cancelled(), summary.all_succeeded()) {
        (true, _) => cli::EXIT_INTERRUPTED.into(),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => cli::EXIT_FAILED.into(),
    })
}

/// The first Ctrl-C (or SIGTERM, or hang-up of the terminal) cancels `stop`. The second ends the program.
fn stop_on_signal(stop: CancellationToken) -> Result<(), String> {
    // This runs on a thread of its own, and must never block: not even on a message, which a full pipe would hold up. It
    // is the main thread that says so.
    let handler = move || {
        if stop.is_cancelled() {
            process::exit(cli::EXIT_INTERRUPTED.into());
        }
        stop.cancel();
    };
    ctrlc::set_handler(handler).map_err(|error| format!("cannot wait for Ctrl-C: {error}"))
}

fn load(source: &Source) -> Result<Vec<Job>, String> {
    let result = match *source {
        Source::Stdin => rows::read(io::stdin().lock()),
        Source::File(path) => {
            File::open(path).map_err(ReadError::from).and_then(|file| rows::read(BufReader::new(file)))
        }
    };
    result.map_err(|error| match error {
        ReadError::BadRow { line, .. } => format!("{source}:{line}: {error}; nothing was run"),
        ReadError::Io(_) => format!("{source}: {error}"),
    })
}

/// Writes to stdout. That nobody reads it any more (`| head`) is no fault.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("<stdout>: {error}")),
        _ => Ok(()),
    }
}

/// As `eprintln!`, which panics if nobody reads stderr (`2>&1 | head`).
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "keyed_run: {message}");
}
