//! Where keys come from. Everybody gets the same ones.

use crate::contestants::read_write::Access;

/// An endless run of keys.
pub(crate) trait Keys {
    type Key: ?Sized;

    fn next_key(&mut self) -> &Self::Key;
}

/// SplitMix64, by Sebastiano Vigna: small, fast, and random enough to choose keys.
#[derive(Clone)]
struct Random(u64);

impl Random {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Numbers that practically never come twice.
pub(crate) struct FreshNumbers {
    random: Random,
    now: u64,
}

impl FreshNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random(seed), now: 0 }
    }
}

impl Keys for FreshNumbers {
    type Key = u64;

    #[inline]
    fn next_key(&mut self) -> &u64 {
        self.now = self.random.next();
        &self.now
    }
}

/// Pairs of numbers that practically never come twice.
pub(crate) struct FreshPairs {
    random: Random,
    now: [u64; 2],
}

impl FreshPairs {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random(seed), now: [0; 2] }
    }
}

impl Keys for FreshPairs {
    type Key = [u64; 2];

    #[inline]
    fn next_key(&mut self) -> &[u64; 2] {
        self.now = [self.random.next(), self.random.next()];
        &self.now
    }
}

/// Random numbers below a bound.
pub(crate) struct NumbersBelow {
    random: Random,
    bound: u64,
    now: u64,
}

impl NumbersBelow {
    pub(crate) fn new(seed: u64, bound: u64) -> Self {
        Self { random: Random(seed), bound, now: 0 }
    }
}

impl Keys for NumbersBelow {
    type Key = u64;

    #[inline]
    fn next_key(&mut self) -> &u64 {
        self.now = ((u128::from(self.random.next()) * u128::from(self.bound)) >> 64) as u64;
        &self.now
    }
}

/// Random numbers below a bound, of which one in twenty is written, and all others are read.
pub(crate) struct ReadMostlyBelow {
    random: Random,
    bound: u64,
    now: Access,
}

impl ReadMostlyBelow {
    const READS_FOR_ONE_WRITE: u64 = 19;

    pub(crate) fn new(seed: u64, bound: u64) -> Self {
        Self { random: Random(seed), bound, now: Access { key: 0, writes: false } }
    }
}

impl Keys for ReadMostlyBelow {
    type Key = Access;

    #[inline]
    fn next_key(&mut self) -> &Access {
        let below = |random: u64, bound: u64| ((u128::from(random) * u128::from(bound)) >> 64) as u64;
        let writes = below(self.random.next(), Self::READS_FOR_ONE_WRITE + 1) == 0;
        self.now = Access { key: below(self.random.next(), self.bound), writes };
        &self.now
    }
}

/// Names of 24 bytes, made beforehand, because making one takes a third as long as locking it.
pub(crate) struct FreshNames<'a> {
    /// Back to back, so that reading on costs next to nothing.
    all: &'a str,
    at: usize,
}

impl<'a> FreshNames<'a> {
    const LENGTH: usize = "account-0123456789abcdef".len();

    /// What [`new`](Self::new) reads from: `count` names.
    pub(crate) fn text(seed: u64, count: u64) -> String {
        let mut random = Random(seed);
        (0..count).map(|_| format!("account-{:016x}", random.next())).collect()
    }

    pub(crate) fn new(all: &'a str) -> Self {
        Self { all, at: 0 }
    }
}

impl Keys for FreshNames<'_> {
    type Key = str;

    #[inline]
    fn next_key(&mut self) -> &str {
        let from = if self.at == self.all.len() { 0 } else { self.at };
        self.at = from + Self::LENGTH;
        &self.all[from..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_start_over() {
        let text = FreshNames::text(1, 2);
        let mut names = FreshNames::new(&text);
        let (first, second) = (names.next_key().to_owned(), names.next_key().to_owned());
        assert!(first.starts_with("account-") && second.starts_with("account-"));
        assert_ne!(first, second);
        assert_eq!(names.next_key(), first);
    }

    #[test]
    fn one_access_in_twenty_writes() {
        let mut accesses = ReadMostlyBelow::new(1, 16);
        let (mut writes, mut seen) = (0, [false; 16]);
        for _ in 0..20_000 {
            let access = *accesses.next_key();
            writes += u32::from(access.writes);
            seen[usize::try_from(access.key).unwrap()] = true;
        }
        assert!((900..1_100).contains(&writes), "{writes}");
        assert_eq!(seen, [true; 16]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut seen = [false; 16];
        let mut numbers = NumbersBelow::new(1, 16);
        for _ in 0..1_000 {
            seen[usize::try_from(*numbers.next_key()).unwrap()] = true;
        }
        assert_eq!(seen, [true; 16]);
    }
}
