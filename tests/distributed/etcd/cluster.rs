//! Three members, some of which fail.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, EtcdStore, LeaseOptions, Released, StoreErrorKind};

use super::{kind, queue, seconds};
use crate::etcd_server::{Etcd, WATCHDOG, until};

/// Of a store that asks that member first.
fn from(etcd: &Etcd, first: usize, options: LeaseOptions) -> DistributedLock {
    DistributedLock::with_options(EtcdStore::open(&etcd.url_from(first)).unwrap(), options)
}

/// With a lock that is held and one that is waited for.
fn the_leader_fails(fails: fn(&mut Etcd, usize), comes_back: fn(&mut Etcd, usize)) {
    let mut etcd = Etcd::with(3, &[]);
    let leader = etcd.leader();
    // Those who ask the leader, and those who ask another.
    for first in [leader, (leader + 1) % 3] {
        let leader = etcd.leader();
        let here = from(&etcd, first, seconds(30));
        let there = from(&etcd, first, seconds(30));
        let held = here.lock("report").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| there.lock("report").unwrap());
            until("it is in the queue", || etcd.entries_at((leader + 1) % 3).len() == 2);
            fails(&mut etcd, leader);
            until("another leads", || held.renew().is_ok_and(|is_held| is_held));
            assert!(held.is_held() && !waiter.is_finished());
            let token = held.fencing_token();
            assert!(held.release().is_ok_and(|released| released == Released::Freed));
            let next = waiter.join().unwrap();
            assert!(next.fencing_token() > token && next.verify().unwrap());
            assert!(here.try_lock("report").unwrap().is_none());
            drop(next);
        });
        drop(here.lock_with("report", WATCHDOG).unwrap());
        comes_back(&mut etcd, leader);
        etcd.wait_for_a_leader();
        until("nothing is left", || etcd.leftovers() == (vec![], 0));
    }
}

#[test]
fn a_leader_that_stands_still_is_replaced_and_nothing_is_lost() {
    the_leader_fails(|etcd, leader| etcd.signal(leader, "STOP"), |etcd, leader| etcd.signal(leader, "CONT"));
}

#[test]
fn a_leader_that_is_killed_is_replaced_and_nothing_is_lost() {
    the_leader_fails(Etcd::kill, Etcd::run);
}

#[test]
fn without_a_majority_nothing_is_granted_and_all_is_told_in_time() {
    let etcd = Etcd::with(3, &[]);
    let leader = etcd.leader();
    let (held_by, waits) = (from(&etcd, 0, seconds(4)), from(&etcd, leader, seconds(60)));
    let held = held_by.lock("report").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.lock("report").unwrap());
        until("it is in the queue", || queue(&etcd) == 2);
        until("it watches", || etcd.watchers(leader) == 1);
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        others.iter().for_each(|other| etcd.signal(*other, "STOP"));
        // One who leads no more cannot tell what happens.
        until("the watch is ended", || etcd.watchers(leader) == 0);
        let asks = from(&etcd, 2, seconds(60));
        for wait in [Duration::ZERO, Duration::from_secs(1)] {
            let asked = Instant::now();
            let error = asks.lock_with("other", wait).unwrap_err();
            assert!(
                matches!(kind(&error), Some(StoreErrorKind::Transient | StoreErrorKind::UnknownOutcome)),
                "{error}"
            );
            assert!(asked.elapsed() < wait + Duration::from_secs(10), "after {:?}", asked.elapsed());
            // It says which of them it was.
            assert!(error.to_string().matches("127.0.0.1:").count() == 4, "{error}");
        }
        assert!(held.lost().wait_timeout(WATCHDOG) && !held.is_held());
        assert!(!waiter.is_finished());
        others.iter().for_each(|other| etcd.signal(*other, "CONT"));
        // The holder has lost it, so the waiter comes, with its place in the queue or with a new one.
        let next = waiter.join().unwrap();
        assert!(next.is_held() && next.fencing_token() > held.fencing_token());
        until("it answers", || asks.lock_with("other", WATCHDOG).is_ok());
    });
    drop(held);
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}
