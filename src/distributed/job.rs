//! Jobs that one of several processes shall run.

use std::time::{Duration, Instant};

use super::error::Error;
use super::lease::Lease;
use super::options::{LONGEST, SHORTEST_TTL};

/// How long a job has its key. Both are durations: no clock of another machine is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Then the key is given up, whether the job is done or not. At least 10 ms.
    pub at_most: Duration,
    /// Until then the key is kept, if the job is done sooner.
    pub at_least: Duration,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Job<R> {
    /// It ran, with this result.
    Ran(R),
    /// Another has it, or had it a moment ago.
    Skipped,
}

impl JobLimits {
    pub(super) fn check(self) -> Result<(), Error> {
        // It is the time to live of the lease.
        if self.at_most < SHORTEST_TTL {
            let message = format!("at_most is {:?}, which is too short: give {SHORTEST_TTL:?} or more", self.at_most);
            return Err(Error::Options(message));
        }
        if self.at_most > LONGEST {
            return Err(Error::Options(format!("at_most is {:?}: give ten years or less", self.at_most)));
        }
        if self.at_least > self.at_most {
            let Self { at_most, at_least } = self;
            return Err(Error::Options(format!("at_least is {at_least:?}, which is more than at_most, {at_most:?}")));
        }
        Ok(())
    }

    /// Runs the job, and keeps the key for the rest of the time.
    pub(super) fn run<R>(self, lease: Lease, work: impl FnOnce(&Lease) -> R) -> R {
        let begin = Instant::now();
        let result = work(&lease);
        let keep_for = self.at_least.saturating_sub(begin.elapsed());
        // If it fails, the lease ends by itself, in time.
        let _ = lease.release_and_keep(keep_for);
        result
    }
}
