//! Sessions that end, and servers that stop.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, Job, JobLimits, PostgresStore, Released, StoreErrorKind};

use super::kind;
use crate::postgres_server::{Database, PostgresServer, WATCHDOG, until, url};
use crate::support::watched;

#[test]
fn who_holds_is_told_at_once_when_the_session_ends() {
    watched(|| {
        let database = Database::create();
        let locks = DistributedLock::new(database.store());
        let there = DistributedLock::new(database.store());
        let mut latest = None;
        let mut took: Vec<_> = (0..5)
            .map(|_| {
                let lease = locks.lock("report").unwrap();
                assert!(lease.fencing_token() > latest);
                latest = lease.fencing_token();
                let begin = Instant::now();
                database.end_holder();
                assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
                let took = begin.elapsed();
                assert!(!lease.verify().unwrap() && !lease.renew().unwrap());
                // The store connects again by itself.
                drop(there.lock("report").unwrap());
                assert_eq!(lease.release().unwrap(), Released::NotOwner);
                took
            })
            .collect();
        println!("told after {took:?}");
        // Not by the question that is asked every two seconds.
        took.sort();
        assert!(took[2] < Duration::from_millis(300), "{took:?}");
        assert_eq!(database.holding(), [0; 0]);
    });
}

#[test]
fn all_that_a_session_held_is_lost_with_it_and_nothing_else() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let ours = ["a", "b", "c"].map(|key| here.lock(key).unwrap());
        let theirs = there.lock("d").unwrap();
        let of_ours = "SELECT DISTINCT backend FROM perkey_fence WHERE convert_from(key, 'UTF8') <> 'd'";
        let backend: i32 = database.ask(of_ours);
        assert!(database.ask::<bool>(&format!("SELECT pg_terminate_backend({backend})")));
        for lease in &ours {
            assert!(lease.lost().wait_timeout(WATCHDOG));
        }
        let again = here.lock("a").unwrap();
        assert!(again.fencing_token() > ours[0].fencing_token());
        drop(ours);
        assert!(theirs.is_held() && theirs.verify().unwrap() && again.verify().unwrap());
        // A call that is made when it is lost may ask the store, and take its time.
        let locks = here.clone();
        let (tell, told) = std::sync::mpsc::channel();
        again.lost().on_lost(move || tell.send(locks.lock("called").unwrap().fencing_token()).unwrap());
        let backend: i32 = database.ask("SELECT backend FROM perkey_fence WHERE convert_from(key, 'UTF8') = 'a'");
        assert!(database.ask::<bool>(&format!("SELECT pg_terminate_backend({backend})")));
        assert_eq!(told.recv_timeout(WATCHDOG).unwrap(), Some(1));
    });
}

#[test]
fn a_server_that_is_killed_and_starts_again_goes_on_with_its_tokens() {
    watched(|| {
        let mut server = PostgresServer::start();
        let store = PostgresStore::open(&url(server.port(), "postgres")).unwrap();
        store.create_table().unwrap();
        let (here, there) = (DistributedLock::new(store), server_locks(&server));
        let first = here.lock("report").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| there.lock("report").map(|lease| lease.fencing_token()));
            until("it listens", || server.ask_all::<i64>("postgres", LISTENING) == [1]);
            let begin = Instant::now();
            server.kill();
            assert!(first.lost().wait_timeout(WATCHDOG) && !first.is_held());
            println!("told after {:?}", begin.elapsed());
            let error = here.try_lock("other").unwrap_err();
            assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
            server.run();
            let second = waiter.join().unwrap().unwrap();
            assert!(second > first.fencing_token(), "{second:?}");
        });
        assert_eq!(first.release().unwrap(), Released::NotOwner);
        assert!(here.try_lock("report").unwrap().is_some());
    });
}

const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN perkey%'";

fn server_locks(server: &PostgresServer) -> DistributedLock {
    DistributedLock::new(PostgresStore::open(&url(server.port(), "postgres")).unwrap())
}

#[test]
fn a_server_that_stands_still_has_lost_what_it_held_and_holds_up_nobody() {
    watched(|| {
        let database = Database::on(Arc::new(PostgresServer::start()));
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        drop(there.lock("other").unwrap());
        let lease = here.lock("report").unwrap();
        let begin = Instant::now();
        database.server().stop();

        // Whoever asks has an answer in time.
        let asked = Instant::now();
        let error = there.lock_with("other", Duration::from_millis(10)).unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
        let late = asked.elapsed();
        assert!(late < Duration::from_secs(6), "{late:?}");
        assert!(lease.verify().is_err() || !lease.is_held());

        assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
        let told = begin.elapsed();
        println!("told after {told:?}");
        assert!(told > Duration::from_secs(3), "{told:?}");
        let asked = Instant::now();
        drop(lease);
        drop((here, there));
        let late = asked.elapsed();
        assert!(late < Duration::from_secs(5), "dropped in {late:?}");

        database.server().go_on();
        // What was asked of it while it stood still is granted, and to nobody.
        until("nothing is held", || database.holding().is_empty());
        let locks = DistributedLock::new(database.store());
        assert!(locks.try_lock("report").unwrap().is_some() && locks.try_lock("other").unwrap().is_some());
    });
}

#[test]
fn a_lease_that_is_dropped_while_the_server_stands_still_takes_no_longer_than_it_may() {
    watched(|| {
        let database = Database::on(Arc::new(PostgresServer::start()));
        let locks = DistributedLock::new(database.store());
        let (lease, other) = (locks.lock("report").unwrap(), locks.lock("other").unwrap());
        database.server().stop();
        let begin = Instant::now();
        drop(lease);
        let error = other.release().unwrap_err();
        let late = begin.elapsed();
        println!("two are given back in {late:?}");
        assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
        assert!(late < Duration::from_secs(10), "{late:?}");
        // Soon enough: so it was a pause, and the session goes on.
        database.server().go_on();
        until("they are given back", || database.holding().is_empty());
        assert!(locks.try_lock("report").unwrap().is_some());
    });
}

#[test]
fn a_short_pause_of_the_server_loses_nothing() {
    watched(|| {
        let database = Database::on(Arc::new(PostgresServer::start()));
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let lease = here.lock("report").unwrap();
        drop(there.lock("other").unwrap());
        database.server().stop();
        // A second.
        assert!(there.lock_with("other", Duration::from_millis(10)).is_err());
        database.server().go_on();
        assert!(lease.verify().unwrap() && lease.is_held());
        // What was asked of it meanwhile is not held.
        until("it is given back", || database.holding().len() == 1);
        assert!(there.try_lock("report").unwrap().is_none() && there.try_lock("other").unwrap().is_some());
        assert_eq!(lease.release().unwrap(), Released::Freed);
    });
}

#[test]
fn who_waits_gets_a_server_that_starts_late() {
    watched(|| {
        let mut server = PostgresServer::start();
        let locks = server_locks(&server);
        PostgresStore::open(&url(server.port(), "postgres")).unwrap().create_table().unwrap();
        server.kill();
        let error = locks.try_lock("report").unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
        assert!(error.to_string().contains("is the server running there?"), "{error}");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| locks.lock_with("report", WATCHDOG).map(drop));
            server.run();
            waiter.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_server_that_never_says_anything_is_waited_for_in_vain() {
    watched(|| {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let store = PostgresStore::open(&url(silent.local_addr().unwrap().port(), "postgres")).unwrap();
        let begin = Instant::now();
        let locks = DistributedLock::new(store);
        let error = locks.lock_with("report", Duration::from_millis(10)).unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
        assert!(error.to_string().contains("does not answer in time"), "{error}");
        drop(locks);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}

/// Others of its requests wait for a table that somebody has locked, as one does who makes an index: the server is there all the same.
#[test]
fn a_session_that_is_answered_late_is_not_given_up() {
    watched(|| {
        let database = Database::create();
        let locks = DistributedLock::new(database.store());
        let held = locks.lock("held").unwrap();
        let mut client = database.client();
        let mut transaction = client.transaction().unwrap();
        transaction.batch_execute("LOCK TABLE perkey_fence IN SHARE MODE").unwrap();
        thread::scope(|scope| {
            let locks = &locks;
            let ask = |number| scope.spawn(move || locks.lock_with(&format!("key {number}"), WATCHDOG / 2).map(drop));
            let asking: Vec<_> = (0..12).map(ask).collect();
            // Without the others' answers it would be given up after eight seconds at the most.
            assert!(!held.lost().wait_timeout(Duration::from_secs(12)), "the session was given up");
            transaction.rollback().unwrap();
            asking.into_iter().for_each(|asking| asking.join().unwrap().unwrap());
        });
        assert!(held.verify().unwrap());
        assert_eq!(held.release().unwrap(), Released::Freed);
    });
}

/// If it cannot be written down that a key is kept, the session keeps it until it can.
#[test]
fn a_job_is_kept_although_the_table_is_locked_at_its_end() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        let limits = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_secs(600) };
        let mut client = database.client();
        let mut transaction = None;
        let ran = here.run_job("report", limits, |_| {
            let mut begun = client.transaction().unwrap();
            begun.batch_execute("LOCK TABLE perkey_fence IN ACCESS EXCLUSIVE MODE").unwrap();
            transaction = Some(begun);
        });
        assert_eq!(ran.unwrap(), Job::Ran(()));
        transaction.unwrap().rollback().unwrap();
        assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
        until("it is written down", || there.holders("").unwrap().iter().any(|holder| holder.owner.is_empty()));
        assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
        until("the session has given it back", || database.holding().is_empty());
    });
}

/// The server frees the lock, and then cannot announce it, because another transaction that does is waited for.
#[test]
fn what_was_freed_by_a_request_that_failed_can_be_locked_again() {
    watched(|| {
        let database = Database::on(Arc::new(PostgresServer::start()));
        let set_standby = |name: &str| {
            database.execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
            database.execute("SELECT pg_reload_conf()");
            until("it is set", || database.ask::<String>("SHOW synchronous_standby_names") == name);
        };
        database.execute("CREATE TABLE written (id int)");
        let locks = DistributedLock::new(database.store());
        let lease = locks.lock("report").unwrap();
        set_standby("gone");
        thread::scope(|scope| {
            let mut client = database.client();
            let announcing =
                scope.spawn(move || client.batch_execute("INSERT INTO written VALUES (1); NOTIFY written"));
            until("it waits for the standby", || {
                database.ask::<bool>("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')")
            });
            drop(lease);
            until("the server has freed it", || database.holding().is_empty());
            set_standby("");
            announcing.join().unwrap().unwrap();
        });
        let again = locks.lock_with("report", WATCHDOG / 2).unwrap();
        assert_eq!(again.release().unwrap(), Released::Freed);
    });
}

/// A second one would count tokens of its own.
#[test]
fn a_table_that_is_found_is_not_made_again() {
    watched(|| {
        let database = Database::create();
        let locks = DistributedLock::new(database.store());
        let first = locks.lock("report").unwrap().fencing_token();
        database.execute("CREATE SCHEMA AUTHORIZATION CURRENT_USER");
        database.store().create_table().unwrap();
        assert!(DistributedLock::new(database.store()).lock("report").unwrap().fencing_token() > first);
    });
}
