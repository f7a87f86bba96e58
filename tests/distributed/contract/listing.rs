//! Who holds what.

use perkey::distributed::LeaseOptions;

use super::Place;

pub(crate) fn holders_are_listed_with_their_tokens<P: Place>(place: &P) {
    if !place.capabilities().lists_holders {
        return;
    }
    let (here, there) = (place.locks(), place.locks());
    let leases = ["job/b", "job/a", "other"].map(|key| here.lock(key).unwrap());
    let listed = there.holders("job/").unwrap();
    let expected = [("job/a", leases[1].fencing_token()), ("job/b", leases[0].fencing_token())];
    assert_eq!(listed.iter().map(|holder| (&*holder.key, holder.token)).collect::<Vec<_>>(), expected);
    assert!(listed.iter().all(|holder| !holder.owner.is_empty()));
    assert_ne!(listed[0].owner, listed[1].owner);
    if place.capabilities().leases {
        assert!(listed.iter().all(|holder| holder.remaining.is_some()));
    }
    assert_eq!(there.holders("").unwrap().len(), 3);
    assert_eq!(there.holders("job/c").unwrap(), []);
    assert!(leases.iter().all(|lease| lease.verify().unwrap()), "who lists takes nothing away");
    drop(leases);
    assert_eq!(there.holders("").unwrap(), []);

    if place.capabilities().semaphores {
        let permits = place.permits(3);
        let held = [permits.acquire("job/a").unwrap(), place.permits(3).acquire("job/a").unwrap()];
        let mut tokens: Vec<_> = permits.holders("job/").unwrap().iter().map(|holder| holder.token).collect();
        tokens.sort();
        assert_eq!(tokens, held.each_ref().map(|permit| permit.fencing_token()));
        drop(held);
        assert_eq!(permits.holders("").unwrap(), []);
    }
}

/// No engine's wild cards.
pub(crate) fn prefixes_are_taken_as_they_are<P: Place>(place: &P) {
    if !place.capabilities().lists_holders {
        return;
    }
    let keys = ["a", "a%b", "a*b", "a?b", "a[b", "a\\b", "a_b", "axb", "é", "éb"];
    let locks = place.locks();
    let leases = keys.map(|key| locks.lock(key).unwrap());
    for prefix in ["", "a", "a%", "a*", "a?", "a[", "a\\", "a_", "a%b", "ax", "axbc", "*", "%", "é", "éb", "e"] {
        let listed = locks.holders(prefix).unwrap();
        let listed: Vec<_> = listed.iter().map(|holder| &*holder.key).collect();
        let expected: Vec<_> = keys.into_iter().filter(|key| key.starts_with(prefix)).collect();
        assert_eq!(listed, expected, "with the prefix {prefix:?}");
    }
    drop(leases);
}

pub(crate) fn namespaces_are_separate<P: Place>(place: &P) {
    let [one, other] = ["one", "other"].map(|name| place.locks_with(LeaseOptions::new().namespace(name)));
    let leases = [one.lock("a").unwrap(), other.lock("a").unwrap()];
    assert!(one.try_lock("a").unwrap().is_none());
    if place.capabilities().lists_holders {
        for (locks, lease) in [&one, &other].into_iter().zip(&leases) {
            let listed = locks.holders("").unwrap();
            assert_eq!(listed.iter().map(|holder| holder.token).collect::<Vec<_>>(), [lease.fencing_token()]);
        }
        assert_eq!(place.held(), [], "in the namespace that is the default");
    }
}
