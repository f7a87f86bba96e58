//! Deadlocks by way of locks over every key: at the gate, behind queued writers, beside an upgrade. And who passes there, and is
//! never told.

use perkey::{AcquireError, Fairness, KeyedRwLock, KeyedRwLockReadGuard, KeyedRwLockWriteGuard, Wait};

use crate::support::{Barrier, elsewhere, rounds, threads, until, watched, watched_in_both_modes};
use crate::tangles::{Files, Told, detecting, files, locks, slow, wait_for_all};

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

/// The same where it has looked, and parked, before it is let in.
#[test]
fn a_request_let_in_late_is_told() {
    watched(|| {
        for _ in 0..rounds(60) {
            let (files, locks, told) = (files(), locks(), Told::default());
            threads(|scope| {
                let all = files.write_all();
                scope.spawn(|| {
                    let _read = files.read(&1);
                    until(|| locks.is_locked(&10));
                    told.note(locks.lock_with(&10, Wait::forever()));
                });
                until(|| files.waiters(&1) == 1);
                scope.spawn(|| {
                    let _held = locks.lock(&10);
                    told.note(files.write_with(&1, Wait::forever()));
                });
                until(|| files.waiters(&1) == 2);
                drop(all);
            });
            assert_eq!(told.times(), 1);
            assert!(files.is_empty() && locks.is_empty());
        }
    });
}

/// One reads, a lock over every key waits for it, and keeps another out for whom the first waits.
#[test]
fn who_is_kept_out_by_one_that_waits_is_in_the_ring() {
    for write in [false, true] {
        watched(move || {
            let (files, locks, told) = (files(), locks(), Told::default());
            threads(|scope| {
                let held = locks.lock(&1);
                scope.spawn(|| {
                    let _held = (files.write(&1), files.write(&3));
                    told.note(locks.lock_with(&1, Wait::forever()));
                });
                until(|| locks.waiters(&1) == 1);
                scope.spawn(|| {
                    let all = Wait::forever();
                    let _ =
                        if write { told.note(files.write_all_with(all)) } else { told.note(files.read_all_with(all)) };
                });
                until(|| wait_for_all(&files, 1));
                let result = files.write_with(&2, Wait::forever());
                if let Err(AcquireError::WouldDeadlock(report)) = &result {
                    let [own, all, other] = report.threads() else { panic!("{report}") };
                    assert_eq!((own.waits_for.key, own.waits_for.every_key), (None, false));
                    assert_eq!((all.waits_for.key, all.waits_for.every_key), (None, true));
                    assert_eq!((all.holds.len(), other.holds.len(), own.holds.len()), (0, 2, 1));
                    assert_eq!(other.holds[0].table.as_deref(), Some("files"));
                    let text = report.to_string();
                    assert!(text.contains("waits for a key to write of KeyedRwLock \"files\""), "{text}");
                    let all = if write { "waits for every key to write of" } else { "waits for every key to read of" };
                    assert!(text.contains(all), "{text}");
                }
                told.note(result);
                drop(held);
            });
            assert_eq!(told.times(), 1);
            assert!(files.is_empty() && locks.is_empty());
        });
    }
}

#[test]
fn who_passes_is_not_told() {
    watched(|| {
        let (files, locks) = (files(), locks());
        threads(|scope| {
            let held = locks.lock(&1);
            let read = files.read(&9);
            scope.spawn(|| {
                let _read = files.read(&1);
                drop(locks.lock_with(&1, Wait::forever()).unwrap());
            });
            until(|| locks.waiters(&1) == 1);
            scope.spawn(|| drop(files.write_all_with(Wait::forever()).unwrap()));
            until(|| wait_for_all(&files, 1));
            drop(files.write_with(&2, Wait::forever()).unwrap());
            drop(files.read_with(&1, Wait::forever()).unwrap());
            drop(files.read_all_with(Wait::forever()).unwrap());
            drop((held, read));
        });
        assert_eq!(files.stats().deadlocks + locks.stats().deadlocks, 0);
        assert!(files.is_empty() && locks.is_empty());
    });
}

/// Two locks over every key of two tables, taken in turn.
#[test]
fn locks_over_every_key_of_two_tables() {
    for both_write in [false, true] {
        watched(move || {
            let (files, others, told) = (files(), files(), Told::default());
            let take = |files: &Files| files.write_all_with(Wait::forever()).map(drop);
            threads(|scope| {
                let held = files.write(&1);
                scope.spawn(|| {
                    if both_write {
                        let _all = others.write_all();
                        told.note(take(&files));
                    } else {
                        let _all = others.read_all();
                        told.note(take(&files));
                    }
                });
                until(|| wait_for_all(&files, 1));
                told.note(others.write_with(&5, Wait::forever()));
                drop(held);
            });
            assert_eq!(told.times(), 1);
            assert!(files.is_empty() && others.is_empty());
        });
    }
}

/// Under `Fifo` a reader waits behind a writer that is queued.
#[test]
fn a_reader_behind_a_queued_writer() {
    watched_in_both_modes(|fairness| {
        for _ in 0..rounds(20) {
            let files = KeyedRwLock::<u32>::with_options(detecting().fairness(fairness));
            let (locks, told) = (locks(), Told::default());
            threads(|scope| {
                let held = locks.lock(&1);
                scope.spawn(|| {
                    let _read = files.read(&1);
                    told.note(locks.lock_with(&1, Wait::forever()));
                });
                until(|| locks.waiters(&1) == 1);
                scope.spawn(|| told.note(files.write_with(&1, Wait::forever())));
                until(|| files.waiters(&1) == 1);
                told.note(files.read_with(&1, Wait::forever()));
                drop(held);
            });
            // Else it may have overtaken.
            assert!(told.times() <= 1 && (told.times() == 1 || fairness == Fairness::Eventual));
            assert!(files.is_empty() && locks.is_empty());
        }
    });
}

/// Who reads may read on, whoever is queued.
#[test]
fn who_reads_is_not_told_to_read_again() {
    watched_in_both_modes(|fairness| {
        let files = KeyedRwLock::<u32>::with_options(detecting().fairness(fairness));
        threads(|scope| {
            let read = files.read(&1);
            scope.spawn(|| drop(files.write_with(&1, Wait::forever()).unwrap()));
            until(|| files.waiters(&1) == 1);
            drop(files.read_with(&1, Wait::forever()).unwrap());
            drop(read);
        });
        assert_eq!(files.stats().deadlocks, 0);
    });
}

/// An upgrade does not wait. What it makes of a hold counts as what it is from then on; and so does a downgrade.
#[test]
fn an_upgraded_hold_is_part_as_what_it_became() {
    watched(|| {
        let (files, locks, told) = (files(), locks(), Told::default());
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let read = files.read(&1);
                elsewhere(|| assert!(KeyedRwLockReadGuard::try_upgrade(files.read(&1)).is_err()));
                let _write = KeyedRwLockReadGuard::try_upgrade(read).unwrap();
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            let result = files.read_with(&1, Wait::forever());
            if let Err(AcquireError::WouldDeadlock(report)) = &result {
                assert!(report.threads()[1].holds[0].permits > 1);
            }
            told.note(result);
            drop(held);
        });
        assert_eq!(told.times(), 1);

        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _read = KeyedRwLockWriteGuard::downgrade(files.write(&1));
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            drop(files.read_with(&1, Wait::forever()).unwrap());
            let result = files.write_with(&1, Wait::forever());
            if let Err(AcquireError::WouldDeadlock(report)) = &result {
                assert_eq!(report.threads()[1].holds[0].permits, 1);
            }
            told.note(result);
            drop(held);
        });
        assert_eq!(told.times(), 2);
        assert!(files.is_empty() && locks.is_empty());
    });
}
