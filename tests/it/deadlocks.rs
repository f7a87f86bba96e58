//! Deadlocks over tables of all types: permits, limits that change; who is told, and how.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perkey::{
    AcquireError, CancellationToken, Fairness, KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore, Options, Wait,
};

use crate::support::{Barrier, elsewhere, panic_message, rounds, threads, until, watched};
use crate::tangles::{Told, detecting, files, locks, permits, ring, slow, values};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_thread_waits_for_its_own_permits() {
    watched(|| {
        let hosts = permits(3);
        let held = hosts.acquire_many(&1, 2, LONG).unwrap();
        let report = ring(hosts.acquire_many(&1, 2, Wait::forever())).unwrap();
        assert_eq!(report.threads().len(), 1);
        assert_eq!(report.threads()[0].holds[0].permits, 2);
        assert_eq!(report.threads()[0].waits_for.permits, 2);
        assert!(report.to_string().starts_with("this thread would wait for what it holds itself, for ever"));
        let one_more = hosts.acquire(&1);
        assert!(panic_message(|| hosts.acquire(&1)).contains("wait for what it holds itself"));
        assert!(hosts.try_acquire_for(&1, LONG).is_none());
        assert_eq!(hosts.stats().deadlocks, 3);
        drop((held, one_more));
        assert!(hosts.is_empty());
        drop(hosts.acquire_many(&1, 3, Wait::forever()).unwrap());
    });
}

#[test]
fn to_read_a_key_and_then_write_it_is_told() {
    watched(|| {
        let files = files();
        let read = files.read(&1);
        assert!(matches!(files.write_with(&1, Wait::forever()), Err(AcquireError::WouldDeadlock(_))));
        assert!(files.try_write_for(&1, LONG).is_none());
        assert!(!panic_message(|| files.write(&1)).is_empty());
        elsewhere(|| drop(files.read(&1)));
        drop(read);
        assert!(files.is_empty());
        drop(files.write(&1));
        assert_eq!(files.stats().deadlocks, 3);
    });
}

/// So many hold a permit, and wait for this thread; another has one, and waits for nothing.
fn permits_held_by(stuck: usize, running: usize) -> (bool, u64) {
    let (hosts, locks) = (permits(stuck + running), locks());
    let told = Told::default();
    let stays = AtomicBool::new(true);
    threads(|scope| {
        let held = locks.lock(&1);
        for _ in 0..stuck {
            scope.spawn(|| {
                let _permit = hosts.acquire(&1);
                told.note(locks.lock_with(&1, Wait::forever()));
            });
        }
        for _ in 0..running {
            scope.spawn(|| {
                let _permit = hosts.acquire(&1);
                until(|| !stays.load(Ordering::Relaxed));
            });
        }
        until(|| locks.waiters(&1) == stuck && hosts.available_permits(&1) == 0);
        scope.spawn(|| {
            until(|| hosts.waiters(&1) == 1 || told.times() > 0);
            stays.store(false, Ordering::Relaxed);
        });
        told.note(hosts.acquire_with(&1, Wait::forever()));
        drop(held);
    });
    assert!(hosts.is_empty() && locks.is_empty());
    (told.times() > 0, hosts.stats().deadlocks + locks.stats().deadlocks)
}

#[test]
fn a_semaphore_is_stuck_when_all_its_holders_are() {
    watched(|| {
        for limit in 1..=6 {
            assert_eq!(permits_held_by(limit, 0), (true, 1));
            assert_eq!(permits_held_by(limit - 1, 1), (false, 0));
        }
    });
}

#[test]
fn weights_decide_who_is_stuck() {
    watched(|| {
        // The stuck thread holds 3 of 5: who asks for 2 goes on, who asks for 3 does not, nor who is behind that.
        let (hosts, locks) = (permits(5), locks());
        let told = Told::default();
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _permits = hosts.acquire_many(&1, 3, LONG).unwrap();
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            drop(hosts.acquire_many(&1, 2, Wait::forever()).unwrap());
            assert_eq!(told.times(), 0);
            told.note(hosts.acquire_many(&1, 3, Wait::forever()));
            assert_eq!(told.times(), 1);
            drop(held);
        });

        // Behind a request that does not fit, who would fit waits too.
        let told = Told::default();
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _permits = hosts.acquire_many(&1, 3, LONG).unwrap();
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            scope.spawn(|| told.note(hosts.acquire_many(&1, 4, Wait::forever())));
            until(|| hosts.waiters(&1) == 1);
            // Overtakes, or waits behind and is told.
            told.note(hosts.acquire_many(&1, 1, Wait::forever()));
            drop(held);
        });
        assert!(told.times() <= 1);
        assert!(hosts.is_empty() && locks.is_empty());
    });
}

/// The first request of a queue fits, once a thread that runs gives its permits back; the second never does, so the third does
/// not either.
#[test]
fn a_request_that_is_stuck_keeps_those_behind_it() {
    watched(|| {
        let (hosts, locks) =
            (KeyedSemaphore::<u32>::with_limit_and_options(5, detecting().fairness(Fairness::Fifo)), locks());
        let (told, ends) = (Told::default(), AtomicBool::new(false));
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _permits = hosts.acquire_many(&1, 3, LONG).unwrap();
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            let running = scope.spawn(|| {
                let permits = hosts.acquire_many(&1, 2, LONG).unwrap();
                until(|| ends.load(Ordering::Relaxed));
                drop(permits);
            });
            until(|| hosts.available_permits(&1) == 0);
            for (waiting, count) in [1, 3].into_iter().enumerate() {
                let (hosts, told) = (&hosts, &told);
                scope.spawn(move || told.note(hosts.acquire_many(&1, count, Wait::forever())));
                until(|| hosts.waiters(&1) == waiting + 1);
            }
            let result = ring(hosts.acquire_many(&1, 1, Wait::forever()));
            assert!(result.is_some() && !running.is_finished());
            ends.store(true, Ordering::Relaxed);
            drop(held);
        });
        assert_eq!(told.times(), 0);
        assert!(hosts.is_empty() && locks.is_empty());
    });
}

/// Several wait for one who waits for several: one loop among them.
#[test]
fn ways_that_meet_are_one_deadlock() {
    watched(|| {
        let (hosts, locks) = (permits(4), locks());
        let told = Told::default();
        threads(|scope| {
            let held = locks.lock(&9);
            for key in 1..=4 {
                let (hosts, locks, told) = (&hosts, &locks, &told);
                scope.spawn(move || {
                    let _held = (hosts.acquire(&1), locks.lock(&key));
                    // The first waits for the last thread, each other one for the one before.
                    let awaited = if key == 1 { 9 } else { key - 1 };
                    until(|| locks.is_locked(&awaited));
                    told.note(locks.lock_with(&awaited, Wait::forever()));
                });
            }
            until(|| hosts.available_permits(&1) == 0 && (1..=3).all(|key| locks.waiters(&key) == 1));
            until(|| locks.waiters(&9) == 1);
            let report = match hosts.acquire_with(&1, Wait::forever()) {
                Err(AcquireError::WouldDeadlock(report)) => {
                    assert_eq!(report.threads().len(), 5);
                    Err(AcquireError::WouldDeadlock(report))
                }
                result => result.map(drop),
            };
            told.note(report);
            drop(held);
        });
        assert_eq!(told.times(), 1);
        assert!(hosts.is_empty() && locks.is_empty());
    });
}

/// They wait for a ring that will be broken, and are let alone, whether they came before it was closed or after.
#[test]
fn who_waits_outside_is_not_told() {
    watched(|| {
        for _ in 0..rounds(40) {
            let locks = locks();
            let told = Told::default();
            threads(|scope| {
                let held = locks.lock(&1);
                scope.spawn(|| {
                    let _held = locks.lock(&2);
                    told.note(locks.lock_with(&1, Wait::forever()));
                });
                until(|| locks.waiters(&1) == 1);
                for key in [1, 2] {
                    let locks = &locks;
                    scope.spawn(move || {
                        let _own = locks.lock(&(10 + key));
                        drop(locks.lock_with(&key, Wait::forever()).unwrap());
                    });
                }
                until(|| locks.waiters(&1) == 2 && locks.waiters(&2) == 1);
                scope.spawn(|| drop(locks.lock_with(&11, Wait::forever()).unwrap()));
                until(|| locks.waiters(&11) == 1);
                // Closed, and looked for late.
                scope.spawn(|| {
                    until(|| locks.waiters(&2) == 2 || told.times() > 0);
                    drop(locks.lock_with(&2, Wait::forever()).unwrap());
                });
                told.note(locks.lock_with(&2, slow()));
                drop(held);
            });
            assert_eq!(told.times(), 1);
            assert_eq!(locks.stats().deadlocks, 1);
            assert!(locks.is_empty());
        }
    });
}

#[test]
fn a_hold_by_an_arc_guard_is_never_part() {
    watched(|| {
        let (locks, hosts, files) = (locks(), permits(1), files());
        let barrier = Barrier::new(2);
        threads(|scope| {
            scope.spawn(|| {
                let held = (locks.lock_arc(&1), hosts.acquire_arc(&1), files.write_arc(&1));
                barrier.meet();
                until(|| locks.waiters(&1) == 1);
                for _ in 0..3 {
                    assert_eq!(locks.lock_with(&2, Duration::from_millis(2)).err(), Some(AcquireError::Timeout));
                }
                drop(held);
            });
            let _held = locks.lock(&2);
            barrier.meet();
            drop(locks.lock_with(&1, Wait::forever()).unwrap());
            drop(hosts.acquire_with(&1, Wait::forever()).unwrap());
            drop(files.read_all_with(Wait::forever()).unwrap());
        });
        assert_eq!(locks.stats().deadlocks + hosts.stats().deadlocks + files.stats().deadlocks, 0);

        // To wait for one is to wait all the same.
        let told = Told::default();
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _held = locks.lock(&2);
                told.note(locks.lock_arc_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            told.note(locks.lock_arc_with(&2, Wait::forever()));
            drop(held);
        });
        assert_eq!(told.times(), 1);
    });
}

#[test]
fn tables_without_the_option_are_not_seen() {
    watched(|| {
        let locks = locks();
        let unseen = KeyedLock::<u32>::with_options(Options::new().track_owners(true));
        threads(|scope| {
            let _held = locks.lock(&1);
            scope.spawn(|| {
                let _held = unseen.lock(&1);
                // It looks when the other one waits already.
                drop(locks.lock_with(&1, slow()).unwrap());
            });
            until(|| locks.waiters(&1) == 1);
            assert_eq!(unseen.lock_with(&1, Duration::from_millis(50)).err(), Some(AcquireError::Timeout));
        });
        assert_eq!(locks.stats().deadlocks + unseen.stats().deadlocks, 0);
    });
}

#[test]
fn a_timed_wait_is_part_of_a_ring() {
    watched(|| {
        let locks = locks();
        let token = CancellationToken::new();
        for wait in [Wait::at_most(LONG), Wait::from(&token)] {
            let told = Told::default();
            threads(|scope| {
                let held = locks.lock(&1);
                scope.spawn(|| {
                    let _held = locks.lock(&2);
                    told.note(locks.lock_with(&1, &wait));
                });
                until(|| locks.waiters(&1) == 1);
                told.note(locks.lock_with(&2, &wait));
                drop(held);
            });
            assert_eq!(told.times(), 1);
        }
    });
}

/// A limit falls, so that those who wait for permits wait for each other.
#[test]
fn a_limit_that_falls_closes_a_ring() {
    watched(|| {
        for size in [1, 2, 3, 8] {
            for _ in 0..rounds(20) {
                let hosts = permits(4);
                let told = Told::default();
                let (held, fell) = (Barrier::new(size + 2), AtomicBool::new(false));
                threads(|scope| {
                    for member in 0..size {
                        let (hosts, told, held) = (&hosts, &told, &held);
                        scope.spawn(move || {
                            // Two of four; a thread that runs has the others.
                            let _own = hosts.acquire_many(&(member as u32), 2, LONG).unwrap();
                            held.meet();
                            let next = (member + 1) % size;
                            told.note(hosts.acquire_many(&(next as u32), 2, Wait::forever()));
                        });
                    }
                    scope.spawn(|| {
                        let running: Vec<_> =
                            (0..size).map(|key| hosts.acquire_many(&(key as u32), 2, LONG).unwrap()).collect();
                        held.meet();
                        until(|| fell.load(Ordering::Relaxed));
                        drop(running);
                    });
                    held.meet();
                    until(|| (0..size).all(|key| hosts.waiters(&(key as u32)) == 1));
                    assert_eq!(told.times(), 0, "who runs gives two permits back");
                    hosts.set_limit(3);
                    fell.store(true, Ordering::Relaxed);
                });
                assert_eq!(told.times(), 1, "of {size}");
                assert_eq!(hosts.stats().deadlocks, 1);
                assert!(hosts.is_empty());
            }
        }
    });
}

#[test]
fn the_report_says_who_holds_and_waits_for_what_and_where() {
    watched(|| {
        let (accounts, files) = (
            KeyedLock::<String>::with_options(detecting().name("accounts")),
            KeyedRwLock::<u32>::with_options(detecting()),
        );
        let lines = parking_lot::Mutex::new((0, 0));
        let told = Told::default();
        threads(|scope| {
            let (held, own_line) = (files.write(&7), line!());
            let other = std::thread::Builder::new().name("other".to_owned());
            let other = scope.spawn_with(other, || {
                let (_held, held_line) = (accounts.lock("a"), line!());
                let waited_line = line!() + 2;
                *lines.lock() = (held_line, waited_line);
                told.note(files.read_with(&7, Wait::forever()));
            });
            let other = other.thread().id();
            until(|| files.waiters(&7) == 1);
            let result = accounts.lock_with("a", Wait::forever());
            let closing_line = line!() - 1;
            let Err(AcquireError::WouldDeadlock(report)) = result else {
                assert!(told.times() == 1, "somebody is told");
                return;
            };
            let (held_line, waited_line) = *lines.lock();
            assert_eq!((report.table(), report.key_type()), (Some("accounts"), "alloc::string::String"));
            let at = |location: &std::panic::Location<'_>, line| {
                location.file() == file!() && location.line() == line && location.column() > 1
            };
            assert!(at(report.location(), closing_line));
            let [own, its] = report.threads() else { panic!("{report}") };

            assert_eq!(own.id, std::thread::current().id());
            assert_eq!(own.name.as_deref(), std::thread::current().name());
            let waits = &own.waits_for;
            assert_eq!((waits.table.as_deref(), waits.table_type), (Some("accounts"), "KeyedLock"));
            assert_eq!((waits.key, waits.every_key, waits.permits), (Some(1), false, 1));
            assert!(at(waits.location, closing_line));
            let [holds] = &own.holds[..] else { panic!("{report}") };
            assert_eq!((holds.table.as_deref(), holds.table_type, holds.key_type), (None, "KeyedRwLock", "u32"));
            assert_eq!((holds.key, holds.every_key), (Some(2), false));
            assert!(holds.permits > 1 && at(holds.location, own_line));

            assert_eq!((its.id, its.name.as_deref()), (other, Some("other")));
            assert_eq!((its.waits_for.key, its.waits_for.permits), (Some(2), 1));
            assert!(at(its.waits_for.location, waited_line));
            let [its_hold] = &its.holds[..] else { panic!("{report}") };
            assert_eq!((its_hold.key, its_hold.permits), (Some(1), 1));
            assert!(at(its_hold.location, held_line));
            assert!(holds.since <= its.waits_for.since && its.waits_for.since <= waits.since);
            assert!(its_hold.since <= its.waits_for.since);

            let text = report.to_string();
            let file = file!();
            for part in [
                "2 threads would wait for each other for ever: KeyedLock \"accounts\", key type alloc::string::String, asked for at "
                    .to_owned(),
                format!("waits for key 1 of KeyedLock \"accounts\", key type alloc::string::String, at {file}:{closing_line}:"),
                format!("and holds key 2 to write of KeyedRwLock without a name, key type u32, at {file}:{own_line}:"),
                format!("thread \"other\" waits for key 2 to read of KeyedRwLock without a name, key type u32, at {file}:{waited_line}:"),
                format!("and holds key 1 of KeyedLock \"accounts\", key type alloc::string::String, at {file}:{held_line}:"),
            ] {
                assert!(text.contains(&part), "{part:?} in {text}");
            }
            assert_eq!(text.lines().count(), 5);
            drop(held);
        });
    });
}

/// The panic of a call that cannot fail has the whole report.
#[test]
fn a_panic_says_the_same() {
    watched(|| {
        let (locks, told) = (locks(), Told::default());
        threads(|scope| {
            let held = locks.lock(&1);
            scope.spawn(|| {
                let _held = locks.lock(&2);
                told.note(locks.lock_with(&1, Wait::forever()));
            });
            until(|| locks.waiters(&1) == 1);
            let line = line!() + 1;
            let result = panic::catch_unwind(AssertUnwindSafe(|| drop(locks.lock(&2))));
            if let Err(payload) = result {
                let message = payload.downcast_ref::<String>().unwrap();
                assert!(
                    message.contains("2 threads would wait for each other for ever: KeyedLock \"locks\""),
                    "{message}"
                );
                assert!(message.contains(&format!("{}:{line}:", file!())), "{message}");
                assert_eq!(message.matches("and holds key").count(), 2, "{message}");
            } else {
                assert_eq!(told.times(), 1);
            }
            drop(held);
        });
        assert!(locks.is_empty());
    });
}

/// Calls that lock for a moment, and those that lock several keys.
#[test]
fn short_calls_are_told_too() {
    watched(|| {
        let (values, locks) = (values(), locks());
        let calls: [(&str, &dyn Fn()); 5] = [
            ("insert", &|| _ = values.insert(&1, 1)),
            ("remove", &|| _ = values.remove(&1)),
            ("get_cloned", &|| _ = values.get_cloned(&1)),
            ("with_key", &|| values.with_key(&1, |_| ())),
            ("lock_keys", &|| drop(values.lock_keys(&[0, 1, 2]))),
        ];
        for (name, call) in calls {
            let told = Told::default();
            // Until it is told, and not the other one, which had queued but not looked.
            while !is_told_last(&values, &locks, &told, call) {}
            assert!(told.times() >= 1, "{name}");
            assert!(values.is_empty() && locks.is_empty(), "{name}");
        }
    });
}

fn is_told_last(values: &KeyedMutex<u32, u32>, locks: &KeyedLock<u32>, told: &Told, call: &dyn Fn()) -> bool {
    threads(|scope| {
        let held = locks.lock(&1);
        scope.spawn(|| {
            let _held = values.lock(&1);
            told.note(locks.lock_with(&1, Wait::forever()));
        });
        until(|| locks.waiters(&1) == 1);
        let is_told = told.note_panic(call);
        let _ = values.try_lock(&1).map(|mut value| value.take());
        drop(held);
        is_told
    })
}

/// The account of owners outlives the thread-locals of its thread.
#[test]
fn destructors_of_thread_locals_are_seen() {
    struct Locks {
        own: u32,
        locks: Arc<KeyedLock<u32>>,
        meets: Arc<Barrier>,
        told: Arc<AtomicUsize>,
    }
    impl Drop for Locks {
        fn drop(&mut self) {
            let _held = self.locks.lock(&self.own);
            self.meets.meet();
            let result = self.locks.lock_with(&(3 - self.own), Wait::forever()).map(drop);
            self.told.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Locks>> = const { RefCell::new(None) };
    }
    watched(|| {
        let locks = Arc::new(KeyedLock::with_options(detecting()));
        let (meets, told) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
        let threads = [1, 2].map(|own| {
            let last = Locks { own, locks: Arc::clone(&locks), meets: Arc::clone(&meets), told: Arc::clone(&told) };
            std::thread::spawn(move || {
                // Before the library's own thread-locals, which so are gone first.
                LAST.set(Some(last));
                LAST.with_borrow(|last| last.as_ref().unwrap().locks.with_key(&9, || ()));
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// A report names each hold that a lock over every key waits for.
#[test]
fn the_report_names_every_hold_that_is_in_the_way() {
    watched(|| {
        let (files, locks, told) = (
            KeyedRwLock::<u32>::with_options(detecting()),
            KeyedLock::<u32>::with_options(detecting()),
            Told::default(),
        );
        threads(|scope| {
            let held = (files.read(&1), files.read(&2));
            scope.spawn(|| {
                let _held = locks.lock(&1);
                told.note(files.write_all_with(Wait::forever()));
            });
            until(|| elsewhere(|| files.try_read(&3).is_none()));
            let result = locks.lock_with(&1, Wait::forever());
            if let Err(AcquireError::WouldDeadlock(report)) = &result {
                assert_eq!(report.threads()[0].holds.len(), 2, "{report}");
            }
            told.note(result);
            drop(held);
        });
        assert_eq!(told.times(), 1);
    });
}
