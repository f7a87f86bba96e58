//! Leases end, and do not.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::distributed::{Lease, LeaseOptions, Released};

use super::{GENEROUS, Place, check_higher};
use crate::support::{Random, rounds, threads, until};

/// How often a lease says that it is lost.
fn losses(lease: &Lease) -> Arc<AtomicUsize> {
    let losses = Arc::new(AtomicUsize::new(0));
    let count = losses.clone();
    lease.lost().on_lost(move || _ = count.fetch_add(1, Ordering::SeqCst));
    losses
}

pub(crate) fn a_lease_that_is_not_renewed_ends<P: Place>(place: &P) {
    if !place.capabilities().leases {
        return;
    }
    let (here, there) = (place.locks_with(place.ending()), place.locks());
    let asked = Instant::now();
    let first = here.lock("a").unwrap();
    let losses = losses(&first);
    assert!(first.remaining().is_some_and(|left| left <= P::TTL));
    let second = there.lock("a").unwrap();
    assert!(!first.is_held(), "two believe that they hold it");
    assert!(asked.elapsed() >= P::TTL, "it has ended early");
    check_higher(&second, &first);
    assert!(first.lost().wait_timeout(GENEROUS));
    until(|| losses.load(Ordering::SeqCst) == 1);
    assert_eq!(first.remaining(), Some(Duration::ZERO));
    assert!(!first.renew().unwrap() && !first.verify().unwrap());
    assert_eq!(first.release().unwrap(), Released::NotOwner);
    assert!(second.verify().unwrap());
    assert_eq!(losses.load(Ordering::SeqCst), 1, "lost once and for ever");
}

pub(crate) fn a_lease_that_is_renewed_goes_on<P: Place>(place: &P) {
    // Long enough for a thread that renews in time even where others keep the cores busy.
    let ttl = P::TTL * 6;
    let (here, there) = (place.locks_with(LeaseOptions::new().ttl(ttl)), place.locks());
    let held = here.lock("a").unwrap();
    let losses = losses(&held);
    let begin = Instant::now();
    while begin.elapsed() < ttl * 3 {
        assert!(held.is_held(), "lost after {:?}", begin.elapsed());
        assert!(there.lock_with("a", ttl / 10).is_err(), "another got it");
    }
    assert!(held.verify().unwrap());
    assert_eq!(losses.load(Ordering::SeqCst), 0);
    assert_eq!(held.release().unwrap(), Released::Freed);
    place.check_free(&["a"]);
}

pub(crate) fn a_renewal_by_hand_adds_to_the_time<P: Place>(place: &P) {
    let ttl = P::TTL * 20;
    let held = place.locks_with(LeaseOptions::new().ttl(ttl).renew(false)).lock("a").unwrap();
    if !place.capabilities().leases {
        assert!(held.renew().unwrap() && held.remaining().is_none());
        return;
    }
    until(|| held.remaining().is_some_and(|left| left < ttl * 95 / 100));
    let before = held.remaining();
    assert!(held.renew().unwrap());
    assert!(held.remaining() > before);
    assert!(held.is_held() && held.verify().unwrap());
}

pub(crate) fn without_leases_the_time_to_live_means_nothing<P: Place>(place: &P) {
    if place.capabilities().leases {
        return;
    }
    let ttl = Duration::from_millis(10);
    let held = place.locks_with(LeaseOptions::new().ttl(ttl).renew(false)).lock("a").unwrap();
    place.let_pass(ttl * 5);
    assert!(held.is_held() && held.verify().unwrap() && held.renew().unwrap());
    assert_eq!(held.remaining(), None);
    assert!(place.locks().try_lock("a").unwrap().is_none());
    assert!(!held.lost().is_set());
    assert_eq!(held.release().unwrap(), Released::Freed);
}

/// For other processes and for its own.
pub(crate) fn a_forgotten_lease_ends<P: Place>(place: &P) {
    let here = place.locks_with(LeaseOptions::new().max_hold(P::TTL));
    let forgotten = here.lock("a").unwrap();
    let losses = losses(&forgotten);
    let (lost, token) = (forgotten.lost().clone(), forgotten.fencing_token());
    mem::forget(forgotten);
    let next = place.locks().lock("a").unwrap();
    assert!(token.is_none() || next.fencing_token() > token);
    assert!(lost.wait_timeout(GENEROUS));
    drop(next);
    drop(here.lock("a").unwrap());
    assert_eq!(losses.load(Ordering::SeqCst), 1);
    place.check_free(&["a"]);
}

pub(crate) fn max_hold_ends_what_is_renewed<P: Place>(place: &P) {
    let ttl = P::TTL * 100;
    let here = place.locks_with(LeaseOptions::new().ttl(ttl).max_hold(P::TTL));
    let asked = Instant::now();
    let held = here.lock("a").unwrap();
    let losses = losses(&held);
    assert!(held.remaining().is_some_and(|left| left <= P::TTL));
    assert!(held.lost().wait_timeout(GENEROUS));
    assert!(asked.elapsed() >= P::TTL && asked.elapsed() < ttl, "after {:?}", asked.elapsed());
    assert!(!held.is_held());
    let next = place.locks().lock("a").unwrap();
    assert!(!held.renew().unwrap() && !held.verify().unwrap());
    assert_eq!(held.release().unwrap(), Released::NotOwner);
    assert!(next.verify().unwrap());
    until(|| losses.load(Ordering::SeqCst) == 1);
}

/// Holders who stall, so that their holds end by themselves: nobody believes to hold a key while another does.
pub(crate) fn believed_holds_never_overlap<P: Place>(place: &P) {
    let holds = Mutex::new(Vec::new());
    let lost = AtomicUsize::new(0);
    threads(|scope| {
        for seed in 0..3 {
            let (holds, lost) = (&holds, &lost);
            scope.spawn(move || {
                let locks = place.locks_with(place.ending());
                let mut random = Random::new(seed);
                for _ in 0..rounds(5) {
                    let lease = locks.lock("a").unwrap();
                    let from = Instant::now();
                    let mut last = from;
                    // To its end or, by one half of them, for a moment.
                    let time = if random.below(2) == 0 { P::TTL / 20 } else { GENEROUS };
                    while from.elapsed() < time {
                        let now = Instant::now();
                        if !lease.is_held() {
                            lost.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        last = now;
                        thread::sleep(Duration::from_micros(100));
                    }
                    holds.lock().push((from, last, lease.fencing_token()));
                }
            });
        }
    });
    let mut holds = holds.into_inner();
    holds.sort();
    assert_eq!(holds.len(), 3 * rounds(5));
    assert!(lost.into_inner() > 0, "none has stalled");
    for pair in holds.windows(2) {
        let ((_, until, before), (from, _, token)) = (pair[0], pair[1]);
        assert!(from > until, "the next holds it {:?} before the end", until - from);
        assert!(token.is_none() || token > before, "{token:?} comes after {before:?}");
    }
    place.check_free(&["a"]);
}
