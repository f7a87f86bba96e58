//! `PostgresStore`, against servers of its own.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use perkey::distributed::{
    DistributedLock, DistributedSemaphore, Error, Job, JobLimits, Name, PostgresStore, Released, StoreErrorKind,
};

use crate::postgres_server::{Database, PostgresServer, WATCHDOG, until, url};
use crate::support::watched;

mod claims;
mod crowd;
mod faults;
mod fencing;
mod pooler;
mod stores;
mod transactions;
mod wires;

pub(crate) use self::fencing::update;

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store { cause, .. } => Some(cause.kind()),
        _ => None,
    }
}

#[test]
fn a_store_has_one_session_for_all_that_it_holds() {
    watched(|| {
        let database = Database::create();
        let locks = DistributedLock::new(database.store());
        let leases = ["a", "b", "c"].map(|key| locks.lock(key).unwrap());
        let mut holding = database.holding();
        assert_eq!(holding.len(), 3);
        holding.dedup();
        assert_eq!(holding.len(), 1);
        assert_eq!(locks.holders("").unwrap()[0].owner.len(), 32);
        drop(leases);
        assert_eq!(database.holding(), [0; 0]);
        // It goes with the store.
        let sessions =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perkey' AND datname = current_database()";
        assert_eq!(database.ask::<i64>(sessions), 1);
        drop(locks);
        until("the session is over", || database.ask::<i64>(sessions) == 0);
    });
}

#[test]
fn the_table_is_asked_for_and_two_can_make_it_at_once() {
    watched(|| {
        let database = Database::empty_on(PostgresServer::shared());
        let locks = DistributedLock::new(database.store());
        let error = locks.lock("report").unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
        for way_out in ["PostgresStore::create_table", "CREATE TABLE perkey_fence (\n"] {
            assert!(error.to_string().contains(way_out), "{error}");
        }
        let error = locks.holders("").unwrap_err();
        assert!(error.to_string().contains("PostgresStore::create_table"), "{error}");

        let stores: Vec<_> = (0..8).map(|_| database.store()).collect();
        thread::scope(|scope| {
            let all: Vec<_> = stores.iter().map(|store| scope.spawn(|| store.create_table())).collect();
            all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        stores[0].create_table().unwrap();
        assert_eq!(locks.lock("report").unwrap().fencing_token(), Some(1));
        assert_eq!(locks.lock("report").unwrap().fencing_token(), Some(2));
        assert_eq!(database.holding(), [0; 0], "the attempts in vain have left nothing");
    });
}

/// Where the statement that takes the lock fails, the lock stays: it has to be given back.
#[test]
fn what_fails_half_way_leaves_no_lock() {
    watched(|| {
        let database = Database::create();
        let (locks, permits) = (DistributedLock::new(database.store()), permits(&database, 3));
        drop((locks.lock("report").unwrap(), permits.acquire("report").unwrap()));
        database.execute("ALTER TABLE perkey_fence ADD CONSTRAINT full_up CHECK (token < 2)");
        for error in [locks.try_lock("report").unwrap_err(), permits.try_acquire("report").unwrap_err()] {
            assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
            assert!(error.to_string().contains("full_up"), "{error}");
        }
        assert_eq!(database.holding(), [0; 0]);
        // The same, for a while: the row is locked by somebody else.
        database.execute("ALTER TABLE perkey_fence DROP CONSTRAINT full_up");
        let mut client = database.client();
        let mut other = client.transaction().unwrap();
        other.execute("SELECT FROM perkey_fence FOR UPDATE", &[]).unwrap();
        let error = locks.try_lock("report").unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
        assert!(error.to_string().contains("has locked the row in perkey_fence"), "{error}");
        assert_eq!(database.holding(), [0; 0]);
        other.rollback().unwrap();
        assert_eq!(locks.lock("report").unwrap().fencing_token(), Some(2));
    });
}

fn permits(database: &Database, limit: u32) -> DistributedSemaphore {
    DistributedSemaphore::new(database.store(), NonZeroU32::new(limit).unwrap())
}

#[test]
fn of_very_many_places_all_are_found() {
    const PLACES: u32 = 2_500;
    watched(|| {
        let database = Database::create();
        let store = Arc::new(database.store());
        let of = |limit| DistributedSemaphore::new(Arc::clone(&store), NonZeroU32::new(limit).unwrap());
        // All but one are held by somebody else.
        let mut other = database.client();
        let numbers = "SELECT array_agg(id) FROM perkey_fence WHERE kind = 'permit'";
        let many = of(PLACES);
        let held: Vec<_> = (0..20).map(|_| many.acquire("host").unwrap()).collect();
        let ids: Vec<i64> = other.query_one(numbers, &[]).unwrap().get(0);
        assert_eq!(ids.len(), 20);
        // Held by this session, they are not asked for again.
        let mut tokens: Vec<_> = held.iter().map(|permit| permit.fencing_token()).collect();
        tokens.dedup();
        assert_eq!(tokens.len(), 20);
        drop(held);
        let few = permits(&database, 3);
        let three: Vec<_> = (0..3).map(|_| few.acquire("few").unwrap()).collect();
        assert!(permits(&database, 3).try_acquire("few").unwrap().is_none());
        drop(three);
        assert_eq!(database.holding(), [0; 0]);
    });
}

/// Two names with one hash are one lock.
#[test]
fn a_name_that_shares_its_number_shares_the_lock() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let number = Name::new("perkey", "report").hash().cast_signed();
        // As a program in another language would.
        let mut other = database.client();
        other.execute("SELECT pg_advisory_lock($1)", &[&number]).unwrap();
        assert!(here.try_lock("report").unwrap().is_none());
        assert_eq!(here.holders("").unwrap(), [], "it is not in the table");
        other.execute("SELECT pg_advisory_unlock($1)", &[&number]).unwrap();
        let lease = here.lock("report").unwrap();
        assert!(!other.query_one("SELECT pg_try_advisory_lock($1)", &[&number]).unwrap().get::<_, bool>(0));
        assert!(there.try_lock("report").unwrap().is_none());
        drop(lease);
    });
}

/// If the reply to the request is all that tells, a session that asks for what it has would be granted it.
#[test]
fn threads_of_one_session_do_not_share_a_lock() {
    watched(|| {
        let database = Database::create();
        let store = Arc::new(database.store());
        let inside = std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                let locks = DistributedLock::new(Arc::clone(&store));
                let inside = &inside;
                scope.spawn(move || {
                    for _ in 0..20 {
                        let lease = locks.lock("report").unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(lease.release().unwrap(), Released::Freed);
                    }
                });
            }
        });
        assert_eq!(database.ask::<i64>("SELECT token FROM perkey_fence"), 160);
    });
}

#[test]
fn a_job_keeps_its_key_by_the_clock_of_the_server() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let limits = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_secs(300) };
        assert_eq!(here.run_job("report", limits, |_| ()).unwrap(), Job::Ran(()));
        drop(here);
        assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
        let holder = there.holders("report").unwrap().remove(0);
        assert!(holder.owner.is_empty() && holder.token == Some(1));
        assert!(holder.remaining.is_some_and(|left| left > Duration::from_secs(200)));
        assert_eq!(database.holding(), [0; 0]);
        // The time passes, for the server.
        database.execute("UPDATE perkey_fence SET kept_until = clock_timestamp() - interval '1 second'");
        assert_eq!(there.run_job("report", limits, |lease| lease.fencing_token()).unwrap(), Job::Ran(Some(2)));
        // Who waits comes when it ends.
        database.execute("UPDATE perkey_fence SET kept_until = clock_timestamp() + interval '300 milliseconds'");
        assert_eq!(there.lock("report").unwrap().fencing_token(), Some(3));
    });
}

#[test]
fn a_job_whose_process_is_gone_is_free_and_one_that_takes_too_long_gives_up() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let long = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_secs(600) };
        let short = JobLimits { at_most: Duration::from_millis(200), at_least: Duration::ZERO };
        let ran = here.run_job("report", long, |lease| {
            assert_eq!(there.run_job("report", long, |_| ()).unwrap(), Job::Skipped);
            database.end_holder();
            assert!(lease.lost().wait_timeout(WATCHDOG));
        });
        assert_eq!(ran.unwrap(), Job::Ran(()));
        // What was lost is not kept.
        let ran = there.run_job("report", short, |lease| {
            assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
            until("it is free", || database.holding().is_empty());
            here.lock("report").unwrap().fencing_token() > lease.fencing_token()
        });
        assert_eq!(ran.unwrap(), Job::Ran(true));
    });
}

#[test]
fn a_wrong_password_is_final_and_not_shown() {
    watched(|| {
        let database = Database::create();
        // The server asks nobody for a password; so this one asks for more than it gives.
        let port = database.server().port();
        for (login, path, way_out) in [
            ("nobody:s3cret@", "postgres", "check the user name"),
            ("postgres:s3cret@", "nowhere", "the name of the database"),
        ] {
            let store = PostgresStore::open(&format!("postgres://{login}127.0.0.1:{port}/{path}")).unwrap();
            let shown = format!("{store:?}");
            let error = DistributedLock::new(store).lock("report").unwrap_err();
            assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
            assert!(error.to_string().contains(way_out) && error.to_string().contains(path), "{error}");
            assert!(!format!("{shown}{error}{error:?}").contains("s3cret"));
        }
    });
}

#[test]
fn who_may_not_use_the_table_is_told_what_it_takes() {
    watched(|| {
        let database = Database::create();
        // Users are those of all databases.
        let user = format!("worker_{}", database.name());
        database.execute(&format!("CREATE USER {user}"));
        let url = url(database.server().port(), database.name()).replace("postgres@", &format!("{user}@"));
        let locks = DistributedLock::new(PostgresStore::open(&url).unwrap());
        let error = locks.try_lock("report").unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
        assert!(error.to_string().contains("GRANT SELECT, INSERT, UPDATE ON perkey_fence"), "{error}");
        database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON perkey_fence TO {user}"));
        let lease = locks.lock("report").unwrap();
        assert!(lease.verify().unwrap() && locks.holders("").unwrap().len() == 1);
        assert_eq!(lease.release().unwrap(), Released::Freed);
        let limits = JobLimits { at_most: Duration::from_secs(60), at_least: Duration::from_secs(60) };
        assert_eq!(locks.run_job("report", limits, |_| ()).unwrap(), Job::Ran(()));
        assert_eq!(locks.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
    });
}

/// A server without certificates: TLS if there is some, or none, or an error that says so.
#[test]
fn tls_is_had_or_refused() {
    watched(|| {
        let database = Database::create();
        for (mode, is_granted) in [("prefer", true), ("disable", true), ("require", false)] {
            let store = PostgresStore::open(&format!("{}?sslmode={mode}", database.url())).unwrap();
            let granted = DistributedLock::new(store).try_lock("report");
            assert_eq!(granted.is_ok(), is_granted, "{mode}: {granted:?}");
            if let Err(error) = granted {
                assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
                assert!(error.to_string().contains("server does not support TLS"), "{error}");
            }
        }
    });
}
