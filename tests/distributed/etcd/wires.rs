//! Replies that come late, or never.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, EtcdStore, LeaseOptions, Released, StoreErrorKind};

use super::{kind, locks, long, queue, seconds};
use crate::etcd_server::{Etcd, WATCHDOG, until};
use crate::proxy::{Bytes, Proxy};

fn behind(proxy: &Proxy, options: LeaseOptions) -> DistributedLock {
    let store = EtcdStore::open(&format!("etcd://127.0.0.1:{}", proxy.port())).unwrap();
    DistributedLock::with_options(store, options)
}

/// Asks for a key, which was not granted as far as one can know.
fn ask_in_vain(here: &DistributedLock) {
    let error = here.lock_with("report", Duration::from_millis(200)).unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
    assert!(error.to_string().contains("not known whether"), "{error}");
}

#[test]
fn what_was_granted_without_a_reply_is_given_back() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let (here, there) = (behind(&proxy, long()), locks(&etcd, long()));
    drop(here.lock("warm").unwrap());
    proxy.replies(Bytes::Vanish);
    ask_in_vain(&here);
    until("its lease was made", || etcd.leases() == 1);
    proxy.replies(Bytes::Pass);
    // Its ttl is ten minutes.
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
    drop(there.lock_with("report", WATCHDOG).unwrap());
}

#[test]
fn a_request_that_comes_late_is_given_back_too() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let here = behind(&proxy, long());
    drop(here.lock("warm").unwrap());
    proxy.requests(Bytes::Wait);
    ask_in_vain(&here);
    let before = proxy.requested();
    until("it is being cleaned up", || proxy.requested() > before);
    let revoked = || etcd.metric("grpc_server_handled_total{grpc_code=\"NotFound\",grpc_method=\"LeaseRevoke\"") as u32;
    assert_eq!(revoked(), 0);
    proxy.requests(Bytes::Pass);
    // Whether the server still does what came before, whose client is gone, is its own affair.
    until("all that waited has come, and it is cleaned up again", || revoked() > 0);
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

/// However long the reply takes to come.
#[test]
fn a_renewal_is_reckoned_from_when_it_was_asked_for() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let ttl = Duration::from_secs(20);
    let lease = behind(&proxy, LeaseOptions::new().ttl(ttl).renew(false)).lock("report").unwrap();
    let (waited, remaining) = thread::scope(|scope| {
        let before = proxy.replied();
        proxy.replies(Bytes::Wait);
        let renewing = scope.spawn(|| lease.renew());
        until("it was renewed", || proxy.replied() > before);
        let known = Instant::now();
        // More than the margin for clocks, and less than a request may take.
        thread::sleep(Duration::from_millis(800));
        proxy.replies(Bytes::Pass);
        assert!(renewing.join().unwrap().unwrap());
        let remaining = lease.remaining().unwrap();
        (known.elapsed(), remaining)
    });
    assert!(remaining <= ttl - waited, "{remaining:?} remain, {waited:?} after it was renewed");
}

/// Those to the lease, the key, the look and the end of the lease.
#[test]
fn wherever_replies_begin_to_vanish_nothing_is_left() {
    let etcd = Etcd::start();
    for passed in 0..4 {
        let proxy = Proxy::to(etcd.port(0));
        let here = behind(&proxy, seconds(60));
        let replied = proxy.replied();
        thread::scope(|scope| {
            scope.spawn(|| {
                until("so many replies have come", || proxy.replied() >= replied + passed);
                proxy.replies(Bytes::Vanish);
            });
            match here.lock_with("report", Duration::from_secs(1)) {
                Ok(lease) => _ = lease.release(),
                Err(error) => assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}"),
            }
        });
        proxy.replies(Bytes::Pass);
        until("nothing is left", || etcd.leftovers() == (vec![], 0));
    }
}

/// However long the reply takes to come.
#[test]
fn a_lease_ends_reckoned_from_when_it_was_asked_for() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let here = behind(&proxy, seconds(20).renew(false));
    drop(here.lock("warm").unwrap());
    proxy.replies(Bytes::Wait);
    let (lease, known) = thread::scope(|scope| {
        let asking = scope.spawn(|| here.lock("report").unwrap());
        until("its lease was made", || etcd.leases() == 1);
        let known = Instant::now();
        // More than the margin for clocks.
        thread::sleep(Duration::from_millis(600));
        proxy.replies(Bytes::Pass);
        (asking.join().unwrap(), known)
    });
    let waited = known.elapsed();
    assert!(lease.remaining().unwrap() <= Duration::from_secs(20) - waited, "{lease:?} after {waited:?}");
}

#[test]
fn what_was_given_back_without_a_reply_is_free() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let (here, there) = (behind(&proxy, long()), locks(&etcd, long()));
    let lease = here.lock("report").unwrap();
    proxy.replies(Bytes::Vanish);
    let error = lease.release().unwrap_err();
    // It was still looking whether it has the key.
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(there.try_lock("report").unwrap().is_none());
    proxy.replies(Bytes::Pass);
    // Its ttl is ten minutes.
    drop(there.lock_with("report", WATCHDOG).unwrap());
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

#[test]
fn a_connection_that_is_cut_is_replaced() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let (here, there) = (behind(&proxy, seconds(20)), behind(&proxy, long()));
    let begun = || etcd.metric("grpc_server_started_total{grpc_method=\"Watch\",grpc_service=\"etcdserverpb") as u32;
    let lease = here.lock("report").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        for _ in 0..5 {
            until("it watches", || etcd.watchers(0) == 1);
            let before = begun();
            proxy.cut();
            until("it begins again", || begun() > before);
            assert!(lease.renew().is_ok() || lease.renew().is_ok());
        }
        assert!(lease.is_held());
        assert_eq!(lease.release().unwrap(), Released::Freed);
        waiter.join().unwrap().unwrap();
    });
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

/// It goes on by looking.
#[test]
fn a_watch_that_hears_nothing_is_not_relied_on() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let there = {
        let hosts = format!("etcd://127.0.0.1:{},127.0.0.1:{}", proxy.port(), etcd.port(0));
        DistributedLock::with_options(EtcdStore::open(&hosts).unwrap(), seconds(6))
    };
    let held = locks(&etcd, long()).lock("report").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        until("it watches", || etcd.watchers(0) == 1);
        proxy.replies(Bytes::Vanish);
        held.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(queue(&etcd), 0);
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

#[test]
fn a_lease_that_cannot_be_renewed_is_lost_in_time() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let lease = behind(&proxy, seconds(1)).lock("report").unwrap();
    proxy.replies(Bytes::Vanish);
    // The renewals arrive, and nobody knows: so the holder gives up, and the cluster waits for the last one.
    assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
    proxy.replies(Bytes::Pass);
    drop(lease);
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}
