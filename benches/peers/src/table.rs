//! The table of the shapes, as Markdown or as CSV.

use std::fmt::Write;

use crate::cells::{ABSENT, Table, time};
use crate::contestants::names;
use crate::goals::{Goal, Verdict};
use crate::results::{Row, ShapeResult};
use crate::shapes::Shape;

/// For people: rounded figures.
pub(crate) fn markdown(results: &[(&Shape, ShapeResult)]) -> String {
    let headings =
        ["shape", "contestant", "ns/op", "quartiles", "/ perkey", "longest wait, ms", "least share", "goal", "met?"];
    let mut table = Table::new(&headings);
    for (shape, result) in results {
        for row in &result.rows {
            let waits = row.waits().zip(row.worst_wait());
            let (goal, met) = goals(shape, result, row.name);
            table.push(vec![
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
        push_absent(&mut table, shape, result, &[&shape.title]);
    }
    table.markdown()
}

/// For programs: exact figures.
pub(crate) fn csv(results: &[(&Shape, ShapeResult)]) -> String {
    let headings = [
        "shape",
        "title",
        "contestant",
        "rounds",
        "median_ns",
        "min_ns",
        "q1_ns",
        "q3_ns",
        "max_ns",
        "ratio_to_perkey",
        "goal_ratio",
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
            table.push(vec![
                shape.name.clone(),
                shape.title.clone(),
                row.name.into(),
                row.rounds.len().to_string(),
                exact(row.quantile(0.5)),
                exact(row.quantile(0.0)),
                exact(row.quantile(0.25)),
                exact(row.quantile(0.75)),
                exact(row.quantile(1.0)),
                ratio(result, row).map_or(ABSENT.into(), exact),
                goal_ratio(shape, row.name).map_or(ABSENT.into(), exact),
                waits.map_or(ABSENT.into(), |(waits, _)| waits.longest.as_nanos().to_string()),
                waits.map_or(ABSENT.into(), |(_, worst)| worst.as_nanos().to_string()),
                waits.map_or(ABSENT.into(), |(waits, _)| exact(waits.least_share)),
                goal,
                met,
            ]);
        }
        push_absent(&mut table, shape, result, &[&shape.name, &shape.title]);
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

/// How much longer this takes than perkey's default; nothing for what is no contestant.
fn ratio(result: &ShapeResult, row: &Row) -> Option<f64> {
    if row.name == names::EMPTY_LOOP { None } else { result.ratio(row.name, names::PERKEY) }
}

/// What a row's ratio to perkey has to be at least, if there is such a goal.
fn goal_ratio(shape: &Shape, name: &str) -> Option<f64> {
    shape.goals.iter().filter(|goal| goal.row() == name).find_map(Goal::ratio_to_perkey)
}

/// The goals of a row, and what the run says about each.
fn goals(shape: &Shape, result: &ShapeResult, name: &str) -> (String, String) {
    let here = shape.goals.iter().filter(|goal| goal.row() == name);
    let (goals, verdicts): (Vec<String>, Vec<String>) = here
        .map(|goal| (goal.to_string(), goal.verdict(result).as_ref().map_or(ABSENT.into(), Verdict::to_string)))
        .unzip();
    (goals.join("; "), verdicts.join("; "))
}

/// A row of dashes for every peer that cannot do the shape.
fn push_absent(table: &mut Table, shape: &Shape, result: &ShapeResult, first_cells: &[&String]) {
    let peers = if shape.against_peers { names::PEERS.as_slice() } else { &[] };
    for &name in peers.iter().filter(|name| result.row(name).is_none()) {
        let mut cells: Vec<String> = first_cells.iter().map(|&cell| cell.clone()).collect();
        cells.push(name.to_owned());
        cells.resize(table.columns(), ABSENT.to_owned());
        table.push(cells);
    }
}
