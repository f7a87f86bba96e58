//! The lock in a transaction of the user's, and what `lock_timeout` does.

use std::thread;
use std::time::Duration;

use perkey::distributed::{DistributedLock, Name, StoreErrorKind, lock_in_transaction, try_lock_in_transaction};

use crate::postgres_server::{Database, until};
use crate::support::watched;

const WAITS: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

#[test]
fn a_transaction_and_a_lease_keep_each_other_out() {
    watched(|| {
        let database = Database::create();
        let locks = DistributedLock::new(database.store());
        let name = Name::new("perkey", "report");
        let mut client = database.client();

        let lease = locks.lock("report").unwrap();
        let mut transaction = client.transaction().unwrap();
        assert!(!try_lock_in_transaction(&mut transaction, &name).unwrap());
        assert!(try_lock_in_transaction(&mut transaction, &Name::new("other", "report")).unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                lock_in_transaction(&mut transaction, &name).unwrap();
                transaction
            });
            until("the transaction waits", || database.ask(WAITS));
            drop(lease);
            let mut transaction = waiter.join().unwrap();
            assert!(locks.try_lock("report").unwrap().is_none());
            assert!(locks.try_lock("other").unwrap().is_some());
            // It has it already.
            lock_in_transaction(&mut transaction, &name).unwrap();
            transaction.commit().unwrap();
        });
        assert!(locks.try_lock("report").unwrap().is_some());

        let mut transaction = client.transaction().unwrap();
        lock_in_transaction(&mut transaction, &name).unwrap();
        assert!(locks.try_lock("report").unwrap().is_none());
        transaction.rollback().unwrap();
        assert!(locks.try_lock("report").unwrap().is_some());
        assert_eq!(database.holding(), [0; 0]);
    });
}

/// The lock and the data in one transaction: what is read under the lock is what the last one wrote.
#[test]
fn no_update_is_lost_under_the_lock() {
    watched(|| {
        let database = Database::create();
        database.execute("CREATE TABLE account (balance bigint); INSERT INTO account VALUES (0)");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = database.client();
                    for _ in 0..25 {
                        let mut transaction = client.transaction().unwrap();
                        lock_in_transaction(&mut transaction, &Name::new("perkey", "account")).unwrap();
                        let balance: i64 = transaction.query_one("SELECT balance FROM account", &[]).unwrap().get(0);
                        transaction.execute("UPDATE account SET balance = $1", &[&(balance + 1)]).unwrap();
                        transaction.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(database.ask::<i64>("SELECT balance FROM account"), 100);
    });
}

#[test]
fn a_transaction_waits_as_long_as_its_lock_timeout() {
    watched(|| {
        let database = Database::create();
        let _lease = DistributedLock::new(database.store()).lock("report").unwrap();
        let mut client = database.client();
        let mut transaction = client.transaction().unwrap();
        transaction.batch_execute("SET LOCAL lock_timeout = '50ms'").unwrap();
        let error = lock_in_transaction(&mut transaction, &Name::new("perkey", "report")).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Transient, "{error}");
        assert!(error.to_string().contains("key \"report\" was not granted within the lock_timeout"), "{error}");
        // A transaction that has failed is told so.
        let error = try_lock_in_transaction(&mut transaction, &Name::new("perkey", "other")).unwrap_err();
        assert!(error.to_string().contains("25P02"), "{error}");
        transaction.rollback().unwrap();
        assert_eq!(database.holding().len(), 1);
    });
}

/// The fact that the store stays away from: a `pg_advisory_lock` that has failed with 55P03 can hold the lock. One within a
/// transaction that is rolled back does not, nor does the store, whatever its waits.
#[test]
fn a_wait_that_is_over_holds_nothing() {
    watched(|| {
        let database = Database::create();
        let name = Name::new("perkey", "report");
        let locks = DistributedLock::new(database.store());
        let (mut client, mut raw) = (database.client(), database.client());
        raw.batch_execute("SET lock_timeout = '2ms'").unwrap();
        thread::scope(|scope| {
            // Comes and goes all the time, so that the end of a wait meets the grant.
            let busy = scope.spawn(|| {
                let mut other = database.client();
                for _ in 0..400 {
                    other.batch_execute("SELECT pg_advisory_lock(0)").unwrap();
                    let mut transaction = other.transaction().unwrap();
                    lock_in_transaction(&mut transaction, &name).unwrap();
                    thread::sleep(Duration::from_micros(1800));
                    transaction.commit().unwrap();
                    other.batch_execute("SELECT pg_advisory_unlock(0)").unwrap();
                }
            });
            let (mut failed, mut granted, mut failed_and_granted) = (0, 0, 0);
            let number = name.hash().cast_signed();
            while !busy.is_finished() {
                let mut transaction = client.transaction().unwrap();
                transaction.batch_execute("SET LOCAL lock_timeout = '2ms'").unwrap();
                match lock_in_transaction(&mut transaction, &name) {
                    Ok(()) => granted += 1,
                    Err(_) => failed += 1,
                }
                transaction.rollback().unwrap();
                // What is not done here. How often it holds the lock although it has failed is a matter of luck.
                let is_locked = raw.execute("SELECT pg_advisory_lock($1)", &[&number]).is_ok();
                let unlocked = raw.query_one("SELECT pg_advisory_unlock($1)", &[&number]).unwrap().get(0);
                failed_and_granted += u32::from(unlocked && !is_locked);
                match locks.lock_with("report", Duration::from_millis(2)) {
                    Ok(lease) => drop(lease),
                    Err(error) => assert!(error.acquire_error().is_some(), "{error}"),
                }
            }
            println!(
                "{failed} waits were over, {granted} were not; without a transaction {failed_and_granted} were both"
            );
            assert!(failed > 0);
        });
        assert_eq!(database.holding(), [0; 0]);
    });
}
