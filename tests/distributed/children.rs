//! Holders in other processes, which are killed and stopped.
//!
//! The test program starts itself again, with a variable in the environment that turns the test [`child`] into what reads commands
//! from its input and answers each by a line.

#![cfg(unix)]

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use perkey::AcquireError;
use perkey::distributed::{DistributedLock, DistributedSemaphore, Fence, FileStore, Lease, LeaseOptions, Store};
use rustix::process::{Pid, Signal, kill_process};

use crate::contract::{GENEROUS, Place, SHORT, cause, limited};
use crate::file::Directory;
use crate::support::{rounds, until};

/// A place that another process finds by a text.
pub(crate) trait Shared: Place {
    fn address(&self) -> String;
}

impl Shared for Directory {
    fn address(&self) -> String {
        format!("file:{}", self.0.display())
    }
}

/// The store of an address, in the child.
fn open(address: &str) -> Arc<dyn Store> {
    match address.split_once(':') {
        Some(("file", directory)) => Arc::new(FileStore::open(directory).expect("a directory")),
        #[cfg(feature = "postgres")]
        Some(("postgres", _)) => Arc::new(perkey::distributed::PostgresStore::open(address).expect("a URL")),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Arc::new(perkey::distributed::EtcdStore::open(address).expect("a URL")),
        #[cfg(feature = "redis")]
        Some(("redis", _)) => Arc::new(perkey::distributed::RedisStore::open(address).expect("a URL")),
        _ => panic!("{address:?} is no store that this knows"),
    }
}

const ADDRESS: &str = "PERKEY_TEST_STORE";

/// No test of its own.
#[test]
fn child() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let store = open(&address);
    let mut lease = None;
    for line in io::stdin().lines() {
        let line = line.expect("the parent writes text");
        let words: Vec<_> = line.split(' ').collect();
        let answer = obey(&store, &words, &mut lease);
        println!("child: {answer}");
    }
}

fn obey(store: &Arc<dyn Store>, words: &[&str], lease: &mut Option<Lease>) -> String {
    let options = |ms: &str| LeaseOptions::new().ttl(Duration::from_millis(ms.parse().expect("a number")));
    match *words {
        // So that the parent knows when it is about to ask.
        ["hello"] => "hello".to_owned(),
        ["lock", key, ttl] => {
            let lease = lease.insert(DistributedLock::with_options(store.clone(), options(ttl)).lock(key).unwrap());
            format!("{:?}", lease.fencing_token())
        }
        ["permit", key, ttl] => {
            let permits = DistributedSemaphore::with_options(store.clone(), limited(2), options(ttl));
            format!("{:?}", lease.insert(permits.acquire(key).unwrap()).fencing_token())
        }
        // It does not look whether it still holds the key, as nobody can who is stopped after the look.
        ["write"] => lease.as_ref().and_then(Lease::fencing_token).expect("it has tokens").to_string(),
        ["state"] => {
            let lease = lease.as_ref().expect("it holds something");
            let is_held = lease.is_held();
            let is_lost = lease.lost().wait_timeout(if is_held { Duration::ZERO } else { GENEROUS });
            format!("held {is_held}, lost {is_lost}")
        }
        // As `write`, to a table that is fenced.
        #[cfg(feature = "postgres")]
        ["update", text] => {
            let token = lease.as_ref().and_then(Lease::fencing_token).expect("it has tokens");
            crate::postgres::update(&env::var(ADDRESS).expect("it was set"), token, text).to_string()
        }
        ["release"] => format!("{:?}", lease.take().expect("it holds something").release().unwrap()),
        ["log", key, log, times, name] => {
            // So long others wait if this is killed while it holds the key.
            let locks = DistributedLock::with_options(store.clone(), options("5000"));
            for _ in 0..times.parse().expect("a number") {
                let lease = locks.lock(key).unwrap();
                let token = lease.fencing_token().expect("it has tokens");
                let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
                log.write_all(format!("{token} {name}\n").as_bytes()).unwrap();
            }
            "logged".to_owned()
        }
        _ => panic!("{words:?} is no command"),
    }
}

/// Killed with the test.
pub(crate) struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn start(place: &impl Shared) -> Self {
        let mut command = Command::new(env::current_exe().expect("this test is a file"));
        command.args(["--exact", "children::child", "--nocapture", "--test-threads", "1"]);
        command.env(ADDRESS, place.address()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the test program starts");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut child = Self { process, input, output };
        assert_eq!(child.ask("hello"), "hello");
        child
    }

    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the child reads");
    }

    pub(crate) fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).expect("the child writes text");
            assert!(length > 0, "the child has ended");
            // What the test runner prints is in front of it.
            if let Some((_, answer)) = line.trim_end().split_once("child: ") {
                return answer.to_owned();
            }
        }
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("it is a child");
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it is a child");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn a_holder_that_is_killed_frees_the_key<P: Shared>(place: &P) {
    let mut child = Child::start(place);
    let token = child.ask(&format!("lock a {}", P::TTL.as_millis() * 4));
    let locks = place.locks();
    assert!(locks.try_lock("a").unwrap().is_none());
    let listed = place.held();
    child.kill();
    let next = locks.lock("a").unwrap();
    assert!(next.is_held() && next.verify().unwrap());
    if place.capabilities().tokens {
        let before: u64 = token.trim_start_matches("Some(").trim_end_matches(')').parse().unwrap();
        assert!(next.fencing_token() > Some(before), "{next:?} comes after {before}");
        if place.capabilities().lists_holders {
            assert_eq!(listed.iter().map(|holder| holder.token).collect::<Vec<_>>(), [Some(before)]);
            let listed = place.held();
            assert_eq!(listed.iter().map(|holder| holder.token).collect::<Vec<_>>(), [next.fencing_token()]);
        }
    }
    drop(next);
    place.check_free(&["a"]);
}

fn a_holder_that_is_killed_gives_its_permit_back<P: Shared>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let mut child = Child::start(place);
    child.ask(&format!("permit a {}", P::TTL.as_millis() * 4));
    let permits = place.permits(2);
    let other = permits.acquire("a").unwrap();
    assert!(permits.try_acquire("a").unwrap().is_none());
    child.kill();
    let next = permits.acquire("a").unwrap();
    assert!(other.verify().unwrap() && next.verify().unwrap());
    assert!(place.permits(2).try_acquire("a").unwrap().is_none());
    drop((other, next));
    assert_eq!(place.held(), []);
}

fn a_waiter_that_is_killed_leaves_nothing<P: Shared>(place: &P) {
    let locks = place.locks();
    let held = locks.lock("a").unwrap();
    let mut child = Child::start(place);
    child.tell("lock a 30000");
    assert_eq!(cause(place.locks().lock_with("a", SHORT)), AcquireError::Timeout);
    child.kill();
    drop(held);
    drop(locks.lock("a").unwrap());
    place.check_free(&["a"]);
}

/// With leases the stopped holder loses the key, and knows it as soon as it goes on. Without, it keeps it.
fn a_holder_is_stopped_and_goes_on<P: Shared>(place: &P) {
    let mut child = Child::start(place);
    child.ask(&format!("lock a {}", P::TTL.as_millis() * 4));
    child.signal(Signal::STOP);
    let there = place.locks();
    if place.capabilities().leases {
        let (next, resource) = (there.lock("a").unwrap(), Fence::new());
        resource.admit("a", next.fencing_token().expect("it has tokens")).expect("it is the first");
        child.signal(Signal::CONT);
        assert_eq!(child.ask("state"), "held false, lost true");
        let late = child.ask("write").parse().expect("a token");
        assert!(resource.admit("a", late).is_err(), "what was stopped writes beside the next");
        assert_eq!(child.ask("release"), "NotOwner");
        assert!(next.verify().unwrap());
        drop(next);
    } else {
        place.let_pass(P::TTL * 5);
        assert!(there.try_lock("a").unwrap().is_none());
        assert_eq!(cause(there.lock_with("a", SHORT)), AcquireError::Timeout);
        child.signal(Signal::CONT);
        assert_eq!(child.ask("state"), "held true, lost false");
        assert_eq!(child.ask("release"), "Freed");
    }
    place.check_free(&["a"]);
}

/// While others lock it, some of which are killed wherever they are: each logs its token while it holds the key.
fn processes_exclude_each_other<P: Shared>(place: &P) {
    if !place.capabilities().tokens {
        return;
    }
    let of = place.address().replace(|letter: char| !letter.is_alphanumeric(), "-");
    let log = env::temp_dir().join(format!("perkey-log{}", &of[of.len().saturating_sub(100)..]));
    let _ = fs::remove_file(&log);
    let command = |times, name: &str| format!("log a {} {times} {name}", log.display());
    let logged = |name: &str| fs::read_to_string(&log).unwrap_or_default().matches(name).count();
    let mut children = [Child::start(place), Child::start(place)];
    children.iter_mut().for_each(|child| child.tell(&command(rounds(60), "stays")));
    for name in ["first", "second", "third"] {
        let mut victim = Child::start(place);
        victim.tell(&command(100_000, name));
        until(|| logged(name) > 3);
        victim.kill();
    }
    for child in &mut children {
        assert_eq!(child.answer(), "logged");
    }
    let text = fs::read_to_string(&log).expect("it was written");
    let token = |line: &str| line.split_once(' ')?.0.parse::<u64>().ok();
    let tokens: Vec<_> = text.lines().map(|line| token(line).expect("a token")).collect();
    assert_eq!(logged("stays"), 2 * rounds(60));
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{} comes after {}", pair[1], pair[0]);
    }
    fs::remove_file(&log).expect("it is there");
    drop(place.locks().lock("a").unwrap());
    place.check_free(&["a"]);
}

/// A test of each, over stores of one place.
macro_rules! children {
    ($place:ty: $($point:ident),* $(,)?) => {
        $(
            #[test]
            fn $point() {
                crate::contract::run::<$place>(stringify!($point), super::$point);
            }
        )*
    };
    ($place:ty) => {
        children! { $place:
            a_holder_that_is_killed_frees_the_key,
            a_holder_that_is_killed_gives_its_permit_back,
            a_waiter_that_is_killed_leaves_nothing,
            a_holder_is_stopped_and_goes_on,
            processes_exclude_each_other,
        }
    };
}

mod file {
    use crate::file::Directory;

    children!(Directory);
}

#[cfg(feature = "postgres")]
mod postgres {
    use crate::postgres_server::Database;

    children!(Database);
}

#[cfg(feature = "etcd")]
mod etcd {
    use crate::etcd_server::Etcd;

    children!(Etcd);
}

#[cfg(feature = "redis")]
mod redis {
    use crate::redis_server::RedisServer;

    children!(RedisServer);
}
