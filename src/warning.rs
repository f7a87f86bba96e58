//! When a wait that goes on for long says so.
//!
//! A wait is due after a time `d` that the options give, after `2d`, `4d`, and so on, all counted from its beginning. Of
//! those who wait for the same thing only one is to warn within each `d`. So that thing keeps, under its lock, when its
//! [last warning](LastWarning) was due: who is due less than `d` after that is silent, until its own next time. It is the
//! times at which warnings were due that are compared, and not when they were given: those of one wait are `d` apart and more, so
//! a wait is never silenced by itself because it woke a little late.
//!
//! Pure: no clock of its own.

use std::time::{Duration, Instant};

/// The times at which one wait is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    since: Instant,
    every: Duration,
    /// How long after `since` the next time is.
    after: Duration,
}

/// A time that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    at: Instant,
    every: Duration,
}

impl Schedule {
    /// Of a wait that begins at `since`. `None` if it is never due: if `every` is zero, or too long for the clock.
    pub(crate) fn new(since: Instant, every: Duration) -> Option<Self> {
        let schedule = Self { since, every, after: every };
        schedule.next().filter(|_| !every.is_zero()).map(|_| schedule)
    }

    /// The next time, if the clock goes so far.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.since.checked_add(self.after)
    }

    /// The last time that has come at `now`, and the schedule of those that have not; `None` when there are no more.
    pub(crate) fn at(self, now: Instant) -> (Option<Due>, Option<Self>) {
        let (mut due, mut rest) = (None, self);
        while let Some(at) = rest.next().filter(|at| *at <= now) {
            due = Some(Due { at, every: self.every });
            match rest.after.checked_mul(2) {
                Some(after) => rest.after = after,
                None => return (due, None),
            }
        }
        (due, rest.next().map(|_| rest))
    }
}

/// When the last warning was due of those who wait for the same thing.
#[derive(Debug, Default)]
pub(crate) struct LastWarning(Option<Instant>);

impl LastWarning {
    /// Whether there is to be a warning; it is the last one from then on.
    pub(crate) fn gives_way_to(&mut self, due: Due) -> bool {
        let gives_way = self.0.is_none_or(|last| due.at.saturating_duration_since(last) >= due.every);
        if gives_way {
            self.0 = Some(due.at);
        }
        gives_way
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const D: Duration = Duration::from_secs(10);

    fn schedule(since: Instant) -> Schedule {
        Schedule::new(since, D).expect("the clock goes so far")
    }

    #[test]
    fn a_wait_is_due_at_doubling_intervals_from_its_beginning() {
        let since = Instant::now();
        let mut schedule = schedule(since);
        for times in [1, 2, 4, 8, 16] {
            assert_eq!(schedule.next(), Some(since + times * D));
            let early = schedule.at(since + times * D - Duration::from_nanos(1));
            assert_eq!(early.0, None);
            assert_eq!(early.1.and_then(|rest| rest.next()), schedule.next(), "nothing changes before the time");
            let (due, rest) = schedule.at(since + times * D);
            assert_eq!(due, Some(Due { at: since + times * D, every: D }));
            schedule = rest.expect("there are more");
        }
    }

    #[test]
    fn times_that_were_missed_count_once() {
        let since = Instant::now();
        let (due, rest) = schedule(since).at(since + 7 * D);
        assert_eq!(due, Some(Due { at: since + 4 * D, every: D }));
        assert_eq!(rest.and_then(|rest| rest.next()), Some(since + 8 * D));
    }

    #[test]
    fn what_the_clock_does_not_reach_is_never_due() {
        let since = Instant::now();
        for never in [Duration::ZERO, Duration::MAX] {
            assert!(Schedule::new(since, never).is_none());
        }
        let mut schedule = Schedule::new(since, Duration::from_nanos(1));
        let mut doublings = 0;
        while let Some(next) = schedule.and_then(|schedule| schedule.next()) {
            let (due, rest) = schedule.expect("it has a next time").at(next);
            assert_eq!(due.map(|due| due.at), Some(next));
            schedule = rest;
            doublings += 1;
        }
        assert!((60..200).contains(&doublings), "{doublings} doublings to the end of the clock");
    }

    #[test]
    fn one_warns_within_each_interval() {
        let start = Instant::now();
        let due = |tenths: u32| Due { at: start + D * tenths / 10, every: D };
        let mut last = LastWarning::default();
        for (tenths, warns) in [(10, true), (11, false), (19, false), (20, true), (15, false), (29, false), (31, true)]
        {
            assert_eq!(last.gives_way_to(due(tenths)), warns, "due after {tenths} tenths");
        }
    }

    /// Ten that began one after the other, each as late as it likes.
    #[test]
    fn of_many_that_wait_one_speaks_for_all() {
        let start = Instant::now();
        let mut waits: Vec<Option<Schedule>> = (0..10).map(|wait| Some(schedule(start + D * wait / 20))).collect();
        let mut last = LastWarning::default();
        let mut warnings = 0;
        for tick in 0..200 {
            let now = start + D * tick / 10;
            for wait in &mut waits {
                let (due, rest) = wait.expect("the clock goes so far").at(now);
                *wait = rest;
                warnings += u32::from(due.is_some_and(|due| last.gives_way_to(due)));
            }
        }
        // In 20 intervals; the first alone would have warned after 1, 2, 4, 8, and 16 of them.
        assert!((5..20).contains(&warnings), "{warnings} warnings");
    }
}
