//! A pooler, as far as it matters: in session mode, in transaction mode where all clients share one session of the server, and in
//! transaction mode where each transaction has another.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use perkey::distributed::{DistributedLock, PostgresStore, Released, StoreErrorKind};
use postgres::{Client, NoTls};

use super::kind;
use crate::postgres_server::{Database, WATCHDOG, url};
use crate::support::watched;

struct Pooler {
    port: u16,
    servers: Arc<Mutex<Servers>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A client has a session to its end.
    Own,
    /// A client has a session to the end of its transaction: the one that was used last.
    Last,
    /// The same, and none twice.
    Another,
}

struct Servers {
    mode: Mode,
    target: u16,
    /// What a client says first, and what the server then says to each.
    greeting: Option<(Vec<u8>, Vec<u8>)>,
    idle: VecDeque<TcpStream>,
}

/// A message: its type, if it has one, and all its bytes.
fn read(from: &mut TcpStream, has_type: bool) -> Option<(u8, Vec<u8>)> {
    let mut bytes = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut bytes).ok()?;
    let length = u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap()) as usize - 4;
    let begin = bytes.len();
    bytes.resize(begin + length, 0);
    from.read_exact(&mut bytes[begin..]).ok()?;
    Some((if has_type { bytes[0] } else { 0 }, bytes))
}

/// Everything to the message that says that the server is ready; and whether it is in no transaction.
fn read_ready(from: &mut TcpStream) -> Option<(Vec<u8>, bool)> {
    let mut all = Vec::new();
    loop {
        let (kind, bytes) = read(from, true)?;
        all.extend(&bytes);
        if kind == b'Z' {
            return Some((all, bytes[5] == b'I'));
        }
    }
}

impl Servers {
    /// An idle session, or a new one.
    fn take(&mut self) -> Option<TcpStream> {
        if self.mode == Mode::Last && !self.idle.is_empty() {
            return self.idle.pop_front();
        }
        let (startup, greeting) = self.greeting.as_mut()?;
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)).ok()?;
        server.write_all(startup).ok()?;
        *greeting = read_ready(&mut server)?.0;
        Some(server)
    }
}

impl Pooler {
    fn to(target: u16, mode: Mode) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
        let port = listener.local_addr().unwrap().port();
        let servers = Arc::new(Mutex::new(Servers { mode, target, greeting: None, idle: VecDeque::new() }));
        let shared = Arc::clone(&servers);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(client, &shared));
            }
        });
        Self { port, servers }
    }

    fn set(&self, mode: Mode) {
        self.servers.lock().mode = mode;
    }

    fn url(&self, database: &Database) -> String {
        format!("{}?sslmode=disable", url(self.port, database.name()))
    }

    fn locks(&self, database: &Database) -> DistributedLock {
        DistributedLock::new(PostgresStore::open(&self.url(database)).unwrap())
    }
}

fn serve(mut client: TcpStream, servers: &Mutex<Servers>) -> Option<()> {
    let (_, startup) = read(&mut client, false)?;
    let mut server = {
        let mut servers = servers.lock();
        servers.greeting.get_or_insert_with(|| (startup, Vec::new()));
        let server = servers.take()?;
        client.write_all(&servers.greeting.as_ref()?.1).ok()?;
        Some(server)
    };
    loop {
        let (kind, bytes) = read(&mut client, true)?;
        if kind == b'X' {
            return None;
        }
        let current = match &mut server {
            Some(current) => current,
            none => none.insert(servers.lock().take()?),
        };
        current.write_all(&bytes).ok()?;
        // After these the server says that it is ready.
        if kind == b'Q' || kind == b'S' {
            let (reply, is_idle) = read_ready(current)?;
            let mut servers = servers.lock();
            if is_idle && servers.mode != Mode::Own {
                servers.idle.push_front(server.take()?);
            }
            drop(servers);
            client.write_all(&reply).ok()?;
        }
    }
}

fn check_refused(locks: &DistributedLock) {
    let error = locks.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("this is a pooler in transaction mode"), "{error}");
}

const SETTINGS: &str = "SELECT coalesce(current_setting('perkey.session', true), ''), current_setting('lock_timeout')";

/// Also if nobody else uses it.
#[test]
fn a_pooler_in_transaction_mode_is_refused() {
    watched(|| {
        let database = Database::create();
        for mode in [Mode::Last, Mode::Another] {
            let pooler = Pooler::to(database.server().port(), mode);
            for _ in 0..3 {
                check_refused(&pooler.locks(&database));
            }
            // Others get the sessions as they were.
            if mode == Mode::Last {
                let mut other = Client::connect(&pooler.url(&database), NoTls).unwrap();
                let row = other.query_one(SETTINGS, &[]).unwrap();
                let server = database.client().query_one(SETTINGS, &[]).unwrap();
                assert_eq!((row.get::<_, String>(0), row.get::<_, String>(1)), (server.get(0), server.get(1)));
            }
        }
        assert_eq!(database.holding(), [0; 0]);
    });
}

#[test]
fn a_pooler_in_session_mode_does_no_harm() {
    watched(|| {
        let database = Database::create();
        let pooler = Pooler::to(database.server().port(), Mode::Own);
        let (here, there) = (pooler.locks(&database), pooler.locks(&database));
        let lease = here.lock("report").unwrap();
        assert!(lease.verify().unwrap() && there.try_lock("report").unwrap().is_none());
        assert_eq!(lease.release().unwrap(), Released::Freed);
        assert!(there.try_lock("report").unwrap().is_some());
    });
}

/// It looked as a server does when the store connected.
#[test]
fn a_session_that_changes_later_is_noticed() {
    watched(|| {
        let database = Database::create();
        let pooler = Pooler::to(database.server().port(), Mode::Own);
        let locks = pooler.locks(&database);
        let (asked, idle) = (locks.lock("asked").unwrap(), locks.lock("idle").unwrap());
        pooler.set(Mode::Another);
        // The first request is the last on the session of before.
        let _ = asked.verify();
        assert!(!asked.verify().unwrap());
        assert!(asked.lost().is_set());
        assert!(idle.lost().wait_timeout(WATCHDOG));
        check_refused(&locks);

        // Also if nobody asks.
        pooler.set(Mode::Own);
        let locks = pooler.locks(&database);
        let lease = locks.lock("nobody").unwrap();
        pooler.set(Mode::Another);
        assert!(lease.lost().wait_timeout(WATCHDOG));
    });
}
