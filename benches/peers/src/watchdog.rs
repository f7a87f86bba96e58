//! Ends the program if a round does not end: a lock that hangs must not hang whoever measures it.

use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// A round takes a fraction of a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// But for tables of millions of keys, which have to be filled and emptied.
pub(crate) const PATIENCE_WITH_MILLIONS: Duration = Duration::from_secs(600);

pub(crate) const EXIT_HUNG: i32 = 3;

/// Until this is dropped, a round has to start now and then.
pub(crate) struct Watchdog {
    rounds: Sender<String>,
}

impl Watchdog {
    pub(crate) fn start(patience: Duration) -> Self {
        let (rounds, starts) = mpsc::channel::<String>();
        thread::spawn(move || {
            let mut now = String::from("nothing");
            loop {
                match starts.recv_timeout(patience) {
                    Ok(next) => now = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("{now} has not ended in {} s: it hangs, or the machine does", patience.as_secs());
                        process::exit(EXIT_HUNG);
                    }
                }
            }
        });
        Self { rounds }
    }

    /// A round of this contestant in this shape starts.
    pub(crate) fn watch(&self, shape: &str, contestant: &str) {
        // The thread ends only after this, or with the process.
        let _ = self.rounds.send(format!("{contestant} in {shape}"));
    }
}
