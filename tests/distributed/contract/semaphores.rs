//! At most N holders per key.

use std::time::Duration;

use perkey::AcquireError;
use perkey::distributed::{DistributedSemaphore, Released};

use super::{Place, SHORT, cause, limited};
use crate::support::{Barrier, Oracle, Random, rounds, threads, until, work};

pub(crate) fn as_many_as_allowed_are_inside<P: Place>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let (inside, out) = (Barrier::new(4), Barrier::new(4));
    threads(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let permit = place.permits(3).acquire("a").unwrap();
                inside.meet();
                out.meet();
                assert!(permit.verify().unwrap());
                assert_eq!(permit.release().unwrap(), Released::Freed);
            });
        }
        inside.meet();
        let fourth = place.permits(3);
        assert!(fourth.try_acquire("a").unwrap().is_none());
        assert_eq!(cause(fourth.acquire_with("a", SHORT)), AcquireError::Timeout);
        assert_eq!(cause(fourth.acquire_with("a", Duration::ZERO)), AcquireError::Busy);
        assert!(fourth.try_acquire("b").unwrap().is_some());
        out.meet();
        drop(fourth.acquire("a").unwrap());
    });
    assert_eq!(place.held(), []);
    check_all_free(place, 3);
}

/// Checks that as many permits can be taken as there are.
#[track_caller]
fn check_all_free<P: Place>(place: &P, limit: u32) {
    let permits = place.permits(limit);
    let all: Vec<_> = (0..limit).map_while(|_| permits.try_acquire("a").unwrap()).collect();
    assert_eq!(all.len(), limit as usize, "places are left taken");
}

pub(crate) fn permits_are_limited_under_load<P: Place>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let oracle = Oracle::new(2);
    let objects = [place.permits(2), place.permits(2)];
    threads(|scope| {
        for seed in 0..6 {
            let (permits, oracle) = (&objects[seed % 2], &oracle);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..rounds(20) {
                    let permit = match random.below(2) {
                        0 => permits.try_acquire("a").unwrap(),
                        _ => Some(permits.acquire("a").unwrap()),
                    };
                    if permit.is_some() {
                        oracle.visit(1, || work(&mut random));
                    }
                }
            });
        }
    });
    assert!(oracle.check() > 0);
    check_all_free(place, 2);
}

pub(crate) fn a_permit_that_ends_gives_its_place_back<P: Place>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let here = DistributedSemaphore::with_options(place.store(), limited(2), place.ending());
    let there = place.permits(2);
    let (ends, stays) = (here.acquire("a").unwrap(), there.acquire("a").unwrap());
    place.let_end(&ends);
    let next = there.acquire("a").unwrap();
    assert!(there.try_acquire("a").unwrap().is_none());
    assert!(place.permits(2).try_acquire("a").unwrap().is_none());
    assert_eq!(ends.release().unwrap(), Released::NotOwner);
    assert!(place.permits(2).try_acquire("a").unwrap().is_none(), "a stale owner has given back another's place");
    assert!(stays.verify().unwrap() && next.verify().unwrap());
    drop((stays, next));
    check_all_free(place, 2);
}

pub(crate) fn permits_of_one_object_are_limited<P: Place>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let store = place.store();
    let permits = || DistributedSemaphore::new(store.clone(), limited(2));
    let (one, other) = (permits(), permits());
    let first = one.acquire("a").unwrap();
    let second = other.acquire("a").unwrap();
    for permits in [&one, &other] {
        assert!(permits.try_acquire("a").unwrap().is_none());
    }
    assert_eq!(first.release().unwrap(), Released::Freed);
    let third = one.try_acquire("a").unwrap().expect("a place is free");
    assert!(second.verify().unwrap() && third.verify().unwrap());
    drop(second);
    until(|| other.try_acquire("a").unwrap().is_some());
}

pub(crate) fn tokens_of_permits_rise<P: Place>(place: &P) {
    if !place.capabilities().semaphores || !place.capabilities().tokens {
        return;
    }
    let (here, there) = (place.permits(2), place.permits(2));
    let mut last = None;
    let mut older = None;
    for round in 0..6 {
        let permits = if round % 3 == 0 { &here } else { &there };
        let permit = permits.acquire("a").unwrap();
        assert!(permit.fencing_token() > last, "{:?} comes after {last:?}", permit.fencing_token());
        last = permit.fencing_token();
        older = Some(permit);
    }
    drop(older);
}

pub(crate) fn locks_and_permits_of_a_key_are_independent<P: Place>(place: &P) {
    if !place.capabilities().semaphores {
        return;
    }
    let lock = place.locks().lock("a").unwrap();
    let one = place.permits(1).try_acquire("a").unwrap().expect("only the lock is held");
    // Of the permits all who ask see the same holders, whatever limit each has.
    assert!(place.permits(1).try_acquire("a").unwrap().is_none());
    let two = place.permits(2).try_acquire("a").unwrap().expect("one of two is free");
    assert!(place.permits(2).try_acquire("a").unwrap().is_none());
    assert!(place.permits(1).try_acquire("a").unwrap().is_none());
    assert!(place.locks().try_lock("a").unwrap().is_none());
    drop((lock, one, two));
    place.check_free(&["a"]);
    check_all_free(place, 1);
}
