//! The ledger: accounts in one state or the other, and the work of a transfer.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::beside::Balances;
use super::cli::{LockKind, StateKind};
use super::owned::Accounts;
use super::rows::Transfer;

/// Accounts by name. All start at 0 and may go below.
pub(crate) struct Ledger {
    state: State,
    work: Duration,
}

enum State {
    Atomics(Balances),
    Mutex(Accounts),
}

impl Ledger {
    /// A ledger for `transfers`. `lock` is for the state that has none of its own.
    pub(crate) fn new(transfers: &[Transfer], state: StateKind, lock: LockKind, work: Duration) -> Self {
        let state = match state {
            StateKind::Atomics => State::Atomics(Balances::new(transfers, lock)),
            StateKind::Mutex => State::Mutex(Accounts::default()),
        };
        Self { state, work }
    }

    /// Applies one transfer. Any number of threads may do so at a time.
    pub(crate) fn apply(&self, transfer: &Transfer) {
        let work = || {
            if !self.work.is_zero() {
                thread::sleep(self.work);
            }
        };
        match &self.state {
            State::Atomics(balances) => balances.apply(transfer, work),
            State::Mutex(accounts) => accounts.apply(transfer, work),
        }
    }

    /// The account in most transfers, and in how many, if that is counted: what a balance alone cannot tell.
    pub(crate) fn busiest(&self) -> Option<(String, u64)> {
        match &self.state {
            State::Atomics(_) => None,
            State::Mutex(accounts) => accounts.busiest(),
        }
    }

    /// The balances in the order of names, when all is done.
    pub(crate) fn into_balances(self) -> BTreeMap<String, i64> {
        match self.state {
            State::Atomics(balances) => balances.into_balances(),
            State::Mutex(accounts) => accounts.into_balances(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [(StateKind, LockKind); 4] = [
        (StateKind::Atomics, LockKind::Keyed),
        (StateKind::Atomics, LockKind::Global),
        (StateKind::Atomics, LockKind::None),
        (StateKind::Mutex, LockKind::Keyed),
    ];

    fn transfers(rows: &[(&str, &str, i64)]) -> Vec<Transfer> {
        rows.iter().map(|&(from, to, amount)| Transfer { from: from.into(), to: to.into(), amount }).collect()
    }

    /// A ledger of any kind to which all has been applied.
    fn applied((state, lock): (StateKind, LockKind), rows: &[(&str, &str, i64)]) -> Ledger {
        let transfers = transfers(rows);
        let ledger = Ledger::new(&transfers, state, lock, Duration::ZERO);
        transfers.iter().for_each(|transfer| ledger.apply(transfer));
        let locked = match &ledger.state {
            State::Atomics(balances) => balances.locked(),
            State::Mutex(accounts) => accounts.locked(),
        };
        assert_eq!(locked, 0, "{state:?}, {lock:?}: an account is still locked");
        ledger
    }

    fn balances(kind: (StateKind, LockKind), rows: &[(&str, &str, i64)]) -> Vec<(String, i64)> {
        applied(kind, rows).into_balances().into_iter().collect()
    }

    #[test]
    fn money_moves_both_ways_and_below_zero() {
        for kind in KINDS {
            let balances = balances(kind, &[("b", "a", 5), ("a", "b", 1), ("a", "c", 7)]);
            assert_eq!(balances, [("a".into(), -3), ("b".into(), -4), ("c".into(), 7)], "{kind:?}");
        }
    }

    #[test]
    fn an_account_that_sends_to_itself_neither_waits_for_itself_nor_gains() {
        for kind in KINDS {
            assert_eq!(balances(kind, &[("a", "a", 5)]), [("a".into(), 0)], "{kind:?}");
        }
    }

    #[test]
    fn extreme_amounts_do_not_overflow() {
        let most = i64::MAX;
        for kind in KINDS {
            assert_eq!(balances(kind, &[("a", "b", most)]), [("a".into(), -most), ("b".into(), most)], "{kind:?}");
            assert_eq!(balances(kind, &[("a", "a", most)]), [("a".into(), 0)], "{kind:?}");
        }
    }

    #[test]
    fn transfers_are_counted_where_there_is_a_place_for_it() {
        let rows = [("c", "b", 1), ("a", "b", 1), ("a", "a", 1), ("c", "c", 1)];
        let [keyed, .., mutex] = KINDS;
        assert_eq!(applied(mutex, &rows).busiest(), Some(("a".into(), 2)), "the first of three that are in two");
        assert_eq!(applied(mutex, &[]).busiest(), None);
        assert_eq!(applied(keyed, &rows).busiest(), None);
    }
}
