//! Users and passwords.

use std::time::Duration;

use perkey::distributed::{DistributedLock, EtcdStore, StoreErrorKind};
use serde_json::{Value, json};

use super::{kind, locks, long, seconds};
use crate::etcd_server::{Etcd, encoded, until};

/// With a user `worker`, whose password is `s3/cret`, and who may use some keys.
fn guarded(settings: &[&str], beginning: &str) -> Etcd {
    let etcd = Etcd::with(1, settings);
    let end = format!("{}0", beginning.strip_suffix('/').unwrap());
    let permission = json!({"permType": "READWRITE", "key": encoded(beginning), "range_end": encoded(&end)});
    for (path, body) in [
        ("auth/user/add", json!({"name": "root", "password": "root"})),
        ("auth/role/add", json!({"name": "root"})),
        ("auth/user/grant", json!({"user": "root", "role": "root"})),
        ("auth/user/add", json!({"name": "worker", "password": "s3/cret"})),
        ("auth/role/add", json!({"name": "locks"})),
        ("auth/role/grant", json!({"name": "locks", "perm": permission})),
        ("auth/user/grant", json!({"user": "worker", "role": "locks"})),
        ("auth/enable", json!({})),
    ] {
        let said = etcd.ask(0, path, &body);
        assert!(said["header"] != Value::Null, "{path}: {said}");
    }
    etcd
}

fn with(etcd: &Etcd, login: &str) -> DistributedLock {
    let store = EtcdStore::open(&format!("etcd://{login}127.0.0.1:{}", etcd.port(0))).unwrap();
    assert!(!format!("{store:?}").contains("s3"));
    DistributedLock::with_options(store, seconds(60))
}

#[test]
fn a_user_needs_what_the_docs_say() {
    let etcd = guarded(&[], "perkey/");
    let (here, there) = (with(&etcd, "worker:s3%2Fcret@"), with(&etcd, "worker:s3%2Fcret@"));
    let lease = here.lock("report").unwrap();
    assert!(lease.renew().unwrap() && lease.verify().unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").map(drop));
        until("it watches", || etcd.watchers(0) == 1);
        assert_eq!(here.holders("").unwrap().len(), 1);
        drop(lease);
        waiter.join().unwrap().unwrap();
    });
    assert!(here.holders("").unwrap().is_empty());
}

#[test]
fn who_is_not_let_in_is_told_why_and_no_password_is_shown() {
    let etcd = guarded(&[], "other/");
    for (login, hint) in [
        ("worker:s3cret@", "check the user name and the password"),
        ("nobody:s3cret@", "check the user name and the password"),
        ("", "it wants a user: write etcd://user:password@host"),
        ("worker:s3%2Fcret@", "a role with readwrite on the prefix perkey/"),
    ] {
        for error in
            [with(&etcd, login).try_lock("report").unwrap_err(), with(&etcd, login).lock("report").unwrap_err()]
        {
            assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
            assert!(error.to_string().contains(hint), "{error}");
            assert!(!format!("{error} {error:?}").contains("s3"), "{error:?}");
        }
    }
}

#[test]
fn a_password_that_the_server_does_not_want_is_refused() {
    let etcd = Etcd::start();
    let error = with(&etcd, "worker:s3cret@").lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("leave user and password out of the URL"), "{error}");
    drop(locks(&etcd, long()).lock("report").unwrap());
}

#[test]
fn a_login_that_has_ended_is_repeated() {
    // It ends by itself...
    let mut etcd = guarded(&["--auth-token-ttl", "1"], "perkey/");
    let here = with(&etcd, "worker:s3%2Fcret@");
    let lease = here.lock("report").unwrap();
    let logins = || etcd.metric("grpc_server_started_total{grpc_method=\"Authenticate\"") as u32;
    let before = logins();
    // Each use gives it more time.
    std::thread::sleep(Duration::from_secs(3));
    assert!(lease.verify().unwrap());
    assert!(logins() > before);
    // ...and with the server.
    etcd.kill(0);
    etcd.run(0);
    etcd.wait_for_a_leader();
    until("it answers again", || lease.verify().is_ok());
    assert!(lease.renew().unwrap() && lease.verify().unwrap());
    drop(lease);
    assert!(here.holders("").unwrap().is_empty());
}
