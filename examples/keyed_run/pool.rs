//! The worker threads, and the commands they run.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::rows::Job;
use super::scheduler::Scheduler;

/// What [`run`] has to tell.
pub(crate) enum Event<'a> {
    /// A command has ended, or could not be run.
    Ended(&'a Job, io::Result<Output>),
    /// A look at the state of things, for who shows it: after each end, and from time to time.
    Tick { running: usize },
}

/// Runs what `scheduler` gives on `threads` threads until it gives no more and all has ended. Calls `tell` on this thread.
pub(crate) fn run<'a>(scheduler: &Scheduler<'a>, threads: usize, mut tell: impl FnMut(Event<'a>)) {
    const TICK: Duration = Duration::from_millis(100);
    let running = AtomicUsize::new(0);
    // With no room in it, a worker waits until its output is taken, and keeps its key meanwhile: outputs do not pile up
    // if nobody takes them, and those of a key that runs one command at a time stay in order.
    let (ended, outputs) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (ended, running) = (ended.clone(), &running);
            scope.spawn(move || {
                while let Some(started) = scheduler.next(|job| {
                    running.fetch_add(1, Ordering::Relaxed);
                    spawn(&job.command)
                }) {
                    // Reads both outputs side by side; a command never waits because one of them is full.
                    let result = started.what.and_then(Child::wait_with_output);
                    running.fetch_sub(1, Ordering::Relaxed);
                    if ended.send((started.job, result)).is_err() {
                        break;
                    }
                }
            });
        }
        // The channel is closed when the last worker lets go of its end, also by a panic.
        drop(ended);
        loop {
            match outputs.recv_timeout(TICK) {
                Ok((job, result)) => tell(Event::Ended(job, result)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            tell(Event::Tick { running: running.load(Ordering::Relaxed) });
        }
        // If `tell` panics, the workers must not wait for somebody to take their output.
        drop(outputs);
    });
}

fn spawn(command: &str) -> io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal sends Ctrl-C to a whole process group. What runs is to be waited for, and must not get it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.spawn()
}

#[cfg(all(test, unix))]
mod tests {
    use perkey::CancellationToken;

    use super::*;

    #[test]
    fn a_command_has_no_input_and_a_process_group_of_its_own() {
        // There is a group of this number only if the shell leads one.
        let output = spawn("cat; kill -s 0 -- -$$ && echo leads").and_then(Child::wait_with_output).unwrap();
        assert_eq!(output.stdout, b"leads\n");
    }

    #[test]
    fn every_job_is_told_of_once() {
        let job = |line| Job { line, key: (line % 3).to_string(), command: format!("echo {line}; echo >&2; exit 3") };
        let jobs: Vec<_> = (1..=20).map(job).collect();
        let scheduler = Scheduler::new(&jobs, |_| 2, &CancellationToken::new());
        let mut told = Vec::new();
        run(&scheduler, 4, |event| {
            let Event::Ended(job, output) = event else { return };
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(3));
            assert_eq!(output.stdout, format!("{}\n", job.line).into_bytes());
            assert_eq!(output.stderr, b"\n");
            told.push(job);
        });
        told.sort_unstable_by_key(|job| job.line);
        assert!(told.into_iter().eq(&jobs));
    }

    #[test]
    fn no_jobs_are_no_fault() {
        run(&Scheduler::new(&[], |_| 1, &CancellationToken::new()), 3, |event| {
            assert!(matches!(event, Event::Tick { running: 0 }));
        });
    }
}
