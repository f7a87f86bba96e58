//! Signals that come to this program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use perkey::CancellationToken;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::command::Event;

/// What has come.
#[derive(Default)]
pub(crate) struct Seen(AtomicI32);

impl Seen {
    pub(crate) fn first(&self) -> Option<i32> {
        Some(self.0.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }
}

/// Sends each to `events`, for the command. The first ends the wait for the key, if it is still waited for.
pub(crate) fn pass_on(events: Sender<Event>, stop: CancellationToken) -> io::Result<Arc<Seen>> {
    let mut signals = Signals::new([SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let seen = Arc::new(Seen::default());
    let noted = Arc::clone(&seen);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let _ = noted.0.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
            stop.cancel();
            // Nobody asks any more once the command has ended.
            let _ = events.send(Event::Signal(signal));
        }
    })?;
    Ok(seen)
}
