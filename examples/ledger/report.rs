//! What is printed when all is done.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::audit::Audit;
use super::cli::{Cli, LockKind, StateKind};

pub(crate) struct Report<'a> {
    pub(crate) cli: &'a Cli,
    pub(crate) transfers: usize,
    pub(crate) threads: usize,
    pub(crate) time: Duration,
    pub(crate) balances: &'a BTreeMap<String, i64>,
    /// The account in most transfers, and in how many, where that was counted.
    pub(crate) busiest: Option<(String, u64)>,
    pub(crate) audit: &'a Audit<'a>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = match (self.cli.state, self.cli.lock) {
            (StateKind::Mutex, _) => "each account in its own lock",
            (_, LockKind::Keyed) => "one lock per account",
            (_, LockKind::Global) => "one lock around everything",
            (_, LockKind::None) => "no lock",
        };
        let (transfers, accounts) = (Grouped(self.transfers as i128), Grouped(self.balances.len() as i128));
        writeln!(f, "transfers   {transfers} between {accounts} accounts")?;
        writeln!(f, "threads     {}, {lock}", self.threads)?;
        match self.cli.work().as_micros() {
            0 => writeln!(f, "work        none")?,
            micros => writeln!(f, "work        {micros} us of waiting in each transfer")?,
        }
        self.highest_balances(f)?;
        if let Some((name, transfers)) = &self.busiest {
            writeln!(f, "busiest     {name}, in {} transfers", Grouped((*transfers).into()))?;
        }
        let rate = Grouped(rate(self.transfers, self.time).into());
        writeln!(f, "throughput  {rate} transfers per second ({:.3} s)", self.time.as_secs_f64())?;
        writeln!(f, "check       {}", self.audit)
    }
}

impl Report<'_> {
    fn highest_balances(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut accounts: Vec<_> = self.balances.iter().collect();
        // The sort is stable: equal balances stay in the order of names.
        accounts.sort_by_key(|(_, balance)| Reverse(**balance));
        accounts.truncate(self.cli.top);
        if accounts.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let width =
            accounts.iter().map(|(_, balance)| Grouped((**balance).into()).to_string().len()).max().unwrap_or(0);
        for (name, balance) in accounts {
            writeln!(f, "{:>width$}  {name}", Grouped((*balance).into()).to_string())?;
        }
        writeln!(f)
    }
}

fn rate(transfers: usize, time: Duration) -> u64 {
    // A clock too coarse for a very short run must not divide by zero.
    (transfers as f64 / time.as_secs_f64().max(1e-9)) as u64
}

/// A number with its thousands set apart.
pub(crate) struct Grouped(pub(crate) i128);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.unsigned_abs().to_string();
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
        write!(f, "{}{}", if self.0 < 0 { "-" } else { "" }, groups.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases = [(0, "0"), (-999, "-999"), (1_000, "1,000"), (-1_234_567, "-1,234,567"), (100_000, "100,000")];
        for (amount, text) in cases {
            assert_eq!(Grouped(amount).to_string(), text);
        }
        assert!(Grouped(i128::MIN).to_string().starts_with("-170,141,"));
    }

    #[test]
    fn a_run_of_no_time_has_a_rate() {
        assert_eq!(rate(0, Duration::ZERO), 0);
        assert_eq!(rate(500, Duration::from_millis(250)), 2_000);
    }
}
