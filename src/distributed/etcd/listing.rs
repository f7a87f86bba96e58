//! Who holds what.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::distributed::store::Holder;

use super::ATTEMPT;
use super::calls::Entry;
use super::fault::Fault;
use super::gateway::Gateway;
use super::keys::{self, Found, KEPT};

/// Who holds the keys of a namespace that begin with `prefix`, by key: not those who wait.
pub(super) fn holders(gateway: &Gateway, namespace: &str, prefix: &str) -> Result<Vec<Holder>, Fault> {
    let entries = gateway.list(&keys::beginning(namespace), ATTEMPT)?;
    let mut holders = Vec::new();
    for (entry, found) in first_ones(&entries, namespace, prefix) {
        let Some(left) = gateway.time_left(entry.lease, Instant::now() + ATTEMPT)? else { continue };
        let owner = if entry.value == KEPT { "" } else { found.owner };
        holders.push(Holder::new(found.key, owner, Some(entry.revision), Some(left)));
    }
    holders.sort_by(|one, other| (&one.key, one.token).cmp(&(&other.key, other.token)));
    Ok(holders)
}

/// Of each name those who were there first, as many as they say themselves.
fn first_ones<'a>(entries: &'a [Entry], namespace: &str, prefix: &str) -> Vec<(&'a Entry, Found<'a>)> {
    let mut names: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for entry in entries {
        if let Some(found) = Found::parse(namespace, &entry.key).filter(|found| found.key.starts_with(prefix)) {
            names.entry(found.all).or_default().push((entry, found));
        }
    }
    let firsts = names.into_values().flat_map(|mut queue| {
        queue.sort_by_key(|(entry, _)| entry.revision);
        let in_time = |number: usize, entry: &Entry| match keys::limit_in(&entry.value) {
            Some(limit) => number < limit as usize,
            None => entry.value == KEPT,
        };
        let firsts = queue.into_iter().enumerate().filter(move |(number, (entry, _))| in_time(*number, entry));
        firsts.map(|(_, first)| first)
    });
    firsts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_hold_nothing() {
        let entry = |key: &str, value: &str, revision| Entry {
            key: format!("perkey/1:n/{key}"),
            value: value.to_owned(),
            revision,
            lease: 1,
        };
        let entries = [
            entry("lock/1:a/second", "limit 1", 9),
            entry("lock/1:a/first", "limit 1", 8),
            entry("permits/1:a/third", "limit 2", 7),
            entry("permits/1:a/second", "limit 3", 6),
            entry("permits/1:a/first", "limit 1", 5),
            entry("permits/1:b/kept", KEPT, 4),
            entry("lock/1:a/other", "something else", 3),
            entry("lock/2:ab/no", "limit 1", 2),
            entry("lock/1:x/no", "limit 1", 1),
        ];
        let mut found: Vec<_> =
            first_ones(&entries, "n", "").iter().map(|(entry, found)| (entry.revision, found.key)).collect();
        found.sort_unstable();
        assert_eq!(found, [(1, "x"), (2, "ab"), (4, "b"), (5, "a"), (6, "a")]);
        assert_eq!(first_ones(&entries, "n", "ab").len(), 1);
    }
}
