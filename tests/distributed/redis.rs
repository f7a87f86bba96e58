//! `RedisStore`, against servers of its own.

use std::time::Duration;

use perkey::distributed::{
    DistributedLock, DistributedSemaphore, Error, Job, JobLimits, LeaseOptions, RedisStore, Released, StoreErrorKind,
};
use std::num::NonZeroU32;

use crate::redis_server::{RedisServer, until};

mod crowd;
mod faults;
mod stores;
mod wires;

/// Longer than any test.
fn long() -> LeaseOptions {
    LeaseOptions::new().ttl(Duration::from_secs(600))
}

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store { cause, .. } => Some(cause.kind()),
        _ => None,
    }
}

#[test]
fn a_key_is_held_by_one() {
    let server = RedisServer::start();
    let (here, there) = (DistributedLock::new(server.store()), DistributedLock::new(server.store()));
    let first = here.lock("report").unwrap();
    assert!(first.verify().unwrap() && first.renew().unwrap());
    assert!(there.try_lock("report").unwrap().is_none());
    let other = there.try_lock("other").unwrap().expect("it is free");
    let keys = |prefix| here.holders(prefix).unwrap().into_iter().map(|holder| holder.key).collect::<Vec<_>>();
    assert_eq!((keys(""), keys("rep")), (vec!["other".to_owned(), "report".to_owned()], vec!["report".to_owned()]));
    let holder = here.holders("report").unwrap().remove(0);
    assert_eq!((holder.token, holder.owner.len()), (first.fencing_token(), 32));
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(30)));

    let token = first.fencing_token();
    assert_eq!(first.release().unwrap(), Released::Freed);
    let second = there.try_lock("report").unwrap().expect("it is free");
    assert!(second.fencing_token() > token);
    drop((second, other));
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn a_lease_outlives_its_ttl_while_it_is_renewed() {
    let server = RedisServer::start();
    let locks = DistributedLock::with_options(server.store(), LeaseOptions::new().ttl(Duration::from_secs(3)));
    let lease = locks.lock("report").unwrap();
    let key = "perkey:{6:perkey:report}:lock";
    let left = || server.ask::<i64>(&format!("PTTL {key}"));
    until("it gets older", || left() < 2500);
    until("it is renewed", || left() > 2800);
    assert!(lease.is_held());
    // Somebody else took it away: the next renewal finds out.
    let _: i64 = server.ask(&format!("DEL {key}"));
    assert!(lease.lost().wait_timeout(crate::redis_server::WATCHDOG));
    assert_eq!(lease.release().unwrap(), Released::NotOwner);
}

#[test]
fn permits_are_limited_and_end_one_by_one() {
    let server = RedisServer::start();
    let limit = NonZeroU32::new(2).unwrap();
    let short = LeaseOptions::new().ttl(Duration::from_millis(300)).renew(false);
    let here = DistributedSemaphore::with_options(server.store(), limit, long());
    let there = DistributedSemaphore::with_options(server.store(), limit, short);
    let (one, two) = (here.acquire("host").unwrap(), there.acquire("host").unwrap());
    assert!(two.fencing_token() > one.fencing_token());
    let holders = here.holders("").unwrap();
    assert_eq!(
        holders.iter().map(|holder| holder.token).collect::<Vec<_>>(),
        [one.fencing_token(), two.fencing_token()]
    );
    // The short one ends by itself.
    let three = here.acquire("host").unwrap();
    assert!(three.fencing_token() > two.fencing_token());
    assert!(!two.verify().unwrap() && one.verify().unwrap() && one.renew().unwrap() && !two.renew().unwrap());
    assert!(there.try_acquire("host").unwrap().is_none());
    assert_eq!(two.release().unwrap(), Released::NotOwner);
    assert_eq!(one.release().unwrap(), Released::Freed);
    assert_eq!(three.release().unwrap(), Released::Freed);
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn a_job_keeps_its_key_for_a_while() {
    let server = RedisServer::start();
    let (here, there) = (DistributedLock::new(server.store()), DistributedLock::new(server.store()));
    let limits = JobLimits { at_most: Duration::from_secs(600), at_least: Duration::from_millis(1500) };
    assert_eq!(here.run_job("report", limits, |_| ()).unwrap(), Job::Ran(()));
    assert_eq!(there.run_job("report", limits, |_| ()).unwrap(), Job::Skipped);
    let holder = there.holders("report").unwrap().remove(0);
    assert!(holder.owner.is_empty() && holder.token.is_some());
    // It ends by itself, and who waits comes.
    drop(there.lock("report").unwrap());
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn keys_of_all_kinds_are_told_apart() {
    let server = RedisServer::start();
    let keys = ["", "}", "{a}", "a}:lock", "*", "[ab]", "Zürich 🚋", "a b\n"];
    let locks = DistributedLock::with_options(server.store(), long().namespace("n*:}"));
    let leases: Vec<_> = keys.iter().map(|key| locks.try_lock(key).unwrap().expect("it is free")).collect();
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let found = |prefix| locks.holders(prefix).unwrap().into_iter().map(|holder| holder.key).collect::<Vec<_>>();
    assert_eq!(found(""), sorted);
    assert_eq!((found("*"), found("[")), (vec!["*".to_owned()], vec!["[ab]".to_owned()]));
    let other = DistributedLock::with_options(server.store(), long().namespace("n*"));
    assert!(other.try_lock(":}:").unwrap().is_some() && other.holders("").unwrap().is_empty());
    drop(leases);
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn a_wrong_password_is_final_and_not_shown() {
    let server = RedisServer::with(&["--requirepass", "hidden"]);
    let with = |login: &str| {
        let store = RedisStore::open(&format!("redis://{login}127.0.0.1:{}/1", server.port())).unwrap();
        (format!("{store:?}"), DistributedLock::new(store))
    };
    for login in [":s3cret@", "worker:s3cret@", ""] {
        let (shown, locks) = with(login);
        let error = locks.lock("report").unwrap_err();
        let source = format!("{error:?}");
        assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
        assert!(error.to_string().contains("database 1") && error.to_string().contains("password"), "{error}");
        assert!(!(shown + &source + &error.to_string()).contains("s3cret"));
    }
    drop(with(":hidden@").1.lock("report").unwrap());
}

/// A store of a user who has these permissions.
fn worker(server: &RedisServer, permissions: &str) -> DistributedLock {
    let () = server.ask(&format!("ACL SETUSER worker reset on >s3cret {permissions}"));
    let url = format!("redis://worker:s3cret@127.0.0.1:{}", server.port());
    DistributedLock::with_options(RedisStore::open(&url).unwrap(), long())
}

#[test]
fn a_password_that_the_server_does_not_want_is_refused() {
    let server = RedisServer::start();
    let store = RedisStore::open(&format!("redis://:s3cret@127.0.0.1:{}", server.port())).unwrap();
    let error = DistributedLock::new(store).lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("leave it out of the URL"), "{error}");
}

#[test]
fn a_user_needs_what_the_docs_say() {
    let server = RedisServer::start();
    let permissions = "+@read +@write +@scripting +@connection +@pubsub +time ~perkey:* &perkey:*";
    let (here, there) = (worker(&server, permissions), worker(&server, permissions));
    let lease = here.lock("report").unwrap();
    assert!(lease.renew().unwrap() && lease.verify().unwrap() && here.holders("").unwrap().len() == 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        until("it listens", || {
            let heard: (String, u64) = server.ask("PUBSUB NUMSUB perkey:{6:perkey:report}:lock-free");
            heard.1 == 1
        });
        assert_eq!(lease.release().unwrap(), Released::Freed);
        waiter.join().unwrap().unwrap();
    });
    let errors: String = server.ask("INFO errorstats");
    assert!(!errors.contains("NOPERM"), "{errors}");
}

#[test]
fn who_may_not_use_channels_waits_by_polling() {
    let server = RedisServer::start();
    let permissions = "+@read +@write +@scripting +@connection +time ~perkey:*";
    let (here, there) = (worker(&server, permissions), worker(&server, permissions));
    let lease = here.lock("report").unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        until("it has looked a few times", || server.scripts() > 4);
        assert_eq!(lease.release().unwrap(), Released::Freed);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn who_may_not_use_the_keys_is_told_what_it_takes() {
    let server = RedisServer::start();
    for permissions in ["+@all", "+@scripting ~perkey:*", "~perkey:*"] {
        let error = worker(&server, permissions).try_lock("report").unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
        assert!(error.to_string().contains("give the user +@read"), "{error}");
    }
}

#[test]
fn what_is_no_lock_is_not_touched() {
    let server = RedisServer::start();
    let _: i64 = server.ask("LPUSH perkey:{6:perkey:report}:lock mine");
    let error = DistributedLock::new(server.store()).try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("choose another namespace"), "{error}");
}

#[test]
fn a_user_without_a_password_is_asked_for() {
    let server = RedisServer::start();
    let _: String = server.ask("ACL SETUSER nobody on nopass -@all");
    let store = RedisStore::open(&format!("redis://nobody@127.0.0.1:{}", server.port())).unwrap();
    let error = DistributedLock::new(store).try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
}

/// Numbers of that size are not exact in a script, so one could be given twice.
#[test]
fn a_token_counter_that_is_too_high_gives_nothing() {
    let server = RedisServer::start();
    let _: String = server.ask("SET perkey:{6:perkey:report}:lock-token 9007199254740991");
    let _: String = server.ask("SET perkey:{6:perkey:report}:permits-token 9007199254740991");
    let locks = DistributedLock::new(server.store());
    let permits = DistributedSemaphore::new(server.store(), NonZeroU32::new(2).unwrap());
    for error in [locks.try_lock("report").unwrap_err(), permits.try_acquire("report").unwrap_err()] {
        assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
        assert!(error.to_string().contains("the token counter is too high"), "{error}");
    }
    assert_eq!(locks.holders("").unwrap(), []);
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn a_token_counter_stays_and_rises_also_when_it_is_ahead_of_the_clock() {
    let server = RedisServer::start();
    let counters = ["perkey:{6:perkey:report}:lock-token", "perkey:{6:perkey:report}:permits-token"];
    for counter in counters {
        let _: String = server.ask(&format!("SET {counter} 8000000000000000"));
    }
    let locks = DistributedLock::new(server.store());
    let permits = DistributedSemaphore::new(server.store(), NonZeroU32::new(2).unwrap());
    for next in [8_000_000_000_000_001, 8_000_000_000_000_002] {
        assert_eq!(locks.lock("report").unwrap().fencing_token(), Some(next));
        assert_eq!(permits.acquire("report").unwrap().fencing_token(), Some(next));
    }
    for counter in counters {
        assert_eq!(server.ask::<i64>(&format!("PTTL {counter}")), -1, "it never ends");
    }
}
