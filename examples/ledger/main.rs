//! A small real program: applies transfers between accounts with a pool of threads and guards each account by its key.
//!
//! The parts that show the library are `beside.rs` (balances beside their locks) and `owned.rs` (accounts owned by their
//! locks), one of which `ledger.rs` chooses. The rest is what a program needs around it: the command line (`cli.rs`), the
//! input (`rows.rs`, `generate.rs`), the threads (`pool.rs`), the check (`audit.rs`) and the output (`report.rs`).
//!
//! ```text
//! cargo run --release --example ledger -- --generate 200000
//! cargo run --release --example ledger -- --help
//! ```

mod audit;
mod beside;
mod cli;
mod generate;
mod ledger;
mod owned;
mod pool;
mod report;
mod rows;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use audit::Audit;
use cli::{Cli, Source};
use ledger::Ledger;
use report::Report;
use rows::{ReadError, Transfer};

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
    let transfers = load(&cli.source())?;
    if cli.print {
        print(|out| rows::write(&transfers, out))?;
        return Ok(ExitCode::SUCCESS);
    }

    let ledger = Ledger::new(&transfers, cli.state, cli.lock, cli.work());
    let threads = cli.threads();
    let time = pool::run(&transfers, threads, |transfer| ledger.apply(transfer));

    let busiest = ledger.busiest();
    let balances = ledger.into_balances();
    let audit = Audit::new(&balances, &transfers);
    let transfers = transfers.len();
    let report = Report { cli, transfers, threads, time, balances: &balances, busiest, audit: &audit };
    print(|out| write!(out, "{report}"))?;
    if audit.passed() {
        return Ok(ExitCode::SUCCESS);
    }
    complain("the check failed");
    Ok(cli::EXIT_CHECK_FAILED.into())
}

fn load(source: &Source) -> Result<Vec<Transfer>, String> {
    let result = match *source {
        Source::Generated { count, accounts, seed } => return Ok(generate::transfers(count, accounts, seed)),
        Source::Stdin => rows::read(io::stdin().lock()),
        Source::File(path) => {
            File::open(path).map_err(ReadError::from).and_then(|file| rows::read(BufReader::new(file)))
        }
    };
    result.map_err(|error| match error {
        ReadError::BadRow { line, .. } => format!("{source}:{line}: {error}; nothing was applied"),
        ReadError::Io(_) => format!("{source}: {error}"),
    })
}

/// Writes to stdout. That nobody reads it any more (`| head`) is no fault, and does not hide what the check found.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("<stdout>: {error}")),
        _ => Ok(()),
    }
}

/// As `eprintln!`, which panics if nobody reads stderr (`2>&1 | head`).
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "ledger: {message}");
}
