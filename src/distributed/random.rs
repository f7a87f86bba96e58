//! Random numbers that no two processes share.

/// 64 random bits from the system.
///
/// # Panics
///
/// If the system has none, which no system does that this runs on.
pub(super) fn random() -> u64 {
    getrandom::u64().expect("the system gives random bytes")
}
