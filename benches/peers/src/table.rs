//! The one table, as Markdown or as CSV.

use std::fmt::Write;

use crate::contestants::names;
use crate::goals::Verdict;
use crate::results::{Row, ShapeResult};
use crate::shapes::Shape;

const ABSENT: &str = "-";

/// Cells and their headings; the first row is the headings.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// For people: rounded figures.
pub(crate) fn markdown(results: &[(&Shape, ShapeResult)]) -> String {
    let headings =
        ["shape", "contestant", "ns/op", "quartiles", "/ perkey", "longest wait, ms", "least share", "goal", "met?"];
    let mut table = Table::new(&headings);
    for (shape, result) in results {
        for row in &result.rows {
            let waits = row.waits().zip(row.worst_wait());
            let (goal, met) = goals(shape, result, row.name);
            table.push([
                shape.title.clone(),
                row.name.into(),
                time(row.quantile(0.5)),
                format!("{}–{}", time(row.quantile(0.25)), time(row.quantile(0.75))),
                ratio(result, row).map_or(ABSENT.into(), |ratio| format!("{ratio:.2}")),
                waits.map_or(ABSENT.into(), |(waits, worst)| {
                    format!("{:.2} ({:.2})", waits.longest.as_secs_f64() * 1e3, worst.as_secs_f64() * 1e3)
                }),
                waits.map_or(ABSENT.into(), |(waits, _)| format!("{:.2}", waits.least_share)),
                goal,
                met,
            ]);
        }
        table.push_absent(shape, result, headings.len());
    }
    table.markdown()
}

/// For programs: exact figures.
pub(crate) fn csv(results: &[(&Shape, ShapeResult)]) -> String {
    let headings = [
        "shape",
        "contestant",
        "rounds",
        "median_ns",
        "min_ns",
        "q1_ns",
        "q3_ns",
        "max_ns",
        "ratio_to_perkey",
        "longest_wait_median_ns",
        "longest_wait_max_ns",
        "least_share",
        "goal",
        "met",
    ];
    let mut table = Table::new(&headings);
    for (shape, result) in results {
        for row in &result.rows {
            let waits = row.waits().zip(row.worst_wait());
            let (goal, met) = goals(shape, result, row.name);
            let exact = |value: f64| format!("{value:.3}");
            table.push([
                shape.name.clone(),
                row.name.into(),
                row.rounds.len().to_string(),
                exact(row.quantile(0.5)),
                exact(row.quantile(0.0)),
                exact(row.quantile(0.25)),
                exact(row.quantile(0.75)),
                exact(row.quantile(1.0)),
                ratio(result, row).map_or(ABSENT.into(), exact),
                waits.map_or(ABSENT.into(), |(waits, _)| waits.longest.as_nanos().to_string()),
                waits.map_or(ABSENT.into(), |(_, worst)| worst.as_nanos().to_string()),
                waits.map_or(ABSENT.into(), |(waits, _)| exact(waits.least_share)),
                goal,
                met,
            ]);
        }
        table.push_absent(shape, result, headings.len());
    }
    table.csv()
}

/// What was counted over all shapes: goals met, goals measured, and a line for each that was missed.
pub(crate) fn summary(results: &[(&Shape, ShapeResult)]) -> String {
    let (mut met, mut measured, mut missed) = (0, 0, String::new());
    for (shape, result) in results {
        for goal in &shape.goals {
            let Some(verdict) = goal.verdict(result) else { continue };
            measured += 1;
            if verdict.met {
                met += 1;
            } else {
                let _ = writeln!(missed, "  {}, {}: {goal}: {verdict}", shape.title, goal.row());
            }
        }
    }
    format!("{met} of {measured} goals met\n{missed}")
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds < 100.0 { format!("{nanoseconds:.1}") } else { format!("{nanoseconds:.0}") }
}

/// How much longer this takes than perkey's default; nothing for what is no contestant.
fn ratio(result: &ShapeResult, row: &Row) -> Option<f64> {
    if row.name == names::EMPTY_LOOP { None } else { result.ratio(row.name, names::PERKEY) }
}

/// The goals of a row, and what the run says about each.
fn goals(shape: &Shape, result: &ShapeResult, name: &str) -> (String, String) {
    let here = shape.goals.iter().filter(|goal| goal.row() == name);
    let (goals, verdicts): (Vec<String>, Vec<String>) = here
        .map(|goal| (goal.to_string(), goal.verdict(result).as_ref().map_or(ABSENT.into(), Verdict::to_string)))
        .unzip();
    (goals.join("; "), verdicts.join("; "))
}

impl Table {
    fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()] }
    }

    fn push<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// A row of dashes for every peer that cannot do the shape.
    fn push_absent(&mut self, shape: &Shape, result: &ShapeResult, columns: usize) {
        let peers = if shape.against_peers { names::PEERS.as_slice() } else { &[] };
        for &name in peers.iter().filter(|name| result.row(name).is_none()) {
            let mut cells = vec![ABSENT.to_owned(); columns];
            cells[0].clone_from(&self.rows.last().expect("there are headings")[0]);
            cells[1] = name.to_owned();
            self.rows.push(cells);
        }
    }

    /// With padded columns, so that it can be read as it is too.
    fn markdown(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(out, "| {cell:width$} ");
            }
            out.push_str("|\n");
            if number == 0 {
                for width in &widths {
                    let _ = write!(out, "|{:-<1$}", "", width + 2);
                }
                out.push_str("|\n");
            }
        }
        out
    }

    fn csv(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}
