//! `KeyedRwLock`: who holds something and asks for more, streams of requests of one kind beside the other, and crowds at the
//! gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, Fairness, KeyedRwLock, Wait};

use crate::rwlock_api::What::{self, Read, ReadAll, Write, WriteAll};
use crate::rwlock_api::{J, K, Locks, OTHER, check_free, deadlock, table};
use crate::rwlock_order;
use crate::support::{
    Barrier, Random, crowded, elsewhere, rounds, slow_to_park, threads, until, watched_in_both_modes, work,
};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_micros(50);

/// As [`rwlock_order::wait_for_all`], asked by who holds something.
pub(crate) fn others_wait_for_all(locks: &Locks, count: usize) -> bool {
    elsewhere(|| rwlock_order::wait_for_all(locks, count))
}

fn wait_for(flag: &AtomicBool) {
    until(|| flag.load(Ordering::Acquire));
}

/// A thread reads j, a `write_all` waits for it, others wait for k behind that. The thread asks for k.
#[test]
fn who_is_waited_for_passes_those_who_are_kept_out() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for holds in [Read(J), Write(J)] {
            for (asks, others) in [
                (Read(K), &[Write(K)][..]),
                (Write(K), &[Write(K)]),
                (Write(K), &[Read(K)]),
                (Read(K), &[Read(K), Write(K), Read(K)]),
                (Write(K), &[Write(K), Read(K), Write(K), Read(K)]),
            ] {
                threads(|scope| {
                    let held = holds.lock(&locks);
                    scope.spawn(|| drop(locks.write_all()));
                    until(|| others_wait_for_all(&locks, 1));
                    for (before, &other) in others.iter().enumerate() {
                        let locks = &locks;
                        scope.spawn(move || drop(other.lock(locks)));
                        until(|| locks.waiters(&K) == before + 1);
                    }
                    // At once, though others wait for k.
                    let more = asks.lock_with(&locks, Wait::now()).expect("it is waited for");
                    assert_eq!((locks.waiters(&K), others_wait_for_all(&locks, 1)), (others.len(), true));
                    drop((held, more));
                });
                check_free(&locks);
            }
        }
    });
}

/// `max_queued` counts them, whether the request that asks would be kept out, passes, or conflicts with nothing at the gate.
#[test]
fn who_is_kept_out_is_counted_by_those_who_are_not() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let one_too_many = |asked: What, others: usize| {
            let outcome = |most: usize| asked.lock_with(&locks, Wait::at_most(SHORT).max_queued(most)).map(drop);
            assert_eq!(outcome(others), Err(AcquireError::QueueFull), "{asked:?}");
            assert_eq!(outcome(others + 1), Err(AcquireError::Timeout), "{asked:?}");
        };
        for all in [ReadAll, WriteAll] {
            let (reads, asks) = (AtomicBool::new(false), AtomicBool::new(false));
            threads(|scope| {
                let held = locks.write(&K);
                // It reads what all have to wait for, and so passes.
                let passer = scope.spawn(|| {
                    let held = locks.read(&OTHER);
                    reads.store(true, Ordering::Release);
                    wait_for(&asks);
                    one_too_many(Read(K), 2);
                    one_too_many(Write(K), 2);
                    drop(held);
                });
                wait_for(&reads);
                scope.spawn(|| drop(all.lock(&locks)));
                until(|| others_wait_for_all(&locks, 1));
                for before in 0..2 {
                    scope.spawn(|| drop(locks.write(&K)));
                    until(|| locks.waiters(&K) == before + 1);
                }
                elsewhere(|| {
                    one_too_many(Write(K), 2);
                    one_too_many(Read(K), 2);
                    // Nobody waits for this one.
                    let free = locks.read_with(&J, Wait::at_most(SHORT).max_queued(0)).map(drop);
                    assert_eq!(free, if all == ReadAll { Ok(()) } else { Err(AcquireError::QueueFull) });
                });
                asks.store(true, Ordering::Release);
                passer.join().unwrap();
                drop(held);
            });
            check_free(&locks);
        }
    });
}

/// Behind that `write_all` waits a `read_all`, which does not wait for the reader of j itself.
#[test]
fn who_is_waited_for_through_a_write_all_passes_the_read_all_behind_it() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let held = locks.read(&J);
            scope.spawn(|| drop(locks.write_all()));
            until(|| others_wait_for_all(&locks, 1));
            scope.spawn(|| drop(locks.read_all()));
            until(|| others_wait_for_all(&locks, 2));
            scope.spawn(|| drop(locks.write(&K)));
            until(|| locks.waiters(&K) == 1);
            let more = locks.write_with(&K, LONG).expect("it is let in");
            assert!(others_wait_for_all(&locks, 2));
            drop((more, held));
        });
        check_free(&locks);
    });
}

/// A writer is queued for j, and a `read_all` waits for that writer.
#[test]
fn who_is_waited_for_through_a_queued_writer_passes_the_read_all_behind_it() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let held = locks.read(&J);
            scope.spawn(|| drop(locks.write(&J)));
            until(|| locks.waiters(&J) == 1);
            scope.spawn(|| drop(locks.read_all()));
            until(|| others_wait_for_all(&locks, 1));
            assert!(elsewhere(|| locks.try_write(&K).is_none()), "others are kept out");
            let more = locks.write_with(&K, LONG).expect("it is let in");
            assert!(others_wait_for_all(&locks, 1) && locks.waiters(&J) == 1);
            drop((more, held));
        });
        check_free(&locks);
    });
}

/// The writer is queued only when the reader of j is kept out already. It holds another key, so it passes the `read_all`.
#[test]
fn who_is_kept_out_passes_once_a_writer_is_queued_for_what_it_reads() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for count in [1, 3] {
            let may_ask = AtomicBool::new(false);
            threads(|scope| {
                let writer = scope.spawn(|| {
                    let _other = locks.write(&OTHER);
                    wait_for(&may_ask);
                    // It waits for the readers of j, each of which waits for the `read_all`, which waits for this one.
                    drop(locks.write(&J));
                });
                until(|| locks.is_write_locked(&OTHER));
                scope.spawn(|| drop(locks.read_all()));
                until(|| others_wait_for_all(&locks, 1));
                for before in 0..count {
                    let locks = &locks;
                    scope.spawn(move || {
                        let _held = locks.read(&J);
                        drop(locks.write(&K));
                    });
                    until(|| locks.waiters(&K) == before + 1);
                }
                assert!(!locks.is_locked(&K), "they are kept out");
                may_ask.store(true, Ordering::Release);
                writer.join().unwrap();
            });
            check_free(&locks);
        }
    });
}

/// A reader of j that asks to write waits for a `read_all` in front of a `write_all`. When the first goes, or has been, the
/// other waits for the reader.
#[test]
fn who_is_kept_out_passes_once_a_write_all_is_first() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for gives_up in [false, true] {
            for behind in [&[WriteAll][..], &[WriteAll, ReadAll]] {
                let (token, may_leave) = (CancellationToken::new(), AtomicBool::new(false));
                threads(|scope| {
                    let writer = scope.spawn(|| {
                        let _other = locks.write(&OTHER);
                        wait_for(&may_leave);
                    });
                    until(|| locks.is_write_locked(&OTHER));
                    let first = scope.spawn(|| locks.read_all_with(&token).map(drop));
                    until(|| others_wait_for_all(&locks, 1));
                    let reader = scope.spawn(|| {
                        let _held = locks.read(&J);
                        until(|| others_wait_for_all(&locks, 1 + behind.len()));
                        drop(locks.write(&K));
                    });
                    until(|| locks.is_locked(&J));
                    for (before, &what) in behind.iter().enumerate() {
                        let locks = &locks;
                        scope.spawn(move || drop(what.lock(locks)));
                        until(|| others_wait_for_all(locks, before + 2));
                    }
                    // Behind a `write_all` that came after the `read_all`, but it is the latter that keeps it out.
                    until(|| locks.waiters(&K) == 1);
                    if gives_up {
                        token.cancel();
                        assert_eq!(first.join().unwrap(), Err(AcquireError::Cancelled));
                        reader.join().unwrap();
                        may_leave.store(true, Ordering::Release);
                    } else {
                        may_leave.store(true, Ordering::Release);
                        assert_eq!(first.join().unwrap(), Ok(()));
                        reader.join().unwrap();
                    }
                    writer.join().unwrap();
                });
                check_free(&locks);
            }
        }
    });
}

/// Each reads a key that the one before it asks for, and is kept out until that one is queued for it.
#[test]
fn who_is_kept_out_passes_one_after_the_other() {
    const LENGTH: u32 = 6;
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let may_ask = AtomicBool::new(false);
        threads(|scope| {
            let writer = scope.spawn(|| {
                let _other = locks.write(&OTHER);
                wait_for(&may_ask);
                drop(locks.write(&10));
            });
            until(|| locks.is_write_locked(&OTHER));
            scope.spawn(|| drop(locks.read_all()));
            until(|| others_wait_for_all(&locks, 1));
            for key in 10..10 + LENGTH {
                let locks = &locks;
                scope.spawn(move || {
                    let _held = locks.read(&key);
                    drop(locks.write(&(key + 1)));
                });
                until(|| locks.waiters(&(key + 1)) == 1);
            }
            may_ask.store(true, Ordering::Release);
            writer.join().unwrap();
        });
        check_free(&locks);
    });
}

/// A reader asks for a `read_all` that it has to wait for: in front of the `write_all` that waits for the reader, and of a
/// writer that is kept out.
#[test]
fn who_is_waited_for_waits_in_front() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for gives_up in [false, true] {
            let (may_leave, token) = (AtomicBool::new(false), CancellationToken::new());
            threads(|scope| {
                let writer = scope.spawn(|| {
                    let _other = locks.write(&OTHER);
                    wait_for(&may_leave);
                });
                until(|| locks.is_write_locked(&OTHER));
                let reader = scope.spawn(|| {
                    let _held = locks.read(&J);
                    until(|| locks.waiters(&K) == 1);
                    let outcome = locks.read_all_with(&token).map(drop);
                    // Now it is the `write_all` that is first, and it passes that.
                    drop(locks.write_with(&13, LONG).expect("it is waited for"));
                    outcome
                });
                until(|| locks.is_locked(&J));
                scope.spawn(|| drop(locks.write_all()));
                until(|| others_wait_for_all(&locks, 1));
                scope.spawn(|| drop(locks.write(&K)));
                until(|| others_wait_for_all(&locks, 2));
                if gives_up {
                    token.cancel();
                    assert_eq!(reader.join().unwrap(), Err(AcquireError::Cancelled));
                    may_leave.store(true, Ordering::Release);
                } else {
                    may_leave.store(true, Ordering::Release);
                    assert_eq!(reader.join().unwrap(), Ok(()));
                }
                writer.join().unwrap();
            });
            check_free(&locks);
        }
    });
}

/// What is documented of one thread that holds something and asks for more while a writer is queued.
#[test]
fn one_thread_and_a_queued_writer() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        threads(|scope| {
            let held = locks.read(&K);
            scope.spawn(|| drop(locks.write(&K)));
            until(|| locks.waiters(&K) == 1);
            let again = locks.read_with(&K, Wait::now()).expect("it reads the key already");
            drop(locks.read_keys([&J, &K]));
            deadlock(locks.read_all_with(Wait::now()));
            deadlock(locks.read_all_with(LONG));
            // It waits for its own hold, with or without the other writer.
            deadlock(locks.write_with(&K, LONG));
            deadlock(locks.write_keys_with([&K, &J], LONG));
            assert_eq!((locks.waiters(&K), locks.is_locked(&J)), (1, false));
            // Of another key everything goes.
            drop((locks.read(&J), locks.read_with(&J, Wait::now()).unwrap()));
            drop(locks.write_with(&J, Wait::now()).expect("nobody has it"));
            drop((held, again));
        });
        check_free(&locks);
        // It would wait at the gate first, for a `read_all` that does not wait for it.
        threads(|scope| {
            let other = locks.write_arc(&OTHER);
            let held = locks.read(&K);
            scope.spawn(|| drop(locks.read_all()));
            until(|| others_wait_for_all(&locks, 1));
            deadlock(locks.write_with(&K, LONG));
            assert_eq!(locks.write_with(&J, SHORT).map(drop), Err(AcquireError::Timeout));
            drop((held, other));
        });
        check_free(&locks);
        // With nobody queued.
        let held = locks.read(&K);
        deadlock(locks.write_with(&K, LONG));
        assert!(locks.read_all_with(Wait::now()).is_ok());
        drop(held);
        check_free(&locks);
    });
}

/// An `Arc` guard is as one of another thread: who has only those waits, and so does who asks for what it has.
#[test]
fn arc_guards_are_not_seen() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let waits = |what: What| assert_eq!(what.lock_with(&locks, SHORT).map(drop), Err(AcquireError::Timeout));
        let held = locks.read_arc(&K);
        waits(Write(K));
        waits(WriteAll);
        let token = CancellationToken::new();
        threads(|scope| {
            let writer = scope.spawn(|| locks.write_with(&K, &token).map(drop));
            until(|| locks.waiters(&K) == 1);
            // Behind that writer; under `Eventual` once it may be overtaken no more.
            until(|| locks.try_read(&K).is_none());
            waits(Read(K));
            waits(ReadAll);
            token.cancel();
            assert_eq!(writer.join().unwrap(), Err(AcquireError::Cancelled));
            assert!(locks.try_read(&K).is_some() && locks.try_read_all().is_some());
        });
        // It is let past nobody.
        for what in [Read(OTHER), Write(OTHER), ReadAll] {
            let token = CancellationToken::new();
            threads(|scope| {
                let all = scope.spawn(|| locks.write_all_with(&token).map(drop));
                until(|| others_wait_for_all(&locks, 1));
                waits(what);
                token.cancel();
                assert_eq!(all.join().unwrap(), Err(AcquireError::Cancelled));
            });
        }
        drop(held);
        let held = locks.write_arc(&K);
        [Read(K), Write(K), ReadAll, WriteAll].into_iter().for_each(waits);
        drop(held);
        check_free(&locks);
    });
}

/// It is let in while it gives up: then it holds its key or waits there, and nothing is left behind.
#[test]
fn who_is_let_in_while_it_gives_up_is_not_lost() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let mut granted = 0;
        for round in 0..rounds(400) {
            let token = CancellationToken::new();
            // Another waits for the key in front of it in every second round.
            let others = round % 2;
            threads(|scope| {
                let all = locks.read_all();
                for before in 0..others {
                    scope.spawn(|| drop(locks.write(&K)));
                    until(|| locks.waiters(&K) == before + 1);
                }
                let waiter = scope.spawn(|| locks.write_with(&K, slow_to_park(&token)).map(drop));
                until(|| locks.waiters(&K) == others + 1);
                drop(all);
                token.cancel();
                match waiter.join().unwrap() {
                    Ok(()) => granted += 1,
                    Err(error) => assert_eq!(error, AcquireError::Cancelled),
                }
            });
            check_free(&locks);
        }
        println!("{fairness:?}: granted {granted} times");
    });
}

/// They wait for each other inside, so one that is let in late hangs all. Behind a writer of their key.
#[test]
fn readers_that_waited_meet_inside() {
    const READERS: usize = 16;
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for others_behind in [false, true] {
            let inside = Barrier::new(READERS);
            threads(|scope| {
                let held = locks.write(&K);
                for before in 0..READERS {
                    let (locks, inside) = (&locks, &inside);
                    scope.spawn(move || {
                        let _held = locks.read(&K);
                        inside.meet();
                    });
                    until(|| locks.waiters(&K) == before + 1);
                }
                if others_behind {
                    scope.spawn(|| drop(locks.write(&K)));
                    until(|| locks.waiters(&K) == READERS + 1);
                    scope.spawn(|| drop(locks.write_all()));
                    until(|| others_wait_for_all(&locks, 1));
                }
                drop(held);
            });
            check_free(&locks);
        }
    });
}

/// Readers of two keys, and of all: behind a `write_all` that is held, or that waits and is held then, or gives up.
#[test]
fn readers_that_were_kept_out_meet_inside() {
    const EACH: usize = 6;
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for case in 0..3 {
            let (inside, token) = (Barrier::new(3 * EACH + 1), CancellationToken::new());
            let may_leave = AtomicBool::new(false);
            threads(|scope| {
                let reader = (case > 0).then(|| locks.read(&OTHER));
                let all = scope.spawn(|| {
                    let all = locks.write_all_with(&token);
                    if all.is_ok() {
                        wait_for(&may_leave);
                    }
                    all.map(drop)
                });
                until(|| if case > 0 { others_wait_for_all(&locks, 1) } else { locks.is_write_locked(&OTHER) });
                for before in 0..EACH {
                    for what in [Read(K), Read(J), ReadAll] {
                        let (locks, inside) = (&locks, &inside);
                        scope.spawn(move || {
                            let _held = what.lock(locks);
                            inside.meet();
                        });
                        match what {
                            Read(key) => until(|| locks.waiters(&key) == before + 1),
                            _ => until(|| others_wait_for_all(locks, before + 1 + usize::from(case > 0))),
                        }
                    }
                }
                if case == 2 {
                    token.cancel();
                    // While what the `write_all` waited for is held.
                    inside.meet();
                }
                drop(reader);
                may_leave.store(true, Ordering::Release);
                assert_eq!(all.join().unwrap().is_ok(), case < 2);
                if case < 2 {
                    inside.meet();
                }
            });
            check_free(&locks);
        }
    });
}

/// Two keys of a few in ascending order, each to read or to write; so they wait for each other in no circle.
fn take_two(locks: &Locks, random: &mut Random, keys: u64) {
    let key = random.below(keys - 1) as u32;
    let next = key + 1 + random.below(keys - 1 - u64::from(key)) as u32;
    let mut ask = |key: u32| if random.below(2) == 0 { Read(key) } else { Write(key) };
    let (first, second) = (ask(key), ask(next));
    let _first = first.lock(locks);
    spin_a_little(random);
    let _second = second.lock(locks);
    spin_a_little(random);
}

fn spin_a_little(random: &mut Random) {
    if random.below(8) == 0 {
        work(random);
    }
}

/// Each thread goes round until the test ends; `beside` is called for each round of the others.
fn beside_a_stream(
    fairness: Fairness,
    stream: usize,
    go_round: impl Fn(&Locks, &mut Random) + Sync,
    mut beside: impl FnMut(&Locks),
) {
    /// Ends the stream if the test fails, too.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let locks = table(fairness);
    let (done, times) = (AtomicBool::new(false), (0..stream).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
    threads(|scope| {
        let _ends = Ends(&done);
        for (number, times) in times.iter().enumerate() {
            let (locks, done, go_round) = (&locks, &done, &go_round);
            scope.spawn(move || {
                let mut random = Random::new(number);
                while !done.load(Ordering::Acquire) {
                    go_round(locks, &mut random);
                    times.fetch_add(1, Ordering::Release);
                }
            });
        }
        let all_go_on = || {
            let before: Vec<usize> = times.iter().map(|times| times.load(Ordering::Acquire)).collect();
            until(|| times.iter().zip(&before).all(|(times, before)| times.load(Ordering::Acquire) > before + 1));
        };
        all_go_on();
        for _ in 0..rounds(200) {
            beside(&locks);
        }
        all_go_on();
    });
    let times: Vec<usize> = times.into_iter().map(AtomicUsize::into_inner).collect();
    println!("{fairness:?}: the stream went round {times:?} times");
    check_free(&locks);
}

/// Whoever holds a key passes; were that all, somebody would always hold one.
#[test]
fn a_stream_of_keyed_requests_does_not_starve_locks_over_all_keys() {
    watched_in_both_modes(|fairness| {
        for what in [&[WriteAll][..], &[ReadAll], &[ReadAll, WriteAll]] {
            beside_a_stream(
                fairness,
                8,
                |locks, random| take_two(locks, random, 4),
                |locks| what.iter().for_each(|what| drop(what.lock(locks))),
            );
        }
    });
}

#[test]
fn a_stream_of_locks_over_all_keys_does_not_starve_keyed_requests() {
    watched_in_both_modes(|fairness| {
        beside_a_stream(
            fairness,
            4,
            |locks, random| {
                let _all = if random.below(2) == 0 { ReadAll.lock(locks) } else { WriteAll.lock(locks) };
                spin_a_little(random);
            },
            |locks| {
                drop(locks.read(&K));
                drop(locks.write(&K));
                drop((locks.read(&K), locks.write(&J)));
                drop(locks.write_keys([&K, &J, &OTHER]));
            },
        );
        // Readers of all keys alone overlap, so that some are always inside.
        beside_a_stream(fairness, 4, locks_over_all_overlap, |locks| drop(locks.write(&K)));
    });
}

/// Holds one `read_all` until it has the next.
fn locks_over_all_overlap(locks: &Locks, random: &mut Random) {
    let mut held = locks.read_all();
    for _ in 0..random.below(4) {
        held = locks.read_all();
    }
    drop(held);
}

/// It passes waiting `write_all`s, and nobody else.
#[test]
fn a_read_all_of_a_reader_waits_behind_a_writer_that_was_kept_out() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedRwLock::<u32>::with_options(crowded(fairness)));
        let (held, go) = (AtomicBool::new(false), AtomicBool::new(false));
        threads(|scope| {
            let (held, go, locks) = (&held, &go, &locks);
            scope.spawn(move || {
                let _everything = locks.read_all();
                held.store(true, Ordering::SeqCst);
                until(|| go.load(Ordering::SeqCst));
            });
            until(|| held.load(Ordering::SeqCst));
            scope.spawn(|| drop(locks.write(&1)));
            until(|| locks.waiters(&1) == 1);
            let other = locks.read(&2);
            assert!(locks.try_read_all().is_none(), "it overtook the writer");
            let one = locks.read(&1);
            // The writer would wait for this thread.
            let refused = locks.read_all_with(Wait::forever()).map(drop);
            assert!(matches!(refused, Err(AcquireError::WouldDeadlock(_))), "{refused:?}");
            drop((one, other));
            go.store(true, Ordering::SeqCst);
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn read_alls_of_readers_do_not_keep_a_writer_out() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedRwLock::<u32>::with_options(crowded(fairness));
        let done = AtomicBool::new(false);
        threads(|scope| {
            for thread in 0..4 {
                let (locks, done) = (&locks, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _mine = locks.read(&(100 + thread));
                        let _everything = locks.read_all();
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..rounds(100) {
                drop(locks.write(&1));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(locks.is_empty());
    });
}
