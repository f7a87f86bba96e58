//! The tables of growth, as Markdown or as CSV.

use std::fmt::Write;

use super::{Figures, Goal, Grown, Row};
use crate::cells::{ABSENT, Table, thousands, time};
use crate::goals::Verdict;
use crate::stats::{median, quantile};

/// For people: a table for each, with rounded figures.
pub(crate) fn markdown(all: &[Grown]) -> String {
    let mut out = String::new();
    for grown in all {
        let growth = &grown.growth;
        let (small, large) = growth.compared;
        let mut headings = vec!["contestant".to_owned()];
        headings.extend(growth.sizes.iter().map(|&size| count(size, growth.of)));
        headings.push(format!("{} / {}", thousands(large), thousands(small)));
        if growth.figures == Figures::Total {
            headings.push("for each".into());
        }
        if growth.goal.is_some() {
            headings.extend(["goal".into(), "met?".into()]);
        }

        let mut table = Table::new(&headings);
        for row in &grown.rows {
            let mut cells = vec![row.name.to_owned()];
            let sizes = growth.sizes.iter().zip(&row.rounds);
            cells.extend(sizes.map(|(&size, rounds)| figure(growth.figures, size, median(rounds))));
            let ratio = grown.ratio(row);
            let times = |ratio: Option<f64>| ratio.map_or(ABSENT.into(), |ratio| format!("{ratio:.2} ×"));
            cells.push(times(ratio));
            if growth.figures == Figures::Total {
                cells.push(times(ratio.map(|ratio| ratio * small as f64 / large as f64)));
            }
            if growth.goal.is_some() {
                let (goal, met) = goal(grown, row);
                cells.extend([goal, met]);
            }
            table.push(cells);
        }
        let _ = writeln!(out, "{}:\n\n{}", growth.title, table.markdown());
    }
    out
}

/// For programs: one table, a line for each contestant and size.
pub(crate) fn csv(all: &[Grown]) -> String {
    let headings = ["table", "contestant", "of", "size", "rounds", "median_ns", "min_ns", "max_ns", "goal", "met"];
    let mut table = Table::new(&headings);
    for grown in all {
        let growth = &grown.growth;
        for row in &grown.rows {
            for (&size, rounds) in growth.sizes.iter().zip(&row.rounds) {
                let (goal, met) = if size == growth.compared.1 { goal(grown, row) } else { Default::default() };
                let exact = |fraction| format!("{:.3}", quantile(rounds, fraction));
                table.push(vec![
                    growth.name.into(),
                    row.name.into(),
                    growth.of.into(),
                    size.to_string(),
                    rounds.len().to_string(),
                    exact(0.5),
                    exact(0.0),
                    exact(1.0),
                    goal,
                    met,
                ]);
            }
        }
    }
    table.csv()
}

/// Goals met, goals measured, if there are any, and a line for each that was missed.
pub(crate) fn summary(all: &[Grown]) -> String {
    let (mut met, mut measured, mut missed) = (0, 0, String::new());
    for grown in all {
        for row in &grown.rows {
            let Some((goal, verdict)) = verdict(grown, row) else { continue };
            measured += 1;
            if verdict.met {
                met += 1;
            } else {
                let _ = writeln!(missed, "  {}, {}: ≤ {} ×: {verdict}", grown.growth.title, row.name, goal.times);
            }
        }
    }
    if measured == 0 { String::new() } else { format!("{met} of {measured} goals met\n{missed}") }
}

fn count(size: u64, of: &str) -> String {
    format!("{} {of}{}", thousands(size), if size == 1 { "" } else { "s" })
}

fn figure(figures: Figures, size: u64, nanoseconds: f64) -> String {
    match figures {
        Figures::Each => time(nanoseconds),
        Figures::Total => {
            let each = nanoseconds / 1e3 / size as f64;
            format!("{:.2} ms ({each:.1} µs each)", nanoseconds / 1e6)
        }
    }
}

fn goal(grown: &Grown, row: &Row) -> (String, String) {
    let (small, large) = grown.growth.compared;
    let text = |goal: Goal| format!("{} ≤ {} × {}", thousands(large), goal.times, thousands(small));
    verdict(grown, row).map(|(goal, verdict)| (text(goal), verdict.to_string())).unwrap_or_default()
}

fn verdict(grown: &Grown, row: &Row) -> Option<(Goal, Verdict)> {
    let goal = grown.growth.goal.filter(|goal| goal.who == row.name)?;
    let ratio = grown.ratio(row)?;
    Some((goal, Verdict { met: ratio <= goal.times, measured: format!("{ratio:.2} ×") }))
}
