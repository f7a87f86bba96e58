//! Measures perkey beside other per-key locks, all in one process and in interleaved rounds.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --quick
//! ```
//!
//! `contestants/` is what is measured, `shapes.rs` under which loads (`loads.rs`, `keys.rs`), `loops.rs` the measured
//! loops, `measure.rs` the rounds; `results.rs`, `goals.rs`, `table.rs` and `chart.rs` are what comes of it.
//! `memory.rs` weighs tables, `growth.rs` measures them at growing sizes.

#![forbid(unsafe_code)]

mod cells;
mod chart;
mod cli;
mod contestants;
mod facts;
mod files;
mod goals;
mod growth;
mod keys;
mod loads;
mod loops;
mod measure;
mod memory;
mod records;
mod results;
mod shapes;
mod stats;
mod table;
mod watchdog;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use cli::Cli;
use contestants::names;
use files::Output;
use growth::Part;
use results::ShapeResult;
use shapes::Shape;
use watchdog::{PATIENCE, PATIENCE_WITH_MILLIONS, Watchdog};

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
    if let (Some(from), Some(svg)) = (&cli.from, &cli.svg) {
        let drawn = draw(from, &files::read(from)?)?;
        return Output::create(svg)?.write(&drawn);
    }
    if let Some(name) = &cli.weigh_here {
        return io::stdout().write_all(memory::weigh_here(name, cli.keys())?.as_bytes());
    }
    if cli.memory {
        return weigh(cli);
    }
    if let Some(parts) = &cli.growth {
        return grow(cli, parts);
    }
    measure_shapes(cli)
}

fn grow(cli: &Cli, parts: &[Part]) -> io::Result<()> {
    let csv = cli.csv.as_deref().map(Output::create).transpose()?;
    let (plan, load_before) = (cli.growth_plan(), facts::load());
    let grown = growth::measure_all(&plan, parts, &Watchdog::start(PATIENCE_WITH_MILLIONS));
    let head = format!("{}load {load_before} before, {} after\n{plan}\n", facts::facts(), facts::load());
    io::stdout().write_all(format!("{head}\n{}", growth::markdown(&grown)).as_bytes())?;
    eprint!("{}", growth::summary(&grown));
    csv.map_or(Ok(()), |csv| csv.write(&format!("{}{}", records::comments(&head), growth::csv(&grown))))
}

fn weigh(cli: &Cli) -> io::Result<()> {
    let csv = cli.csv.as_deref().map(Output::create).transpose()?;
    let weights = memory::weigh_all(cli.keys(), &Watchdog::start(PATIENCE_WITH_MILLIONS))?;
    let head = facts::facts();
    io::stdout().write_all(format!("{head}\n{}", memory::markdown(&weights)).as_bytes())?;
    eprint!("{}", memory::summary(&weights));
    csv.map_or(Ok(()), |csv| csv.write(&format!("{}{}", records::comments(&head), memory::csv(&weights))))
}

fn measure_shapes(cli: &Cli) -> io::Result<()> {
    let mut shapes = shapes::all();
    shapes.retain(|shape| cli.shapes.is_empty() || cli.shapes.contains(&shape.name));

    let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose();
    let (csv, svg) = (create(&cli.csv)?, create(&cli.svg)?);
    let load_before = facts::load();
    let results = measure_all(&shapes, cli);
    let head = format!("{}load {load_before} before, {} after\n{}\n", facts::facts(), facts::load(), describe(cli));

    io::stdout().write_all(format!("{head}\n{}", table::markdown(&results)).as_bytes())?;
    eprint!("{}", table::summary(&results));
    let text = format!("{}{}", records::comments(&head), table::csv(&results));
    if let Some(csv) = csv {
        csv.write(&text)?;
    }
    if let Some(svg) = svg {
        svg.write(&draw(Path::new("this run"), text.as_bytes())?)?;
    }
    Ok(())
}

/// The chart of the run that is told by `text`, which came from `file`.
fn draw(file: &Path, text: &[u8]) -> io::Result<String> {
    chart::svg(file, &records::parse(file, text)?).map_err(io::Error::other)
}

fn measure_all<'a>(shapes: &'a [Shape], cli: &Cli) -> Vec<(&'a Shape, ShapeResult)> {
    let (watchdog, start) = (Watchdog::start(PATIENCE), Instant::now());
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
