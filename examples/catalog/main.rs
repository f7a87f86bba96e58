//! A cache that is read and written by key, and rebuilt as a whole while readers keep coming: a catalog of products.
//!
//! `catalog.rs` shows the library: `read` and `write` of one product, `write_all` around a rebuild, `read_all` around a sum of
//! the whole. The rest is what a program needs around it: the command line (`cli.rs`), the threads (`load.rs`), their waits
//! (`latencies.rs`) and the output (`report.rs`).
//!
//! ```text
//! cargo run --release --example catalog
//! cargo run --release --example catalog -- --rebuild without-lock
//! cargo run --release --example catalog -- --help
//! ```

mod catalog;
mod cli;
mod latencies;
mod load;
mod report;

use std::io::{self, Write};
use std::process::ExitCode;

use catalog::Catalog;
use cli::Cli;
use report::{Report, Row};

fn main() -> ExitCode {
    match run(&Cli::from_args()) {
        Ok(code) => code,
        Err(message) => {
            complain(&message);
            cli::EXIT_NO_OUTPUT.into()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    let rows: Vec<Row> = cli
        .modes()
        .into_iter()
        .map(|mode| {
            let catalog = Catalog::new(cli.keys, mode.fairness());
            let mut outcome = load::run(&catalog, &cli.plan(mode));
            outcome.faults.add(catalog.judge_end(outcome.writes.count(), cli.rebuilds.into()));
            Row { mode, outcome }
        })
        .collect();
    let report = Report { cli, rows: &rows };
    print(&report.to_string())?;
    if report.passed() {
        return Ok(ExitCode::SUCCESS);
    }
    complain("the check failed");
    Ok(cli::EXIT_CHECK_FAILED.into())
}

/// Writes to stdout. That nobody reads it any more (`| head`) is no fault, and does not hide what the check found.
fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("<stdout>: {error}")),
        _ => Ok(()),
    }
}

/// As `eprintln!`, which panics if nobody reads stderr (`2>&1 | head`).
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "catalog: {message}");
}
