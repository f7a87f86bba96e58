//! Deadlocks by way of locks over every key: at the gate, behind queued writers, beside an upgrade. And who passes there, and is
//! never told.

use perkey::Wait;

use crate::support::{Barrier, rounds, threads, until, watched};
use crate::tangles::{Told, files, locks, slow, wait_for_all};

/// A thread that reads a key passes a waiting `read_all` as soon as a writer queues for that key: so the writer waits for
/// nobody who waits for it.
#[test]
fn a_writer_is_not_told_whose_queueing_lets_the_reader_pass() {
    watched(|| {
        for _ in 0..rounds(200) {
            let files = files();
            threads(|scope| {
                let writes = files.write(&2);
                scope.spawn(|| {
                    let _reads = files.read(&1);
                    until(|| wait_for_all(&files, 1));
                    drop(files.write_with(&3, Wait::forever()).unwrap());
                });
                until(|| files.is_locked(&1));
                scope.spawn(|| drop(files.read_all_with(Wait::forever()).unwrap()));
                until(|| files.waiters(&3) == 1);
                drop(files.write_with(&1, Wait::forever()).unwrap());
                drop(writes);
            });
            assert!(files.is_empty());
            assert_eq!(files.stats().deadlocks, 0);
        }
    });
}

/// It will pass the second `read_all`, which is behind the `write_all` that waits for it; only the first keeps it out.
#[test]
fn a_reader_is_not_told_that_will_pass_once_the_first_read_all_is_gone() {
    watched(|| {
        let files = files();
        threads(|scope| {
            let writes = files.write(&2);
            let reads = scope.spawn(|| {
                let _reads = files.read(&1);
                until(|| wait_for_all(&files, 3));
                files.write_with(&3, Wait::forever()).map(drop)
            });
            until(|| files.is_locked(&1));
            scope.spawn(|| drop(files.read_all_with(Wait::forever()).unwrap()));
            until(|| wait_for_all(&files, 1));
            scope.spawn(|| drop(files.write_all_with(Wait::forever()).unwrap()));
            until(|| wait_for_all(&files, 2));
            scope.spawn(|| drop(files.read_all_with(Wait::forever()).unwrap()));
            until(|| files.waiters(&3) == 1 || reads.is_finished());
            drop(writes);
            assert_eq!(reads.join().unwrap(), Ok(()));
        });
        assert_eq!(files.stats().deadlocks, 0);
    });
}

/// Of two who are in its way the first is in another deadlock, which is about to be broken; the second waits for it.
#[test]
fn a_deadlock_is_found_beside_another_that_passes() {
    watched(|| {
        for _ in 0..rounds(60) {
            let (files, locks) = (files(), locks());
            let (barrier, told) = (Barrier::new(4), Told::default());
            threads(|scope| {
                scope.spawn(|| {
                    let _held = (files.read(&1), locks.lock(&10));
                    barrier.meet();
                    told.note(locks.lock_with(&11, Wait::forever()));
                });
                scope.spawn(|| {
                    let _read = files.read(&2);
                    barrier.meet();
                    told.note(locks.lock_with(&12, Wait::forever()));
                });
                scope.spawn(|| {
                    let _held = locks.lock(&11);
                    barrier.meet();
                    until(|| locks.waiters(&11) == 1 && locks.waiters(&12) == 1);
                    told.note(locks.lock_with(&10, slow()));
                });
                let _held = locks.lock(&12);
                barrier.meet();
                until(|| locks.waiters(&10) == 1 || told.times() > 0);
                told.note(files.write_all_with(Wait::forever()));
            });
            assert_eq!(told.times(), 2);
            assert!(files.is_empty() && locks.is_empty());
        }
    });
}

/// It is let in, and so closes a ring, before it has looked for one.
#[test]
fn a_request_let_in_while_it_looks_is_told() {
    watched(|| {
        for _ in 0..rounds(60) {
            let (files, locks) = (files(), locks());
            let (barrier, told) = (Barrier::new(2), Told::default());
            threads(|scope| {
                let all = files.read_all();
                scope.spawn(|| {
                    let _read = files.read(&1);
                    barrier.meet();
                    told.note(locks.lock_with(&10, Wait::forever()));
                });
                scope.spawn(|| {
                    let _held = locks.lock(&10);
                    barrier.meet();
                    until(|| locks.waiters(&10) == 1);
                    told.note(files.write_with(&1, slow()));
                });
                until(|| files.waiters(&1) == 1);
                drop(all);
            });
            assert_eq!(told.times(), 1);
            assert_eq!(files.stats().deadlocks + locks.stats().deadlocks, 1);
            assert!(files.is_empty() && locks.is_empty());
        }
    });
}
