//! Waits for keys to go.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use crate::distributed::patience::Waker;
use crate::sync::{AtomicBool, Ordering};

use super::gateway::Gateway;
use super::wire::{Request, Stream};

/// A thread, with a connection, that wakes who waits once so many keys have gone that it is worthwhile to look; or if it cannot
/// tell any more. Until it is dropped.
///
/// It is only a hint: who waits also looks by itself now and then.
pub(super) struct Watch {
    endpoint: String,
    stream: Option<Stream>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    has_begun: AtomicBool,
    has_news: AtomicBool,
    is_over: AtomicBool,
}

/// What is watched.
pub(super) struct Watched {
    pub(super) request: Request,
    /// The keys that have to go, as the server spells them.
    pub(super) ahead: HashSet<String>,
    /// When no more than so many of them are left, it is worthwhile to look.
    pub(super) enough: usize,
}

impl Watch {
    /// Asks the server that has answered last.
    pub(super) fn start(gateway: &Gateway, watched: Watched, waker: Waker) -> Self {
        let (stream, token) = gateway.stream();
        let endpoint = gateway.current().to_owned();
        let progress = Arc::new(Progress::default());
        let reader = Reader { progress: Arc::clone(&progress), waker };
        let (stream_of_thread, endpoint_of_thread) = (stream.clone(), endpoint.clone());
        let thread = thread::Builder::new().name("perkey-etcd".to_owned()).spawn(move || {
            let reader = reader;
            if let Some(messages) = stream_of_thread.open(&endpoint_of_thread, &watched.request, token.as_deref()) {
                reader.read(messages, watched.ahead, watched.enough);
            }
        });
        // Without a thread who waits looks by itself.
        drop(thread);
        Self { endpoint, stream: Some(stream), progress }
    }

    /// It will hear what happens.
    pub(super) fn has_begun(&self) -> bool {
        self.progress.has_begun.load(Ordering::Acquire)
    }

    /// So many have gone that it is worthwhile to look.
    pub(super) fn has_news(&self) -> bool {
        self.progress.has_news.load(Ordering::Acquire)
    }

    /// The stream has ended, by news or otherwise.
    pub(super) fn is_over(&self) -> bool {
        self.progress.is_over.load(Ordering::Acquire)
    }

    /// Of the server that is asked now.
    pub(super) fn is_of(&self, endpoint: &str) -> bool {
        self.endpoint == endpoint
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.cut();
        }
    }
}

/// What the thread tells who waits, at its end at the latest.
struct Reader {
    progress: Arc<Progress>,
    waker: Waker,
}

impl Reader {
    /// Until enough keys have gone, or there are no more messages: the last can be that the stream was cancelled, as after a compaction.
    fn read(&self, messages: impl Iterator<Item = Value>, mut ahead: HashSet<String>, enough: usize) {
        for message in messages {
            if message["canceled"].as_bool() == Some(true) {
                return;
            }
            self.progress.has_begun.store(true, Ordering::Release);
            let events = message["events"].as_array().map(Vec::as_slice).unwrap_or_default();
            let gone = events.iter().filter(|event| event["type"] == "DELETE");
            gone.filter_map(|event| event["kv"]["key"].as_str()).for_each(|key| _ = ahead.remove(key));
            if ahead.len() <= enough {
                self.progress.has_news.store(true, Ordering::Release);
                return;
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.progress.is_over.store(true, Ordering::Release);
        self.waker.wake();
    }
}
