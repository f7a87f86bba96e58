//! Every interleaving, up to a bound on preemptions, of small scenes of the engine.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --test loom`; `LOOM_MAX_PREEMPTIONS` changes the bound, which is 4.
//!
//! Planted faults must be reported, most scenes having one of their own. A scene with a fault runs in a process of its own,
//! because a deadlock found while guards are alive ends the process.
//!
//! The clock stands still here, so no head becomes due by time and no wait times out: the model in `src/slot/tests.rs` moves
//! its clock, and what a time-out does is reached by cancellation.
#![cfg(loom)]

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use perkey::{
    AcquireError, ArcKeyedPermit, CancellationToken, DYNAMIC, Fairness, KeyedLock, KeyedLockGuard, KeyedMutex,
    KeyedMutexGuard, KeyedRwLock, KeyedSemaphore, Limit, Options, Wait,
};

type Fixed = BuildHasherDefault<DefaultHasher>;

fn explore(scene: impl Fn(Options<Fixed>) + Send + Sync + Copy + 'static) {
    for fairness in [Fairness::Eventual, Fairness::Fifo] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(4);
        builder.check(move || scene(Options::new().hasher(Fixed::default()).fairness(fairness)));
    }
}

/// A section that one thread at a time may be in.
#[derive(Default)]
struct Section(AtomicUsize);

impl Section {
    fn visit(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::Relaxed), 0, "two are inside");
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The clean-up race needs three: one that leaves, one that comes as the entry goes, and one that makes a new entry.
#[test]
fn three_acquirers_of_one_key() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options));
        let section = Arc::new(Section::default());
        let visit = {
            let (locks, section) = (Arc::clone(&locks), Arc::clone(&section));
            move || locks.with_key(&1, || section.visit())
        };
        let others = [thread::spawn(visit.clone()), thread::spawn(visit.clone())];
        visit();
        for other in others {
            other.join().unwrap();
        }
        assert!(locks.is_empty());
    });
}

#[test]
fn cancel_against_grant() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options));
        let section = Arc::new(Section::default());
        let token = CancellationToken::new();
        let held = locks.lock(&1);
        let waiter = {
            let (locks, section, token) = (Arc::clone(&locks), Arc::clone(&section), token.clone());
            thread::spawn(move || match locks.with_key_within(&1, &token, || section.visit()) {
                Ok(()) => {}
                Err(error) => assert_eq!(error, AcquireError::Cancelled),
            })
        };
        let canceller = thread::spawn(move || token.cancel());
        section.visit();
        // Hands over in both modes, so that there is a grant to meet.
        KeyedLockGuard::unlock_fair(held);
        waiter.join().unwrap();
        canceller.join().unwrap();
        assert!(locks.is_empty(), "a permit was lost");
    });
}

#[test]
fn two_permits_two_holders_two_waiters() {
    explore(|options| {
        let permits = Arc::new(KeyedSemaphore::<u8, 2, Fixed>::with_options(options));
        let held = [permits.acquire(&1), permits.acquire(&1)];
        let waiters = [(); 2].map(|()| {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.acquire_arc(&1))
        });
        drop(held);
        // Both waiters are inside together, or this never ends.
        let inside: Vec<ArcKeyedPermit<u8, 2, Fixed>> =
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(permits.available_permits(&1), 0);
        drop(inside);
        assert!(permits.is_empty());
    });
}

#[test]
fn a_weighted_head_gives_up() {
    explore(|options| {
        let permits = Arc::new(KeyedSemaphore::<u8, 2, Fixed>::with_options(options));
        let token = CancellationToken::new();
        let held = [permits.acquire(&1), permits.acquire(&1)];
        let heavy = {
            let (permits, token) = (Arc::clone(&permits), token.clone());
            thread::spawn(move || permits.acquire_many(&1, 2, &token).map(drop))
        };
        let light = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.acquire_arc(&1))
        };
        let [first, second] = held;
        drop(first);
        token.cancel();
        // One permit is free and stays so until the light one has it.
        let light = light.join().unwrap();
        assert_eq!(heavy.join().unwrap(), Err(AcquireError::Cancelled));
        assert_eq!(permits.available_permits(&1), 0);
        drop((light, second));
        assert!(permits.is_empty());
    });
}

/// The ring of a cancelled wait may come when the thread's waiter is in use for the next wait already.
#[test]
fn a_late_ring_meets_a_reused_waiter() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options));
        let section = Arc::new(Section::default());
        let token = CancellationToken::new();
        let (first, second) = (locks.lock(&1), locks.lock(&2));
        let waiter = {
            let (locks, section, token) = (Arc::clone(&locks), Arc::clone(&section), token.clone());
            thread::spawn(move || {
                drop(locks.lock_with(&1, &token));
                locks.with_key(&2, || section.visit());
            })
        };
        let canceller = thread::spawn(move || token.cancel());
        drop(first);
        section.visit();
        drop(second);
        waiter.join().unwrap();
        canceller.join().unwrap();
        assert!(locks.is_empty());
    });
}

/// Whoever finds the key free may take it while the rung head is on its way, and must not strand it.
#[test]
fn a_newcomer_overtakes_a_rung_head() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options));
        let section = Arc::new(Section::default());
        let held = locks.lock(&1);
        let others = [Wait::forever(), Wait::now()].map(|wait| {
            let (locks, section) = (Arc::clone(&locks), Arc::clone(&section));
            thread::spawn(move || locks.with_key_within(&1, wait, || section.visit()))
        });
        section.visit();
        drop(held);
        let [patient, hasty] = others.map(|other| other.join().unwrap());
        assert_eq!(patient, Ok(()));
        assert!(matches!(hasty, Ok(()) | Err(AcquireError::Busy)));
        assert!(locks.is_empty());
    });
}

/// The limit function has answered, and the limit is changed before the entry is made.
#[test]
fn a_limit_set_between_asking_and_entering() {
    explore(|options| {
        let limit = Limit::by_key(|_: &u8| 2);
        let permits = Arc::new(KeyedSemaphore::<u8, DYNAMIC, Fixed>::with_limit_and_options(limit, options));
        let acquirer = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.acquire_arc(&1))
        };
        permits.set_limit(1);
        let permit = acquirer.join().unwrap();
        assert_eq!(permits.limit(&1), 1, "the entry has a limit that was replaced");
        assert!(permits.try_acquire(&1).is_none());
        drop(permit);
        assert!(permits.is_empty());
    });
}

#[test]
fn two_new_limits_at_once() {
    explore(|options| {
        let permits = Arc::new(KeyedSemaphore::<u8, DYNAMIC, Fixed>::with_limit_and_options(2, options));
        let acquirer = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.acquire_arc(&1))
        };
        let other = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.set_limit(3))
        };
        permits.set_limit(1);
        other.join().unwrap();
        let permit = acquirer.join().unwrap();
        assert_eq!(permits.limit(&1), permits.limit(&2), "one key has the limit that lost");
        drop(permit);
        assert!(permits.is_empty());
    });
}

#[test]
fn a_limit_falls_below_a_heavy_head() {
    explore(|options| {
        let permits = Arc::new(KeyedSemaphore::<u8, DYNAMIC, Fixed>::with_limit_and_options(2, options));
        let held = permits.acquire(&1);
        let heavy = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || permits.acquire_many(&1, 2, Wait::forever()).map(drop))
        };
        let light = {
            let permits = Arc::clone(&permits);
            thread::spawn(move || drop(permits.acquire(&1)))
        };
        permits.set_limit(1);
        drop(held);
        light.join().unwrap();
        let outcome = heavy.join().unwrap();
        assert!(matches!(outcome, Ok(()) | Err(AcquireError::OverLimit { requested: 2, limit: 1 })), "{outcome:?}");
        assert!(permits.is_empty());
    });
}

#[test]
fn a_new_limit_meets_a_head_that_gives_up() {
    explore(|options| {
        let permits = Arc::new(KeyedSemaphore::<u8, DYNAMIC, Fixed>::with_limit_and_options(2, options));
        let token = CancellationToken::new();
        let held = permits.acquire(&1);
        let heavy = {
            let (permits, token) = (Arc::clone(&permits), token.clone());
            thread::spawn(move || permits.acquire_many(&1, 2, &token).map(drop))
        };
        let canceller = thread::spawn(move || token.cancel());
        permits.set_limit(1);
        let outcome = heavy.join().unwrap();
        assert!(
            matches!(outcome, Err(AcquireError::Cancelled | AcquireError::OverLimit { requested: 2, limit: 1 })),
            "{outcome:?}"
        );
        canceller.join().unwrap();
        drop(held);
        assert!(permits.is_empty());
    });
}

/// A sweep meets somebody who takes the idle key, and somebody who waits for it.
#[test]
fn a_sweep_meets_lockers() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options.idle_ttl(Duration::ZERO)));
        let section = Arc::new(Section::default());
        let others = [(); 2].map(|()| {
            let (locks, section) = (Arc::clone(&locks), Arc::clone(&section));
            thread::spawn(move || locks.with_key(&1, || section.visit()))
        });
        locks.sweep();
        for other in others {
            other.join().unwrap();
        }
        locks.sweep();
        assert!(locks.is_empty());
    });
}

/// The value goes from hand to hand, and by way of the entry; a wait that ends just then loses nothing.
#[test]
fn a_value_meets_a_cancellation() {
    explore(|options| {
        let values = Arc::new(KeyedMutex::<u8, u8, Fixed>::with_options(options));
        let token = CancellationToken::new();
        let mut held = values.lock(&1);
        *held = Some(0);
        let waiter = {
            let (values, token) = (Arc::clone(&values), token.clone());
            thread::spawn(move || {
                values.with_key_within(&1, &token, |value| *value = value.map(|value| value + 1)).is_ok()
            })
        };
        let canceller = thread::spawn(move || token.cancel());
        KeyedMutexGuard::unlock_fair(held);
        let added = waiter.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(values.remove(&1), Some(u8::from(added)), "the value was lost");
        assert!(values.is_empty());
    });
}

/// Two add and leave the entry to its value, and one shows it to a closure.
#[test]
fn a_value_meets_retain() {
    explore(|options| {
        let values = Arc::new(KeyedMutex::<u8, u8, Fixed>::with_options(options));
        let adders = [(); 2].map(|()| {
            let values = Arc::clone(&values);
            thread::spawn(move || *values.lock(&1).get_or_insert(0) += 1)
        });
        let skipped = values.retain(|_, value| {
            *value += 10;
            true
        });
        for adder in adders {
            adder.join().unwrap();
        }
        let value = values.remove(&1).expect("the value went");
        assert!(value == 2 || (value == 12 && skipped == 0), "an addition was lost: {value}");
        assert!(values.is_empty());
    });
}

#[test]
fn two_keys_in_opposite_orders() {
    explore(|options| {
        let locks = Arc::new(KeyedLock::<u8, Fixed>::with_options(options));
        let section = Arc::new(Section::default());
        let others = [[2, 1], [1, 2]].map(|keys| {
            let (locks, section) = (Arc::clone(&locks), Arc::clone(&section));
            thread::spawn(move || locks.with_keys(&keys, || section.visit()))
        });
        locks.with_key(&2, || ());
        for other in others {
            other.join().unwrap();
        }
        assert!(locks.is_empty());
    });
}

/// What readers share and a writer has alone.
#[derive(Default)]
struct Shared(AtomicUsize);

const WRITER: usize = 1_000;

impl Shared {
    fn read(&self) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < WRITER, "a reader is beside a writer");
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn write(&self) {
        assert_eq!(self.0.swap(WRITER, Ordering::Relaxed), 0, "a writer is not alone");
        self.0.store(0, Ordering::Relaxed);
    }
}

type Rw = KeyedRwLock<u8, Fixed>;

fn explore_rw<const N: usize>(scene: [fn(&Rw, &Shared); N]) {
    explore(move |options| {
        let (locks, shared) = (Arc::new(Rw::with_options(options)), Arc::new(Shared::default()));
        let [first, others @ ..] = &scene[..] else { unreachable!("a scene has threads") };
        let others: Vec<_> = others
            .iter()
            .map(|&thread| {
                let (locks, shared) = (Arc::clone(&locks), Arc::clone(&shared));
                thread::spawn(move || thread(&locks, &shared))
            })
            .collect();
        first(&locks, &shared);
        for other in others {
            other.join().unwrap();
        }
        assert!(locks.is_empty(), "a key is left behind");
        assert!(locks.try_write_all().is_some(), "the gate is left closed");
    });
}

#[test]
fn all_keys_meet_who_enters_and_who_leaves() {
    explore_rw([
        |locks, shared| locks.with_write(&1, || shared.write()),
        |locks, shared| locks.with_read(&1, || shared.read()),
        |locks, shared| {
            let _all = locks.write_all();
            shared.write();
        },
    ]);
}

#[test]
fn two_want_all_keys() {
    explore_rw([
        |locks, shared| locks.with_write(&1, || shared.write()),
        |locks, shared| {
            let _all = locks.read_all();
            shared.read();
        },
        |locks, shared| {
            let _all = locks.write_all();
            shared.write();
        },
    ]);
}

#[test]
fn who_wants_all_keys_gives_up() {
    explore(|options| {
        let locks = Arc::new(Rw::with_options(options));
        let token = CancellationToken::new();
        let held = locks.write(&1);
        let closer = {
            let (locks, token) = (Arc::clone(&locks), token.clone());
            thread::spawn(move || match locks.read_all_with(&token) {
                Ok(_all) => {}
                Err(error) => assert_eq!(error, AcquireError::Cancelled),
            })
        };
        let behind = {
            let locks = Arc::clone(&locks);
            thread::spawn(move || drop(locks.write(&2)))
        };
        token.cancel();
        drop(held);
        closer.join().unwrap();
        behind.join().unwrap();
        assert!(locks.is_empty());
        assert!(locks.try_write_all().is_some(), "the gate is left closed");
    });
}

#[test]
fn who_is_kept_out_gives_up() {
    explore(|options| {
        let locks = Arc::new(Rw::with_options(options));
        let token = CancellationToken::new();
        let all = locks.read_all();
        let kept_out = {
            let (locks, token) = (Arc::clone(&locks), token.clone());
            thread::spawn(move || match locks.write_with(&1, &token) {
                Ok(_guard) => {}
                Err(error) => assert_eq!(error, AcquireError::Cancelled),
            })
        };
        let canceller = thread::spawn(move || token.cancel());
        drop(all);
        kept_out.join().unwrap();
        canceller.join().unwrap();
        assert!(locks.is_empty(), "a key is left behind");
        assert!(locks.try_write_all().is_some(), "the gate is left closed");
    });
}

#[test]
fn who_holds_a_key_passes() {
    explore_rw([
        |locks, _| {
            let _one = locks.read(&1);
            drop(locks.write(&2));
        },
        |locks, _| drop(locks.write_all()),
        |locks, _| drop(locks.read_all()),
    ]);
}

#[test]
fn who_holds_what_a_writer_waits_for_passes() {
    explore_rw([
        |locks, _| {
            let _two = locks.read(&2);
            drop(locks.write(&3));
        },
        |locks, _| {
            let _one = locks.write(&1);
            drop(locks.write(&2));
        },
        |locks, _| drop(locks.read_all()),
    ]);
}

#[test]
fn a_downgrade_meets_who_wants_all_keys() {
    explore_rw([
        |locks, shared| {
            let guard = locks.write(&1);
            shared.write();
            let guard = perkey::KeyedRwLockWriteGuard::downgrade(guard);
            shared.read();
            if let Ok(_guard) = perkey::KeyedRwLockReadGuard::try_upgrade(guard) {
                shared.write();
            }
        },
        |locks, shared| {
            let _all = locks.read_all();
            shared.read();
        },
        |locks, shared| {
            let _all = locks.write_all();
            shared.write();
        },
    ]);
}

#[test]
fn planted_faults_are_reported() {
    for (fault, scene, report) in [
        ("RemoveInTwoSteps", "three_acquirers_of_one_key", "deadlock"),
        ("ClearBeforePark", "three_acquirers_of_one_key", "deadlock"),
        ("GrantLost", "cancel_against_grant", "a permit was lost"),
        ("ClearBeforePark", "cancel_against_grant", "deadlock"),
        ("OneRingForTwoPermits", "two_permits_two_holders_two_waiters", "deadlock"),
        ("HeadLeavesUnsettled", "a_weighted_head_gives_up", "deadlock"),
        ("StaleLimit", "a_limit_set_between_asking_and_entering", "a limit that was replaced"),
        ("TooHeavyStays", "a_limit_falls_below_a_heavy_head", "deadlock"),
        ("SweepsTheHeld", "a_sweep_meets_lockers", "stays in the table"),
        ("LookKeepsRung", "a_newcomer_overtakes_a_rung_head", "deadlock"),
        ("ValueStaysBehind", "a_value_meets_a_cancellation", "the value was lost"),
        ("ValueGoesWithTheLast", "a_value_meets_retain", "the value went"),
        ("ClosersDoNotWait", "all_keys_meet_who_enters_and_who_leaves", "a writer is not alone"),
        ("LeftUntold", "all_keys_meet_who_enters_and_who_leaves", "deadlock"),
        ("CloserLeavesUnsettled", "who_wants_all_keys_gives_up", "deadlock"),
        ("LetInLost", "who_is_kept_out_gives_up", "a key is left behind"),
        ("NobodyPasses", "who_holds_a_key_passes", "deadlock"),
        ("OnlyOwnConflictsPass", "who_holds_what_a_writer_waits_for_passes", "deadlock"),
        ("KeptOutLookOnce", "who_holds_what_a_writer_waits_for_passes", "deadlock"),
        ("RingIsGrant", "a_late_ring_meets_a_reused_waiter", "two are inside"),
    ] {
        let output = Command::new(std::env::current_exe().expect("the path of this test"))
            .args(["--exact", scene, "--nocapture"])
            .env("PERKEY_FAULT", fault)
            .output()
            .expect("this test runs itself");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{fault} was not caught by {scene}");
        assert!(said.contains(report), "{fault} in {scene} is not reported as {report:?}: {said}");
    }
}
