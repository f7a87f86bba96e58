//! The accounts and what guards them: the part that shows the library.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use perkey::KeyedLock;

use super::cli::LockKind;
use super::rows::Transfer;

/// Balances by account. All start at 0 and may go below.
pub(crate) struct Ledger {
    // A balance is read, and later written by a plain store, as a row of a database would be. The atomics keep this
    // free of `unsafe`; that no transfer is lost between the two is up to the guard alone.
    balances: HashMap<String, AtomicI64>,
    guard: Guard,
    work: Duration,
}

enum Guard {
    Keyed(KeyedLock<String>),
    Global(Mutex<()>),
    None,
}

impl Ledger {
    /// A ledger of all accounts of `transfers`.
    pub(crate) fn new(transfers: &[Transfer], lock: LockKind, work: Duration) -> Self {
        let names: HashSet<_> = transfers.iter().flat_map(|transfer| [&transfer.from, &transfer.to]).collect();
        let balances = names.into_iter().map(|name| (name.clone(), AtomicI64::new(0))).collect();
        let guard = match lock {
            LockKind::Keyed => Guard::Keyed(KeyedLock::new()),
            LockKind::Global => Guard::Global(Mutex::new(())),
            LockKind::None => Guard::None,
        };
        Self { balances, guard, work }
    }

    /// Applies one transfer. Any number of threads may do so at a time.
    pub(crate) fn apply(&self, transfer: &Transfer) {
        match &self.guard {
            Guard::Keyed(accounts) => {
                // Everybody takes the two locks in the same order. Otherwise a transfer from A to B and one from B to A
                // could each hold one and wait for the other, for ever.
                let first = transfer.from.as_str().min(&transfer.to);
                let second = transfer.from.as_str().max(&transfer.to);
                let _first = accounts.lock(first);
                // A transfer from an account to itself has one lock to take; a second would wait for the first.
                let _second = (first != second).then(|| accounts.lock(second));
                self.move_money(transfer);
            }
            Guard::Global(everything) => {
                let _guard = everything.lock().expect("no worker panics with the lock");
                self.move_money(transfer);
            }
            Guard::None => self.move_money(transfer),
        }
    }

    /// Reads two balances, works, and writes them. A transfer that gets between the reading and the writing is lost.
    fn move_money(&self, transfer: &Transfer) {
        let (from, to) = (&self.balances[&transfer.from], &self.balances[&transfer.to]);
        // `Relaxed` is enough: it is the guard that makes what one thread wrote visible to the next.
        let (from_balance, to_balance) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
        if !self.work.is_zero() {
            thread::sleep(self.work);
        }
        // What an account sends to itself it keeps: with the two writes below it would gain.
        if transfer.from != transfer.to {
            from.store(from_balance - transfer.amount, Ordering::Relaxed);
            to.store(to_balance + transfer.amount, Ordering::Relaxed);
        }
    }

    /// The balances in the order of names, when all is done.
    pub(crate) fn into_balances(self) -> BTreeMap<String, i64> {
        self.balances.into_iter().map(|(name, balance)| (name, balance.into_inner())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balances(lock: LockKind, rows: &[(&str, &str, i64)]) -> Vec<(String, i64)> {
        let transfer = |&(from, to, amount): &(&str, &str, i64)| Transfer { from: from.into(), to: to.into(), amount };
        let transfers: Vec<_> = rows.iter().map(transfer).collect();
        let ledger = Ledger::new(&transfers, lock, Duration::ZERO);
        transfers.iter().for_each(|transfer| ledger.apply(transfer));
        if let Guard::Keyed(accounts) = &ledger.guard {
            assert!(accounts.is_empty(), "an account is still locked");
        }
        ledger.into_balances().into_iter().collect()
    }

    #[test]
    fn money_moves_both_ways_and_below_zero() {
        for lock in [LockKind::Keyed, LockKind::Global, LockKind::None] {
            let balances = balances(lock, &[("b", "a", 5), ("a", "b", 1), ("a", "c", 7)]);
            assert_eq!(balances, [("a".into(), -3), ("b".into(), -4), ("c".into(), 7)], "{lock:?}");
        }
    }

    #[test]
    fn an_account_that_sends_to_itself_neither_waits_for_itself_nor_gains() {
        for lock in [LockKind::Keyed, LockKind::Global, LockKind::None] {
            assert_eq!(balances(lock, &[("a", "a", 5)]), [("a".into(), 0)], "{lock:?}");
        }
    }

    #[test]
    fn extreme_amounts_do_not_overflow() {
        let most = i64::MAX;
        assert_eq!(balances(LockKind::Keyed, &[("a", "b", most)]), [("a".into(), -most), ("b".into(), most)]);
    }
}
