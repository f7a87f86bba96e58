//! What the store itself promises, asked with the claims that it was given.

use std::time::Duration;

use perkey::distributed::{Claim, DistributedLock, Released, Renewal, Store};

use super::{GENEROUS, Place, SHORT, cause};
use crate::recorded::Recorded;

/// Tries everything with a claim that has nothing.
#[track_caller]
fn check_nothing(store: &impl Store, claim: &Claim) {
    for _ in 0..2 {
        assert_eq!(store.renew(claim, GENEROUS, GENEROUS).unwrap(), Renewal::NotOwner);
        assert!(!store.verify(claim, GENEROUS).unwrap());
        assert_eq!(store.release(claim, GENEROUS, GENEROUS).unwrap(), Released::NotOwner);
        assert_eq!(store.release(claim, Duration::ZERO, GENEROUS).unwrap(), Released::NotOwner);
    }
}

pub(crate) fn renewing_never_creates<P: Place>(place: &P) {
    let store = Recorded::new(place.store());
    let locks = DistributedLock::new(store.clone());
    locks.lock("a").unwrap().release().unwrap();
    let released = store.claims().pop().expect("it was asked for");
    check_nothing(&store, &released);
    place.check_free(&["a"]);

    let locks = DistributedLock::with_options(store.clone(), place.ending());
    let ended = locks.lock("a").unwrap();
    let claim = store.claims().pop().expect("it was asked for");
    place.let_end(&ended);
    // A store can forget the owner a moment before it frees the key.
    drop(place.locks().lock("a").unwrap());
    check_nothing(&store, &claim);
    // The store may still be at it.
    drop(place.locks().lock("a").unwrap());
    place.check_free(&["a"]);
}

/// Nor by an owner who waits while another has it.
pub(crate) fn what_was_not_granted_cannot_be_given_back<P: Place>(place: &P) {
    let held = place.locks().lock("a").unwrap();
    let store = Recorded::new(place.store());
    cause(DistributedLock::new(store.clone()).lock_with("a", SHORT));
    for claim in store.claims() {
        check_nothing(&store, &claim);
    }
    assert!(held.verify().unwrap());
    assert!(place.locks().try_lock("a").unwrap().is_none());
    assert_eq!(held.release().unwrap(), Released::Freed);
    place.check_free(&["a"]);
}
