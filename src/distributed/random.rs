//! Random numbers that no two processes share.

use std::time::Duration;

/// 64 random bits from the system.
///
/// # Panics
///
/// If the system has none, which no system does that this runs on.
pub(super) fn random() -> u64 {
    getrandom::u64().expect("the system gives random bytes")
}

/// A random part of a duration.
pub(super) fn part_of(duration: Duration) -> Duration {
    duration.mul_f64(f64::from(random() as u32) / f64::from(u32::MAX))
}
