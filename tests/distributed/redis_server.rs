//! Redis servers for tests, each a child process.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::RedisStore;
use redis::{Connection, FromRedisValue};

use crate::certificate::Certificate;

/// For what is sure to happen: so long a slow machine may take.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// A server without data. Killed at the end.
pub(crate) struct RedisServer {
    child: Option<Child>,
    port: u16,
    directory: PathBuf,
    settings: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With settings, as `["--requirepass", "secret"]`.
    pub(crate) fn with(settings: &[&str]) -> Self {
        let mut server = Self::planned(settings);
        server.run();
        server
    }

    /// With TLS, and nothing else.
    #[allow(dead_code, reason = "used by the tests of the example")]
    pub(crate) fn with_tls(certificate: &Certificate) -> Self {
        let mut server = Self::planned(&[]);
        let (port, file, key) = (server.port.to_string(), certificate.file(), certificate.key());
        let settings = ["--port", "0", "--tls-port", &port, "--tls-cert-file", &file, "--tls-key-file", &key];
        server.settings = settings.into_iter().chain(["--tls-auth-clients", "no"]).map(str::to_owned).collect();
        server.run();
        server
    }

    /// It has a port, and does not run yet.
    pub(crate) fn planned(settings: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("perkey-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("the directory for temporary files can be written");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
        let port = free.local_addr().unwrap().port();
        let settings = settings.iter().copied().map(str::to_owned).collect();
        Self { child: None, port, directory, settings }
    }

    /// Starts it, without data.
    pub(crate) fn run(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.settings)
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| {
            panic!("cannot start redis-server ({error}): install the Debian package redis-server")
        }));
        until("the server answers", || {
            let child = self.child.as_mut().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "redis-server ended at once: is port {} taken?", self.port);
            std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
    }

    /// As a power cut does: it saves nothing.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id();
        let done = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status().unwrap();
        assert!(done.success());
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::open(&self.url()).unwrap()
    }

    /// Another way to the server.
    pub(crate) fn connection(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection_with_timeout(WATCHDOG).unwrap()
    }

    /// What the server replies to a command, as `"GET key"`.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut request = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            request.arg(word);
        });
        request.query(&mut self.connection()).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// So many requests have come to take, renew, give back or list something.
    pub(crate) fn scripts(&self) -> u64 {
        let stats: String = self.ask("INFO commandstats");
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    /// The keys that are not token counters.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let keys: Vec<String> = self.ask("KEYS *");
        keys.into_iter().filter(|key| !key.ends_with("-token")).collect()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Waits for what is sure to happen.
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happens() {
        assert!(begin.elapsed() < WATCHDOG, "still not so: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
