//! What a run measured.

use std::time::Duration;

use crate::contestants::names;
use crate::loops::Waits;
use crate::stats::{median, quantile};

/// One shape's results, a row for each contestant.
pub(crate) struct ShapeResult {
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Nanoseconds per operation, a value for each round.
    pub(crate) rounds: Vec<f64>,
    /// A value for each round that measured waits.
    pub(crate) wait_rounds: Vec<Waits>,
}

impl ShapeResult {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// How much longer `this` takes than `other`: the median of the ratios within each round, so that what disturbs a
    /// round disturbs both.
    pub(crate) fn ratio(&self, this: &str, other: &str) -> Option<f64> {
        let (this, other) = (self.row(this)?, self.row(other)?);
        let ratios: Vec<f64> = this.rounds.iter().zip(&other.rounds).map(|(this, other)| this / other).collect();
        Some(median(&ratios))
    }

    /// Takes the empty loop's time from everybody else's, round by round, if it was measured.
    pub(crate) fn subtract_empty_loop(&mut self) {
        let Some(empty) = self.row(names::EMPTY_LOOP).map(|row| row.rounds.clone()) else { return };
        for row in self.rows.iter_mut().filter(|row| row.name != names::EMPTY_LOOP) {
            for (time, empty) in row.rounds.iter_mut().zip(&empty) {
                *time -= empty;
            }
        }
    }
}

impl Row {
    pub(crate) fn quantile(&self, fraction: f64) -> f64 {
        quantile(&self.rounds, fraction)
    }

    /// The medians of the rounds' longest waits and least shares. None where waits are not measured.
    pub(crate) fn waits(&self) -> Option<Waits> {
        if self.wait_rounds.is_empty() {
            return None;
        }
        let longest: Vec<f64> = self.wait_rounds.iter().map(|round| round.longest.as_secs_f64()).collect();
        let shares: Vec<f64> = self.wait_rounds.iter().map(|round| round.least_share).collect();
        Some(Waits { longest: Duration::from_secs_f64(median(&longest)), least_share: median(&shares) })
    }

    /// The longest wait of all rounds.
    pub(crate) fn worst_wait(&self) -> Option<Duration> {
        self.wait_rounds.iter().map(|round| round.longest).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rows: &[(&'static str, &[f64])]) -> ShapeResult {
        let row = |&(name, rounds): &(&'static str, &[f64])| Row { name, rounds: rounds.to_vec(), wait_rounds: vec![] };
        ShapeResult { rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        let result = result(&[("a", &[10.0, 40.0, 100.0]), ("b", &[5.0, 10.0, 100.0])]);
        assert_eq!(result.ratio("a", "b"), Some(2.0));
        assert_eq!(result.ratio("a", "nobody"), None);
    }

    #[test]
    fn the_empty_loop_is_taken_off_the_others_only() {
        let mut result = result(&[(names::EMPTY_LOOP, &[1.0, 2.0]), ("a", &[11.0, 22.0])]);
        result.subtract_empty_loop();
        assert_eq!(result.rows[0].rounds, [1.0, 2.0]);
        assert_eq!(result.rows[1].rounds, [10.0, 20.0]);
    }
}
