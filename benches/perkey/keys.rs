//! Keys that no cache and no branch predictor has seen before.

use std::hint::black_box;

/// SplitMix64.
pub(crate) struct Keys(u64);

impl Keys {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    #[inline]
    pub(crate) fn integer(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.integer() % bound
    }

    /// 24 letters, in `place`.
    #[inline]
    pub(crate) fn text<'a>(&mut self, place: &'a mut [u8; 24]) -> &'a str {
        for chunk in place.chunks_exact_mut(8) {
            // Every byte is one of the letters from `a` to `p`.
            let letters = (self.integer() & 0x0F0F_0F0F_0F0F_0F0F) + 0x6161_6161_6161_6161;
            chunk.copy_from_slice(&letters.to_le_bytes());
        }
        std::str::from_utf8(black_box(place)).expect("letters are UTF-8")
    }
}
