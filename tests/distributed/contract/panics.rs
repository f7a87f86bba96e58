//! What is held is given back while a thread unwinds.

use super::Place;
use crate::support::{panics, quiet_panic};

pub(crate) fn a_panic_with_a_key_releases<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let result = here.with_key("a", |lease| {
        assert!(there.try_lock("a").unwrap().is_none());
        lease.is_held()
    });
    assert!(result.unwrap());
    assert!(panics(|| here.with_key("a", |_| quiet_panic()).unwrap()));
    for locks in [&here, &there] {
        assert!(locks.try_lock("a").unwrap().is_some());
    }
    if place.capabilities().semaphores {
        let permits = place.permits(2);
        for _ in 0..2 {
            assert!(panics(|| permits.with_key("a", |_| quiet_panic()).unwrap()));
        }
        let both = [permits.try_acquire("a").unwrap(), permits.try_acquire("a").unwrap()];
        assert!(both.iter().all(Option::is_some), "places are left taken");
    }
    place.check_free(&["a"]);
}
