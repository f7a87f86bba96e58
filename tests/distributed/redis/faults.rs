//! Servers that stop, start without data, and are replaced.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, LeaseOptions, RedisStore, Released, StoreErrorKind};

use super::{kind, long};
use crate::proxy::{Bytes, Proxy};
use crate::redis_server::{RedisServer, WATCHDOG, until, url};

#[test]
fn a_server_that_lost_its_data_grants_again_and_the_lease_is_lost() {
    let mut server = RedisServer::start();
    let options = LeaseOptions::new().ttl(Duration::from_secs(3));
    let (here, there) = (DistributedLock::with_options(server.store(), options), DistributedLock::new(server.store()));
    let first = here.lock("report").unwrap();
    server.kill();
    server.run();
    let second = there.lock("report").unwrap();
    // Both believe in their lease now: so the tokens have to tell who is late.
    assert!(second.fencing_token() > first.fencing_token());
    assert!(first.lost().wait_timeout(WATCHDOG) && !first.is_held());
    assert_eq!(first.release().unwrap(), Released::NotOwner);
    assert!(second.verify().unwrap());
}

#[test]
fn an_idle_connection_that_the_server_closed_does_no_harm() {
    let mut server = RedisServer::start();
    let locks = DistributedLock::with_options(server.store(), long().renew(false));
    drop(locks.try_lock("report").unwrap());
    server.kill();
    server.run();
    let used = Instant::now();
    until("the connection is old enough to be tried first", || used.elapsed() > Duration::from_millis(1100));
    assert!(locks.try_lock("report").unwrap().is_some());
}

#[test]
fn a_server_that_stands_still_past_the_ttl_has_lost_the_lease() {
    let server = RedisServer::start();
    let options = LeaseOptions::new().ttl(Duration::from_secs(1));
    let (here, there) = (DistributedLock::with_options(server.store(), options), DistributedLock::new(server.store()));
    let first = here.lock("report").unwrap();
    server.signal("STOP");
    assert!(first.lost().wait_timeout(WATCHDOG) && !first.is_held());
    thread::scope(|scope| {
        let second = scope.spawn(|| there.lock("report").unwrap());
        server.signal("CONT");
        let second = second.join().unwrap();
        assert!(second.fencing_token() > first.fencing_token());
        drop(second);
    });
    drop(first);
    // Also what the stopped server had been sent.
    until("nothing is left", || server.leftovers().is_empty());
}

#[test]
fn who_waits_gets_a_server_that_starts_late() {
    let mut server = RedisServer::planned(&[]);
    let locks = DistributedLock::new(server.store());
    let error = locks.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("is the server running there?"), "{error}");
    let error = locks.lock_with("report", Duration::from_millis(50)).unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.lock_with("report", WATCHDOG).map(drop));
        server.run();
        waiter.join().unwrap().unwrap();
    });
}

/// That is the limit of the store: a lock for efficiency only, without the token.
#[test]
fn a_promoted_replica_may_not_know_the_lease() {
    let mut master = RedisServer::start();
    let link = Proxy::to(master.port());
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &link.port().to_string()]);
    until("the replica follows", || {
        let info: String = replica.ask("INFO replication");
        info.contains("master_link_status:up")
    });
    let refused = DistributedLock::new(replica.store()).try_lock("report").unwrap_err();
    assert_eq!(kind(&refused), Some(StoreErrorKind::Transient), "{refused}");
    assert!(refused.to_string().contains("give the address of the master"), "{refused}");

    let first = DistributedLock::with_options(master.store(), long()).lock("known").unwrap();
    until("the replica has it", || replica.leftovers().len() == 1);
    link.replies(Bytes::Wait);
    let second = DistributedLock::with_options(master.store(), long()).lock("unknown").unwrap();
    master.kill();
    link.cut();
    let () = replica.ask("REPLICAOF NO ONE");

    let after = DistributedLock::new(replica.store());
    assert!(after.try_lock("known").unwrap().is_none());
    let third = after.try_lock("unknown").unwrap().expect("the replica does not know the lease");
    assert!(second.is_held() && third.is_held());
    assert!(third.fencing_token() > second.fencing_token());
    drop((first, second));
}

#[test]
fn a_server_without_memory_is_asked_again() {
    let server = RedisServer::start();
    let () = server.ask("CONFIG SET maxmemory 1");
    let locks = DistributedLock::new(server.store());
    let error = locks.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    let () = server.ask("CONFIG SET maxmemory 0");
    assert!(locks.try_lock("report").unwrap().is_some());
}

#[test]
fn what_speaks_otherwise_is_refused() {
    // A server that never says anything.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let locks = DistributedLock::new(RedisStore::open(&url(silent.local_addr().unwrap().port())).unwrap());
    let error = locks.lock_with("report", Duration::from_millis(200)).unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    let error = locks.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
}
