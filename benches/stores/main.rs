//! What the stores beyond one process cost: a key taken and given back, a waiter woken, a holder killed, a crowd that waits.
//!
//! `cargo bench --features etcd,postgres,redis --bench stores` takes a few minutes, `-- --quick` some seconds. It starts the servers itself; with the
//! address of a store, as `-- redis://cache.example`, it measures that one instead.
//! Figures depend on the machine and on the way to the server, so nothing here passes or fails.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, LeaseOptions, MemoryStore, Store};
use perkey::{CancellationToken, Wait};

use crate::engines::Engine;

#[cfg(any(feature = "etcd", feature = "redis", all(feature = "postgres", unix)))]
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../tests/distributed/certificate.rs"]
mod certificate;
mod engines;
#[cfg(feature = "etcd")]
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../tests/distributed/etcd_server.rs"]
mod etcd_server;
#[cfg(all(feature = "postgres", unix))]
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../tests/distributed/postgres_server.rs"]
mod postgres_server;
#[cfg(feature = "redis")]
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../tests/distributed/redis_server.rs"]
mod redis_server;
#[allow(unused_imports, reason = "its tests are not run here")]
#[path = "../../examples/locked/stores.rs"]
mod stores;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    pairs: usize,
    wakes: usize,
    kills: usize,
    crowd_for: Duration,
}

const CROWD: usize = 100;
/// The shortest that every engine grants.
const TTL: Duration = Duration::from_secs(2);
/// The environment variable that makes the program a holder who waits to be killed.
const HOLDS: &str = "PERKEY_BENCH_HOLDS";

fn main() {
    if let Ok(address) = env::var(HOLDS) {
        return hold(&address);
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let asked = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !asked("--bench") || asked("--test") {
        return; // Run as a test: that it builds is all there is to see.
    }
    let effort = match asked("--quick") {
        true => Effort { pairs: 200, wakes: 5, kills: 1, crowd_for: Duration::from_secs(1) },
        false => Effort { pairs: 2_000, wakes: 21, kills: 5, crowd_for: Duration::from_secs(5) },
    };
    println!(
        "medians; a ttl of {TTL:?} where a holder is killed; {CROWD} waiters of one key for {:?}",
        effort.crowd_for
    );
    println!("{:<28}{:>18}{:>12}{:>16}{:>16}", "store", "lock + release", "wake-up", "after kill -9", "requests/s");
    let addresses: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if !addresses.is_empty() {
        addresses.into_iter().for_each(|address| measure(&Engine::at(address), effort));
        return;
    }
    let memory = MemoryStore::new();
    let opens = || Arc::new(memory.clone()) as Arc<dyn Store>;
    row("memory", pair(&opens, effort), wake_up(&opens, effort), None, None);
    for start in Engine::ALL {
        measure(&start(), effort);
    }
}

fn measure(engine: &Engine, effort: Effort) {
    let opens = || engine.open();
    let killed = after_a_kill(engine, effort);
    row(&engine.name, pair(&opens, effort), wake_up(&opens, effort), Some(killed), requests(engine, effort));
}

fn row(name: &str, pair: Duration, wake_up: Duration, killed: Option<Duration>, requests: Option<f64>) {
    let killed = killed.map_or("-".to_owned(), |time| format!("{time:.1?}"));
    let requests = requests.map_or("-".to_owned(), |number| format!("{number:.0}"));
    println!("{name:<28}{:>18}{:>12}{killed:>16}{requests:>16}", format!("{pair:.1?}"), format!("{wake_up:.1?}"));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A key taken and given back, by one thread.
fn pair(opens: &dyn Fn() -> Arc<dyn Store>, effort: Effort) -> Duration {
    let locks = DistributedLock::new(opens());
    let pair = |_| {
        let begin = Instant::now();
        locks.lock("pair").expect("the store answers").release().expect("the store answers");
        begin.elapsed()
    };
    // The first ones make connections.
    let times: Vec<Duration> = (0..effort.pairs + effort.pairs / 10).map(pair).collect();
    median(times[effort.pairs / 10..].to_vec())
}

/// From when a holder begins to give a key back until another process would have it.
fn wake_up(opens: &dyn Fn() -> Arc<dyn Store>, effort: Effort) -> Duration {
    let (here, there) = (DistributedLock::new(opens()), DistributedLock::new(opens()));
    let wake = |_| {
        let lease = here.lock("wake").expect("the store answers");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let _lease = there.lock("wake").expect("the store answers");
                Instant::now()
            });
            // Long enough for it to wait as it does in the end.
            thread::sleep(Duration::from_millis(300));
            let begin = Instant::now();
            lease.release().expect("the store answers");
            waiter.join().expect("it does not panic").saturating_duration_since(begin)
        })
    };
    median((0..effort.wakes).map(wake).collect())
}

/// From when a holder is killed until another process has its key.
fn after_a_kill(engine: &Engine, effort: Effort) -> Duration {
    let locks = DistributedLock::new(engine.open());
    let kill = |_| {
        let mut holder = Command::new(env::current_exe().expect("this is a file"))
            .env(HOLDS, &engine.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let mut said = String::new();
        BufReader::new(holder.stdout.take().expect("it is piped")).read_line(&mut said).expect("it holds the key");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let _lease = locks.lock("killed").expect("the store answers");
                Instant::now()
            });
            thread::sleep(Duration::from_millis(300));
            let begin = Instant::now();
            holder.kill().expect("it runs");
            let granted = waiter.join().expect("it does not panic");
            holder.wait().expect("it was killed");
            granted.saturating_duration_since(begin)
        })
    };
    median((0..effort.kills).map(kill).collect())
}

/// What the holder does that is killed.
fn hold(address: &str) {
    let _lease = DistributedLock::with_options(engines::open(address), LeaseOptions::new().ttl(TTL))
        .lock("killed")
        .expect("it is free");
    println!("held");
    io::stdout().flush().expect("somebody reads it");
    // Until it is killed; or the other has ended.
    let _ = io::stdin().read_line(&mut String::new());
}

/// The requests per second of a crowd that waits for one key, each with a store of its own as so many processes would have; where
/// the engine counts them.
fn requests(engine: &Engine, effort: Effort) -> Option<f64> {
    let count = engine.requests.as_ref()?;
    let held = DistributedLock::new(engine.open()).lock("crowd").expect("the store answers");
    let (token, (queued, waits)) = (CancellationToken::new(), mpsc::channel());
    let per_second = thread::scope(|scope| {
        for _ in 0..CROWD {
            let (wait, queued, address) = (Wait::from(&token), queued.clone(), &engine.address);
            scope.spawn(move || {
                let locks = DistributedLock::new(engines::open(address));
                queued.send(()).expect("it is waited for");
                assert!(locks.lock_with("crowd", wait).is_err(), "it is held");
            });
        }
        waits.iter().take(CROWD).for_each(drop);
        // Until those who have just come have fallen asleep.
        thread::sleep(Duration::from_secs(3).min(effort.crowd_for * 2));
        let (before, begin) = (count(), Instant::now());
        thread::sleep(effort.crowd_for);
        let per_second = (count() - before) as f64 / begin.elapsed().as_secs_f64();
        token.cancel();
        per_second
    });
    drop(held);
    Some(per_second)
}

/// A directory for the time of this program.
pub(crate) fn directory(of: &str) -> String {
    let path = env::temp_dir().join(format!("perkey-bench-{of}-{}", std::process::id()));
    fs::create_dir_all(&path).expect("the directory for temporary files can be written");
    path.to_str().expect("its name is text").to_owned()
}
