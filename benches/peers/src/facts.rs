//! What a reader of the figures has to know about the machine and the versions.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::thread;

const LOCK_FILE: &str = include_str!("../Cargo.lock");
const CRATES: [&str; 7] = ["perkey", "lockmap", "lockable", "keyed-lock", "key-mutex", "dashmap", "parking_lot"];

/// One line for the machine, one for the versions.
pub(crate) fn facts() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let versions: Vec<String> =
        CRATES.iter().map(|name| format!("{name} {}", version(LOCK_FILE, name).unwrap_or("unknown"))).collect();
    format!("{cores} cores, {}, {OS} {ARCH}, {}\n{}\n", processor(), compiler(), versions.join(", "))
}

/// The load averages, where the system has them in a file.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = load.split(' ').take(3).collect();
    if averages.len() == 3 { averages.join(" ") } else { "unknown".into() }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// Without its commit and its date, which the version stands for.
fn compiler() -> &'static str {
    let version = env!("PEERS_RUSTC");
    version.split_once(" (").map_or(version, |(version, _)| version)
}

/// The version of a package in the text of a lock file: the newest, which is the last, if there are several.
fn version<'a>(lock_file: &'a str, name: &str) -> Option<&'a str> {
    let heading = format!("name = \"{name}\"\nversion = \"");
    lock_file.rsplit_once(&heading)?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_in_the_lock_file() {
        for name in CRATES {
            assert!(version(LOCK_FILE, name).is_some(), "{name}");
        }
        assert_eq!(version(LOCK_FILE, "lock"), None);
    }
}
