//! The lock within a transaction of the user's.

use postgres::Transaction;

use crate::distributed::error::StoreError;
use crate::distributed::name::Name;

use super::{fault, numbers};

/// Locks a key for the rest of a transaction, and waits until it can: **correct without a token**, for what is written in the same
/// transaction. If the server or the connection fails, what was written is undone, and the lock goes with it.
///
/// The key is the one that a [`DistributedLock`](crate::distributed::DistributedLock) over a
/// [`PostgresStore`](super::PostgresStore) of the same database locks, in the namespace of its
/// [options](crate::distributed::LeaseOptions::namespace): each keeps the other out. Only what a job
/// [keeps](crate::distributed::JobLimits::at_least) after its end is not seen here; no table is needed, and
/// no [holder](crate::distributed::DistributedLock::holders) is listed. In other languages, or with another
/// client library, this is
///
/// ```sql
/// SELECT pg_advisory_xact_lock($1) -- Name::hash, as a signed number
/// ```
///
/// A transaction that locks a key again has it at once. The lock ends with the transaction, or when it is rolled back to a savepoint
/// from before. Transactions that lock several keys should do so in one order, or the server ends one of two that wait for each other.
///
/// It waits in the order of arrival, for as long as the transaction's `lock_timeout` says (by default: for ever). The
/// client library has no time limits: where the server stops, or the network swallows everything, this waits as every other query does.
/// A process that is killed while it waits stays in the server's queue until its turn has come, and those behind it wait so long, unless
/// the server's `client_connection_check_interval` is set.
///
/// # Errors
///
/// If it is not granted within `lock_timeout`, or the server fails. The transaction is to be rolled back then, as after every
/// error: only that surely gives back what was just being granted.
///
/// # Examples
///
/// ```no_run
/// use perkey::distributed::{Name, lock_in_transaction};
/// use postgres::{Client, NoTls};
///
/// let mut client = Client::connect("postgres://worker@localhost/billing", NoTls)?;
/// let mut transaction = client.transaction()?;
/// transaction.batch_execute("SET LOCAL lock_timeout = '5s'")?;
/// lock_in_transaction(&mut transaction, &Name::new("perkey", "account-42"))?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 42", &[])?;
/// transaction.commit()?; // and the lock is free
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lock_in_transaction(transaction: &mut Transaction<'_>, name: &Name) -> Result<(), StoreError> {
    let locked = transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&numbers::of_lock(name)]);
    locked.map(drop).map_err(|error| refused(error, name))
}

/// As [`lock_in_transaction`], but does not wait. Whether the key is locked now.
///
/// # Errors
///
/// If the server fails.
///
/// # Examples
///
/// ```no_run
/// use perkey::distributed::{Name, try_lock_in_transaction};
/// use postgres::{Client, NoTls};
///
/// let mut client = Client::connect("postgres://worker@localhost/billing", NoTls)?;
/// let mut transaction = client.transaction()?;
/// if try_lock_in_transaction(&mut transaction, &Name::new("perkey", "account-42"))? {
///     transaction.execute("UPDATE account SET balance = 0 WHERE id = 42", &[])?;
///     transaction.commit()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn try_lock_in_transaction(transaction: &mut Transaction<'_>, name: &Name) -> Result<bool, StoreError> {
    let row = transaction.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&numbers::of_lock(name)]);
    row.and_then(|row| row.try_get(0)).map_err(|error| refused(error, name))
}

fn refused(error: postgres::Error, name: &Name) -> StoreError {
    match error.code().map(|code| code.code()) {
        Some("55P03") => StoreError::transient(format!(
            "key {:?} was not granted within the lock_timeout: roll the transaction back, which also gives back what was just being granted",
            name.key()
        ))
        .caused_by(error),
        _ => fault::of_request(error),
    }
}
