//! The contract, over lock files.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use perkey::distributed::{FileStore, Store};

use crate::contract::{Place, contract};
use crate::support::{rounds, threads, watched};

/// A directory, which stays if the test fails.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Place for Directory {
    fn new(test: &str) -> Self {
        let name = format!("distributed-{}-{test}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(FileStore::open(&self.0).expect("a directory"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

contract!(Directory);

/// The one key's file.
fn only_file(place: &Directory) -> PathBuf {
    let mut files = fs::read_dir(&place.0).expect("it is there").map(|file| file.expect("it can be listed").path());
    let file = files.next().expect("a lock file");
    assert_eq!(files.next(), None);
    file
}

/// Who looks whether a file is locked locks it, for a moment, in which it may be kept from going on.
#[test]
fn who_looks_at_a_file_keeps_nobody_out() {
    watched(|| {
        let place = Directory::new("look");
        let locks = place.locks();
        drop(locks.lock("a").unwrap());
        let file = File::open(only_file(&place)).expect("it is there");
        threads(|scope| {
            file.lock_shared().expect("it is free");
            let asks = scope.spawn(|| locks.try_lock("a").unwrap().is_some());
            thread::sleep(Duration::from_millis(20));
            drop(file);
            assert!(asks.join().unwrap(), "a free key was refused");
        });
    });
}

#[test]
fn who_lists_holders_keeps_nobody_out() {
    watched(|| {
        let place = Directory::new("list");
        let (locks, done) = (place.locks(), AtomicBool::new(false));
        drop(locks.lock("a").unwrap());
        threads(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let there = place.locks();
                    while !done.load(Ordering::Relaxed) {
                        assert!(there.holders("").unwrap().len() <= 1);
                    }
                });
            }
            let refused = (0..rounds(500)).filter(|_| locks.try_lock("a").unwrap().is_none()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0, "a free key was refused");
        });
    });
}

/// Its name may be another file's by now, which others lock.
#[test]
fn who_holds_a_deleted_file_has_lost_the_key() {
    watched(|| {
        let place = Directory::new("deleted");
        let lease = place.locks().lock("a").unwrap();
        fs::remove_file(only_file(&place)).expect("it is there");
        let next = place.locks().lock("a").unwrap();
        assert!(!lease.verify().unwrap() && !lease.is_held() && lease.lost().is_set());
        assert!(next.verify().unwrap());
        drop(lease);
        assert!(next.verify().unwrap());
        assert!(place.locks().try_lock("a").unwrap().is_none());
    });
}

#[test]
fn a_file_that_is_none_of_ours_is_named() {
    watched(|| {
        let place = Directory::new("foreign");
        drop(place.locks().lock("a").unwrap());
        let file = only_file(&place);
        fs::write(&file, "something else\n").expect("there is room");
        let error = place.locks().try_lock("a").unwrap_err();
        let (path, store) = (file.display().to_string(), place.store().describe());
        let message = "it is not a lock file of perkey: move it away, if no process uses it";
        assert_eq!(error.to_string(), format!("cannot acquire key \"a\" on {store}: cannot read {path}: {message}"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "something else\n", "it was changed");
        assert_eq!(place.held(), []);
    });
}
