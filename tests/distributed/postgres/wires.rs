//! Connections that swallow, hold up and break.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, LeaseOptions, PostgresStore, Released, StoreErrorKind};

use super::kind;
use crate::postgres_server::{Database, WATCHDOG, until, url};
use crate::proxy::{Bytes, Proxy};
use crate::support::watched;

fn behind(proxy: &Proxy, database: &Database) -> DistributedLock {
    DistributedLock::new(PostgresStore::open(&url(proxy.port(), database.name())).unwrap())
}

/// The server does not know, and keeps the lock for now: so the holder is told first.
#[test]
fn a_network_that_swallows_everything_is_noticed() {
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        let (here, there) = (behind(&proxy, &database), DistributedLock::new(database.store()));
        let lease = here.lock("report").unwrap();
        let begin = Instant::now();
        // Not even the end of the connection comes through.
        proxy.requests(Bytes::Wait);
        proxy.replies(Bytes::Vanish);
        assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
        println!("told after {:?}", begin.elapsed());
        assert!(there.try_lock("report").unwrap().is_none());
        assert_eq!(lease.release().unwrap(), Released::NotOwner);
        // The server finds out.
        proxy.requests(Bytes::Pass);
        proxy.replies(Bytes::Pass);
        drop(there.lock("report").unwrap());
        assert!(here.try_lock("report").unwrap().is_some());
    });
}

#[test]
fn a_connection_that_is_cut_is_noticed_at_once_and_replaced() {
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        let here = behind(&proxy, &database);
        let mut took: Vec<_> = (0..5)
            .map(|_| {
                let lease = here.lock("report").unwrap();
                let begin = Instant::now();
                proxy.cut();
                assert!(lease.lost().wait_timeout(WATCHDOG));
                begin.elapsed()
            })
            .collect();
        println!("told after {took:?}");
        took.sort();
        assert!(took[2] < Duration::from_millis(300), "{took:?}");
        until("nothing is held", || database.holding().is_empty());
    });
}

#[test]
fn who_waits_on_a_connection_that_is_cut_waits_on_the_next() {
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        let (here, there) = (DistributedLock::new(database.store()), behind(&proxy, &database));
        let lease = here.lock("report").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| there.lock("report").map(|lease| lease.fencing_token()));
            let mut before = vec![];
            for _ in 0..4 {
                until("it listens by a new session", || {
                    let listeners = database.listeners();
                    listeners.len() == 1 && listeners != before
                });
                before = database.listeners();
                proxy.cut();
            }
            assert!(!waiter.is_finished());
            assert_eq!(lease.release().unwrap(), Released::Freed);
            assert_eq!(waiter.join().unwrap().unwrap(), Some(2));
        });
    });
}

#[test]
fn what_is_granted_too_late_is_given_back() {
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        // So that only the store gives it back: others would try for as long as this.
        let options = LeaseOptions::new().ttl(Duration::from_millis(10));
        let store = PostgresStore::open(&url(proxy.port(), database.name())).unwrap();
        let here = DistributedLock::with_options(store, options);
        let held = here.lock("held").unwrap();
        proxy.requests(Bytes::Wait);
        let error = here.lock_with("report", Duration::from_millis(10)).unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
        assert!(error.to_string().contains("not known whether"), "{error}");
        // A second later nobody else tries to give it back.
        assert!(here.lock_with("other", Duration::from_millis(10)).is_err());
        proxy.requests(Bytes::Pass);
        let token = "SELECT token FROM perkey_fence WHERE convert_from(key, 'UTF8') = 'report'";
        until("it has come", || database.ask_all::<i64>(token) == [1]);
        until("it is given back", || database.holding().len() == 1);
        // The same, where the grant came and the answer does not.
        proxy.replies(Bytes::Wait);
        let error = here.lock_with("report", Duration::from_millis(10)).unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
        proxy.replies(Bytes::Pass);
        until("it is given back", || database.holding().len() == 1);
        assert_eq!(here.lock("report").unwrap().fencing_token(), Some(3));
        assert!(held.verify().unwrap() && held.is_held());
    });
}

#[test]
fn a_late_reply_is_not_taken_for_the_next() {
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        let here = behind(&proxy, &database);
        drop(here.lock("free").unwrap());
        let taken = DistributedLock::new(database.store()).lock("taken").unwrap();
        let replied = proxy.replied();
        proxy.replies(Bytes::Wait);
        // The reply says that it is granted...
        assert!(here.lock_with("free", Duration::from_millis(10)).is_err());
        until("it was granted", || proxy.replied() > replied);
        proxy.replies(Bytes::Pass);
        // ...and this one must not be.
        for _ in 0..20 {
            assert!(here.try_lock("taken").unwrap().is_none());
        }
        assert_eq!(here.lock_with("free", WATCHDOG).unwrap().fencing_token(), Some(3));
        drop(taken);
    });
}
