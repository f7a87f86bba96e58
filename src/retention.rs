//! How long idle entries are kept: the times of sweeps, by number.
//!
//! A release must not read the clock, so it notes the number of the last sweep that has begun. The *next* sweep is the
//! first that can see the entry idle; the entry goes at the first sweep that begins at least `ttl` after that one. So
//! nothing goes early, and from the sweep that first sees it idle, what goes is late by less than the time between two
//! sweeps: an entry stays for `ttl` after its last use, and two ticks more at most.
//!
//! That is exact for every tick down to `ttl` / 65,536. Where sweeps come more often, those of one such step count as one,
//! and what goes may be late by a step more. So the log keeps 65,537 sweeps at most (in 3 MiB), and one per tick in `ttl`
//! if that is less; a sweep adds one to it in amortised constant time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Retention {
    /// The number of the last sweep that has begun.
    last: AtomicU64,
    /// Boxed, since a table has room for it whether it keeps idle keys or not.
    log: Mutex<Box<Log>>,
}

impl Retention {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { last: AtomicU64::new(0), log: Mutex::new(Box::new(Log::new(ttl))) }
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
    /// When the step began whose last sweep is the last in `sweeps`.
    step_began: Option<Instant>,
    /// What is idle since before the sweep after this one has been so for long enough.
    expired: Option<u64>,
}

impl Log {
    /// Sweeps of one so-manieth of `ttl` count as one, the last of them: later, and so never too early. It keeps the log
    /// short where sweeps come in a tight loop and `ttl` is long.
    const STEPS: u32 = 65_536;
    /// The room for so many is kept though most of it is empty.
    const WORTH_SHRINKING: usize = 64;

    fn new(ttl: Duration) -> Self {
        Self { ttl, sweeps: VecDeque::new(), step_began: None, expired: None }
    }

    /// A `STEPS`th of `ttl`, rounded up, so that no more than `STEPS` of them begin within `ttl`.
    fn step(&self) -> Duration {
        let step = self.ttl / Self::STEPS;
        if step * Self::STEPS < self.ttl { step + Duration::from_nanos(1) } else { step }
    }

    fn begin(&mut self, number: u64, now: Instant) -> Option<u64> {
        let same_step = self.step_began.is_some_and(|began| now.saturating_duration_since(began) < self.step());
        match self.sweeps.back_mut() {
            Some(last) if same_step => *last = (number, now),
            _ => {
                self.sweeps.push_back((number, now));
                self.step_began = Some(now);
            }
        }
        while let Some((number, began)) = self.sweeps.front().copied() {
            if now.saturating_duration_since(began) < self.ttl {
                break;
            }
            // The sweep that first saw an entry idle is the one after that which the entry noted.
            self.expired = Some(number - 1);
            self.sweeps.pop_front();
        }
        self.give_memory_back();
        self.expired
    }

    /// For when sweeps come less often than they did. As much room as is filled stays, or it would be needed again at once.
    fn give_memory_back(&mut self) {
        let (room, kept) = (self.sweeps.capacity(), self.sweeps.len());
        if room > Self::WORTH_SHRINKING && room > 4 * kept {
            self.sweeps.shrink_to(2 * kept);
        }
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
        for ratio in [3, 60, 1_000, 8_640, 36_000] {
            // One that divides `ttl`, and others that do not.
            let ttl = Duration::from_secs(24 * 60 * 60);
            for tick in [ttl / ratio, ttl / ratio + Duration::from_millis(1), ttl / ratio - Duration::from_millis(1)] {
                let gone = gone_at(ttl, tick);
                assert!(gone >= ttl, "a tick of {tick:?}: gone at {gone:?}");
                assert!(gone < ttl + tick, "a tick of {tick:?}: gone at {gone:?}");
            }
        }
        assert_eq!(gone_at(Duration::ZERO, TTL), Duration::ZERO);
    }

    /// What each sweep sees first goes at the first sweep a ttl later: neither at one before nor at one after.
    #[test]
    fn exact_for_every_tick_down_to_a_step() {
        let tick = Duration::from_secs(10);
        for ratio in [3, 60, 1_000, 8_640, 36_000, Log::STEPS] {
            let (retention, base) = (Retention::new(tick * ratio), Instant::now());
            for n in 0..ratio + ratio.min(1_000) * 3 {
                let time = tick * n;
                // Sweep 1 is the one at 0; what it sees first noted a 0.
                let expired = n.checked_sub(ratio).map(u64::from);
                assert_eq!(retention.begin_sweep(|| base + time), expired, "ttl is {ratio} ticks, sweep at {time:?}");
            }
        }
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
        // A step is a second.
        let ttl = Duration::from_secs(u64::from(Log::STEPS));
        let (retention, base) = (Retention::new(ttl), Instant::now());
        let sweep = |millis| retention.begin_sweep(|| base + Duration::from_millis(millis));
        let after_ttl = |millis| sweep(ttl.as_millis() as u64 + millis);
        assert_eq!((sweep(0), sweep(500)), (None, None));
        let noted = retention.last_sweep();
        // The first to see it idle; it counts as one with the sweeps before.
        assert_eq!(sweep(900), None);
        let noted_later = retention.last_sweep();
        // The first of the next step.
        assert_eq!(sweep(1_000), None);
        assert!(after_ttl(899) < Some(noted), "too early");
        assert_eq!(after_ttl(900), Some(noted));
        assert_eq!(after_ttl(999), Some(noted), "too early");
        assert_eq!(after_ttl(1_000), Some(noted_later));
    }

    #[test]
    fn a_clock_that_stands_still_evicts_nothing() {
        let (retention, base) = (Retention::new(TTL), Instant::now());
        assert!((0..10_000).all(|_| retention.begin_sweep(|| base).is_none()));
    }

    #[test]
    fn the_log_stays_small_and_never_early() {
        // Eight sweeps a step; nothing goes for an hour, and then in every step.
        let ttl = Duration::from_secs(60 * 60);
        let (retention, base, tick) = (Retention::new(ttl), Instant::now(), ttl / Log::STEPS / 8);
        let step = retention.log.lock().step();
        let (mut gone, mut n) = (None, 0);
        while gone.is_none() || tick * n < ttl + step * 1_000 {
            let time = tick * n;
            if retention.begin_sweep(|| base + time).is_some() {
                gone.get_or_insert(time);
            }
            let log = retention.log.lock();
            assert!(log.sweeps.len() <= Log::STEPS as usize + 1, "{} at {time:?}", log.sweeps.len());
            assert!(log.sweeps.capacity() * size_of::<(u64, Instant)>() <= 3 << 20);
            n += 1;
        }
        let gone = gone.unwrap();
        assert!(gone >= ttl && gone <= ttl + step + tick, "{gone:?}");
        // Sweeps come less often: the memory goes with what was in it.
        let mut time = tick * n;
        for _ in 0..200 {
            time += ttl / 100;
            assert!(retention.begin_sweep(|| base + time).is_some());
        }
        let log = retention.log.lock();
        assert!(log.sweeps.len() <= 101 && log.sweeps.capacity() <= 404, "{}", log.sweeps.capacity());
    }

    #[test]
    fn every_ttl_has_its_steps() {
        let nanos = [0, 1, 999, 65_535, 65_536, 65_537, 1_000_000_007].map(Duration::from_nanos);
        for ttl in nanos.into_iter().chain([TTL, Duration::MAX]) {
            let log = Log::new(ttl);
            assert!(log.step() >= ttl / Log::STEPS && log.step() <= ttl / Log::STEPS + Duration::from_nanos(1));
            assert!(log.step().checked_mul(Log::STEPS).is_none_or(|steps| steps >= ttl), "{ttl:?}");
        }
    }
}
