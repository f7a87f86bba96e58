//! Jobs that one of several shall run.

use std::time::{Duration, Instant};

use perkey::distributed::{Job, JobLimits};

use super::{GENEROUS, Place};
use crate::support::{panics, quiet_panic, until};

fn limits(at_most: Duration, at_least: Duration) -> JobLimits {
    JobLimits { at_most, at_least }
}

pub(crate) fn a_job_is_run_by_one<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let limits = limits(GENEROUS, Duration::ZERO);
    let ran = here.run_job("a", limits, |lease| {
        assert!(lease.is_held() && lease.verify().unwrap());
        for locks in [&here, &there] {
            assert_eq!(locks.run_job("a", limits, |_| ()).unwrap(), Job::Skipped);
        }
        assert_eq!(there.run_job("b", limits, |_| 2).unwrap(), Job::Ran(2));
        1
    });
    assert_eq!(ran.unwrap(), Job::Ran(1));
    assert_eq!(there.run_job("a", limits, |_| 3).unwrap(), Job::Ran(3));
    place.check_free(&["a", "b"]);
}

pub(crate) fn a_short_job_keeps_its_key<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let at_least = Duration::from_secs(2);
    let begin = Instant::now();
    assert_eq!(here.run_job("a", limits(GENEROUS, at_least), |_| 1).unwrap(), Job::Ran(1));
    for locks in [&here, &there] {
        let again = locks.run_job("a", limits(GENEROUS, Duration::ZERO), |_| 2).unwrap();
        // A machine that is so slow has nothing to show.
        assert!(again == Job::Skipped || begin.elapsed() > at_least / 2);
    }
    if place.capabilities().lists_holders && begin.elapsed() < at_least / 2 {
        let listed = there.holders("").unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((&*listed[0].key, &*listed[0].owner), ("a", ""), "it is kept, and nobody has it");
        assert!(listed[0].remaining.is_some_and(|left| left <= at_least));
    }
    place.let_pass(at_least);
    assert_eq!(there.run_job("a", limits(GENEROUS, Duration::ZERO), |_| 3).unwrap(), Job::Ran(3));
    place.check_free(&["a"]);
}

pub(crate) fn a_long_job_gives_its_key_up<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let ran = here.run_job("a", limits(P::TTL, P::TTL), |lease| {
        let token = lease.fencing_token();
        assert!(lease.lost().wait_timeout(GENEROUS), "it does not end");
        assert!(!lease.is_held());
        let next = there.lock("a").unwrap();
        assert!(token.is_none() || next.fencing_token() > token);
        next
    });
    let Job::Ran(next) = ran.unwrap() else { panic!("the key was free") };
    assert!(next.verify().unwrap(), "the end of the first job has disturbed the next");
    assert_eq!(here.run_job("a", limits(GENEROUS, Duration::ZERO), |_| 2).unwrap(), Job::Skipped);
    drop(next);
    until(|| here.run_job("a", limits(GENEROUS, Duration::ZERO), |_| 2).unwrap() == Job::Ran(2));
    place.check_free(&["a"]);
}

pub(crate) fn a_job_that_panics_releases<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    assert!(panics(|| drop(here.run_job("a", limits(GENEROUS, GENEROUS), |_| quiet_panic()))));
    for locks in [&here, &there] {
        assert_eq!(locks.run_job("a", limits(GENEROUS, Duration::ZERO), |_| 2).unwrap(), Job::Ran(2));
    }
    place.check_free(&["a"]);
}
