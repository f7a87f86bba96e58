//! How long idle entries are kept: the times of sweeps, by number.
//!
//! A release must not read the clock, so it notes the number of the last sweep that has begun. The *next* sweep is the
//! first that can see the entry idle; the entry goes at the first sweep that begins at least `ttl` after that one. So
//! nothing goes early, and from the sweep that first sees it idle, what goes is late by at most the time between two sweeps:
//! an entry stays for `ttl` after its last use, and two ticks more at most.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Retention {
    /// The number of the last sweep that has begun.
    last: AtomicU64,
    log: Mutex<Log>,
}

impl Retention {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { last: AtomicU64::new(0), log: Mutex::new(Log { ttl, sweeps: VecDeque::new(), expired: None }) }
    }

    /// The number of the last sweep that has begun; what becomes idle now notes it.
    pub(crate) fn last_sweep(&self) -> u64 {
        self.last.load(Ordering::SeqCst)
    }

    /// Begins a sweep. An entry that noted the number given, or a lower one, has been idle for long enough.
    ///
    /// The number is counted up before the clock is read, so that who notes the old one became idle before that time.
    pub(crate) fn begin_sweep(&self, clock: impl Fn() -> Instant) -> Option<u64> {
        let mut log = self.log.lock();
        let number = self.last.load(Ordering::SeqCst) + 1;
        self.last.store(number, Ordering::SeqCst);
        log.begin(number, clock())
    }
}

#[derive(Debug)]
struct Log {
    ttl: Duration,
    /// Numbers and times of sweeps, oldest first, back to the first that began less than `ttl` ago.
    sweeps: VecDeque<(u64, Instant)>,
    /// What is idle since before the sweep after this one has been so for long enough.
    expired: Option<u64>,
}

impl Log {
    /// Sweeps of one so-manieth of `ttl` count as one, the last of them: later, and so never too early. It keeps the log
    /// short where sweeps come in a tight loop and `ttl` is long.
    const STEPS: u32 = 1024;

    fn begin(&mut self, number: u64, now: Instant) -> Option<u64> {
        let step = self.ttl / Self::STEPS;
        if let [.., (_, before), last] = self.sweeps.make_contiguous()
            && now.saturating_duration_since(*before) < step
        {
            *last = (number, now);
        } else {
            self.sweeps.push_back((number, now));
        }
        while let Some((number, began)) = self.sweeps.front().copied() {
            if now.saturating_duration_since(began) < self.ttl {
                break;
            }
            // The sweep that first saw an entry idle is the one after that which the entry noted.
            self.expired = Some(number - 1);
            self.sweeps.pop_front();
        }
        self.expired
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    /// What became idle before the first sweep, a sweep every `tick`: when does it go?
    fn gone_at(ttl: Duration, tick: Duration) -> Duration {
        let (retention, base) = (Retention::new(ttl), Instant::now());
        let noted = retention.last_sweep();
        let sweeps = (0..100_000).map(|n| tick * n);
        sweeps.clone().find(|time| retention.begin_sweep(|| base + *time).is_some_and(|sweep| noted <= sweep)).unwrap()
    }

    #[test]
    fn never_early_and_late_by_at_most_a_tick() {
        for tick in [1, 7, 59, 60, 61, 1_000].map(Duration::from_secs) {
            let gone = gone_at(TTL, tick);
            assert!(gone >= TTL, "a tick of {tick:?}: gone at {gone:?}");
            assert!(gone < TTL + tick, "a tick of {tick:?}: gone at {gone:?}");
        }
        assert_eq!(gone_at(Duration::ZERO, TTL), Duration::ZERO);
    }

    #[test]
    fn what_becomes_idle_between_sweeps_counts_from_the_next() {
        let (retention, base) = (Retention::new(TTL), Instant::now());
        let sweep = |secs| retention.begin_sweep(|| base + Duration::from_secs(secs));
        assert_eq!(sweep(0), None);
        let noted = retention.last_sweep();
        assert_eq!(sweep(50), None);
        assert_eq!(sweep(70), Some(0), "what was idle at 0 goes, what became so between 0 and 50 stays");
        assert!(noted > 0);
        assert_eq!(sweep(109), Some(0));
        assert_eq!(sweep(110), Some(noted));
    }

    #[test]
    fn sweeps_that_count_as_one_count_from_the_last() {
        let ttl = Duration::from_secs(u64::from(Log::STEPS));
        let (retention, base) = (Retention::new(ttl), Instant::now());
        let sweep = |millis| retention.begin_sweep(|| base + Duration::from_millis(millis));
        assert_eq!((sweep(0), sweep(500)), (None, None));
        let noted = retention.last_sweep();
        // The first to see it idle; it counts as one with the sweep before.
        assert_eq!(sweep(900), None);
        assert!(sweep(1_024_600) < Some(noted), "too early");
        assert!(sweep(1_024_900) >= Some(noted));
    }

    #[test]
    fn a_clock_that_stands_still_evicts_nothing() {
        let (retention, base) = (Retention::new(TTL), Instant::now());
        assert!((0..10_000).all(|_| retention.begin_sweep(|| base).is_none()));
    }

    #[test]
    fn the_log_stays_small_and_never_early() {
        // A hundred sweeps a second for an hour.
        let ttl = Duration::from_secs(60 * 60);
        let (retention, base, tick) = (Retention::new(ttl), Instant::now(), Duration::from_millis(10));
        let mut gone = None;
        for n in 0..400_000 {
            let time = tick * n;
            if retention.begin_sweep(|| base + time).is_some() {
                gone = Some(time);
                break;
            }
            assert!(retention.log.lock().sweeps.len() <= 2 * Log::STEPS as usize + 2);
        }
        let gone = gone.unwrap();
        assert!(gone >= ttl && gone <= ttl + ttl / 1_000, "{gone:?}");
    }
}
