//! Stress with an oracle.
//!
//! Threads make random calls (trying, timed, cancelled, waiting for ever, panicking; guards, closures, guards that end
//! on other threads) while the oracle counts who is inside. Nothing here measures time or sleeps: what is wrong shows
//! as a count that does not fit, a call that was refused without a reason, something left behind at the end, or a run in
//! which nobody gets on. `busted.rs` holds locks that are broken on purpose; the oracle must report each of them.
//!
//! `PERKEY_STRESS_ROUNDS` sets how often each scenario is run, `PERKEY_SEED` repeats the calls of a failure.
#![forbid(unsafe_code)]

mod busted;
mod drive;
mod meeting;
mod oracle;
mod rng;
mod target;
mod watchdog;

use std::process::Command;
use std::time::Duration;

use perkey::{DYNAMIC, Fairness};

use drive::{Plan, run};
use target::{Alike, Locks, Name, Permits, Target, Touchy};

/// Runs a scenario in both modes.
fn both_modes<T: Target>(plan: &Plan, target: impl Fn(&Plan, Fairness) -> T) {
    for fairness in [Fairness::Eventual, Fairness::Fifo] {
        let first = rng::seed();
        for round in 0..rng::rounds() {
            let seed = first.wrapping_add(round);
            let plan = Plan { name: format!("{} ({fairness:?})", plan.name), ..plan.clone() };
            let breaches = run(target(&plan, fairness), &plan, seed);
            if !breaches.is_empty() {
                let list: String = breaches.iter().map(|breach| format!("\n  {breach}")).collect();
                panic!("{}, to be repeated with PERKEY_SEED={seed}:{list}", plan.name);
            }
        }
    }
}

fn locks<K: Name>(name: &str, keys: usize) {
    both_modes(&Plan::new(name, keys), |plan, fairness| Locks::<K>::new(plan.keys, fairness));
}

fn permits<K: Name, const N: usize>(name: &str, keys: usize) {
    both_modes(&Plan::new(name, keys), |plan, fairness| Permits::<K, N>::new(plan.keys, fairness));
}

#[test]
fn lock_with_one_key() {
    locks::<u64>("a lock, one key", 1);
}

#[test]
fn lock_with_few_keys() {
    locks::<String>("a lock, 3 keys", 3);
}

#[test]
fn lock_with_many_keys() {
    locks::<u64>("a lock, 1000 keys", 1000);
}

#[test]
fn lock_with_keys_that_hash_alike() {
    locks::<Alike>("a lock, 5 keys that hash alike", 5);
}

#[test]
fn lock_with_keys_that_panic() {
    let plan = Plan { fuses: true, ..Plan::new("a lock, 6 keys that panic", 6) };
    both_modes(&plan, |plan, fairness| Locks::<Touchy>::new(plan.keys, fairness));
}

#[test]
fn semaphore_of_1_with_one_key() {
    permits::<u64, 1>("a semaphore of 1, one key", 1);
}

#[test]
fn semaphore_of_2_with_one_key() {
    permits::<u64, 2>("a semaphore of 2, one key", 1);
}

#[test]
fn semaphore_of_3_with_few_keys() {
    permits::<String, 3>("a semaphore of 3, 3 keys", 3);
}

#[test]
fn semaphore_of_7_with_one_key() {
    permits::<u64, 7>("a semaphore of 7, one key", 1);
}

#[test]
fn semaphore_of_3_with_many_keys() {
    permits::<u64, 3>("a semaphore of 3, 1000 keys", 1000);
}

#[test]
fn semaphore_with_keys_that_panic() {
    let plan = Plan { fuses: true, ..Plan::new("a semaphore of 2, 6 keys that panic", 6) };
    both_modes(&plan, |plan, fairness| Permits::<Touchy, 2>::new(plan.keys, fairness));
}

#[test]
fn semaphores_whose_limit_is_chosen_at_run_time() {
    for limit in 1..=5 {
        let plan = Plan { calls: 300, ..Plan::new(format!("a semaphore of {limit} at run time, 2 keys"), 2) };
        both_modes(&plan, |plan, fairness| Permits::<u64, DYNAMIC>::with_limit(limit, plan.keys, fairness));
    }
}

#[test]
fn holders_that_fit_are_inside_together() {
    fn meet<const N: usize>() {
        for fairness in [Fairness::Eventual, Fairness::Fifo] {
            let name = format!("a semaphore of {N} whose holders meet ({fairness:?})");
            let seed = rng::seed();
            for round in 0..rng::rounds() {
                let target = Permits::<u64, N>::new(1, fairness);
                let breaches = meeting::run(target, &name, 200, seed.wrapping_add(round), Duration::from_secs(60));
                assert!(breaches.is_empty(), "{name}, PERKEY_SEED={seed}: {breaches:?}");
            }
        }
    }
    meet::<2>();
    meet::<3>();
    meet::<5>();
}

/// Set in the process that gets stuck for [`a_stuck_run_is_described_and_ended`].
const STUCK: &str = "PERKEY_STRESS_STUCK";

#[test]
fn a_stuck_run_is_described_and_ended() {
    let test = std::env::current_exe().expect("the test binary has a path");
    let output = Command::new(test).args(["--exact", "stuck_on_purpose"]).env(STUCK, "1").output();
    let output = output.expect("the test binary runs once more");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    // Who is stuck, how to repeat it, and what the table says: the held key, and where its waiters wait.
    for part in ["stuck: nobody got on", "PERKEY_SEED=", "held: 1", "target.rs"] {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

#[test]
fn stuck_on_purpose() {
    if std::env::var_os(STUCK).is_some() {
        let target = Locks::<u64>::new(1, Fairness::Eventual);
        target.hold_for_ever(0);
        run(target, &Plan { patience: Duration::from_millis(300), ..Plan::new("a lock that is never released", 1) }, 1);
    }
}
