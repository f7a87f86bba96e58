//! The thread that speaks with the server.
//!
//! The client library is asynchronous: so every step can be given up, and a connection dropped at once, whatever the server does. One
//! thread per store, from its first call to its end. Callers wait for its answers, each for as long as it likes.

use std::future::Future;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::distributed::error::StoreError;
use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct Engine {
    running: Mutex<Option<Running>>,
}

struct Running {
    handle: Handle,
    /// When it is dropped, the thread ends, and with it everything that it does.
    _stop: oneshot::Sender<()>,
}

impl Engine {
    /// Has the thread do something.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), StoreError> {
        let mut running = self.running.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(start()?),
        };
        drop(running.handle.spawn(task));
        Ok(())
    }
}

fn start() -> Result<Running, StoreError> {
    let failed = |error| StoreError::transient("no thread to speak with the server").caused_by(error);
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
    let (stop, stopped) = oneshot::channel();
    let handle = runtime.handle().clone();
    let run = move || {
        // It never gets a message: the other end is dropped.
        let _ = runtime.block_on(stopped);
        // Not even for a look-up of a host name.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("perkey-postgres".to_owned()).spawn(run).map_err(failed)?;
    Ok(Running { handle, _stop: stop })
}
