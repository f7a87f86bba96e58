//! What locks are called in the server: advisory locks have 64-bit numbers.

use crate::distributed::name::{Name, hash_on};
use crate::distributed::store::{Claim, Kind};

/// In front of what is hashed after the name; no string contains it.
const END: u8 = 0xFF;

/// The number of a lock.
pub(super) fn of_lock(name: &Name) -> i64 {
    name.hash().cast_signed()
}

/// The number of one place of a semaphore.
pub(super) fn of_place(name: &Name, place: u32) -> i64 {
    hash_on(name.hash(), [END].into_iter().chain(place.to_be_bytes())).cast_signed()
}

/// The number of the row that counts the tokens of a semaphore.
pub(super) fn of_counter(name: &Name) -> i64 {
    hash_on(name.hash(), [END]).cast_signed()
}

/// The number of the channel where it is said that something is free.
pub(super) fn of_channel(claim: &Claim) -> i64 {
    match claim.kind() {
        Kind::Lock => of_lock(claim.name()),
        Kind::Permit { .. } => of_counter(claim.name()),
    }
}

const CHANNEL: &str = "perkey_";

pub(super) fn channel(number: i64) -> String {
    format!("{CHANNEL}{:016x}", number.cast_unsigned())
}

pub(super) fn parse_channel(channel: &str) -> Option<i64> {
    u64::from_str_radix(channel.strip_prefix(CHANNEL)?, 16).ok().map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs in other languages have to come to the same.
    #[test]
    fn numbers_stay_what_they_are() {
        let name = Name::new("perkey", "nightly-report");
        assert_eq!(of_lock(&name), 0x47B4_443B_A28A_6F46);
        // FNV-1a, by hand.
        let on = |hash: u64, byte: u64| (hash ^ byte).wrapping_mul(0x0000_0100_0000_01B3);
        let counter = on(0x47B4_443B_A28A_6F46, 0xFF);
        assert_eq!(of_counter(&name).cast_unsigned(), counter);
        let place = [1, 2, 3, 4].into_iter().fold(counter, on);
        assert_eq!(of_place(&name, 0x0102_0304).cast_unsigned(), place);
    }

    #[test]
    fn a_channel_is_known_again() {
        for number in [0, 1, -1, i64::MIN, i64::MAX] {
            assert_eq!(parse_channel(&channel(number)), Some(number));
        }
        assert_eq!(channel(-1), "perkey_ffffffffffffffff");
        assert_eq!((parse_channel("perkey_x"), parse_channel("other_00")), (None, None));
    }
}
