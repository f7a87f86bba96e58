//! Rings that close, or come apart, while somebody looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, KeyedRwLock, KeyedSemaphore, Wait};

use crate::support::{Barrier, Random, rounds, spin, threads, until, watched, watched_in_both_modes};
use crate::tangles::{Told, detecting, files, locks, permits, slow, wait_for_all};

/// Two or more, each of whom asks for what the next has, all at once: one at least is told, and all finish.
#[test]
fn of_those_who_close_a_ring_at_once_one_is_told() {
    watched(|| {
        for size in [2, 3, 5] {
            let locks = locks();
            let barrier = Barrier::new(size);
            let told = Told::default();
            let count = rounds(400);
            threads(|scope| {
                for member in 0..size as u32 {
                    let (locks, barrier, told) = (&locks, &barrier, &told);
                    scope.spawn(move || {
                        let mut random = Random::new(member as usize);
                        for round in 0..count {
                            let held = locks.lock(&member);
                            barrier.meet();
                            spin(random.below(300));
                            let next = (member + 1) % size as u32;
                            told.note(locks.lock_with(&next, Wait::forever()));
                            drop(held);
                            barrier.meet();
                            assert!(told.times() > round, "nobody was told");
                        }
                    });
                }
            });
            assert!(told.times() >= count);
            assert_eq!(locks.stats().deadlocks as usize, told.times());
        }
    });
}

/// The same with two rings that share a thread.
#[test]
fn two_rings_that_close_at_once() {
    watched(|| {
        let (files, locks) = (files(), locks());
        let barrier = Barrier::new(3);
        let told = Told::default();
        let count = rounds(400);
        threads(|scope| {
            for reader in [1, 2] {
                let (files, locks, barrier, told) = (&files, &locks, &barrier, &told);
                scope.spawn(move || {
                    let mut random = Random::new(reader as usize);
                    for _ in 0..count {
                        let read = files.read(&reader);
                        barrier.meet();
                        spin(random.below(300));
                        told.note(locks.lock_with(&0, Wait::forever()));
                        drop(read);
                        barrier.meet();
                    }
                });
            }
            let mut random = Random::new(0);
            for round in 0..count {
                let held = locks.lock(&0);
                barrier.meet();
                spin(random.below(300));
                told.note(files.write_all_with(Wait::forever()));
                drop(held);
                barrier.meet();
                assert!(told.times() > round, "nobody was told");
            }
        });
        assert!(files.is_empty() && locks.is_empty());
    });
}

/// One of the ring gives up while another closes it.
#[test]
fn a_member_gives_up_while_another_looks() {
    watched(|| {
        let locks = locks();
        let barrier = Barrier::new(3);
        let token = parking_lot::Mutex::new(CancellationToken::new());
        let (told, gave_up) = (Told::default(), Told::default());
        let count = rounds(600);
        let note = |result: Result<_, AcquireError>| match result {
            Err(AcquireError::Timeout | AcquireError::Busy | AcquireError::Cancelled) => {
                gave_up.note_none::<()>(None);
            }
            result => {
                told.note(result);
            }
        };
        threads(|scope| {
            // Waits for the third, for a while.
            scope.spawn(|| {
                let mut random = Random::new(1);
                for _ in 0..count {
                    let held = locks.lock(&1);
                    barrier.meet();
                    note(locks.lock_with(&3, Duration::from_micros(random.below(150))));
                    drop(held);
                    barrier.meet();
                    barrier.meet();
                }
            });
            // Waits for the first, until it is cancelled.
            scope.spawn(|| {
                for _ in 0..count {
                    let held = locks.lock(&2);
                    barrier.meet();
                    let wait = Wait::from(&*token.lock());
                    note(locks.lock_with(&1, wait));
                    drop(held);
                    barrier.meet();
                    *token.lock() = CancellationToken::new();
                    barrier.meet();
                }
            });
            scope.spawn(|| {
                let mut random = Random::new(3);
                for round in 0..count {
                    let held = locks.lock(&3);
                    barrier.meet();
                    spin(random.below(1_000));
                    if round % 2 == 0 {
                        token.lock().cancel();
                    }
                    note(locks.lock_with(&2, Wait::forever()));
                    drop(held);
                    barrier.meet();
                    barrier.meet();
                }
            });
        });
        assert!(told.times() + gave_up.times() > 0);
        assert_eq!(locks.stats().deadlocks as usize, told.times());
        assert!(locks.is_empty());
    });
}

/// In a ring one waits at the gate behind several requests for every key; all but one of them leave while another looks.
#[test]
fn those_in_front_at_the_gate_leave_while_another_looks() {
    watched_in_both_modes(|fairness| {
        let files = Arc::new(KeyedRwLock::with_options(detecting().fairness(fairness)));
        let locks = locks();
        let barrier = Barrier::new(5);
        let token = parking_lot::Mutex::new(CancellationToken::new());
        let (told, count) = (Told::default(), rounds(1_000));
        threads(|scope| {
            // Stays.
            scope.spawn(|| {
                for _ in 0..count {
                    barrier.meet();
                    told.note(files.write_all_with(Wait::forever()));
                    barrier.meet();
                }
            });
            // Leave.
            for place in [1, 2] {
                let (files, barrier, token, told) = (&files, &barrier, &token, &told);
                scope.spawn(move || {
                    for _ in 0..count {
                        let wait = Wait::from(&*token.lock());
                        barrier.meet();
                        until(|| wait_for_all(files, place));
                        match files.write_all_with(wait) {
                            Err(AcquireError::Cancelled) => {}
                            // Granted, if the ring is broken by now; or told, if it looked only now.
                            result => {
                                told.note(result);
                            }
                        }
                        barrier.meet();
                    }
                });
            }
            // Waits behind them.
            scope.spawn(|| {
                for _ in 0..count {
                    let held = locks.lock(&1);
                    barrier.meet();
                    until(|| wait_for_all(&files, 3));
                    told.note(files.read_with(&2, Wait::forever()));
                    drop(held);
                    barrier.meet();
                }
            });
            let mut random = Random::new(1);
            for round in 0..count {
                let held = files.read(&1);
                barrier.meet();
                until(|| files.snapshot().iter().any(|status| status.key == 2));
                token.lock().cancel();
                spin(random.below(2_000));
                told.note(locks.lock_with(&1, Wait::forever()));
                *token.lock() = CancellationToken::new();
                drop(held);
                barrier.meet();
                assert!(told.times() > round, "nobody was told");
            }
        });
        assert!(files.is_empty() && locks.is_empty());
    });
}

/// A look takes long where many keys are held; meanwhile others come, and give up. It ends all the same.
#[test]
fn a_look_ends_while_others_come_and_go() {
    watched(|| {
        let files = files();
        let (ends, held) = (AtomicBool::new(false), Barrier::new(2));
        threads(|scope| {
            scope.spawn(|| {
                let _reads: Vec<_> = (1..rounds(20_000) as u32).map(|key| files.read(&key)).collect();
                let _write = files.write(&0);
                held.meet();
                until(|| ends.load(Ordering::Relaxed));
            });
            held.meet();
            for other in 0..6 {
                let (files, ends) = (&files, &ends);
                scope.spawn(move || {
                    let mut random = Random::new(other as usize);
                    // So it passes who waits to write every key, and is in front of that one.
                    let _read = files.read(&(100_000 + other));
                    while !ends.load(Ordering::Relaxed) {
                        drop(files.try_read_all_for(Duration::from_micros(300 + random.below(500))));
                    }
                });
            }
            until(|| files.stats().timeouts > 20);
            let error = files.write_all_with(Duration::from_millis(50)).unwrap_err();
            assert_eq!(error, AcquireError::Timeout);
            ends.store(true, Ordering::Relaxed);
        });
        assert!(files.is_empty());
    });
}

/// Who gives back a permit was never stuck: it may be granted to a member while another looks, and nobody is to be told.
#[test]
fn a_member_is_granted_while_another_looks() {
    watched_in_both_modes(|fairness| {
        let hosts = KeyedSemaphore::<u32>::with_limit_and_options(2, detecting().fairness(fairness));
        let locks = locks();
        let barrier = Barrier::new(4);
        let count = rounds(400);
        threads(|scope| {
            // Has a permit, and waits for the last one.
            scope.spawn(|| {
                for _ in 0..count {
                    let permit = hosts.acquire(&1);
                    barrier.meet();
                    drop(locks.lock_with(&2, Wait::forever()).unwrap());
                    drop(permit);
                    barrier.meet();
                }
            });
            // Has a permit, and gives it back.
            scope.spawn(|| {
                let mut random = Random::new(2);
                for _ in 0..count {
                    let permit = hosts.acquire(&1);
                    barrier.meet();
                    spin(random.below(600));
                    drop(permit);
                    barrier.meet();
                }
            });
            // Waits for a permit, and has what the last one wants.
            scope.spawn(|| {
                for _ in 0..count {
                    let held = locks.lock(&1);
                    barrier.meet();
                    drop(hosts.acquire_with(&1, Wait::forever()).unwrap());
                    drop(held);
                    barrier.meet();
                }
            });
            let mut random = Random::new(4);
            for _ in 0..count {
                let held = locks.lock(&2);
                barrier.meet();
                spin(random.below(600));
                drop(locks.lock_with(&1, Wait::forever()).unwrap());
                drop(held);
                barrier.meet();
            }
        });
        assert_eq!(locks.stats().deadlocks + hosts.stats().deadlocks, 0);
        assert!(locks.is_empty() && hosts.is_empty());
    });
}

/// A limit goes up and down below those who wait for permits at random.
#[test]
fn limits_change_while_threads_look() {
    watched(|| {
        let hosts = permits(4);
        let (told, ends) = (Told::default(), AtomicBool::new(false));
        threads(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let (hosts, told) = (&hosts, &told);
                    scope.spawn(move || {
                        let mut random = Random::new(worker);
                        for _ in 0..rounds(600) {
                            let mut held = Vec::new();
                            for _ in 0..3 {
                                let (key, count) = (random.below(2) as u32, 1 + random.below(3) as usize);
                                match hosts.acquire_many(&key, count, Wait::forever()) {
                                    Err(AcquireError::OverLimit { .. }) => break,
                                    Ok(permit) => held.push(permit),
                                    result => {
                                        told.note(result);
                                        break;
                                    }
                                }
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut random = Random::new(9);
                while !ends.load(Ordering::Relaxed) {
                    hosts.set_limit(1 + random.below(4) as usize);
                    spin(random.below(2_000));
                }
            });
            until(|| workers.iter().all(|worker| worker.is_finished()));
            ends.store(true, Ordering::Relaxed);
        });
        assert!(told.times() > 0);
        assert_eq!(hosts.stats().deadlocks as usize, told.times());
        assert!(hosts.is_empty());
    });
}

/// The gate opens while those whom it kept out look, and close rings.
#[test]
fn the_gate_opens_while_threads_look() {
    watched(|| {
        let (files, locks) = (files(), locks());
        let barrier = Barrier::new(3);
        let told = Told::default();
        let count = rounds(300);
        threads(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(1);
                for _ in 0..count {
                    let all = files.read_all();
                    barrier.meet();
                    spin(random.below(600));
                    drop(all);
                    barrier.meet();
                }
            });
            scope.spawn(|| {
                let mut random = Random::new(2);
                for _ in 0..count {
                    let read = files.read(&1);
                    barrier.meet();
                    spin(random.below(600));
                    told.note(locks.lock_with(&1, Wait::forever()));
                    drop(read);
                    barrier.meet();
                }
            });
            let mut random = Random::new(3);
            for round in 0..count {
                let held = locks.lock(&1);
                barrier.meet();
                spin(random.below(600));
                told.note(files.write_with(&1, if round % 4 == 0 { slow() } else { Wait::forever() }));
                drop(held);
                barrier.meet();
            }
        });
        assert!(told.times() > 0);
        assert!(files.is_empty() && locks.is_empty());
    });
}
