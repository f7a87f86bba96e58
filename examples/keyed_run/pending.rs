//! The lines that have not started.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::rows::Job;

/// Lines by key, so that a key without room costs one look and not one for each of its lines.
pub(crate) struct Pending<'a> {
    by_key: HashMap<&'a str, VecDeque<&'a Job>>,
    /// The keys that have lines, by the number of the first.
    keys: BTreeMap<usize, &'a str>,
}

impl<'a> Pending<'a> {
    /// `jobs` are in the order of their lines.
    pub(crate) fn new(jobs: &'a [Job]) -> Self {
        let mut by_key = HashMap::<&str, VecDeque<&Job>>::new();
        for job in jobs {
            by_key.entry(&job.key).or_default().push_back(job);
        }
        let keys = by_key.values().map(|queue| (queue[0].line, queue[0].key.as_str())).collect();
        Self { by_key, keys }
    }

    /// The keys that have lines, in the order of the first line of each.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.keys.values().copied()
    }

    /// Takes the first line of `key`, if there is one left.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Job> {
        let queue = self.by_key.get_mut(key)?;
        let job = queue.pop_front()?;
        self.keys.remove(&job.line);
        match queue.front() {
            Some(next) => drop(self.keys.insert(next.line, &next.key)),
            None => drop(self.by_key.remove(key)),
        }
        Some(job)
    }

    /// All lines that are left, in the order of the input.
    pub(crate) fn into_left(self) -> Vec<&'a Job> {
        let mut left: Vec<_> = self.by_key.into_values().flatten().collect();
        left.sort_unstable_by_key(|job| job.line);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(rows: &[(usize, &str)]) -> Vec<Job> {
        rows.iter().map(|&(line, key)| Job { line, key: key.into(), command: "true".into() }).collect()
    }

    #[test]
    fn keys_are_in_the_order_of_the_line_that_is_next() {
        let jobs = jobs(&[(1, "b"), (2, "a"), (4, "b"), (7, "c"), (8, "a")]);
        let mut pending = Pending::new(&jobs);
        for (taken, line, left) in [("b", 1, "a b c"), ("a", 2, "b c a"), ("b", 4, "c a"), ("a", 8, "c"), ("c", 7, "")]
        {
            assert_eq!(pending.take(taken).unwrap().line, line);
            assert_eq!(pending.keys().collect::<Vec<_>>().join(" "), left);
            assert_eq!(pending.take("none"), None);
        }
        assert_eq!(pending.take("b"), None);
        assert!(pending.into_left().is_empty());
    }

    #[test]
    fn what_is_left_is_in_the_order_of_the_input() {
        let jobs = jobs(&[(1, "b"), (2, "a"), (4, "b"), (7, "c"), (8, "a")]);
        let mut pending = Pending::new(&jobs);
        pending.take("a");
        assert_eq!(pending.into_left().iter().map(|job| job.line).collect::<Vec<_>>(), [1, 4, 7, 8]);
    }
}
