//! What things are called in the servers.

use crate::distributed::store::{Claim, Kind, OwnerId};

/// The names that belong to a claim.
///
/// The lengths make it clear where namespace and key end, so that the keys of one name are no range of another's.
pub(super) struct Keys {
    /// What the keys of all who hold the name, or wait for it, begin with.
    pub(super) all: String,
    /// The key of this claim.
    pub(super) own: String,
    /// What is in it while it is the claim's: so that it can be seen who holds something.
    pub(super) value: String,
    /// The lease that the key lives under.
    pub(super) lease: u64,
    /// The lease that it lives under when it is kept for nobody.
    pub(super) kept_lease: u64,
}

/// What is in a key that is kept for nobody.
pub(super) const KEPT: &str = "kept";

const LIMIT: &str = "limit ";

impl Keys {
    pub(super) fn of(claim: &Claim) -> Self {
        let (name, owner) = (claim.name(), claim.owner().to_string());
        let kind = match claim.kind() {
            Kind::Lock => "lock",
            Kind::Permit { .. } => "permits",
        };
        let all = format!("{}{kind}/{}:{}/", beginning(name.namespace()), name.key().len(), name.key());
        let (lease, kept_lease) = leases(claim.owner());
        Self { own: all.clone() + &owner, all, value: format!("{LIMIT}{}", claim.limit()), lease, kept_lease }
    }
}

/// Two numbers for leases: of 63 bits, not zero, and random, so that nobody else has them.
fn leases(owner: OwnerId) -> (u64, u64) {
    let digits = owner.to_string();
    let number = |digits: &str| u64::from_str_radix(digits, 16).expect("an owner has 32 digits") & (u64::MAX >> 1);
    let (first, second) = digits.split_at(16);
    (number(first).max(1), number(second).max(1))
}

/// What the keys of a namespace begin with.
pub(super) fn beginning(namespace: &str) -> String {
    format!("perkey/{}:{namespace}/", namespace.len())
}

/// Where a range ends that has all keys which begin with this.
pub(super) fn end_of(beginning: &str) -> String {
    // A `0` is what comes after a `/`.
    format!("{}0", beginning.strip_suffix('/').expect("it ends with a slash"))
}

/// A key that was found.
pub(super) struct Found<'a> {
    /// What the keys of all who hold the name, or wait for it, begin with.
    pub(super) all: &'a str,
    pub(super) key: &'a str,
    pub(super) owner: &'a str,
}

impl<'a> Found<'a> {
    pub(super) fn parse(namespace: &str, found: &'a str) -> Option<Self> {
        let rest = found.strip_prefix(&beginning(namespace))?;
        let rest = rest.strip_prefix("lock/").or_else(|| rest.strip_prefix("permits/"))?;
        let (length, rest) = rest.split_once(':')?;
        let (key, owner) = rest.split_at_checked(length.parse().ok()?)?;
        let owner = owner.strip_prefix('/')?;
        Some(Self { all: &found[..found.len() - owner.len()], key, owner })
    }
}

/// How many may have the name at once, as far as who made the key knows. `None` if it is kept for nobody, or is something else.
pub(super) fn limit_in(value: &str) -> Option<u32> {
    value.strip_prefix(LIMIT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use crate::distributed::name::Name;

    use super::*;

    fn both(namespace: &str, key: &str) -> [Keys; 2] {
        let limit = NonZeroU32::new(3).unwrap();
        [Kind::Lock, Kind::Permit { limit }].map(|kind| Keys::of(&Claim::fresh(Name::new(namespace, key), kind)))
    }

    #[test]
    fn no_range_has_keys_of_another_name() {
        let names = [
            ("a", "b"),
            ("a", "b/lock/1:b"),
            ("a/lock", "b"),
            ("", "1:a/lock/1:b"),
            ("a", ""),
            ("a", "b/"),
            ("a", "0"),
            ("é", "{}"),
        ];
        let keys: Vec<_> = names.into_iter().flat_map(|(namespace, key)| both(namespace, key)).collect();
        for (number, one) in keys.iter().enumerate() {
            let end = end_of(&one.all);
            for (other, keys) in keys.iter().enumerate() {
                assert_eq!(keys.own >= one.all && keys.own < end, number == other, "{} in {}", keys.own, one.all);
            }
        }
    }

    #[test]
    fn what_is_found_is_known_again() {
        for key in ["b", "", "b/lock/1:b/", "é{", "\0"] {
            for keys in both("n/:", key) {
                let found = Found::parse("n/:", &keys.own).unwrap();
                assert_eq!((found.key, found.all, found.owner.len()), (key, &*keys.all, 32));
                assert!(Found::parse("n/", &keys.own).is_none());
            }
        }
        for other in
            ["perkey/1:n/lock/3:é/x", "perkey/1:n/lock/x:a/x", "perkey/1:n/lock/9:a/x", "perkey/1:n/other/1:a/x"]
        {
            assert!(Found::parse("n", other).is_none(), "{other}");
        }
        let [lock, permits] = both("n", "k");
        assert_eq!((limit_in(&lock.value), limit_in(&permits.value), limit_in(KEPT)), (Some(1), Some(3), None));
    }

    #[test]
    fn leases_have_numbers_that_etcd_takes() {
        let parse = |digits| leases(OwnerId::parse(digits).unwrap());
        assert_eq!(parse("ffffffffffffffff0000000000000001"), (i64::MAX as u64, 1));
        assert_eq!(parse("00000000000000008000000000000001"), (1, 1));
        assert_eq!(parse("80000000000000020000000000000003"), (2, 3));
    }
}
