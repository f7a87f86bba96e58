//! Transfers made up from a seed, the same on every machine and for ever.

use super::rows::Transfer;

/// `count` transfers between at most `accounts` accounts (at least 2), some of them much busier than others.
pub(crate) fn transfers(count: u32, accounts: u32, seed: u64) -> Vec<Transfer> {
    const MOST: u64 = 10_000;
    let mut random = SplitMix64(seed);
    (0..count)
        .map(|_| {
            let from = random.skewed_below(accounts);
            let to = random.skewed_below(accounts);
            // From one account to another, since that is what takes two locks.
            let to = if to == from { (to + 1) % accounts } else { to };
            Transfer { from: name(from), to: name(to), amount: 1 + (random.next() % MOST).cast_signed() }
        })
        .collect()
}

fn name(account: u32) -> String {
    format!("acc-{account:04}")
}

/// A generator whose sequence is fixed by its definition; a crate's may change with its version.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The square of a random number from 0 to 1, times `bound`: of 1,000 accounts, the first is drawn for 3 ends of
    /// transfers in 100, the last for 1 in 2,000.
    fn skewed_below(&mut self, bound: u32) -> u32 {
        let fraction = self.next() >> 32;
        let square = (fraction * fraction) >> 32;
        ((square * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_transfers() {
        assert_eq!(transfers(100, 50, 7), transfers(100, 50, 7));
        assert_ne!(transfers(100, 50, 7), transfers(100, 50, 8));
        // SplitMix64's published first number for seed 0.
        assert_eq!(SplitMix64(0).next(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn transfers_are_valid_and_some_accounts_are_busy() {
        let made = transfers(10_000, 1_000, 1);
        assert!(made.iter().all(|transfer| transfer.from != transfer.to && transfer.amount >= 1));
        let busiest = made.iter().filter(|transfer| transfer.from == "acc-0000" || transfer.to == "acc-0000").count();
        assert!((500..800).contains(&busiest), "{busiest} of 10,000");
        assert!(transfers(100, 2, 1).iter().all(|transfer| transfer.from != transfer.to));
    }
}
