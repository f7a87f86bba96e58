//! How a call waits, and whether it was right to give up.

use std::time::{Duration, Instant};

use perkey::{AcquireError, CancellationToken, Wait};

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Patience {
    time: Time,
    tokens: Vec<CancellationToken>,
    max_queued: Option<usize>,
    began: Instant,
    cancelled_before: bool,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Now,
    AtMost(Duration),
    Until(Instant),
    Forever,
}

impl Patience {
    fn new(time: Time) -> Self {
        Self { time, tokens: Vec::new(), max_queued: None, began: Instant::now(), cancelled_before: false }
    }

    pub(crate) fn now() -> Self {
        Self::new(Time::Now)
    }

    pub(crate) fn at_most(duration: Duration) -> Self {
        Self::new(Time::AtMost(duration))
    }

    /// Any combination; without end only if that may be.
    pub(crate) fn random(rng: &mut Rng, endless: bool, tokens: &[CancellationToken]) -> Self {
        let time = match rng.below(8) {
            0 => Time::Now,
            1 => Time::Until(Instant::now() + short(rng)),
            2..4 if endless => Time::Forever,
            4 if endless => Time::AtMost(Duration::MAX),
            _ => Time::AtMost(short(rng)),
        };
        let count = [0, 0, 1, 2][rng.index(4)];
        let tokens: Vec<_> = (0..count).map(|_| tokens[rng.index(tokens.len())].clone()).collect();
        let max_queued = if rng.one_in(8) { Some(rng.index(4)) } else { None };
        let cancelled_before = tokens.iter().any(CancellationToken::is_cancelled);
        Self { tokens, max_queued, cancelled_before, ..Self::new(time) }
    }

    pub(crate) fn wait(&self) -> Wait {
        let mut wait = match self.time {
            Time::Now => Wait::now(),
            Time::AtMost(duration) => duration.into(),
            Time::Until(instant) => instant.into(),
            Time::Forever => Wait::forever(),
        };
        for token in &self.tokens {
            wait = wait.or_cancelled(token);
        }
        match self.max_queued {
            Some(count) => wait.max_queued(count),
            None => wait,
        }
    }

    /// Whether a call that waited so may have been granted.
    pub(crate) fn allows_grant(&self) -> bool {
        !self.cancelled_before
    }

    /// Whether it may have been refused so. What a key's limit has to do with it is not known here. Lower bounds only: a
    /// slow machine makes calls late, never early.
    pub(crate) fn allows(&self, error: &AcquireError) -> bool {
        match error {
            AcquireError::Busy => match self.time {
                Time::Now => true,
                Time::AtMost(duration) => duration.is_zero(),
                Time::Until(_) => self.time_is_up(),
                Time::Forever => false,
            },
            AcquireError::Timeout => !matches!(self.time, Time::Now) && self.time_is_up(),
            AcquireError::Cancelled => self.tokens.iter().any(CancellationToken::is_cancelled),
            AcquireError::QueueFull => self.max_queued.is_some(),
            _ => false,
        }
    }

    /// Whether a call may have been refused without a reason given.
    pub(crate) fn time_is_up(&self) -> bool {
        match self.time {
            Time::Now => true,
            Time::AtMost(duration) => self.began.elapsed() >= duration,
            Time::Until(instant) => Instant::now() >= instant,
            Time::Forever => false,
        }
    }
}

/// Short enough for time-outs to meet grants.
pub(crate) fn short(rng: &mut Rng) -> Duration {
    match rng.below(8) {
        0 => Duration::ZERO,
        1 => Duration::from_micros(rng.below(3000)),
        _ => Duration::from_nanos(rng.below(150_000)),
    }
}
