//! Replies that come late, or never.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, LeaseOptions, RedisStore, StoreErrorKind};

use super::{kind, long};
use crate::proxy::{Bytes, Proxy};
use crate::redis_server::{RedisServer, until, url};

fn behind(proxy: &Proxy) -> DistributedLock {
    DistributedLock::with_options(RedisStore::open(&url(proxy.port())).unwrap(), long())
}

/// Asks for a key, which was not granted as far as one can know. `fault` makes it so.
fn ask_in_vain(here: &DistributedLock, proxy: &Proxy, fault: impl Fn(&Proxy)) {
    loop {
        // A connection that was used just now is not tried first.
        drop(here.lock("warm").unwrap());
        fault(proxy);
        let error = here.lock_with("report", Duration::from_millis(200)).unwrap_err();
        if kind(&error) == Some(StoreErrorKind::UnknownOutcome) {
            assert!(error.to_string().contains("not known whether"), "{error}");
            return;
        }
        // Just now was too long ago.
        assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
        proxy.requests(Bytes::Pass);
        proxy.replies(Bytes::Pass);
    }
}

#[test]
fn what_was_granted_without_a_reply_is_given_back() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let (here, there) = (behind(&proxy), DistributedLock::new(server.store()));
    ask_in_vain(&here, &proxy, |proxy| proxy.replies(Bytes::Vanish));
    assert_eq!(server.leftovers(), ["perkey:{6:perkey:report}:lock"]);
    assert!(there.try_lock("report").unwrap().is_none());
    proxy.replies(Bytes::Pass);
    // Its ttl is ten minutes.
    drop(there.lock_with("report", crate::redis_server::WATCHDOG).unwrap());
    until("nothing is left", || server.leftovers().is_empty());
}

#[test]
fn a_request_that_comes_late_is_given_back_too() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let here = behind(&proxy);
    ask_in_vain(&here, &proxy, |proxy| proxy.requests(Bytes::Wait));
    let before = proxy.requested();
    until("it is being cleaned up", || proxy.requested() > before);
    proxy.requests(Bytes::Pass);
    until("it has come", || server.ask::<Option<u64>>("GET perkey:{6:perkey:report}:lock-token").is_some());
    until("nothing is left", || server.leftovers().is_empty());
}

#[test]
fn a_late_reply_is_not_taken_for_the_next() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let here = behind(&proxy);
    let held = here.lock("held").unwrap();
    let replied = proxy.replied();
    // The reply says that it is granted...
    ask_in_vain(&here, &proxy, |proxy| proxy.replies(Bytes::Wait));
    until("it was granted", || proxy.replied() > replied);
    proxy.replies(Bytes::Pass);
    // ...and this one must not be.
    let other = DistributedLock::with_options(server.store(), long()).lock("taken").unwrap();
    for _ in 0..50 {
        assert!(here.try_lock("taken").unwrap().is_none());
        assert!(held.verify().unwrap());
        let lease = here.try_lock("free").unwrap().expect("it is free");
        let token: u64 = server.ask("GET perkey:{6:perkey:free}:lock-token");
        assert_eq!(lease.fencing_token(), Some(token));
    }
    drop((held, other));
    until("nothing is left", || server.leftovers().is_empty());
}

/// However long the reply takes to come.
#[test]
fn a_lease_ends_reckoned_from_when_it_was_asked_for() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let ttl = Duration::from_secs(20);
    let here = DistributedLock::with_options(
        RedisStore::open(&url(proxy.port())).unwrap(),
        LeaseOptions::new().ttl(ttl).renew(false),
    );
    let is_granted = || server.ask::<Option<u64>>("GET perkey:{6:perkey:report}:lock-token").is_some();
    loop {
        // A connection that was used just now is not tried first.
        drop(here.lock("warm").unwrap());
        proxy.replies(Bytes::Wait);
        let granted = thread::scope(|scope| {
            let asking = scope.spawn(|| here.try_lock("report"));
            until("it is granted, or just now was too long ago", || is_granted() || asking.is_finished());
            let known = Instant::now();
            // More than the margin for clocks.
            thread::sleep(Duration::from_millis(600));
            proxy.replies(Bytes::Pass);
            asking.join().unwrap().ok().map(|lease| (lease.expect("nobody has it"), known))
        });
        let Some((lease, known)) = granted else { continue };
        let waited = known.elapsed();
        assert!(lease.remaining().unwrap() <= ttl - waited, "{:?} remain after {waited:?}", lease.remaining());
        return;
    }
}

#[test]
fn what_was_given_back_without_a_reply_is_free() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let (here, there) = (behind(&proxy), DistributedLock::new(server.store()));
    loop {
        let lease = here.lock("report").unwrap();
        drop(here.lock("warm").unwrap());
        proxy.replies(Bytes::Vanish);
        let error = lease.release().unwrap_err();
        proxy.replies(Bytes::Pass);
        // Its ttl is ten minutes.
        drop(there.lock_with("report", crate::redis_server::WATCHDOG).unwrap());
        match kind(&error) {
            Some(StoreErrorKind::UnknownOutcome) => {
                assert!(error.to_string().contains("not known whether"), "{error}");
                break;
            }
            // Just now was too long ago.
            kind => assert_eq!(kind, Some(StoreErrorKind::Transient), "{error}"),
        }
    }
    until("nothing is left", || server.leftovers().is_empty());
}

#[test]
fn a_connection_that_is_cut_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let options = LeaseOptions::new().ttl(Duration::from_secs(6));
    let here = DistributedLock::with_options(RedisStore::open(&url(proxy.port())).unwrap(), options);
    let there = behind(&proxy);
    let lease = here.lock("report").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        for _ in 0..5 {
            until("somebody listens", || {
                let heard: (String, u64) = server.ask("PUBSUB NUMSUB perkey:{6:perkey:report}:lock-free");
                heard.1 == 1
            });
            proxy.cut();
            assert!(lease.renew().is_ok() || lease.renew().is_ok());
        }
        assert!(lease.is_held());
        drop(lease);
        waiter.join().unwrap().unwrap();
    });
    until("nothing is left", || server.leftovers().is_empty());
}

#[test]
fn a_lease_that_cannot_be_renewed_is_lost_in_time() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let options = LeaseOptions::new().ttl(Duration::from_secs(1));
    let here = DistributedLock::with_options(RedisStore::open(&url(proxy.port())).unwrap(), options);
    let lease = here.lock("report").unwrap();
    proxy.replies(Bytes::Vanish);
    // The renewals arrive, and nobody knows: so the holder gives up, and the server waits for the last one.
    assert!(lease.lost().wait_timeout(crate::redis_server::WATCHDOG) && !lease.is_held());
    proxy.replies(Bytes::Pass);
    drop(lease);
    until("nothing is left", || server.leftovers().is_empty());
}
