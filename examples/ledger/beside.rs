//! Balances that lie beside their locks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use perkey::KeyedLock;

use super::cli::LockKind;
use super::rows::Transfer;

/// Balances by account, and what guards them.
pub(crate) struct Balances {
    // A balance is read, and later written by a plain store, as a row of a database would be. The atomics keep this
    // free of `unsafe`; that no transfer is lost between the two is up to the guard alone.
    balances: HashMap<String, AtomicI64>,
    guard: Guard,
}

enum Guard {
    Keyed(KeyedLock<String>),
    Global(Mutex<()>),
    None,
}

impl Balances {
    /// The balances of all accounts of `transfers`.
    pub(crate) fn new(transfers: &[Transfer], lock: LockKind) -> Self {
        let names: HashSet<_> = transfers.iter().flat_map(|transfer| [&transfer.from, &transfer.to]).collect();
        let balances = names.into_iter().map(|name| (name.clone(), AtomicI64::new(0))).collect();
        let guard = match lock {
            LockKind::Keyed => Guard::Keyed(KeyedLock::new()),
            LockKind::Global => Guard::Global(Mutex::new(())),
            LockKind::None => Guard::None,
        };
        Self { balances, guard }
    }

    /// Applies one transfer, with `work` in the middle.
    pub(crate) fn apply(&self, transfer: &Transfer, work: impl FnOnce()) {
        match &self.guard {
            Guard::Keyed(accounts) => {
                // In one call, which takes them in the same order for everybody: a transfer from A to B and one from B to
                // A cannot each hold one and wait for the other. Of a transfer from an account to itself it takes one.
                let _both = accounts.lock_keys([transfer.from.as_str(), &transfer.to]);
                self.move_money(transfer, work);
            }
            Guard::Global(everything) => {
                let _guard = everything.lock().expect("no worker panics with the lock");
                self.move_money(transfer, work);
            }
            Guard::None => self.move_money(transfer, work),
        }
    }

    /// Reads two balances, works, and writes them. A transfer that gets between the reading and the writing is lost.
    fn move_money(&self, transfer: &Transfer, work: impl FnOnce()) {
        let (from, to) = (&self.balances[&transfer.from], &self.balances[&transfer.to]);
        // `Relaxed` is enough: it is the guard that makes what one thread wrote visible to the next.
        let (from_balance, to_balance) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
        work();
        // What an account sends to itself it keeps: with the two writes below it would gain.
        if transfer.from != transfer.to {
            from.store(from_balance - transfer.amount, Ordering::Relaxed);
            to.store(to_balance + transfer.amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn into_balances(self) -> BTreeMap<String, i64> {
        self.balances.into_iter().map(|(name, balance)| (name, balance.into_inner())).collect()
    }

    /// How many locks are held.
    #[cfg(test)]
    pub(crate) fn locked(&self) -> usize {
        match &self.guard {
            Guard::Keyed(accounts) => accounts.len(),
            Guard::Global(everything) => everything.try_lock().is_err().into(),
            Guard::None => 0,
        }
    }
}
