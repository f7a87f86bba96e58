//! Transfers that lock their accounts in a ring, and what `detect_deadlocks` says of it.
//!
//! One thread locks account 101 and then asks for 102, another locks 102 and then asks for the next, and the last asks for 101.
//! Without the option all of them would wait for ever. With it the request that closes the ring is refused, and
//! told who waits for whom.
//!
//! ```text
//! cargo run --example deadlock
//! cargo run --example deadlock -- --threads 5
//! ```

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Barrier, Mutex};
use std::thread;

use clap::Parser;
use perkey::{AcquireError, Deadlock, KeyedLock, Options, Wait};

/// Lets threads lock accounts in a ring, and prints the report of the deadlock.
#[derive(Parser)]
struct Cli {
    /// How many threads, and accounts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=32))]
    threads: u32,
}

/// How the transfers of a ring ended.
struct Outcome {
    refused: Vec<(u32, Deadlock)>,
    done: u32,
}

fn main() {
    let Cli { threads } = Cli::parse();
    // That nobody reads it any more (`| head`) is no fault.
    let _ = std::io::stdout().write_all(report(threads, &transfers(threads)).as_bytes());
}

/// Runs the transfers, all at once.
fn transfers(threads: u32) -> Outcome {
    let accounts = KeyedLock::<u32>::with_options(Options::new().name("accounts").detect_deadlocks(true));
    let each_has_one = Barrier::new(threads as usize);
    let outcome = Mutex::new(Outcome { refused: Vec::new(), done: 0 });
    thread::scope(|scope| {
        for place in 0..threads {
            let (accounts, each_has_one, outcome) = (&accounts, &each_has_one, &outcome);
            // Not from 1 on: in the report that is how keys are numbered.
            let (from, to) = (101 + place, 101 + (place + 1) % threads);
            let transfer = move || {
                let first = accounts.lock(&from);
                each_has_one.wait();
                // `lock` would panic with the report.
                let result = accounts.lock_with(&to, Wait::forever()).map(drop);
                // Who is refused lets go of what it has, and with that the others go on.
                drop(first);
                let mut outcome = outcome.lock().expect("nobody panics");
                match result {
                    Ok(()) => outcome.done += 1,
                    Err(AcquireError::WouldDeadlock(deadlock)) => outcome.refused.push((from, deadlock)),
                    Err(error) => unreachable!("a wait without a limit ended with: {error}"),
                }
            };
            thread::Builder::new()
                .name(format!("transfer from {from}"))
                .spawn_scoped(scope, transfer)
                .expect("a thread");
        }
    });
    outcome.into_inner().expect("nobody panicked")
}

fn report(threads: u32, Outcome { refused, done }: &Outcome) -> String {
    let mut report = String::new();
    for (from, deadlock) in refused {
        writeln!(report, "The transfer from {from} was refused: {deadlock}\n").expect("a String takes all");
    }
    writeln!(report, "{done} of {threads} transfers were done, {} refused.", refused.len())
        .expect("a String takes all");
    report.push_str("With `lock_keys([from, to])` no ring can close: it takes its keys in their order.\n");
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gives_way_and_the_others_finish() {
        for threads in [2, 3, 32] {
            let outcome = transfers(threads);
            assert_eq!((outcome.refused.len(), outcome.done), (1, threads - 1));
            let (from, deadlock) = &outcome.refused[0];
            assert_eq!(deadlock.threads().len(), threads as usize);
            let report = report(threads, &outcome);
            assert!(
                report.starts_with(&format!("The transfer from {from} was refused: {threads} threads would wait")),
                "{report}"
            );
            for number in 101..101 + threads {
                assert!(report.contains(&format!("\n  thread \"transfer from {number}\" waits for key ")), "{report}");
            }
            assert!(
                report.contains("KeyedLock \"accounts\", key type u32, at ") && report.contains("deadlock.rs:"),
                "{report}"
            );
        }
    }

    #[test]
    fn a_ring_needs_two() {
        assert!(Cli::try_parse_from(["deadlock", "--threads", "1"]).is_err());
        assert!(Cli::try_parse_from(["deadlock", "--threads", "33"]).is_err());
        assert_eq!(Cli::try_parse_from(["deadlock"]).unwrap().threads, 2);
    }
}
