//! What is said when all is done.

use std::fmt::Write;
use std::io;
use std::process::Output;
use std::time::Duration;

use super::cli::Source;
use super::rows::{Job, shown};

/// So many lines are named, of those that failed and of those that were left.
const MOST: usize = 10;

/// Counts how commands ended.
pub(crate) struct Summary<'a> {
    source: &'a Source<'a>,
    ran: usize,
    failed: usize,
    /// The first that failed, and how.
    failures: Vec<(&'a Job, String)>,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(source: &'a Source<'a>) -> Self {
        Self { source, ran: 0, failed: 0, failures: Vec::new() }
    }

    pub(crate) fn add(&mut self, job: &'a Job, result: &io::Result<Output>) {
        self.ran += 1;
        let failure = match result {
            Ok(output) if output.status.success() => return,
            Ok(output) => output.status.to_string(),
            Err(error) => format!("cannot be run: {error}"),
        };
        self.failed += 1;
        if self.failures.len() < MOST {
            self.failures.push((job, failure));
        }
    }

    /// How many commands have ended, those that could not be run included.
    pub(crate) fn ran(&self) -> usize {
        self.ran
    }

    pub(crate) fn all_succeeded(&self) -> bool {
        self.failed == 0
    }

    pub(crate) fn text(&self, left: &[&Job], time: Duration) -> String {
        let Self { ran, failed, .. } = self;
        let mut text = format!("{ran} ran, {failed} failed, {} left ({:.3} s)", left.len(), time.as_secs_f64());
        self.list(&mut text, "failed", *failed, self.failures.iter().map(|(job, how)| (*job, how.as_str())));
        self.list(&mut text, "left", left.len(), left.iter().take(MOST).map(|job| (*job, "")));
        text
    }

    fn list<'b>(&self, text: &mut String, what: &str, count: usize, jobs: impl Iterator<Item = (&'b Job, &'b str)>) {
        let mut named = 0;
        for (job, how) in jobs {
            named += 1;
            let separator = if how.is_empty() { "" } else { ": " };
            let row = shown(&format!("{}\t{}", job.key, job.command));
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {what}: {}:{}: {how}{separator}{row}", self.source, job.line);
        }
        if count > named {
            let _ = write!(text, "\n  {what}: and {} more", count - named);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ten_are_named_and_the_others_counted() {
        let job = |line| Job { line, key: "k".into(), command: format!("echo \x1b {line}") };
        let jobs: Vec<_> = (1..=25).map(job).collect();
        let mut summary = Summary::new(&Source::Stdin);
        assert_eq!(summary.text(&[], Duration::from_millis(1_500)), "0 ran, 0 failed, 0 left (1.500 s)");
        assert!(summary.all_succeeded());

        for job in &jobs[..12] {
            summary.add(job, &Err(io::ErrorKind::NotFound.into()));
        }
        let left: Vec<_> = jobs[12..].iter().collect();
        let text = summary.text(&left, Duration::ZERO);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "12 ran, 12 failed, 13 left (0.000 s)");
        assert_eq!(lines[1], "  failed: <stdin>:1: cannot be run: entity not found: \"k\\techo \\u{1b} 1\"");
        assert!(lines[10].starts_with("  failed: <stdin>:10: "));
        assert_eq!(lines[11], "  failed: and 2 more");
        assert_eq!(lines[12], "  left: <stdin>:13: \"k\\techo \\u{1b} 13\"");
        assert!(lines[21].starts_with("  left: <stdin>:22: "));
        assert_eq!(lines[22..], ["  left: and 3 more"]);
        assert_eq!((summary.ran(), summary.all_succeeded()), (12, false));
    }
}
