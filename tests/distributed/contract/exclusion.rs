//! One holder per key.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use perkey::AcquireError;
use perkey::distributed::{DistributedLock, Lease, Released};

use super::{Place, cause};
use crate::support::{Oracle, Random, elsewhere, rounds, threads, work};

/// A key and what is seen of it.
struct Seen {
    key: &'static str,
    oracle: Oracle,
    token: AtomicU64,
}

impl Seen {
    fn new(key: &'static str) -> Self {
        Self { key, oracle: Oracle::exclusive(), token: AtomicU64::new(0) }
    }

    fn visit(&self, lease: &Lease, random: &mut Random) {
        self.oracle.visit(1, || {
            let token = lease.fencing_token().unwrap_or_default();
            let before = self.token.swap(token, Ordering::Relaxed);
            assert!(token > before || token == 0, "{token} comes after {before}");
            work(random);
            assert!(lease.is_held(), "half a minute has not passed");
        });
    }
}

pub(crate) fn one_holder_per_key_under_load<P: Place>(place: &P) {
    let objects = [place.locks(), place.locks(), place.locks()];
    let keys = ["a", "b", "a/b"].map(Seen::new);
    let refused = AtomicUsize::new(0);
    threads(|scope| {
        for seed in 0..6 {
            let (locks, keys, refused) = (&objects[seed % objects.len()], &keys, &refused);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..rounds(40) {
                    let seen = &keys[random.below(3) as usize];
                    match ask(locks, seen.key, &mut random) {
                        None => _ = refused.fetch_add(1, Ordering::Relaxed),
                        Some(lease) => {
                            seen.visit(&lease, &mut random);
                            if random.below(2) == 0 {
                                assert_eq!(lease.release().unwrap(), Released::Freed);
                            }
                        }
                    }
                }
            });
        }
    });
    let visits: usize = keys.iter().map(|seen| seen.oracle.check()).sum();
    assert_eq!(visits + refused.into_inner(), 6 * rounds(40));
    place.check_free(&["a", "b", "a/b"]);
}

/// One way or another.
fn ask(locks: &DistributedLock, key: &str, random: &mut Random) -> Option<Lease> {
    match random.below(4) {
        0 => locks.try_lock(key).unwrap(),
        1 => match locks.lock_with(key, Duration::from_micros(1 + random.below(3_000))) {
            Ok(lease) => Some(lease),
            refused => {
                assert!(matches!(cause(refused), AcquireError::Timeout | AcquireError::Busy));
                None
            }
        },
        _ => Some(locks.lock(key).unwrap()),
    }
}

pub(crate) fn a_held_key_is_refused_and_others_are_not<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let held = here.lock("a").unwrap();
    assert_eq!(held.key(), "a");
    assert!(held.is_held() && held.verify().unwrap());
    for locks in [&here, &there] {
        assert!(locks.try_lock("a").unwrap().is_none());
        assert!(locks.try_lock("b").unwrap().is_some());
    }
    drop(held);
    for locks in [&here, &there] {
        assert!(locks.try_lock("a").unwrap().is_some());
    }
}

/// Also not through a clone, on one thread or on two.
pub(crate) fn the_same_object_does_not_enter_twice<P: Place>(place: &P) {
    let locks = place.locks();
    let held = locks.lock("a").unwrap();
    assert!(locks.clone().try_lock("a").unwrap().is_none());
    assert!(elsewhere(|| locks.try_lock("a").unwrap()).is_none());
    assert!(held.verify().unwrap());
}

/// Some engines grant a session what it has already: here nothing in the process is before the store.
pub(crate) fn one_store_object_does_not_enter_twice<P: Place>(place: &P) {
    let store = place.store();
    let locks = || DistributedLock::new(store.clone());
    let (one, other) = (locks(), locks());
    let held = one.lock("a").unwrap();
    assert!(other.try_lock("a").unwrap().is_none());
    assert_eq!(held.release().unwrap(), Released::Freed);
    let next = other.try_lock("a").unwrap().expect("it is free");
    assert!(one.try_lock("a").unwrap().is_none());
    drop(next);
    place.check_free(&["a"]);
}

pub(crate) fn a_lease_can_be_used_on_another_thread<P: Place>(place: &P) {
    static_assertions::assert_impl_all!(Lease: Send, Sync);
    let locks = place.locks();
    let held = locks.lock("a").unwrap();
    assert!(elsewhere(|| held.is_held() && held.verify().unwrap() && held.renew().unwrap()));
    elsewhere(|| drop(held));
    let held = elsewhere(|| place.locks().lock("a").unwrap());
    assert_eq!(held.release().unwrap(), Released::Freed);
    place.check_free(&["a"]);
}
