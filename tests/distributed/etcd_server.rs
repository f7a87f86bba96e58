//! etcd clusters for tests, of one member or several, each a child process.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use perkey::distributed::EtcdStore;
use serde_json::{Value, json};

use crate::certificate::Certificate;

/// For what is sure to happen: so long a slow machine may take.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// A cluster without data. Killed at the end.
pub(crate) struct Etcd {
    members: Vec<Member>,
    directory: PathBuf,
    settings: Vec<String>,
    is_tls: bool,
}

struct Member {
    child: Option<Child>,
    client: u16,
    peer: u16,
}

impl Etcd {
    /// Of one member.
    pub(crate) fn start() -> Self {
        Self::with(1, &[])
    }

    /// Of so many, with settings, as `["--auth-token-ttl", "1"]`.
    pub(crate) fn with(members: usize, settings: &[&str]) -> Self {
        let mut etcd = Self::planned(members, settings);
        for number in 0..members {
            etcd.run(number);
        }
        etcd.wait_for_a_leader();
        etcd
    }

    /// Of one member, with that certificate. It is asked over TLS; these questions of the tests do not check the certificate.
    #[allow(dead_code, reason = "not by all who start servers")]
    pub(crate) fn with_tls(certificate: &Certificate) -> Self {
        let mut etcd = Self::planned(1, &["--cert-file", &certificate.file(), "--key-file", &certificate.key()]);
        etcd.is_tls = true;
        // If it was chosen, that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        etcd.run(0);
        etcd.wait_for_a_leader();
        etcd
    }

    /// It has ports, and does not run yet.
    pub(crate) fn planned(members: usize, settings: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("perkey-etcd-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("the directory for temporary files can be written");
        let member = |_| Member { child: None, client: free_port(), peer: free_port() };
        let members = (0..members).map(member).collect();
        let settings = settings.iter().copied().map(str::to_owned).collect();
        Self { members, directory, settings, is_tls: false }
    }

    /// Starts a member, with the data that it has.
    pub(crate) fn run(&mut self, number: usize) {
        let peer = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(number, member)| format!("m{number}={}", peer(member.peer)))
            .collect();
        let directory = self.directory.join(format!("m{number}"));
        let log = fs::File::create(self.directory.join(format!("m{number}.log"))).unwrap();
        // One alone has nobody to wait for; it may grant short leases then.
        let times = if self.members.len() == 1 { ["50", "500"] } else { ["100", "1000"] };
        let url = self.endpoint(number);
        let member = &mut self.members[number];
        let own = peer(member.peer);
        let child = Command::new("etcd")
            .args(["--name", &format!("m{number}"), "--data-dir"])
            .arg(&directory)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &own, "--initial-advertise-peer-urls", &own])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--heartbeat-interval", times[0], "--election-timeout", times[1]])
            .args(["--logger", "zap", "--log-level", "error"])
            .args(&self.settings)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.child = Some(
            child.unwrap_or_else(|error| panic!("cannot start etcd ({error}): install the Debian package etcd-server")),
        );
    }

    /// Until each member that runs answers and knows a leader.
    pub(crate) fn wait_for_a_leader(&mut self) {
        for number in 0..self.members.len() {
            until("a member knows the leader", || {
                let member = &mut self.members[number];
                let Some(child) = &mut member.child else { return true };
                if child.try_wait().unwrap().is_some() {
                    let log = fs::read_to_string(self.directory.join(format!("m{number}.log"))).unwrap_or_default();
                    panic!("etcd has ended: is one of the ports {}, {} taken? {log}", member.client, member.peer);
                }
                self.leader_as_seen_by(number).is_some()
            });
        }
    }

    /// As a power cut does.
    pub(crate) fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, number: usize, signal: &str) {
        let id = self.members[number].child.as_ref().expect("it runs").id();
        let done = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status().unwrap();
        assert!(done.success());
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.members[number].client
    }

    fn endpoint(&self, number: usize) -> String {
        format!("{}://127.0.0.1:{}", if self.is_tls { "https" } else { "http" }, self.port(number))
    }

    /// Of all members, beginning with that one.
    pub(crate) fn url_from(&self, first: usize) -> String {
        let count = self.members.len();
        let hosts: Vec<_> = (0..count).map(|n| format!("127.0.0.1:{}", self.port((first + n) % count))).collect();
        format!("etcd://{}", hosts.join(","))
    }

    pub(crate) fn url(&self) -> String {
        self.url_from(0)
    }

    pub(crate) fn store(&self) -> EtcdStore {
        EtcdStore::open(&self.url()).unwrap()
    }

    /// Another way to a member: what it replies. The empty value if it does not.
    pub(crate) fn ask(&self, number: usize, path: &str, body: &Value) -> Value {
        let sent = ureq::post(format!("{}/v3/{path}", self.endpoint(number))).config();
        let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
        let sent = if self.is_tls { sent.tls_config(tls) } else { sent };
        let sent = sent.proxy(None).http_status_as_error(false).timeout_global(Some(Duration::from_secs(10))).build();
        let reply = sent.send(body.to_string()).and_then(|mut reply| reply.body_mut().read_to_string());
        reply.ok().and_then(|reply| serde_json::from_str(&reply).ok()).unwrap_or_default()
    }

    /// The number of the leader's member.
    pub(crate) fn leader(&self) -> usize {
        let is = |number: &usize| {
            let own = &self.ask(*number, "maintenance/status", &json!({}))["header"]["member_id"];
            self.leader_as_seen_by(*number).as_deref() == own.as_str()
        };
        (0..self.members.len()).find(is).expect("one is the leader")
    }

    fn leader_as_seen_by(&self, number: usize) -> Option<String> {
        self.ask(number, "maintenance/status", &json!({}))["leader"].as_str().map(str::to_owned)
    }

    /// The keys with their values, in the order in which they were made.
    pub(crate) fn entries(&self) -> Vec<(String, String)> {
        self.entries_at(0)
    }

    /// As a member knows them.
    pub(crate) fn entries_at(&self, number: usize) -> Vec<(String, String)> {
        self.raw_entries(number).iter().map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect()
    }

    /// So many watch something by way of that member.
    pub(crate) fn watchers(&self, number: usize) -> u32 {
        self.metric_of(number, "etcd_debugging_mvcc_watcher_total") as u32
    }

    /// The leases that the keys live under, in the order in which these were made.
    pub(crate) fn leases_of_keys(&self) -> Vec<String> {
        self.raw_entries(0).iter().map(|entry| entry["lease"].as_str().unwrap().to_owned()).collect()
    }

    fn raw_entries(&self, number: usize) -> Vec<Value> {
        let body = json!({"key": encoded("perkey/"), "range_end": encoded("perkey0"), "sort_target": "CREATE", "sort_order": "ASCEND"});
        let said = self.ask(number, "kv/range", &body);
        assert!(said["header"].is_object(), "{said}");
        said["kvs"].as_array().cloned().unwrap_or_default()
    }

    /// All leases there are.
    pub(crate) fn leases(&self) -> usize {
        self.ask(0, "lease/leases", &json!({}))["leases"].as_array().map_or(0, Vec::len)
    }

    /// What is left: nothing, once all is given back.
    pub(crate) fn leftovers(&self) -> (Vec<(String, String)>, usize) {
        (self.entries(), self.leases())
    }

    /// What it counts, as `grpc_server_started_total{...}`: all whose names begin so.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.metric_of(0, name)
    }

    pub(crate) fn metric_of(&self, number: usize, name: &str) -> f64 {
        let sent = ureq::get(format!("{}/metrics", self.endpoint(number))).config().proxy(None).build();
        let text = sent.call().and_then(|mut reply| reply.body_mut().read_to_string()).expect("it counts");
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }
}

/// Below those that the system gives to who connects somewhere: such a one could be taken by then.
fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(89).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|number| self.kill(number));
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn text(encoded: &Value) -> String {
    String::from_utf8(STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap()).unwrap()
}

/// Waits for what is sure to happen.
#[track_caller]
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happens() {
        assert!(begin.elapsed() < WATCHDOG, "still not so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
