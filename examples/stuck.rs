//! A job that hangs while it holds its key, the jobs behind it, and how to find out which one it is.
//!
//! `track_owners` makes `snapshot()` say who holds a key, since when, and by which call. With the feature `tracing`,
//! `warn_waiting_over` says the same in the log by itself.
//!
//! ```text
//! cargo run --example stuck
//! cargo run --example stuck --features tracing
//! cargo run --example stuck -- --help
//! ```

use std::io::Write as _;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use clap::Parser;
use perkey::{KeyStatus, KeyedLock, Options};

/// Lets a job hang that holds its key, and prints what can be seen of it from outside.
#[derive(Parser)]
struct Cli {
    /// How long the job hangs, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.5, value_parser = seconds)]
    hang: f64,

    /// How many more jobs there are for the same key
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    jobs: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds from 0 to 3600".to_owned()),
    }
}

fn main() {
    let Cli { hang, jobs } = Cli::parse();
    #[cfg(feature = "tracing")]
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();

    let (answer, server) = mpsc::channel();
    let customers = KeyedLock::with_options(options());
    thread::scope(|scope| {
        let in_line = start(scope, &customers, jobs, server);
        while !in_line() {
            thread::yield_now();
        }
        say("all jobs of customer 42 seem to hang. What `snapshot()` shows:\n");
        print_snapshot(&customers.snapshot());
        thread::sleep(Duration::from_secs_f64(hang));
        say(&format!("{hang} seconds later:\n"));
        print_snapshot(&customers.snapshot());
        say("the server answers, and the jobs finish.");
        drop(answer);
    });
    say(&format!("{:?}", customers.stats()));
}

/// Prints a line. That nobody reads it any more (`| head`) is no fault.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn options() -> Options {
    let options = Options::new().name("customers").track_owners(true);
    #[cfg(feature = "tracing")]
    let options = options.warn_waiting_over(Duration::from_secs(1));
    options
}

/// Starts a job that waits for the answer of a server while it holds its key, and others for the same key, and one for another.
/// Returns a function that says whether all are where they stay.
fn start<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    customers: &'env KeyedLock<u32>,
    jobs: u32,
    server: Receiver<()>,
) -> impl Fn() -> bool + use<'env> {
    let spawn = |name: String, job: Box<dyn FnOnce() + Send + 'env>| {
        thread::Builder::new().name(name).spawn_scoped(scope, job).expect("a thread starts");
    };
    let (reached, is_reached) = mpsc::channel();
    let fetch = move || {
        let _customer = customers.lock(&42);
        reached.send(()).expect("somebody waits for it");
        // The bug: no time limit. It ends when the other side hangs up.
        let _ = server.recv();
    };
    spawn("fetch invoices".to_owned(), Box::new(fetch));
    is_reached.recv().expect("it gets its key");
    for number in 1..=jobs {
        spawn(format!("send mail {number}"), Box::new(|| customers.with_key(&42, || ())));
    }
    spawn("another customer".to_owned(), Box::new(|| customers.with_key(&43, || ())));
    move || customers.waiters(&42) == jobs as usize && !customers.is_locked(&43)
}

fn print_snapshot(keys: &[KeyStatus<u32>]) {
    keys.iter().for_each(|status| say(&format!("{status}\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshot_names_the_job_that_hangs_and_those_behind_it() {
        let (answer, server) = mpsc::channel();
        let customers = KeyedLock::with_options(options());
        thread::scope(|scope| {
            let in_line = start(scope, &customers, 2, server);
            while !in_line() {
                thread::yield_now();
            }
            let keys = customers.snapshot();
            let text = keys.iter().find(|status| status.key == 42).expect("it is held").to_string();
            drop(answer);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0], "42: held, 2 waiting");
            assert!(lines[1].starts_with("  held by thread \"fetch invoices\" for "), "{text}");
            assert!(lines[1].contains("stuck.rs:"), "{text}");
            assert!(lines[2..].iter().all(|line| line.starts_with("  thread \"send mail ")), "{text}");
            assert_eq!(lines.len(), 4);
        });
        assert_eq!(customers.stats().contended, 2);
    }

    #[test]
    fn options_are_checked() {
        for wrong in [["--hang", "-1"], ["--hang", "soon"], ["--jobs", "0"]] {
            assert!(Cli::try_parse_from(["stuck"].into_iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }
}
