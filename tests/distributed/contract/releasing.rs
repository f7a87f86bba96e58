//! Giving back.

use perkey::distributed::{Lease, Released};

use super::{Place, check_higher};

pub(crate) fn a_release_frees_the_key_for_a_second_owner<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    let first = here.lock("a").unwrap();
    let (lost, token) = (first.lost().clone(), first.fencing_token());
    assert_eq!(token.is_some(), place.capabilities().tokens);
    assert_eq!(first.release().unwrap(), Released::Freed);
    let second = there.try_lock("a").unwrap().expect("it is free");
    assert!(token.is_none() || second.fencing_token() > token);
    assert!(!lost.is_set(), "what is given back is not lost");
    assert!(here.try_lock("a").unwrap().is_none());
    assert_eq!(second.release().unwrap(), Released::Freed);
    place.check_free(&["a"]);
}

pub(crate) fn a_drop_frees_the_key<P: Place>(place: &P) {
    let (here, there) = (place.locks(), place.locks());
    drop(here.lock("a").unwrap());
    assert!(there.try_lock("a").unwrap().is_some());
    place.check_free(&["a"]);
}

/// Whatever it tries.
pub(crate) fn a_stale_owner_disturbs_nobody<P: Place>(place: &P) {
    let tries: [fn(Lease); 5] = [
        |stale| assert_eq!(stale.release().unwrap(), Released::NotOwner),
        |stale| assert!(!stale.renew().unwrap()),
        |stale| {
            assert!(!stale.verify().unwrap());
            assert!(stale.lost().is_set() && !stale.is_held());
        },
        |stale| {
            assert!(!stale.verify().unwrap() && !stale.renew().unwrap() && !stale.verify().unwrap());
            assert_eq!(stale.release().unwrap(), Released::NotOwner);
        },
        drop,
    ];
    for what in tries {
        let stale = place.locks_with(place.ending()).lock("a").unwrap();
        place.let_end(&stale);
        let next = place.locks().lock("a").unwrap();
        check_higher(&next, &stale);
        what(stale);
        assert!(next.is_held() && next.verify().unwrap() && next.renew().unwrap());
        assert!(place.locks().try_lock("a").unwrap().is_none());
        assert_eq!(next.release().unwrap(), Released::Freed);
    }
    place.check_free(&["a"]);
}
