//! The kinds of keys.

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::thread;

use crate::rng::Rng;

/// A key made of its number.
pub(crate) trait Name: Hash + Ord + Clone + Debug + Send + Sync + 'static {
    fn name(number: usize) -> Self;

    /// The number it was made of.
    fn number(&self) -> usize;

    /// Makes the `n`th use of a key's own code on this thread panic; 0 for never.
    fn arm(_n: u64) {}
}

impl Name for u64 {
    fn name(number: usize) -> Self {
        number as u64
    }

    fn number(&self) -> usize {
        *self as usize
    }
}

const PREFIX: &str = "account-";

impl Name for String {
    fn name(number: usize) -> Self {
        format!("{PREFIX}{number}")
    }

    fn number(&self) -> usize {
        self.strip_prefix(PREFIX).and_then(|number| number.parse().ok()).expect("a key of this table")
    }
}

/// The payload of the panics that the soak asks for. They begin with `resume_unwind`, which leaves the panic hook alone:
/// so they are quiet, and all others are not.
pub(crate) struct Planned;

pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

/// Makes the code of keys of type `K` panic somewhere on this thread until the value is dropped, one time in eight.
pub(crate) fn light_fuse<K: Name>(rng: &mut Rng) -> Fuse {
    if rng.one_in(8) {
        K::arm(1 + rng.below(8));
    }
    Fuse(K::arm)
}

pub(crate) struct Fuse(fn(u64));

impl Drop for Fuse {
    fn drop(&mut self) {
        (self.0)(0);
    }
}

thread_local! {
    static FUSE: Cell<u64> = const { Cell::new(0) };
}

/// A key whose own code, its `Drop` included, panics when the fuse of the thread has burnt down. It hashes alike with
/// every second key, so that its `Eq` is asked more often.
#[derive(Debug)]
pub(crate) struct Touchy(usize);

impl Touchy {
    fn touched() {
        // A panic during a panic would end the process.
        if thread::panicking() {
            return;
        }
        let fuse = FUSE.get();
        FUSE.set(fuse.saturating_sub(1));
        if fuse == 1 {
            panic_as_planned();
        }
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Self::touched();
        (self.0 % 2).hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Touchy {}

impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> Ordering {
        Self::touched();
        self.0.cmp(&other.0)
    }
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        Self::touched();
        Self(self.0)
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        Self::touched();
    }
}

impl Name for Touchy {
    fn name(number: usize) -> Self {
        Self(number)
    }

    fn number(&self) -> usize {
        self.0
    }

    fn arm(n: u64) {
        FUSE.set(n);
    }
}
