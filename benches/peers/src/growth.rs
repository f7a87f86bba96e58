//! How cost grows: with threads, with keys, with waiters that give up together, with weights.
//!
//! A table of growth is one more entry in [`all`]: a contestant is an `Entrant`, one for each size.

mod live;
mod report;
mod threads;
mod waiters;
mod weights;

use std::fmt;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::loads::{Effort, Entrant};
use crate::stats::median;
use crate::watchdog::Watchdog;

pub(crate) use report::{csv, markdown, summary};

/// What can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// 1 to 32 threads, on 100,000 keys and on one
    Threads,
    /// 1 to 10,000,000 keys in the table, used by one thread
    Live,
    /// 10 to 10,000 threads that wait for one key and give up together
    Waiters,
    /// `acquire_many` of 1 to 1,000 permits, by one thread and by eight
    Weights,
}

/// How much is measured.
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) effort: Effort,
    pub(crate) threads: Vec<u64>,
    pub(crate) live: Vec<u64>,
    pub(crate) waiters: Vec<u64>,
    pub(crate) weights: Vec<u64>,
}

impl Plan {
    pub(crate) fn full() -> Self {
        Self {
            rounds: 9,
            effort: effort(500_000, 100),
            threads: vec![1, 2, 4, 8, 16, 32],
            live: vec![1, 1_000, 100_000, 1_000_000, 10_000_000],
            waiters: vec![10, 100, 1_000, 10_000],
            weights: vec![1, 10, 100, 1_000],
        }
    }

    pub(crate) fn quick() -> Self {
        Self { rounds: 3, effort: effort(100_000, 30), live: vec![1, 1_000, 100_000, 1_000_000], ..Self::full() }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Effort { operations, window, .. } = self.effort;
        let window = window.as_millis();
        write!(f, "{} interleaved rounds of {operations} operations (one thread) or {window} ms (several)", self.rounds)
    }
}

fn effort(operations: u64, window: u64) -> Effort {
    let window = Duration::from_millis(window);
    Effort { operations, window, wait_window: window }
}

/// A table: contestants, and sizes of one thing.
struct Growth {
    part: Part,
    /// For the CSV.
    name: &'static str,
    title: String,
    /// What there are so many of, in the singular.
    of: &'static str,
    sizes: Vec<u64>,
    /// For each size, the same contestants.
    lineups: Vec<Vec<Entrant>>,
    figures: Figures,
    /// Of these two sizes the ratio is given: the second, in times of the first.
    compared: (u64, u64),
    goal: Option<Goal>,
}

/// What an entrant gives, and how it is shown.
#[derive(Clone, Copy, PartialEq)]
enum Figures {
    /// Nanoseconds per operation.
    Each,
    /// Nanoseconds for all of the size.
    Total,
}

/// The ratio of the two sizes is at most this, of one contestant.
#[derive(Clone, Copy)]
struct Goal {
    who: &'static str,
    times: f64,
}

/// What was measured of a [`Growth`].
pub(crate) struct Grown {
    growth: Growth,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    /// For each size, a value for each round.
    rounds: Vec<Vec<f64>>,
}

fn all(plan: &Plan) -> Vec<Growth> {
    let mut all = threads::all(&plan.threads);
    all.extend(live::all(&plan.live));
    all.extend(waiters::all(&plan.waiters));
    all.extend(weights::all(&plan.weights));
    all
}

/// Every table of these parts; of all, if none is named.
pub(crate) fn measure_all(plan: &Plan, parts: &[Part], watchdog: &Watchdog) -> Vec<Grown> {
    let mut growths = all(plan);
    growths.retain(|growth| parts.is_empty() || parts.contains(&growth.part));
    let (start, count) = (Instant::now(), growths.len());
    let measured = growths.into_iter().enumerate().map(|(number, growth)| {
        eprint!("[{}/{count}, {:3} s] {}: round", number + 1, start.elapsed().as_secs(), growth.title);
        let grown = measure(growth, plan, watchdog, |round| eprint!(" {round}"));
        eprintln!();
        grown
    });
    measured.collect()
}

/// Every contestant at every size once per round, and a different contestant first in every round.
fn measure(growth: Growth, plan: &Plan, watchdog: &Watchdog, progress: impl Fn(usize)) -> Grown {
    let empty_row = |entrant: &Entrant| Row { name: entrant.name, rounds: vec![vec![]; growth.sizes.len()] };
    let mut rows: Vec<Row> = growth.lineups[0].iter().map(empty_row).collect();
    for round in 0..plan.rounds {
        progress(round + 1);
        for (size, lineup) in growth.lineups.iter().enumerate() {
            for turn in 0..lineup.len() {
                let turn = (turn + round) % lineup.len();
                watchdog.watch(growth.name, lineup[turn].name);
                rows[turn].rounds[size].push((lineup[turn].speed)(plan.effort));
            }
        }
    }
    Grown { growth, rows }
}

impl Grown {
    /// Of the sizes that are compared: the median of the ratios within each round.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let rounds = |size| Some(&row.rounds[self.growth.sizes.iter().position(|&other| other == size)?]);
        let (small, large) = (rounds(self.growth.compared.0)?, rounds(self.growth.compared.1)?);
        let ratios: Vec<f64> = small.iter().zip(large).map(|(small, large)| large / small).collect();
        Some(median(&ratios))
    }
}

/// The first and the last of them.
fn ends(sizes: &[u64]) -> (u64, u64) {
    (*sizes.first().expect("a size"), *sizes.last().expect("a size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Plan {
        Plan {
            rounds: 2,
            effort: effort(200, 2),
            threads: vec![1, 3],
            live: vec![1, 100],
            waiters: vec![2, 20],
            weights: vec![1, 10],
        }
    }

    #[test]
    fn everything_can_be_measured() {
        let grown = measure_all(&tiny(), &[], &Watchdog::start(Duration::from_secs(60)));
        assert_eq!(grown.len(), 8);
        for grown in &grown {
            for row in &grown.rows {
                let figures = row.rounds.iter().flatten();
                assert!(figures.clone().all(|figure| figure.is_finite() && *figure > 0.0), "{}", row.name);
                assert_eq!(figures.count(), 2 * 2, "{}", row.name);
            }
        }
        let (markdown, csv) = (markdown(&grown), csv(&grown));
        assert!(markdown.contains("| perkey "), "{markdown}");
        assert!(csv.lines().all(|line| line.split(',').count() >= 8), "{csv}");
    }

    #[test]
    fn contestants_are_the_same_at_every_size() {
        for growth in all(&Plan::full()) {
            assert_eq!(growth.sizes.len(), growth.lineups.len(), "{}", growth.name);
            let names = |lineup: &[Entrant]| lineup.iter().map(|entrant| entrant.name).collect::<Vec<_>>();
            for lineup in &growth.lineups {
                assert_eq!(names(lineup), names(&growth.lineups[0]), "{}", growth.name);
            }
            if let Some(goal) = growth.goal {
                assert!(names(&growth.lineups[0]).contains(&goal.who), "{}", growth.name);
            }
        }
    }

    #[test]
    fn the_ratio_is_of_the_sizes_that_are_compared() {
        let mut growth = all(&tiny()).remove(0);
        growth.sizes = vec![1, 2, 4];
        growth.compared = (2, 4);
        let row = Row { name: "a", rounds: vec![vec![1.0; 3], vec![10.0, 20.0, 40.0], vec![20.0, 60.0, 40.0]] };
        let grown = Grown { growth, rows: vec![] };
        assert_eq!(grown.ratio(&row), Some(2.0));
    }
}
