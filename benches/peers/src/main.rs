//! Measures perkey beside other per-key locks, all in one process and in interleaved rounds.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --quick
//! ```
//!
//! `contestants/` is what is measured, `shapes.rs` under which loads (`loads.rs`, `keys.rs`), `loops.rs` the measured
//! loops, `measure.rs` the rounds; `results.rs`, `goals.rs` and `table.rs` are what comes of it.

#![forbid(unsafe_code)]

mod cli;
mod contestants;
mod facts;
mod goals;
mod keys;
mod loads;
mod loops;
mod measure;
mod results;
mod shapes;
mod stats;
mod table;
mod watchdog;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use cli::Cli;
use contestants::names;
use results::ShapeResult;
use shapes::Shape;
use watchdog::Watchdog;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> io::Result<()> {
    if cli.list {
        return io::stdout().write_all(list().as_bytes());
    }
    let mut shapes = shapes::all();
    shapes.retain(|shape| cli.shapes.is_empty() || cli.shapes.contains(&shape.name));

    // Opened before minutes are spent on what goes into it.
    let csv = cli.csv.as_deref().map(create).transpose()?;
    let load_before = facts::load();
    let results = measure_all(&shapes, cli);
    let head = format!("{}load {load_before} before, {} after\n{}\n", facts::facts(), facts::load(), describe(cli));
    match csv {
        Some(mut file) => {
            file.write_all(table::csv(&results).as_bytes())?;
            eprint!("{head}");
        }
        None => io::stdout().write_all(format!("{head}\n{}", table::markdown(&results)).as_bytes())?,
    }
    eprint!("{}", table::summary(&results));
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn measure_all<'a>(shapes: &'a [Shape], cli: &Cli) -> Vec<(&'a Shape, ShapeResult)> {
    let (watchdog, start) = (Watchdog::start(), Instant::now());
    let measured = shapes.iter().enumerate().map(|(number, shape)| {
        eprint!("[{:2}/{}, {:3} s] {} ... ", number + 1, shapes.len(), start.elapsed().as_secs(), shape.title);
        let result = measure::measure(shape, cli.plan(), &watchdog);
        eprintln!("{:.1} ns", result.row(names::PERKEY).map_or(f64::NAN, |row| row.quantile(0.5)));
        (shape, result)
    });
    measured.collect()
}

/// How much was measured.
fn describe(cli: &Cli) -> String {
    let plan = cli.plan();
    let effort = plan.effort;
    format!(
        "{} interleaved rounds of {} operations (one thread) or {} ms (several); waits and shares: {} rounds of {} ms",
        plan.rounds,
        effort.operations,
        effort.window.as_millis(),
        plan.wait_rounds,
        effort.wait_window.as_millis(),
    )
}

fn list() -> String {
    let line = |(name, text): (&str, &str)| format!("  {name:16}  {text}\n");
    let shapes: String = shapes::all().iter().map(|shape| line((&shape.name, &shape.title))).collect();
    let contestants: String = names::LEGEND.into_iter().map(line).collect();
    format!(
        "Shapes:\n{shapes}\nContestants (lockmap, keyed-lock and key-mutex are crates, as is lockable):\n{contestants}"
    )
}
