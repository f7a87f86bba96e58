//! What tables weigh: a million keys in and out, and ten million that are used once.
//!
//! `cargo bench --bench memory`. Resident memory of the process, as Linux tells it; elsewhere there is nothing to see.
#![forbid(unsafe_code)]

use std::env;
use std::process::Command;
use std::time::Duration;

use perkey::{KeyedLock, KeyedLockGuard, Options};

const MILLION: u64 = 1_000_000;

/// Each runs in a process of its own: what an allocator keeps of one would weigh on the next.
const PHASES: [(&str, fn()); 5] = [
    ("held", held),
    ("kept", kept),
    ("kept-names", kept_names),
    ("one-shot", one_shot),
    ("one-shot-kept", one_shot_kept),
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some((_, phase)) = PHASES.iter().find(|(name, _)| arguments.iter().any(|argument| argument == name)) {
        return phase();
    }
    if !arguments.iter().any(|argument| argument == "--bench") || arguments.iter().any(|argument| argument == "--test")
    {
        return; // Run as a test: that it builds is all there is to see.
    }
    println!("{:<58}{:>10}{:>12}", "", "keys", "resident");
    for (name, _) in PHASES {
        let program = env::current_exe().expect("the path of this program");
        let status = Command::new(program).arg(name).status().expect("this program runs itself");
        assert!(status.success(), "{name} failed");
    }
}

fn report(what: &str, keys: usize) {
    println!("{what:<58}{keys:>10}{:>12}", resident());
}

fn kept_options() -> Options {
    Options::new().idle_ttl(Duration::ZERO)
}

fn held() {
    report("at the start", 0);
    let locks = KeyedLock::<u64>::new();
    let guards: Vec<KeyedLockGuard<'_, u64>> = (0..MILLION).map(|key| locks.lock(&key)).collect();
    report("a million u64 held (with their guards, 40 bytes each)", locks.len());
    drop(guards);
    report("released", locks.len());
    locks.shrink_to_fit();
    report("shrink_to_fit", locks.len());
}

fn kept() {
    let locks = KeyedLock::<u64>::with_options(kept_options());
    (0..MILLION).for_each(|key| drop(locks.lock(&key)));
    report("a million u64 idle, kept by idle_ttl", locks.len());
    locks.sweep();
    report("swept", locks.len());
}

fn kept_names() {
    let locks = KeyedLock::<String>::with_options(kept_options());
    (0..MILLION).for_each(|key| drop(locks.lock(&*format!("account-{key:016x}"))));
    report("a million 24-byte Strings idle, kept by idle_ttl", locks.len());
    locks.sweep();
    report("swept (the rest is what the allocator keeps of the Strings)", locks.len());
}

fn one_shot() {
    let locks = KeyedLock::<u64>::new();
    for million in 1..=10 {
        (0..MILLION).for_each(|key| drop(locks.lock(&(million * MILLION + key))));
        if million % 5 == 0 {
            report(&format!("{million} million u64, each locked once"), locks.len());
        }
    }
}

fn one_shot_kept() {
    let locks = KeyedLock::<u64>::with_options(kept_options());
    for million in 1..=10 {
        for key in 0..MILLION {
            drop(locks.lock(&(million * MILLION + key)));
            if key % 10_000 == 0 {
                locks.sweep();
            }
        }
        if million % 5 == 0 {
            report(&format!("{million} million u64, kept, a sweep every 10,000"), locks.len());
        }
    }
}

fn resident() -> String {
    let kib = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0))
}
