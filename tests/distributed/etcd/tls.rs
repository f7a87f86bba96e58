//! TLS, with a certificate that the test makes.

use std::env;
use std::process::Command;

use perkey::distributed::{DistributedLock, EtcdStore, StoreErrorKind};

use super::{kind, seconds};
use crate::certificate::Certificate;
use crate::etcd_server::Etcd;

/// For the part that runs in a child: the certificates that are trusted are those of a process.
const URL: &str = "PERKEY_TEST_ETCD_TLS";

fn open(url: &str) -> DistributedLock {
    DistributedLock::with_options(EtcdStore::open(url).unwrap(), seconds(30))
}

/// No test of its own.
#[test]
fn child() {
    let Ok(url) = env::var(URL) else { return };
    let lease = open(&url).lock("report").unwrap();
    assert!(lease.verify().unwrap());
    drop(lease);
    println!("locked over TLS");
}

#[test]
fn a_certificate_that_is_trusted_is_taken_and_no_other() {
    let certificate = Certificate::of("IP:127.0.0.1");
    let etcd = Etcd::with_tls(&certificate);
    let secure = etcd.url().replace("etcd://", "etcds://");
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "etcd::tls::child", "--nocapture"])
        .env(URL, &secure)
        .env("SSL_CERT_FILE", certificate.file())
        .output()
        .unwrap();
    assert!(child.status.success() && String::from_utf8_lossy(&child.stdout).contains("locked over TLS"), "{child:?}");

    let error = open(&secure).lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("its certificate trusted?"), "{error}");
    // One side without it.
    let error = open(&etcd.url()).try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("is only one side set to TLS"), "{error}");
    let plain = Etcd::start();
    let error = open(&plain.url().replace("etcd://", "etcds://")).try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("is only one side set to TLS"), "{error}");
}
