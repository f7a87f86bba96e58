//! What the system says of this process: its memory and its threads.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::oracle::Breaches;

/// How long a thread that has been joined may still be listed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vitals {
    resident_kib: u64,
    threads: u64,
}

impl Vitals {
    /// `None` where there is no `/proc`.
    pub(crate) fn now() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self { resident_kib: number("VmRSS:")?, threads: number("Threads:")? })
    }
}

pub(crate) fn show(vitals: Option<Vitals>) -> String {
    vitals.map_or_else(String::new, |Vitals { resident_kib, threads }| {
        format!("{:.1} MiB  {threads} threads", resident_kib as f64 / 1024.0)
    })
}

/// How many threads there were before the first lap.
pub(crate) struct Baseline(Option<u64>);

impl Baseline {
    pub(crate) fn take() -> Self {
        Self(Vitals::now().map(|vitals| vitals.threads))
    }

    /// To be called when every thread of a lap has been joined.
    pub(crate) fn judge_threads(&self, breaches: &Breaches) {
        let begin = Instant::now();
        loop {
            let (Some(before), Some(now)) = (self.0, Vitals::now()) else { return };
            if now.threads == before {
                return;
            }
            if begin.elapsed() > PATIENCE {
                let now = now.threads;
                breaches.add(format!("threads left: {before} before the first lap, {now} after this one"));
                return;
            }
            // The kernel takes a thread off its list a moment after it can be joined.
            thread::yield_now();
        }
    }
}

/// `warm` is what the first lap left.
pub(crate) fn judge_memory(warm: Option<Vitals>, allowance_mib: u64, breaches: &Breaches) {
    let (Some(warm), Some(now)) = (warm, Vitals::now()) else { return };
    let grown = now.resident_kib.saturating_sub(warm.resident_kib);
    if grown > allowance_mib * 1024 {
        let (before, now) = (warm.resident_kib, now.resident_kib);
        breaches.add(format!(
            "memory grown: {before} KiB after the first lap, {now} KiB at the end; {allowance_mib} MiB are allowed"
        ));
    }
}
