//! What things are called in the server.

use crate::distributed::name::Name;
use crate::distributed::store::{Claim, Kind};

use super::scripts::{self, Scripts};

/// The names that belong to one lock, or to the permits of one key.
///
/// All have the same part in braces, which puts them on one node of a cluster. The length before the namespace makes it clear where
/// that ends.
pub(super) struct Keys {
    /// In the order in which the scripts want them.
    pub(super) keys: Vec<String>,
    /// Where it is said that something is free.
    pub(super) channel: String,
    pub(super) scripts: &'static Scripts,
}

const LOCK: &str = "}:lock";
const PERMITS: &str = "}:permits";

impl Keys {
    pub(super) fn of(claim: &Claim) -> Self {
        let name = claim.name();
        match claim.kind() {
            Kind::Lock => Self::of_lock(name),
            Kind::Permit { .. } => Self::of_permits(name),
        }
    }

    fn of_lock(name: &Name) -> Self {
        let root = beginning(name.namespace()) + name.key();
        Self {
            keys: vec![format!("{root}{LOCK}"), format!("{root}{LOCK}-token")],
            channel: format!("{root}{LOCK}-free"),
            scripts: &scripts::LOCK,
        }
    }

    fn of_permits(name: &Name) -> Self {
        let root = beginning(name.namespace()) + name.key();
        Self {
            keys: ["", "-tokens", "-token"].map(|end| format!("{root}{PERMITS}{end}")).into(),
            channel: format!("{root}{PERMITS}-free"),
            scripts: &scripts::PERMITS,
        }
    }

    /// Those of what `SCAN` has found, and the key, if it is a lock or a set of permits.
    pub(super) fn of_found(namespace: &str, found: &str) -> Option<(String, Self)> {
        let rest = found.strip_prefix(&beginning(namespace))?;
        if let Some(key) = rest.strip_suffix(LOCK) {
            return Some((key.to_owned(), Self::of_lock(&Name::new(namespace, key))));
        }
        let key = rest.strip_suffix(PERMITS)?;
        Some((key.to_owned(), Self::of_permits(&Name::new(namespace, key))))
    }
}

/// What `SCAN` has to look for.
pub(super) fn pattern(namespace: &str, prefix: &str) -> String {
    let mut pattern = String::new();
    for c in (beginning(namespace) + prefix).chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*}:*"
}

fn beginning(namespace: &str) -> String {
    format!("perkey:{{{}:{namespace}:", namespace.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_key_have_one_tag_and_no_two_keys_share_a_name() {
        let mut names = Vec::new();
        for (namespace, key) in
            [("a", "b"), ("a", "b}:lock"), ("a:b", ""), ("a", "b:"), ("", "}"), ("}", ""), ("é", "{}")]
        {
            for keys in [Keys::of_lock(&Name::new(namespace, key)), Keys::of_permits(&Name::new(namespace, key))] {
                let all = || keys.keys.iter().chain([&keys.channel]);
                let tag = |name: &str| name.split_once('{').unwrap().1.split_once('}').unwrap().0.to_owned();
                assert!(all().all(|name| !tag(name).is_empty() && tag(name) == tag(&keys.channel)));
                names.extend(all().cloned());
            }
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_is_found_is_known_again() {
        for key in ["b", "", "b}:lock", "}:permits", "é{"] {
            for keys in [Keys::of_lock(&Name::new("n}:", key)), Keys::of_permits(&Name::new("n}:", key))] {
                let (found, again) = Keys::of_found("n}:", &keys.keys[0]).unwrap();
                assert_eq!((found.as_str(), again.keys), (key, keys.keys.clone()));
                assert!(keys.keys[1..].iter().all(|other| Keys::of_found("n}:", other).is_none()));
            }
        }
        assert_eq!(pattern("n", "a*[b]?\\"), "perkey:{1:n:a\\*\\[b\\]\\?\\\\*}:*");
    }
}
