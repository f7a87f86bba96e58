//! What is printed when all is done.

use std::fmt;
use std::time::Duration;

use super::cli::{Cli, Mode, Rebuild};
use super::load::{End, Outcome};

/// One run.
pub(crate) struct Row {
    pub(crate) mode: Mode,
    pub(crate) outcome: Outcome,
}

pub(crate) struct Report<'a> {
    pub(crate) cli: &'a Cli,
    pub(crate) rows: &'a [Row],
}

const HEADINGS: [&str; 8] =
    ["fairness", "reads/s", "p50", "p99", "longest read", "longest write", "longest sum", "longest rebuild wait"];

impl Report<'_> {
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.outcome.faults.first.is_none())
    }

    fn cells(&self) -> Vec<[String; HEADINGS.len()]> {
        let mut cells = vec![HEADINGS.map(str::to_owned)];
        for Row { mode, outcome, .. } in self.rows {
            let Outcome { time, reads, writes, sums, rebuild_waits, .. } = outcome;
            cells.push([
                mode.name().to_owned(),
                Grouped(rate(reads.count(), *time)).to_string(),
                short(reads.percentile(50)),
                short(reads.percentile(99)),
                short(reads.longest()),
                short(writes.longest()),
                short(sums.longest()),
                short(rebuild_waits.longest()),
            ]);
        }
        cells
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cli { keys, rebuilds, .. } = self.cli;
        let how = match self.cli.rebuild {
            Rebuild::WriteAll => "under write_all",
            Rebuild::KeyByKey => "one key at a time",
            Rebuild::WithoutLock => "without a lock",
        };
        let products = if *keys == 1 { "product" } else { "products" };
        writeln!(f, "catalog     {} {products}, rebuilt {rebuilds} times, {how}", Grouped((*keys).into()))?;
        writeln!(f, "threads     {}, {} % of their calls write", self.cli.threads(), self.cli.writes)?;
        match self.cli.end() {
            End::After(time) => writeln!(f, "each run    {} s", time.as_secs())?,
            End::Reads(reads) => writeln!(f, "each run    {} reads", Grouped(reads))?,
        }
        writeln!(f)?;
        let cells = self.cells();
        let widths: Vec<usize> = (0..HEADINGS.len())
            .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in cells {
            let [name, figures @ ..] = &row;
            write!(f, "{name:<0$}", widths[0])?;
            for (figure, width) in figures.iter().zip(&widths[1..]) {
                write!(f, "  {figure:>width$}")?;
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        let sum = |of: fn(&Row) -> u64| Grouped(self.rows.iter().map(of).sum());
        let (reads, sums) = (sum(|row| row.outcome.reads.count()), sum(|row| row.outcome.sums.count()));
        match self.rows.iter().find_map(|row| row.outcome.faults.first.as_ref()) {
            None => writeln!(f, "check       passed: {reads} reads and {sums} sums saw whole catalogs only"),
            Some(first) => {
                let faults = sum(|row| row.outcome.faults.count);
                writeln!(f, "check       FAILED: {faults} faults in {reads} reads and {sums} sums; the first: {first}")
            }
        }
    }
}

fn rate(count: u64, time: Duration) -> u64 {
    // A clock too coarse for a very short run must not divide by zero.
    (count as f64 / time.as_secs_f64().max(1e-9)) as u64
}

fn short(time: Duration) -> String {
    format!("{time:.1?}")
}

/// A number with its thousands set apart.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
        f.write_str(&groups.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Grouped(number).to_string(), text);
        }
    }

    #[test]
    fn a_run_of_no_time_has_a_rate() {
        assert_eq!(rate(0, Duration::ZERO), 0);
        assert_eq!(rate(500, Duration::from_millis(250)), 2_000);
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!(short(Duration::from_nanos(312)), "312.0ns");
        assert_eq!(short(Duration::from_micros(2_340)), "2.3ms");
    }
}
