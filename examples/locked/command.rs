//! The command that runs while the key is held.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Instant;

use perkey::distributed::Lease;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::cli::{self, Cli};
use super::unix::complain;

/// What can happen while it runs.
#[derive(Debug)]
pub(crate) enum Event {
    /// The command has ended.
    Exited,
    /// The lease is lost.
    Lost,
    /// This came to us.
    Signal(i32),
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself or a signal, with the key held.
    With(u8),
    /// The key was lost before.
    Lost,
    NotStarted(u8, String),
    /// Another has the job.
    Skipped,
}

impl Ended {
    /// The key was not held to the end, as the store says.
    pub(crate) fn but_lost(self) -> Self {
        if matches!(self, Self::With(_)) { Self::Lost } else { self }
    }
}

/// Runs the command to its end, and ends it if the lease is lost.
pub(crate) fn run(cli: &Cli, lease: &Lease, events: &Sender<Event>, happens: &Receiver<Event>) -> Ended {
    let mut command = command(cli, lease);
    let running = command.spawn().and_then(|child| Running::new(child, events.clone()));
    let mut running = match running {
        Ok(running) => running,
        Err(error) => return not_started(cli, &error),
    };
    let lost = events.clone();
    lease.lost().on_lost(move || _ = lost.send(Event::Lost));
    let mut is_lost = false;
    let mut kill_at: Option<Instant> = None;
    loop {
        let left = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        // There is a sender here: it cannot fail but by the end of the time.
        let event = match left {
            Some(left) => happens.recv_timeout(left).ok(),
            None => happens.recv().ok(),
        };
        match event {
            Some(Event::Exited) => break,
            Some(Event::Signal(signal)) => running.signal(Signal::from_named_raw(signal)),
            Some(Event::Lost) => {
                complain(&format!("key {:?} is lost: ending the command", lease.key()));
                is_lost = true;
                running.signal(Some(Signal::TERM));
                // Or it would not notice, if it is stopped.
                running.signal(Some(Signal::CONT));
                kill_at = Instant::now().checked_add(cli.kill_after);
            }
            None => {
                complain(&format!("the command goes on after {:?}: killing it", cli.kill_after));
                running.signal(Some(Signal::KILL));
                kill_at = None;
            }
        }
    }
    if is_lost {
        // What it has started, and left running.
        running.signal(Some(Signal::KILL));
    }
    match running.child.wait() {
        _ if is_lost || !lease.is_held() => Ended::Lost,
        Ok(status) => Ended::With(code(status)),
        Err(error) => Ended::NotStarted(cli::EXIT_CANNOT_RUN, format!("cannot wait for the command: {error}")),
    }
}

fn command(cli: &Cli, lease: &Lease) -> Command {
    let mut command = Command::new(&cli.command[0]);
    command.args(&cli.command[1..]).process_group(0);
    match lease.fencing_token() {
        Some(token) => command.env("PERKEY_TOKEN", token.to_string()),
        // Not that of a program around this one.
        None => command.env_remove("PERKEY_TOKEN"),
    };
    command
}

fn not_started(cli: &Cli, error: &io::Error) -> Ended {
    let code = match error.kind() {
        io::ErrorKind::NotFound => cli::EXIT_NOT_FOUND,
        _ => cli::EXIT_CANNOT_RUN,
    };
    Ended::NotStarted(code, format!("cannot run {:?}: {error}", cli.command[0]))
}

/// As shells report it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

struct Running {
    child: Child,
}

impl Running {
    /// Has its end sent to `events`.
    fn new(child: Child, events: Sender<Event>) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let mut running = Self { child };
        let wait = move || {
            // It stays a zombie until the main thread takes it, so that no signal can meet another process of that number.
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            let _ = events.send(Event::Exited);
        };
        if let Err(error) = thread::Builder::new().name("command".to_owned()).spawn(wait) {
            running.signal(Some(Signal::KILL));
            let _ = running.child.wait();
            return Err(error);
        }
        Ok(running)
    }

    /// To all of its group. One that has ended already is no fault.
    fn signal(&self, signal: Option<Signal>) {
        if let Some(signal) = signal {
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        for (status, expected) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (15, 143), (9, 137), (11 | 0x80, 139)] {
            assert_eq!(code(ExitStatus::from_raw(status)), expected, "{status:#x}");
        }
    }
}
