//! Refuses holders who have lost their lease and do not know.

use crate::sync::Mutex;
use std::collections::HashMap;

/// Remembers the highest fencing token that came with each key, and refuses lower ones: for a resource that lives in one process.
/// (A database does it by a condition: see [the worked example](super#fencing).)
///
/// # Examples
///
/// ```
/// use perkey::distributed::{DistributedLock, Fence, MemoryStore};
///
/// let (jobs, fence) = (DistributedLock::new(MemoryStore::new()), Fence::new());
/// let token = |lease: &perkey::distributed::Lease| lease.fencing_token().expect("this store has tokens");
///
/// let first = jobs.lock("report")?;
/// let late = token(&first);
/// drop(first);
/// let second = jobs.lock("report")?;
/// assert!(fence.admit("report", token(&second)).is_ok());
/// let refused = fence.admit("report", late).unwrap_err();
/// assert_eq!(refused.to_string(), "\"report\" was written with token 2, and 1 comes too late: its lease was lost");
/// # Ok::<(), perkey::distributed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: Mutex<HashMap<String, u64>>,
}

/// A token that came too late.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?} was written with token {highest}, and {token} comes too late: its lease was lost")]
#[non_exhaustive]
pub struct Fenced {
    /// Of what.
    pub key: String,
    /// What came.
    pub token: u64,
    /// What had come before.
    pub highest: u64,
}

impl Fence {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits what comes with this token, if none was higher. The check is atomic, what is done after it is not: of two
    /// who are admitted one after the other, the first may still be writing. Write within [`admit_and`](Self::admit_and) where
    /// that matters.
    ///
    /// # Errors
    ///
    /// If a higher one came before.
    pub fn admit(&self, key: &str, token: u64) -> Result<(), Fenced> {
        self.admit_and(key, token, || ())
    }

    /// As [`admit`](Self::admit), and does `work` before anybody else is admitted, of any key.
    ///
    /// # Errors
    ///
    /// If a higher token came before: then `work` is not done.
    pub fn admit_and<R>(&self, key: &str, token: u64, work: impl FnOnce() -> R) -> Result<R, Fenced> {
        let mut highest = self.highest.lock();
        match highest.get_mut(key) {
            Some(&mut highest) if highest > token => return Err(Fenced { key: key.to_owned(), token, highest }),
            Some(highest) => *highest = token,
            None => {
                highest.insert(key.to_owned(), token);
            }
        }
        Ok(work())
    }
}
