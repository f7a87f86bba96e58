//! Accounts that their locks own.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use perkey::KeyedMutex;

use super::rows::Transfer;

/// The accounts, each a value that cannot be reached without its lock. One that no transfer named does not exist.
#[derive(Default)]
pub(crate) struct Accounts(KeyedMutex<String, Account>);

/// What a single atomic could not hold.
#[derive(Clone, Copy, Default)]
struct Account {
    balance: i64,
    transfers: u64,
}

impl Accounts {
    /// Applies one transfer, with `work` in the middle.
    pub(crate) fn apply(&self, transfer: &Transfer, work: impl FnOnce()) {
        let (from, to) = (transfer.from.as_str(), transfer.to.as_str());
        // In one call, which takes them in the same order for everybody, and once if they are the same.
        let mut accounts = self.0.lock_keys([from, to]);
        if from == to {
            work();
            // What an account sends to itself it keeps.
            accounts[from].get_or_insert_default().transfers += 1;
            return;
        }
        let [from, to] = accounts
            .get_disjoint_mut([from, to])
            .map(|account| account.expect("both are held").get_or_insert_default());
        let (from_balance, to_balance) = (from.balance, to.balance);
        work();
        *from = Account { balance: from_balance - transfer.amount, transfers: from.transfers + 1 };
        *to = Account { balance: to_balance + transfer.amount, transfers: to.transfers + 1 };
    }

    /// The account in most transfers, the first by name if there are several, and in how many.
    pub(crate) fn busiest(&self) -> Option<(String, u64)> {
        let accounts = self.all().map(|(name, account)| (name, account.transfers));
        accounts.min_by(|(name, transfers), (other, others)| (Reverse(transfers), name).cmp(&(Reverse(others), other)))
    }

    pub(crate) fn into_balances(self) -> BTreeMap<String, i64> {
        self.all().map(|(name, account)| (name, account.balance)).collect()
    }

    fn all(&self) -> impl Iterator<Item = (String, Account)> {
        self.0.keys().into_iter().filter_map(|name| self.0.get_cloned(&name).map(|account| (name, account)))
    }

    /// How many accounts are locked.
    #[cfg(test)]
    pub(crate) fn locked(&self) -> usize {
        self.0.snapshot().iter().filter(|status| status.held > 0).count()
    }
}
