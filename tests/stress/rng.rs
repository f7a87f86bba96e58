//! Random numbers that a seed repeats, and what the environment says of the run.

use std::hash::{BuildHasher, RandomState};

/// SplitMix64: one addition and three mixing steps; every seed is a good one.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0. The bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The seed of one scenario: `PERKEY_SEED` if that is set, else a fresh one. It fixes what each thread asks for; when the
/// threads run is the scheduler's business, so a seed makes a failure likely again, not certain.
pub(crate) fn seed() -> u64 {
    number("PERKEY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0u8))
}

/// How often each scenario is run, each time with a new table and new threads: `PERKEY_STRESS_ROUNDS`.
pub(crate) fn rounds() -> u64 {
    number("PERKEY_STRESS_ROUNDS").unwrap_or(4)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|error| panic!("{variable}={text:?} is not a number: {error}")))
}
