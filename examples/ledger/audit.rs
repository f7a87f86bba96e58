//! Was money made or lost?

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::report::Grouped;
use super::rows::Transfer;

/// What is wrong with the balances, if anything.
pub(crate) struct Audit<'a> {
    /// The sum of all balances. Money only moves, so it is 0 as at the start.
    sum: i128,
    /// The accounts whose balance is not what one thread arrives at. Their faults may cancel out in the sum.
    wrong: Vec<Wrong<'a>>,
    accounts: usize,
}

struct Wrong<'a> {
    account: &'a str,
    found: i64,
    expected: i64,
}

impl<'a> Audit<'a> {
    /// Compares `balances` with what `transfers` amount to, worked out here without any of the ledger's code.
    pub(crate) fn new(balances: &'a BTreeMap<String, i64>, transfers: &[Transfer]) -> Self {
        let mut expected = HashMap::<&str, i64>::new();
        for Transfer { from, to, amount } in transfers {
            *expected.entry(from).or_default() -= amount;
            *expected.entry(to).or_default() += amount;
        }
        let wrong =
            balances.iter().map(|(account, &found)| Wrong { account, found, expected: expected[account.as_str()] });
        Self {
            sum: balances.values().copied().map(i128::from).sum(),
            wrong: wrong.filter(|balance| balance.found != balance.expected).collect(),
            accounts: balances.len(),
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.sum == 0 && self.wrong.is_empty()
    }
}

impl fmt::Display for Audit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = Grouped(self.accounts as i128);
        if self.accounts == 0 {
            return f.write_str("passed: there was nothing to apply");
        }
        if self.passed() {
            return write!(f, "passed: the balances add up to 0, and all {accounts} are what one thread arrives at");
        }
        write!(f, "FAILED: the balances add up to {}, and should to 0", Grouped(self.sum))?;
        if let Some(Wrong { account, found, expected }) = self.wrong.first() {
            let (wrong, found, expected) =
                (Grouped(self.wrong.len() as i128), Grouped((*found).into()), Grouped((*expected).into()));
            write!(f, "; {wrong} of {accounts} are wrong: {account} has {found} and should have {expected}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(balances: &[(&str, i64)]) -> String {
        let transfers = [
            Transfer { from: "a".into(), to: "b".into(), amount: 1_500 },
            Transfer { from: "b".into(), to: "b".into(), amount: 7 },
        ];
        let balances = balances.iter().map(|&(name, balance)| (name.into(), balance)).collect();
        let audit = Audit::new(&balances, &transfers);
        assert_eq!(audit.passed(), audit.to_string().starts_with("passed"));
        audit.to_string()
    }

    #[test]
    fn right_balances_pass() {
        let passed = "passed: the balances add up to 0, and all 2 are what one thread arrives at";
        assert_eq!(audit(&[("a", -1_500), ("b", 1_500)]), passed);
    }

    #[test]
    fn money_lost_is_found() {
        let failed = "FAILED: the balances add up to -1,500, and should to 0; \
                      1 of 2 are wrong: b has 0 and should have 1,500";
        assert_eq!(audit(&[("a", -1_500), ("b", 0)]), failed);
    }

    #[test]
    fn a_transfer_lost_at_both_ends_is_found_although_the_sum_is_right() {
        let failed = "FAILED: the balances add up to 0, and should to 0; \
                      2 of 2 are wrong: a has 0 and should have -1,500";
        assert_eq!(audit(&[("a", 0), ("b", 0)]), failed);
    }
}
