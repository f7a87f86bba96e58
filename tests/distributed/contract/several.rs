//! Several keys at once.

use perkey::distributed::{DistributedLock, Released};
use perkey::{AcquireError, Wait};

use super::{GENEROUS, Place, SHORT};
use crate::recorded::Recorded;
use crate::support::{Oracle, rounds, threads};

pub(crate) fn several_keys_are_locked_in_their_order<P: Place>(place: &P) {
    let store = Recorded::new(place.store());
    let locks = DistributedLock::new(store.clone());
    let leases = locks.lock_many(["b", "c", "a", "b", "a"], Wait::forever()).unwrap();
    let keys: Vec<_> = leases.iter().map(|lease| lease.key()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    let asked: Vec<_> = store.claims().iter().map(|claim| claim.name().key().to_owned()).collect();
    assert_eq!(asked, keys);
    let there = place.locks();
    assert!(keys.iter().all(|key| there.try_lock(key).unwrap().is_none()));
    for lease in leases {
        assert_eq!(lease.release().unwrap(), Released::Freed);
    }
    assert!(locks.lock_many([], Wait::now()).unwrap().is_empty());
    place.check_free(&["a", "b", "c"]);
}

pub(crate) fn several_keys_are_locked_or_none<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let held = here.lock("b").unwrap();
    for (wait, cause) in [(Wait::at_most(SHORT), AcquireError::Timeout), (Wait::now(), AcquireError::Busy)] {
        let error = there.lock_many(["c", "b", "a"], wait).unwrap_err();
        assert_eq!(error.acquire_error(), Some(&cause));
        assert!(error.to_string().starts_with("key \"b\" on "), "{error}");
        for key in ["a", "c"] {
            assert!(here.try_lock(key).unwrap().is_some(), "{key} is left locked");
        }
    }
    drop(held);
    assert_eq!(there.lock_many(["c", "b", "a"], GENEROUS).unwrap().len(), 3);
    place.check_free(&["a", "b", "c"]);
}

pub(crate) fn several_keys_in_any_order_do_not_meet_in_a_ring<P: Place>(place: &P) {
    let oracle = Oracle::exclusive();
    threads(|scope| {
        for keys in [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]] {
            let (locks, oracle) = (place.locks(), &oracle);
            scope.spawn(move || {
                for _ in 0..rounds(8) {
                    let leases = locks.lock_many(keys, Wait::forever()).unwrap();
                    oracle.visit(1, || assert!(leases.iter().all(|lease| lease.is_held())));
                }
            });
        }
    });
    assert_eq!(oracle.check(), 4 * rounds(8));
    place.check_free(&["a", "b"]);
}
