//! The example `locked`, run as a program, and its own unit tests.

#![cfg(unix)]

// `cargo test` builds the example as a program; asked to run the unit tests in it, it would build those instead. So
// they are run from here.
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/locked/main.rs"]
mod example;

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
#[allow(dead_code, reason = "shared with the tests of the stores")]
#[path = "distributed/certificate.rs"]
mod certificate;
#[cfg(feature = "etcd")]
#[allow(dead_code, reason = "shared with the tests of the stores")]
#[path = "distributed/etcd_server.rs"]
mod etcd_server;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "shared with the tests of the stores")]
#[path = "distributed/postgres_server.rs"]
mod postgres_server;
#[cfg(feature = "redis")]
#[allow(dead_code, reason = "shared with the tests of the stores")]
#[path = "distributed/redis_server.rs"]
mod redis_server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Nothing here takes that long. It turns a hang into a failure.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The example as a program. `cargo test` builds it and puts it beside the directory of the tests; `cargo test --test
/// locked` does not, and must not pass with one that is missing or was built before the last change.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let profile = test.parent().and_then(Path::parent).expect("tests are in <profile>/deps");
    let program = profile.join("examples/locked");
    let built = fs::metadata(&program).and_then(|program| program.modified());
    assert!(
        built.is_ok_and(|built| built >= last_change()),
        "{} is missing or old: build it with `cargo build --example locked --features distributed` and this test's profile",
        program.display()
    );
    program
}

/// When a source of the example or of the library was last changed.
fn last_change() -> SystemTime {
    ["examples/locked", "src", "src/distributed"]
        .iter()
        .flat_map(|directory| Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).read_dir().expect("it is there"))
        .map(|file| file.expect("it can be listed"))
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "rs"))
        .map(|file| file.metadata().and_then(|file| file.modified()).expect("files have a time"))
        .max()
        .expect("there are sources")
}

/// A directory that the commands of one test run in. It stays if the test fails.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("locked-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("there is room");
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn wait_for_file(&self, name: &str) {
        wait_for(name, || self.has(name));
    }

    /// The example with a store in this directory.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(["--store", "file:locks"]).args(args).current_dir(&self.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.start(args).end()
    }

    fn start(&self, args: &[&str]) -> Running {
        Running(Some(self.command(args).spawn().expect("the example starts")))
    }

    /// Holds the key `a` until there is a file `go`.
    fn hold(&self, args: &[&str]) -> Running {
        let running =
            self.start(&[args, &["--key", "a", "--", "sh", "-c", &format!("touch began; {}", until("go"))]].concat());
        self.wait_for_file("began");
        running
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // For commands of a test that failed.
        self.write("go", "");
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// The example while it runs.
struct Running(Option<Child>);

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("it runs"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is a child");
    }

    fn end(mut self) -> Output {
        let mut child = self.0.take().expect("it runs");
        let begin = Instant::now();
        while child.try_wait().expect("it is a child").is_none() {
            if begin.elapsed() > WATCHDOG {
                let _ = child.kill();
                panic!("the example hangs: {:?}", child.wait_with_output());
            }
            thread::sleep(Duration::from_millis(2));
        }
        child.wait_with_output().expect("it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < WATCHDOG, "{what}: not after {WATCHDOG:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Shell code that waits until there is a file `name`.
fn until(name: &str) -> String {
    let looks = WATCHDOG.as_millis() / 20;
    format!("n=0; until [ -e {name} ]; do n=$((n + 1)); [ $n -lt {looks} ] || exit 99; sleep 0.02; done")
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("it is text")
}

/// Checks the exit code, and gives what was said on stderr.
#[track_caller]
fn ended(output: &Output, code: i32) -> &str {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    str::from_utf8(&output.stderr).expect("it is text")
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let dir = Dir::new("codes");
    let ways = [&[][..], &["--permits", "2"], &["--at-most", "1h"], &["--no-wait"], &["--wait", "1h"]];
    let commands = [("true", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)];
    for (way, (command, code)) in ways.into_iter().flat_map(|way| commands.map(|command| (way, command))) {
        let output = dir.run(&[way, &["--key", "a", "--", "sh", "-c", command]].concat());
        assert_eq!(ended(&output, code), "", "{way:?} {command}");
    }
}

#[test]
fn the_token_is_in_the_environment_and_rises() {
    let dir = Dir::new("token");
    for (key, expected) in [("a", "1"), ("a", "2"), ("b", "1"), ("a", "3")] {
        let output = dir.run(&["--key", key, "sh", "-c", "printf %s \"$PERKEY_TOKEN\""]);
        ended(&output, 0);
        assert_eq!(stdout(&output), expected, "of {key}");
    }
    let output = dir.run(&["--key", "a", "--namespace", "other", "sh", "-c", "printf %s \"$PERKEY_TOKEN\""]);
    assert_eq!(stdout(&output), "1", "in another namespace");
}

#[test]
fn arguments_and_output_are_passed_as_they_are() {
    let dir = Dir::new("args");
    let output = dir.run(&["--key", "-k\n", "printf", "<%s>", "a b", "--key", "$HOME", "", "*"]);
    ended(&output, 0);
    assert_eq!(stdout(&output), "<a b><--key><$HOME><><*>");
    assert_eq!(ended(&dir.run(&["--key", "a", "--", "sh", "-c", "echo no >&2; exit 1"]), 1), "no\n");
}

#[test]
fn of_many_at_once_one_runs() {
    let dir = Dir::new("many");
    let command = "mkdir inside || exit 98; echo $PERKEY_TOKEN >> log; sleep 0.01; rmdir inside";
    let all: Vec<_> = (0..8).map(|_| dir.start(&["--key", "a", "--", "sh", "-c", command])).collect();
    for running in all {
        assert_eq!(ended(&running.end(), 0), "");
    }
    let log = fs::read_to_string(dir.0.join("log")).expect("it was written");
    assert_eq!(log, "1\n2\n3\n4\n5\n6\n7\n8\n");
}

#[test]
fn who_does_not_wait_for_ever_is_told_that_it_is_held() {
    let dir = Dir::new("held");
    let held = dir.hold(&[]);
    for (wait, said) in [
        (&["--no-wait"][..], "the key is taken and the wait allows no time\n"),
        (&["--wait", "0s"], "the key is taken and the wait allows no time\n"),
        (&["--wait", "50ms"], "the key was not granted in time\n"),
        (&["--at-most", "1m"], "locked: key \"a\" is held, or was a moment ago\n"),
    ] {
        let output = dir.run(&[wait, &["--key", "a", "--", "touch", "ran"]].concat());
        let message = ended(&output, 75);
        assert!(message.starts_with("locked: key \"a\" ") && message.ends_with(said), "{message}");
    }
    assert!(!dir.has("ran"));
    ended(&dir.run(&["--key", "b", "--no-wait", "true"]), 0);
    let waits = dir.start(&["--key", "a", "--", "touch", "ran"]);
    dir.write("go", "");
    ended(&held.end(), 0);
    ended(&waits.end(), 0);
    assert!(dir.has("ran"));
}

#[test]
fn permits_let_several_in() {
    let dir = Dir::new("permits");
    let permits = ["--permits", "2", "--key", "a", "--no-wait"];
    let meet = |own: &str, other: &str| format!("touch {own}; {}; {}", until(other), until("go"));
    let (one, other) = (meet("one", "other"), meet("other", "one"));
    let both = [one, other].map(|command| dir.start(&[&permits[..], &["sh", "-c", &command]].concat()));
    dir.wait_for_file("one");
    dir.wait_for_file("other");
    ended(&dir.run(&[&permits[..], &["true"]].concat()), 75);
    let listed = dir.run(&["--list"]);
    assert_eq!(stdout(&listed).lines().count(), 2);
    dir.write("go", "");
    for running in both {
        ended(&running.end(), 0);
    }
    ended(&dir.run(&[&permits[..], &["true"]].concat()), 0);
}

/// With what it has started.
#[test]
fn a_command_is_ended_when_the_key_is_lost() {
    let dir = Dir::new("lost");
    let command = "sleep 1000 & echo $! > pid.part; mv pid.part pid; wait; wait; touch ended";
    let output = dir.run(&["--key", "a", "--at-most", "2s", "--", "sh", "-c", command]);
    let said = "locked: key \"a\" is lost: ending the command\n\
                locked: key \"a\" was lost before the command had ended\n";
    assert_eq!(ended(&output, 70), said);
    assert!(!dir.has("ended"));
    let pid = fs::read_to_string(dir.0.join("pid")).expect("two seconds are enough to start");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("not zero");
    wait_for("the end of what it has started", || test_kill_process(pid).is_err() || is_zombie(pid));
    ended(&dir.run(&["--key", "a", "--no-wait", "true"]), 0);
}

/// Nobody may have taken it from the system.
fn is_zombie(pid: Pid) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", &pid.as_raw_nonzero().to_string()]).output();
    state.is_ok_and(|state| state.stdout.starts_with(b"Z"))
}

#[test]
fn a_command_that_does_not_end_is_killed() {
    let dir = Dir::new("killed");
    let command = "exec 2>&-; trap 'touch asked' TERM; n=0; while [ $n -lt 5000 ]; do n=$((n + 1)); sleep 0.02; done; touch ended";
    let output = dir.run(&["--key", "a", "--at-most", "2s", "--kill-after", "2s", "--", "sh", "-c", command]);
    let said = "locked: key \"a\" is lost: ending the command\n\
                locked: the command goes on after 2s: killing it\n\
                locked: key \"a\" was lost before the command had ended\n";
    assert_eq!(ended(&output, 70), said);
    assert!(dir.has("asked"), "it was not asked to end");
    assert!(!dir.has("ended"));
}

#[test]
fn a_short_job_keeps_its_key() {
    let dir = Dir::new("job");
    let job = ["--key", "a", "--at-most", "1h", "--at-least", "30m"];
    ended(&dir.run(&[&job[..], &["touch", "ran"]].concat()), 0);
    assert!(dir.has("ran"));
    ended(&dir.run(&[&job[..], &["touch", "again"]].concat()), 75);
    ended(&dir.run(&["--key", "a", "--no-wait", "touch", "again"]), 75);
    assert!(!dir.has("again"));
    let listed = dir.run(&["--list"]);
    let fields: Vec<_> = stdout(&listed).trim_end().split('\t').collect();
    assert_eq!(fields[..3], ["a", "1", "-"]);
    let left: f64 = fields[3].trim_end_matches('s').parse().expect("seconds");
    assert!(left <= 1800.0 && left > 1000.0, "{left}");
}

#[test]
fn signals_are_passed_on() {
    let dir = Dir::new("signals");
    for (name, signal, code) in [("INT", Signal::INT, 7), ("TERM", Signal::TERM, 8), ("HUP", Signal::HUP, 9)] {
        let began = format!("began.{name}");
        let trap = format!("exec 2>&-; trap 'touch got.{name}; exit {code}' {name}; touch {began}; {}", until("never"));
        let running = dir.start(&["--key", "a", "--", "sh", "-c", &trap]);
        dir.wait_for_file(&began);
        running.signal(signal);
        assert_eq!(ended(&running.end(), code), "");
        assert!(dir.has(&format!("got.{name}")));
    }
    // One that the command does nothing about ends it.
    let running = dir.hold(&[]);
    running.signal(Signal::TERM);
    assert_eq!(ended(&running.end(), 143), "");
    ended(&dir.run(&["--key", "a", "--no-wait", "true"]), 0);
}

#[test]
fn a_signal_ends_the_wait_for_the_key() {
    let dir = Dir::new("interrupted");
    let held = dir.hold(&[]);
    let waits = dir.start(&["--key", "a", "--", "touch", "ran"]);
    // Until it listens for signals; before, one ends it too, and says nothing.
    wait_for("a handler for signals", || catches_term(waits.pid()));
    waits.signal(Signal::TERM);
    let output = waits.end();
    assert!(ended(&output, 143).ends_with("the wait for the key was cancelled\n"), "{output:?}");
    dir.write("go", "");
    ended(&held.end(), 0);
    assert!(!dir.has("ran"));
}

/// Whether a process has a handler for SIGTERM: on Linux it can be seen.
fn catches_term(pid: Pid) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else {
        return !cfg!(target_os = "linux");
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << (15 - 1)) != 0)
}

/// The command goes on: nobody can end it.
#[test]
fn a_kill_of_the_program_frees_the_key() {
    let dir = Dir::new("kill");
    let held = dir.hold(&[]);
    ended(&dir.run(&["--key", "a", "--no-wait", "true"]), 75);
    held.signal(Signal::KILL);
    let output = dir.run(&["--key", "a", "sh", "-c", "printf %s \"$PERKEY_TOKEN\""]);
    ended(&output, 0);
    assert_eq!(stdout(&output), "2");
    dir.write("go", "");
}

#[test]
fn who_holds_what_is_listed() {
    let dir = Dir::new("list");
    let list = |args: &[&str]| {
        let output = dir.run(&[&["--list"], args].concat());
        assert_eq!(ended(&output, 0), "");
        stdout(&output).to_owned()
    };
    assert_eq!(list(&[]), "");
    let held = dir.hold(&[]);
    let other = dir.start(&["--key", "b\tc", "--", "sh", "-c", &format!("touch other; {}", until("go"))]);
    dir.wait_for_file("other");
    let listed = list(&[]);
    let lines: Vec<Vec<_>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 2, "{listed}");
    for (fields, key) in lines.iter().zip(["a", "b\\tc"]) {
        assert_eq!((fields[0], fields[1], fields[3]), (key, "1", "-"), "{listed}");
        assert!(fields[2].len() == 32 && fields[2].bytes().all(|byte| byte.is_ascii_hexdigit()), "{listed}");
    }
    assert!(listed.starts_with(&list(&["--key", "a"])));
    assert_eq!(list(&["--key", "a"]).lines().count(), 1);
    assert_eq!(list(&["--key", "ab"]), "");
    assert_eq!(list(&["--namespace", "other"]), "");
    dir.write("go", "");
    ended(&held.end(), 0);
    ended(&other.end(), 0);
    assert_eq!(list(&[]), "");
}

/// A server of its own, and no table at first.
#[cfg(feature = "postgres")]
#[test]
fn a_key_of_a_postgresql_server_is_held() {
    use crate::postgres_server::{Database, PostgresServer};

    let (dir, database) = (Dir::new("postgres"), Database::empty_on(PostgresServer::shared()));
    let url = database.url().replace("postgres@", "postgres:s3cret@");
    let start = |args: &[&str]| {
        let mut command = Command::new(program());
        command.args(["--store", &url]).args(args).current_dir(&dir.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("the example starts")))
    };
    let run = |args: &[&str]| start(args).end();
    let output = run(&["--key", "a", "touch", "ran"]);
    let said = ended(&output, 69);
    assert!(said.contains("CREATE TABLE perkey_fence") && !said.contains("s3cret"), "{said}");
    assert!(!dir.has("ran"));
    // What it says can be done.
    let begin = said.find("CREATE TABLE").expect("it is there");
    database.execute(&said[begin..]);

    let token = ["--key", "a", "sh", "-c", "printf %s \"$PERKEY_TOKEN\""];
    for expected in ["1", "2"] {
        let output = run(&token);
        ended(&output, 0);
        assert_eq!(stdout(&output), expected);
    }
    let command = format!("touch began; {}; touch ended", until("go"));
    let held = start(&["--key", "a", "--", "sh", "-c", &command]);
    dir.wait_for_file("began");
    ended(&run(&["--key", "a", "--no-wait", "true"]), 75);
    let listed = run(&["--list"]);
    assert!(stdout(&listed).starts_with("a\t3\t"), "{listed:?}");
    // The session ends: so the command has to.
    database.end_holder();
    let output = held.end();
    assert!(ended(&output, 70).contains("key \"a\" is lost: ending the command"), "{output:?}");
    assert!(!dir.has("ended"));
    ended(&run(&["--key", "a", "--at-most", "1h", "--at-least", "30m", "true"]), 0);
    ended(&run(&["--key", "a", "--at-most", "1h", "true"]), 75);
}

/// The certificate is checked.
#[cfg(feature = "redis")]
#[test]
fn a_redis_server_is_asked_by_tls() {
    use crate::certificate::Certificate;
    use crate::redis_server::RedisServer;

    let certificate = Certificate::of("DNS:localhost");
    let server = RedisServer::with_tls(&certificate);
    let run = |host: &str, trusted: &str| {
        let mut command = Command::new(program());
        let url = format!("rediss://{host}:{}", server.port());
        command.args(["--store", &url, "--key", "a", "--wait", "5s", "--", "sh", "-c", "echo \"token $PERKEY_TOKEN\""]);
        command.env("SSL_CERT_FILE", trusted).stdin(Stdio::null()).output().expect("the example starts")
    };
    let output = run("localhost", &certificate.file());
    ended(&output, 0);
    assert!(stdout(&output).starts_with("token "), "{output:?}");
    for (host, trusted) in [("localhost", "/dev/null"), ("127.0.0.1", &*certificate.file())] {
        let output = run(host, trusted);
        let said = ended(&output, 69);
        assert!(said.contains("its certificate trusted?"), "{said}");
        assert_eq!(stdout(&output), "");
    }
}

/// The certificate is checked, unless no TLS is wanted.
#[cfg(feature = "postgres")]
#[test]
fn a_postgresql_server_is_asked_by_tls() {
    use std::sync::Arc;

    use crate::certificate::Certificate;
    use crate::postgres_server::{Database, PostgresServer};

    let (dir, database) = (Dir::new("tls"), Database::on(Arc::new(PostgresServer::start())));
    let certificate = Certificate::of("DNS:localhost");
    let trusted = &*certificate.file();
    database.server().speak_tls(&certificate);
    let run = |host: &str, mode: &str, trusted: &str| {
        let url = format!("{}?sslmode={mode}", database.url().replace("127.0.0.1", host));
        let mut command = Command::new(program());
        command.args([
            "--store",
            &url,
            "--key",
            "a",
            "--",
            "sh",
            "-c",
            "touch began; until [ -e go ]; do sleep 0.02; done",
        ]);
        command.current_dir(&dir.0).env("SSL_CERT_FILE", trusted);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("the example starts")))
    };
    for (mode, has_tls) in [("require", true), ("prefer", true), ("disable", false)] {
        let running = run("localhost", mode, trusted);
        dir.wait_for_file("began");
        let holding = database.holding();
        let ssl = format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {}", holding[0]);
        assert_eq!((holding.len(), database.ask::<bool>(&ssl)), (1, has_tls), "{mode}");
        dir.write("go", "");
        ended(&running.end(), 0);
        for name in ["began", "go"] {
            fs::remove_file(dir.0.join(name)).expect("it is there");
        }
    }
    for (host, trusted) in [("localhost", "/dev/null"), ("127.0.0.1", trusted)] {
        let output = run(host, "require", trusted).end();
        let said = ended(&output, 69);
        assert!(said.contains("is the server's certificate trusted"), "{said}");
        assert!(!dir.has("began"));
    }
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let dir = Dir::new("cannot");
    let output = dir.run(&["--key", "a", "no-such-program"]);
    assert_eq!(ended(&output, 127), "locked: cannot run \"no-such-program\": No such file or directory (os error 2)\n");
    dir.write("text", "no program");
    fs::set_permissions(dir.0.join("text"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    let output = dir.run(&["--key", "a", "./text"]);
    assert_eq!(ended(&output, 126), "locked: cannot run \"./text\": Permission denied (os error 13)\n");
    ended(&dir.run(&["--key", "a", "--no-wait", "true"]), 0);
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_run() {
    let dir = Dir::new("wrong");
    let run = ["--", "touch", "ran"];
    let refused = |args: &[&str]| {
        let output = dir.run(args);
        let said = ended(&output, 2).to_owned();
        assert!(output.stdout.is_empty(), "{output:?}");
        said
    };
    for (args, said) in [
        (&["--key", "a", "--ttl", "30"][..], "--ttl <DURATION>"),
        (&["--key", "a", "--wait", "1s", "--no-wait"], "cannot be used with"),
        (&["--key", "a", "--at-least", "1s"], "--at-most"),
        (&["--key", "a", "--permits", "0"], "--permits <N>"),
        (&["--key", "a", "--ttl", "1ms"], "a ttl of 1ms is too short: give 10ms or more"),
        (&["--key", "a", "--at-most", "1s", "--at-least", "2s"], "at_least is 2s, which is more than at_most, 1s"),
        (&["--list"], "cannot be used with"),
        (&[], "--key <KEY>"),
    ] {
        let message = refused(&[args, &run].concat());
        assert!(message.contains(said), "{args:?}: {message}");
    }
    assert!(refused(&["--key", "a"]).contains("<COMMAND>"));
    let mut command = Command::new(program());
    let command = command.args(["--store", "nfs:x", "--key", "a"]).args(run).current_dir(&dir.0);
    let output = command.output().expect("the example starts");
    assert!(ended(&output, 2).starts_with("locked: \"nfs\" is no store: give file:DIR"), "{output:?}");
    assert!(!dir.has("ran"));
}

#[test]
fn a_file_that_is_no_lock_file_is_named() {
    let dir = Dir::new("foreign");
    ended(&dir.run(&["--key", "a", "true"]), 0);
    let file =
        fs::read_dir(dir.0.join("locks")).expect("it is there").next().expect("a file").expect("it can be listed");
    fs::write(file.path(), "hello").expect("there is room");
    let output = dir.run(&["--key", "a", "touch", "ran"]);
    let said = ended(&output, 69);
    assert!(said.starts_with("locked: cannot acquire key \"a\" on the lock files in "), "{said}");
    assert!(said.contains(&*file.file_name().to_string_lossy()) && !dir.has("ran"), "{said}");
}

#[test]
fn help_has_the_exit_codes_and_examples() {
    let output = Dir::new("help").run(&["--help"]);
    ended(&output, 0);
    for text in [
        "Usage: locked",
        "Exit codes:",
        "75",
        "PERKEY_TOKEN",
        "Examples:",
        "--at-least <DURATION>",
        "file:DIR",
        "postgres://",
        "redis://HOST",
        "etcd://HOST",
    ] {
        assert!(stdout(&output).contains(text), "{text} is not in the help");
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use super::etcd_server::Etcd;
    use super::*;

    /// The example with another store.
    fn command(dir: &Dir, store: &str, args: &[&str]) -> Running {
        let mut command = Command::new(program());
        command.args(["--store", store]).args(args).current_dir(&dir.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("the example starts")))
    }

    #[test]
    fn a_command_runs_while_a_cluster_keeps_its_key() {
        let (dir, etcd) = (Dir::new("etcd"), Etcd::start());
        let start = |args: &[&str]| command(&dir, &etcd.url(), args);
        let token = || {
            let output = start(&["--key", "a", "sh", "-c", "printf %s \"$PERKEY_TOKEN\""]).end();
            assert_eq!(ended(&output, 0), "");
            stdout(&output).parse::<u64>().expect("a number")
        };
        let first = token();
        assert!(token() > first);

        let held = start(&["--key", "a", "--", "sh", "-c", &format!("touch began; {}", until("go"))]);
        dir.wait_for_file("began");
        ended(&start(&["--key", "a", "--no-wait", "true"]).end(), 75);
        ended(&start(&["--key", "a", "--at-most", "1m", "true"]).end(), 75);
        let listed = start(&["--list"]).end();
        assert_eq!(ended(&listed, 0), "");
        let lines: Vec<_> = stdout(&listed).lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("a\t"), "{lines:?}");
        let waits = start(&["--key", "a", "--wait", "1m", "--", "touch", "waited"]);
        dir.write("go", "");
        ended(&held.end(), 0);
        ended(&waits.end(), 0);
        assert!(dir.has("waited"));

        let job = ["--key", "a", "--at-most", "1h", "--at-least", "30m"];
        ended(&start(&[&job[..], &["touch", "ran"]].concat()).end(), 0);
        ended(&start(&[&job[..], &["touch", "again"]].concat()).end(), 75);
        assert!(dir.has("ran") && !dir.has("again"));
    }

    #[test]
    fn a_cluster_that_is_not_there_is_named_without_the_password() {
        let (dir, planned) = (Dir::new("no-etcd"), Etcd::planned(1, &[]));
        let store = format!("etcd://user:s3cret@127.0.0.1:{}", planned.port(0));
        let output = command(&dir, &store, &["--key", "a", "--no-wait", "touch", "ran"]).end();
        let said = ended(&output, 69);
        let at = format!("locked: cannot acquire key \"a\" on etcd at 127.0.0.1:{}: no connection: ", planned.port(0));
        assert!(said.starts_with(&at) && !said.contains("s3cret"), "{said}");
        let output = command(&dir, "etcd:user:s3cret", &["--key", "a", "touch", "ran"]).end();
        let said = ended(&output, 2);
        assert!(said.contains("write etcd://user:password@host") && !said.contains("s3cret"), "{said}");
        assert!(!dir.has("ran"));
    }
}
