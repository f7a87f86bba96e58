//! A TCP proxy that can hold, swallow and cut what goes through it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    Pass,
    /// They wait until this is something else.
    Wait,
    Vanish,
}

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    requests: Bytes,
    replies: Bytes,
    streams: Vec<TcpStream>,
    /// So many pieces have come from clients, and from servers.
    requested: usize,
    replied: usize,
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

impl Proxy {
    /// To a port of this machine.
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
        let port = listener.local_addr().unwrap().port();
        let state = State {
            requests: Bytes::Pass,
            replies: Bytes::Pass,
            streams: Vec::new(),
            requested: 0,
            replied: 0,
            is_over: false,
        };
        let shared = Arc::new(Shared { target, state: Mutex::new(state), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if own.state.lock().unwrap().is_over {
                    return;
                }
                Shared::connect(&own, client);
            }
        });
        Self { port, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn requests(&self, requests: Bytes) {
        self.shared.state.lock().unwrap().requests = requests;
        self.shared.changed.notify_all();
    }

    pub(crate) fn replies(&self, replies: Bytes) {
        self.shared.state.lock().unwrap().replies = replies;
        self.shared.changed.notify_all();
    }

    /// Ends all connections. What waits vanishes.
    pub(crate) fn cut(&self) {
        let streams = std::mem::take(&mut self.shared.state.lock().unwrap().streams);
        for stream in streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// So many pieces of requests have come from clients, passed on or not.
    pub(crate) fn requested(&self) -> usize {
        self.shared.state.lock().unwrap().requested
    }

    /// So many pieces of replies have come from the server, passed on or not.
    pub(crate) fn replied(&self) -> usize {
        self.shared.state.lock().unwrap().replied
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().is_over = true;
        self.shared.changed.notify_all();
        self.cut();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn connect(shared: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
        shared.state.lock().unwrap().streams.extend([copy(&client), copy(&server)]);
        for (from, to, direction) in
            [(copy(&client), copy(&server), Direction::Request), (server, client, Direction::Reply)]
        {
            let own = Arc::clone(shared);
            thread::spawn(move || own.pump(from, to, direction));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut state = self.state.lock().unwrap();
            match direction {
                Direction::Request => state.requested += 1,
                Direction::Reply => state.replied += 1,
            }
            let fate = loop {
                let fate = if direction == Direction::Request { state.requests } else { state.replies };
                if fate != Bytes::Wait || state.is_over {
                    break fate;
                }
                state = self.changed.wait(state).unwrap();
            };
            drop(state);
            if fate == Bytes::Pass && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
