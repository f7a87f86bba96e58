//! `EtcdStore`, against clusters of its own.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{
    DistributedLock, DistributedSemaphore, Error, EtcdStore, Job, JobLimits, Lease, LeaseOptions, Released,
    StoreErrorKind,
};
use serde_json::{Value, json};

use crate::etcd_server::{Etcd, WATCHDOG, encoded, until};

mod cluster;
mod crowd;
mod faults;
mod login;
mod stores;
mod tls;
mod wires;

/// Longer than any test.
fn long() -> LeaseOptions {
    LeaseOptions::new().ttl(Duration::from_secs(600))
}

fn seconds(seconds: u64) -> LeaseOptions {
    LeaseOptions::new().ttl(Duration::from_secs(seconds))
}

fn locks(etcd: &Etcd, options: LeaseOptions) -> DistributedLock {
    DistributedLock::with_options(etcd.store(), options)
}

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store { cause, .. } => Some(cause.kind()),
        _ => None,
    }
}

/// Those who hold the key or wait for it.
fn queue(etcd: &Etcd) -> usize {
    etcd.entries().len()
}

#[test]
fn a_key_is_held_by_one_and_nothing_is_left() {
    let etcd = Etcd::start();
    let (here, there) = (locks(&etcd, seconds(30)), locks(&etcd, seconds(30)));
    let first = here.lock("report").unwrap();
    assert!(first.verify().unwrap() && first.renew().unwrap());
    assert!(first.remaining().is_some_and(|left| left > Duration::from_secs(20)));
    let holder = here.holders("rep").unwrap().remove(0);
    assert_eq!((holder.token, holder.owner.len()), (first.fencing_token(), 32));
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(30)));
    let key = EtcdStore::key_of(&first);
    assert_eq!(key, format!("perkey/6:perkey/lock/6:report/{}", holder.owner));
    assert_eq!(etcd.leftovers(), (vec![(key, "limit 1".to_owned())], 1));

    let token = first.fencing_token();
    assert_eq!(first.release().unwrap(), Released::Freed);
    let second = there.try_lock("report").unwrap().expect("it is free");
    assert!(second.fencing_token() > token);
    drop(second);
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

#[test]
fn a_try_in_vain_writes_nothing() {
    let etcd = Etcd::start();
    let held = locks(&etcd, long()).lock("report").unwrap();
    let revision = || etcd.ask(0, "kv/range", &json!({"key": encoded("x")}))["header"]["revision"].clone();
    let (before, there) = (revision(), locks(&etcd, long()));
    for _ in 0..3 {
        assert!(there.try_lock("report").unwrap().is_none());
        let limits = JobLimits { at_most: Duration::from_secs(60), at_least: Duration::ZERO };
        assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
    }
    assert_eq!((revision(), etcd.leases()), (before, 1));
    drop(held);
}

#[test]
fn who_waits_is_granted_in_the_order_of_asking() {
    let etcd = Etcd::start();
    let held = locks(&etcd, long()).lock("report").unwrap();
    let mut tokens = vec![held.fencing_token()];
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5)
            .map(|number| {
                let there = locks(&etcd, long());
                let waiter = scope.spawn(move || there.lock("report").unwrap().fencing_token());
                until("it is in the queue", || queue(&etcd) == number + 2);
                waiter
            })
            .collect();
        assert_eq!(locks(&etcd, long()).holders("").unwrap().len(), 1, "who waits holds nothing");
        held.release().unwrap();
        tokens.extend(waiters.into_iter().map(|waiter| waiter.join().unwrap()));
    });
    assert!(tokens.is_sorted_by(|one, other| one < other), "{tokens:?}");
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

#[test]
fn who_waits_for_longer_than_the_ttl_keeps_its_place() {
    let etcd = Etcd::start();
    let held = locks(&etcd, long()).lock("report").unwrap();
    thread::scope(|scope| {
        let there = locks(&etcd, seconds(4).renew(false));
        let waiter = scope.spawn(move || there.lock("report").unwrap());
        until("it is in the queue", || queue(&etcd) == 2);
        let (before, begin) = (etcd.entries(), Instant::now());
        until("its ttl has passed", || begin.elapsed() > Duration::from_secs(6));
        assert_eq!(etcd.entries(), before);
        held.release().unwrap();
        let granted = waiter.join().unwrap();
        // Of the whole time, and not of what was left.
        assert!(granted.remaining().is_some_and(|left| left > Duration::from_millis(2900)), "{granted:?}");
    });
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

/// They come page by page.
#[test]
fn many_keys_are_listed_as_they_are() {
    let etcd = Etcd::start();
    let lease = etcd.ask(0, "lease/grant", &json!({"TTL": "600"}))["ID"].clone();
    let name = |number: usize| format!("key-{number:03}");
    for hundred in 0..4 {
        let puts = (0..101).map(|number| {
            let key = format!("perkey/1:n/lock/7:{}/{number:032x}", name(hundred * 101 + number));
            json!({"request_put": {"key": encoded(&key), "value": encoded("limit 1"), "lease": lease}})
        });
        let said = etcd.ask(0, "kv/txn", &json!({"success": puts.collect::<Vec<_>>()}));
        assert_eq!(said["succeeded"], true, "{said}");
    }
    let listed = locks(&etcd, long().namespace("n")).holders("key-").unwrap();
    assert!(listed.iter().map(|holder| holder.key.clone()).eq((0..404).map(name)), "{}", listed.len());
    assert!(locks(&etcd, long()).holders("").unwrap().is_empty());
}

#[test]
fn one_who_gives_up_in_the_middle_lets_the_next_come() {
    let etcd = Etcd::start();
    let held = locks(&etcd, long()).lock("report").unwrap();
    thread::scope(|scope| {
        let (impatient, patient) = (locks(&etcd, long()), locks(&etcd, long()));
        let gives_up = scope.spawn(move || impatient.lock_with("report", Duration::from_secs(2)).unwrap_err());
        until("it is in the queue", || queue(&etcd) == 2);
        let waiter = scope.spawn(move || patient.lock("report").unwrap().release().unwrap());
        until("it is in the queue", || queue(&etcd) == 3);
        let error = gives_up.join().unwrap();
        assert_eq!(error.acquire_error(), Some(&perkey::AcquireError::Timeout), "{error}");
        assert_eq!(queue(&etcd), 2);
        assert!(!waiter.is_finished());
        until("it watches no more, and the other does", || etcd.watchers(0) == 1);
        held.release().unwrap();
        assert_eq!(waiter.join().unwrap(), Released::Freed);
    });
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

/// Who waits for a permit is woken by the end of any of those before, and not by one too few.
#[test]
fn permits_are_granted_when_any_is_free() {
    let etcd = Etcd::start();
    let permits = |limit| DistributedSemaphore::with_options(etcd.store(), NonZeroU32::new(limit).unwrap(), long());
    let (one, two) = (permits(2).acquire("host").unwrap(), permits(2).acquire("host").unwrap());
    thread::scope(|scope| {
        let wait = |limit, place| {
            let permits = permits(limit);
            let waiter = scope.spawn(move || permits.acquire("host").unwrap());
            until("it is in the queue", || queue(&etcd) == place);
            waiter
        };
        let (third, alone) = (wait(2, 3), wait(1, 4));
        // Not the one that was granted last.
        drop(one);
        let third = third.join().unwrap();
        assert!(third.fencing_token() > two.fencing_token());
        let holders = permits(2).holders("").unwrap();
        assert_eq!(
            holders.iter().map(|holder| holder.token).collect::<Vec<_>>(),
            [&two, &third].map(Lease::fencing_token)
        );
        drop(third);
        assert!(!alone.is_finished() && two.verify().unwrap());
        drop(two);
        assert!(alone.join().unwrap().verify().unwrap());
    });
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

/// What a transaction with the guard says, which writes beside.
fn write_guarded(etcd: &Etcd, lease: &Lease) -> bool {
    let token = lease.fencing_token().unwrap().to_string();
    let key = encoded(&EtcdStore::key_of(lease));
    let said = etcd.ask(
        0,
        "kv/txn",
        &json!({
            "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": token}],
            "success": [{"request_put": {"key": encoded("written"), "value": encoded(&token)}}],
        }),
    );
    assert!(said["header"].is_object(), "{said}");
    said["succeeded"] == Value::Bool(true)
}

#[test]
fn a_guard_lets_only_the_holder_write() {
    let etcd = Etcd::start();
    let (here, there) = (locks(&etcd, seconds(1).renew(false)), locks(&etcd, long()));
    let first = here.lock("report").unwrap();
    assert!(write_guarded(&etcd, &first));
    let second = there.lock("report").unwrap();
    assert!(!write_guarded(&etcd, &first) && write_guarded(&etcd, &second));
    let permits = DistributedSemaphore::with_options(etcd.store(), NonZeroU32::new(2).unwrap(), long());
    let permit = permits.acquire("report").unwrap();
    assert!(write_guarded(&etcd, &permit));
    drop(second);
    // Nobody has it now: that is no licence either.
    assert!(!write_guarded(&etcd, &first) && write_guarded(&etcd, &permit));
}

#[test]
fn a_lease_outlives_its_ttl_while_it_is_renewed_and_its_end_is_found_out() {
    let etcd = Etcd::start();
    let here = locks(&etcd, seconds(6));
    let revoke: fn(&Etcd) = |etcd| {
        let lease = etcd.leases_of_keys().remove(0);
        assert!(etcd.ask(0, "lease/revoke", &json!({"ID": lease}))["header"].is_object());
    };
    let delete: fn(&Etcd) = |etcd| {
        let key = etcd.entries().remove(0).0;
        assert_eq!(etcd.ask(0, "kv/deleterange", &json!({"key": encoded(&key)}))["deleted"], "1");
    };
    for take_away in [revoke, delete] {
        let lease = here.lock("report").unwrap();
        let left = || here.holders("").unwrap().remove(0).remaining.unwrap();
        // In whole seconds, rounded down.
        until("it gets older", || left() < Duration::from_secs(5));
        until("it is renewed", || left() >= Duration::from_secs(5));
        assert!(lease.is_held());
        // Somebody takes it away: the next renewal finds out.
        take_away(&etcd);
        assert!(!write_guarded(&etcd, &lease));
        assert!(lease.lost().wait_timeout(WATCHDOG) && !lease.is_held());
        assert_eq!(lease.release().unwrap(), Released::NotOwner);
        assert_eq!(etcd.leftovers(), (vec![], 0));
    }
}

#[test]
fn who_is_taken_out_of_the_queue_comes_again() {
    let etcd = Etcd::start();
    let held = locks(&etcd, long()).lock("report").unwrap();
    thread::scope(|scope| {
        let there = locks(&etcd, seconds(2));
        let waiter = scope.spawn(move || there.lock("report").unwrap().release().unwrap());
        until("it is in the queue", || queue(&etcd) == 2);
        let (lease, key) = (etcd.leases_of_keys().remove(1), etcd.entries().remove(1).0);
        etcd.ask(0, "lease/revoke", &json!({"ID": lease}));
        until("it is in the queue again", || etcd.entries().get(1).is_some_and(|(other, _)| *other != key));
        held.release().unwrap();
        assert_eq!(waiter.join().unwrap(), Released::Freed);
    });
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

#[test]
fn a_job_keeps_its_key_for_a_while() {
    let etcd = Etcd::start();
    let (here, there) = (locks(&etcd, long()), locks(&etcd, long()));
    let limits = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_secs(2) };
    let mut token = None;
    assert_eq!(here.run_job("report", limits, |lease| token = lease.fencing_token()).unwrap(), Job::Ran(()));
    assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
    let holder = there.holders("report").unwrap().remove(0);
    assert_eq!((&*holder.owner, holder.token), ("", token));
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(2)));
    assert_eq!(etcd.entries()[0].1, "kept");
    assert_eq!(etcd.leases(), 1, "that of the job has ended");
    // It ends by itself, and who waits comes.
    let next = there.lock("report").unwrap();
    assert!(next.fencing_token() > token);
    drop(next);
    assert_eq!(etcd.leftovers(), (vec![], 0));
}

#[test]
fn short_times_to_live_are_raised_and_told() {
    // As a cluster grants them with its own settings.
    let etcd = Etcd::with(1, &["--heartbeat-interval", "100", "--election-timeout", "1000"]);
    let lease = locks(&etcd, seconds(1).renew(false)).lock("report").unwrap();
    assert!(lease.remaining().is_some_and(|left| left > Duration::from_secs(1)));
}
