//! What perkey means to reach, and whether this run shows it.

use std::fmt;
use std::time::Duration;

use crate::contestants::names::{
    COUNTED, FLOOR_ONE_MAP, FLOOR_SHARDS, KEYED_LOCK, LOCKABLE, LOCKMAP, PERKEY, PERKEY_FIFO, PERKEY_KEPT,
    PERKEY_LOCK_KEYS, PERKEY_MUTEX, PERKEY_MUTEX_LOCK_KEYS, PERKEY_READ, PERKEY_SEMAPHORE, PERKEY_WITH_KEY,
    PERKEY_WRITE,
};
use crate::loops::Crowd;
use crate::results::ShapeResult;

/// "Equal" cannot be measured; this is as near as a run comes.
const EQUAL: f64 = 1.03;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// `who` needs at most `times` the time of `of`.
    AtMost {
        who: &'static str,
        of: &'static str,
        times: f64,
    },
    /// `than` needs at least `times` the time of `who`.
    Faster {
        who: &'static str,
        than: &'static str,
        times: f64,
    },
    LongestWait {
        who: &'static str,
        at_most: Duration,
    },
    LeastShare {
        who: &'static str,
        at_least: f64,
    },
}

/// What a run says about a goal.
pub(crate) struct Verdict {
    pub(crate) met: bool,
    pub(crate) measured: String,
}

impl Goal {
    /// In whose row of the table it is.
    pub(crate) fn row(&self) -> &'static str {
        match *self {
            // perkey is measured against each of the others, so the goal goes to the other.
            Self::AtMost { who: PERKEY, of: other, .. } | Self::Faster { who: PERKEY, than: other, .. } => other,
            Self::AtMost { who, .. }
            | Self::Faster { who, .. }
            | Self::LongestWait { who, .. }
            | Self::LeastShare { who, .. } => who,
        }
    }

    /// What the time of its row has to be at least, in times of perkey's, if it is about perkey and one other.
    pub(crate) fn ratio_to_perkey(&self) -> Option<f64> {
        match *self {
            Self::AtMost { who: PERKEY, times, .. } => Some(1.0 / times),
            Self::Faster { who: PERKEY, times, .. } => Some(times),
            _ => None,
        }
    }

    /// Everybody it names.
    #[cfg(test)]
    pub(crate) fn about(&self) -> Vec<&'static str> {
        match *self {
            Self::AtMost { who, of: other, .. } | Self::Faster { who, than: other, .. } => vec![who, other],
            Self::LongestWait { who, .. } | Self::LeastShare { who, .. } => vec![who],
        }
    }

    /// None if the run did not measure it.
    pub(crate) fn verdict(&self, result: &ShapeResult) -> Option<Verdict> {
        Some(match *self {
            Self::AtMost { who, of, times } => {
                let ratio = result.ratio(who, of)?;
                Verdict { met: ratio <= times, measured: format!("{ratio:.3} ×") }
            }
            Self::Faster { who, than, times } => {
                let ratio = result.ratio(than, who)?;
                Verdict { met: ratio >= times, measured: format!("{ratio:.3} ×") }
            }
            Self::LongestWait { who, at_most } => {
                let longest = result.row(who)?.waits()?.longest;
                Verdict { met: longest <= at_most, measured: format!("{:.1} ms", longest.as_secs_f64() * 1e3) }
            }
            Self::LeastShare { who, at_least } => {
                let share = result.row(who)?.waits()?.least_share;
                Verdict { met: share >= at_least, measured: format!("share {share:.2}") }
            }
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = self.row();
        match *self {
            Self::AtMost { who, of, times } if other == who => write!(f, "≤ {times:.2} × {of}"),
            Self::AtMost { who, times, .. } => write!(f, "{who} ≤ {times:.2} × this"),
            Self::Faster { who, than, times } if other == who => write!(f, "≥ {times:.1} × as fast as {than}"),
            Self::Faster { who, times, .. } => write!(f, "{who} ≥ {times:.1} × as fast"),
            Self::LongestWait { at_most, .. } => write!(f, "wait ≤ {} ms", at_most.as_millis()),
            Self::LeastShare { at_least, .. } => write!(f, "share ≥ {at_least}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", if self.met { "yes" } else { "NO" }, self.measured)
    }
}

pub(crate) fn one_thread(against_lockmap: f64) -> Vec<Goal> {
    vec![at_most(FLOOR_ONE_MAP, 1.10), faster(LOCKMAP, against_lockmap), faster(LOCKABLE, 2.5)]
}

pub(crate) fn own_calls() -> Vec<Goal> {
    vec![
        Goal::AtMost { who: PERKEY_WITH_KEY, of: PERKEY, times: EQUAL },
        Goal::AtMost { who: PERKEY_SEMAPHORE, of: PERKEY, times: 1.10 },
    ]
}

/// Twice one lock, and something for the order and for a guard of several.
pub(crate) fn two_keys() -> Vec<Goal> {
    vec![
        Goal::AtMost { who: PERKEY_LOCK_KEYS, of: PERKEY, times: 2.3 },
        Goal::AtMost { who: PERKEY_MUTEX_LOCK_KEYS, of: PERKEY_MUTEX, times: 2.3 },
    ]
}

pub(crate) fn known_names() -> Vec<Goal> {
    vec![Goal::Faster { who: PERKEY_KEPT, than: PERKEY, times: 1.0 }]
}

pub(crate) fn many_keys() -> Vec<Goal> {
    vec![at_most(FLOOR_SHARDS, 1.15), faster(LOCKMAP, 1.5)]
}

pub(crate) fn one_key(crowd: Crowd) -> Vec<Goal> {
    // The longer the section, the less there is for a lock to win.
    let against_lockable = if crowd.spins >= 200 { 1.8 } else { 8.0 };
    let mut goals =
        vec![faster(LOCKMAP, 1.0), faster(KEYED_LOCK, 1.0), faster(COUNTED, 1.0), faster(LOCKABLE, against_lockable)];
    if crowd.threads == 8 {
        goals.push(Goal::LongestWait { who: PERKEY, at_most: Duration::from_millis(4) });
        goals.push(Goal::LeastShare { who: PERKEY, at_least: 0.5 });
        goals.push(Goal::Faster { who: PERKEY_FIFO, than: LOCKABLE, times: 1.0 });
    }
    goals
}

pub(crate) fn sixteen_keys() -> Vec<Goal> {
    vec![faster(LOCKMAP, 1.0), faster(COUNTED, 1.0)]
}

pub(crate) fn counters() -> Vec<Goal> {
    vec![faster(LOCKMAP, 1.0), faster(LOCKABLE, 2.0)]
}

pub(crate) fn read_and_write() -> Vec<Goal> {
    vec![
        Goal::AtMost { who: PERKEY_READ, of: PERKEY, times: 1.25 },
        Goal::AtMost { who: PERKEY_WRITE, of: PERKEY, times: 1.25 },
    ]
}

pub(crate) fn read_mostly(keys: u64) -> Vec<Goal> {
    let mut goals = vec![faster(COUNTED, 1.0)];
    // On one key the order of arrival has its price, as with every lock that keeps to it.
    if keys > 1 {
        goals.push(Goal::Faster { who: PERKEY_FIFO, than: COUNTED, times: 1.0 });
    }
    goals
}

fn at_most(of: &'static str, times: f64) -> Goal {
    Goal::AtMost { who: PERKEY, of, times }
}

fn faster(than: &'static str, times: f64) -> Goal {
    Goal::Faster { who: PERKEY, than, times }
}
