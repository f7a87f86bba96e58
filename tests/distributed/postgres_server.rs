//! PostgreSQL servers for tests, each a child process in a directory of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::distributed::{PostgresStore, Store};
use postgres::types::FromSqlOwned;
use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::certificate::Certificate;

/// For what is sure to happen: so long a slow machine may take.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// A server. Ended at the end.
pub(crate) struct PostgresServer {
    child: Option<Child>,
    guard: Option<Guard>,
    port: u16,
    directory: Directory,
    /// The processes of it that were stopped.
    stopped: Mutex<Vec<Pid>>,
    /// Kept for the next server.
    template: Arc<Directory>,
}

/// A database of its own: locks and tables are seen in it alone.
pub(crate) struct Database {
    server: Arc<PostgresServer>,
    name: String,
}

/// Removed at the end.
struct Directory(PathBuf);

/// Ends a server whose test program has ended without that: it was killed, or a test hangs.
struct Guard(Child);

impl Guard {
    fn of(server: &Child, directories: [&Directory; 2]) -> Self {
        // Its input ends with this process.
        let text = "cat; kill -CONT $1; kill -QUIT $1; rm -rf \"$2\" \"$3\"";
        let mut command = Command::new("sh");
        command.args(["-c", text, "guard", &server.id().to_string()]).args(directories.map(|directory| &directory.0));
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("there is a shell"),
        )
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Directory {
    fn new(what: &str) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("perkey-{what}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the directory for temporary files can be written");
        if let Some((user, group)) = unprivileged() {
            chown(&path, Some(user), Some(group)).expect("root may do that");
        }
        Self(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The server refuses to be run by root: then it is run by the user that Debian's package makes, or by nobody.
fn unprivileged() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| {
        let fields: Vec<_> = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).collect();
        let user = fields.iter().find(|fields| fields[0] == name)?;
        Some((user.get(2)?.parse().ok()?, user.get(3)?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("there is a user nobody"))
}

/// On the path, or where Debian has it: then the newest.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort_by_key(|path| path.components().nth(4).and_then(|name| name.as_os_str().to_str()?.parse::<u32>().ok()));
    let found = std::env::split_paths(&path).chain(debian.into_iter().rev()).map(|directory| directory.join(name));
    found.into_iter().find(|program| program.is_file()).unwrap_or_else(|| {
        panic!(
            "there is no program {name}, on the path or in /usr/lib/postgresql: install the Debian package postgresql"
        )
    })
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Where that user may be.
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    command
}

fn run(command: &mut Command) {
    let output = command.stderr(Stdio::piped()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An empty cluster, which is copied: making one takes long.
fn template() -> Arc<Directory> {
    static TEMPLATE: Mutex<Weak<Directory>> = Mutex::new(Weak::new());
    let mut template = TEMPLATE.lock();
    if let Some(made) = template.upgrade() {
        return made;
    }
    let made = Arc::new(Directory::new("initdb"));
    let settings = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
    run(command(&program("initdb")).args(settings).arg("-D").arg(made.data()));
    *template = Arc::downgrade(&made);
    made
}

impl PostgresServer {
    /// One of its own: to be killed, stopped, or set up otherwise.
    pub(crate) fn start() -> Self {
        let template = template();
        let directory = Directory::new("postgres");
        run(command(Path::new("cp")).arg("-R").arg(template.data()).arg(directory.data()));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = Self { child: None, guard: None, port, directory, stopped: Mutex::default(), template };
        server.run();
        server
    }

    /// The one that all tests share which do nothing to it. It ends with the last of them.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts it, with the data that it had.
    pub(crate) fn run(&mut self) {
        let begin = Instant::now();
        loop {
            let mut command = command(&program("postgres"));
            command.arg("-D").arg(self.directory.data()).args(["-p", &self.port.to_string()]);
            for setting in [
                "listen_addresses=127.0.0.1",
                "unix_socket_directories=",
                "max_connections=400",
                "shared_buffers=16MB",
                "autovacuum=off",
                "fsync=off",
                "full_page_writes=off",
                "log_min_messages=panic",
            ] {
                command.args(["-c", setting]);
            }
            let log = fs::File::create(self.directory.0.join("log")).expect("there is room");
            let child = self.child.insert(command.stderr(log).spawn().expect("it is a program"));
            self.guard = Some(Guard::of(child, [&self.directory, &self.template]));
            loop {
                if connect(&format!("{}?connect_timeout=5", url(self.port, "postgres"))).is_ok() {
                    return;
                }
                if child.try_wait().expect("it is a child").is_some() {
                    break;
                }
                assert!(begin.elapsed() < WATCHDOG, "postgres does not answer");
                thread::sleep(Duration::from_millis(5));
            }
            // The sessions of one that was killed take a moment to end.
            let log = fs::read_to_string(self.directory.0.join("log")).unwrap_or_default();
            assert!(begin.elapsed() < WATCHDOG, "postgres ended at once: {log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    /// As a power cut does: it says farewell to nobody.
    pub(crate) fn kill(&mut self) {
        self.guard = None;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// All its processes stand still.
    pub(crate) fn stop(&self) {
        let pids: Vec<i32> = self.ask_all("postgres", "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
        let mut stopped = self.stopped.lock();
        // First the one that starts others.
        stopped.push(self.pid());
        stopped.extend(pids.into_iter().filter_map(Pid::from_raw));
        stopped.iter().for_each(|pid| _ = kill_process(*pid, Signal::STOP));
    }

    pub(crate) fn go_on(&self) {
        self.stopped.lock().drain(..).for_each(|pid| _ = kill_process(pid, Signal::CONT));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on it has TLS.
    #[allow(dead_code, reason = "used by the tests of the example")]
    pub(crate) fn speak_tls(&self, certificate: &Certificate) {
        for (name, file) in [("server.crt", certificate.file()), ("server.key", certificate.key())] {
            let path = self.directory.data().join(name);
            fs::copy(file, &path).expect("there is room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
            if let Some((user, group)) = unprivileged() {
                chown(&path, Some(user), Some(group)).expect("root may do that");
            }
        }
        self.execute("postgres", "ALTER SYSTEM SET ssl = on");
        self.execute("postgres", "SELECT pg_reload_conf()");
        until("it has TLS", || self.ask_all::<String>("postgres", "SHOW ssl") == ["on"]);
    }

    /// The first column of what it replies.
    pub(crate) fn ask_all<T: FromSqlOwned>(&self, database: &str, text: &str) -> Vec<T> {
        let mut client = connect(&url(self.port, database)).expect("it runs");
        let rows = client.query(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) fn execute(&self, database: &str, text: &str) {
        let mut client = connect(&url(self.port, database)).expect("it runs");
        client.batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.go_on();
        self.guard = None;
        if let Some(mut child) = self.child.take() {
            // It ends its sessions, and waits for nobody.
            let _ = kill_process(Pid::from_child(&child), Signal::QUIT);
            let begin = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Database {
    /// With the table.
    pub(crate) fn create() -> Self {
        Self::on(PostgresServer::shared())
    }

    pub(crate) fn on(server: Arc<PostgresServer>) -> Self {
        let database = Self::empty_on(server);
        database.store().create_table().expect("the server answers");
        database
    }

    /// Without the table.
    pub(crate) fn empty_on(server: Arc<PostgresServer>) -> Self {
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        server.execute("postgres", &format!("CREATE DATABASE {name}"));
        Self { server, name }
    }

    pub(crate) fn server(&self) -> &PostgresServer {
        &self.server
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        url(self.server.port, &self.name)
    }

    pub(crate) fn store(&self) -> PostgresStore {
        PostgresStore::open(&self.url()).expect("a URL")
    }

    pub(crate) fn client(&self) -> Client {
        connect(&self.url()).expect("the server runs")
    }

    /// The first column of what the server replies.
    pub(crate) fn ask_all<T: FromSqlOwned>(&self, text: &str) -> Vec<T> {
        self.server.ask_all(&self.name, text)
    }

    pub(crate) fn ask<T: FromSqlOwned>(&self, text: &str) -> T {
        self.ask_all(text).pop().expect("a row")
    }

    pub(crate) fn execute(&self, text: &str) {
        self.server.execute(&self.name, text);
    }

    /// The sessions that hold an advisory lock.
    pub(crate) fn holding(&self) -> Vec<i32> {
        self.ask_all(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
    }

    /// Ends the session that holds the only lock.
    pub(crate) fn end_holder(&self) {
        let holding = self.holding();
        assert_eq!(holding.len(), 1, "{holding:?} hold locks");
        assert!(self.ask::<bool>(&format!("SELECT pg_terminate_backend({})", holding[0])));
    }

    /// How many sessions listen, for any key.
    pub(crate) fn listening(&self) -> usize {
        self.listeners().len()
    }

    /// Their processes.
    pub(crate) fn listeners(&self) -> Vec<i32> {
        self.ask_all(&format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'LISTEN perkey%'",
            self.name
        ))
    }

    /// The same, as the tests of all stores want it.
    pub(crate) fn shared_store(&self) -> Arc<dyn Store> {
        Arc::new(self.store())
    }
}

pub(crate) fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

fn connect(url: &str) -> Result<Client, postgres::Error> {
    Client::connect(url, NoTls)
}

/// Waits for what is sure to happen.
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happens() {
        assert!(begin.elapsed() < WATCHDOG, "still not so: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
