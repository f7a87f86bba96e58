//! How long calls took.

use std::time::Duration;

/// Of each power of two, so many steps: what is read off is right to a sixteenth.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.ilog2();

/// Counts of durations, in a fixed amount of memory, and the longest.
pub(crate) struct Latencies {
    counts: Vec<u64>,
    longest: Duration,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; place(u64::MAX) + 1], longest: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, duration: Duration) {
        self.counts[place(duration.as_nanos().try_into().unwrap_or(u64::MAX))] += 1;
        self.longest = self.longest.max(duration);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.longest = self.longest.max(other.longest);
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// What so many per cent of them stayed below, rounded up by at most a sixteenth.
    pub(crate) fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(end(place)).min(self.longest);
            }
        }
        Duration::ZERO
    }
}

/// Where so many nanoseconds are counted: small numbers alone, then sixteen places for each power of two.
fn place(nanos: u64) -> usize {
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(STEP_BITS);
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The largest number that is counted at a place.
fn end(place: usize) -> u64 {
    let place = place as u64;
    let shift = (place / STEPS).saturating_sub(1);
    let first = (place - shift * STEPS) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_has_its_place() {
        for nanos in (0..5_000).chain([u64::from(u32::MAX), 1 << 40, (1 << 40) - 1, u64::MAX]) {
            let here = place(nanos);
            assert!(end(here) >= nanos, "{nanos}");
            assert!(here == 0 || end(here - 1) < nanos, "{nanos}");
            assert!(end(here) - nanos <= nanos / STEPS, "{nanos}");
        }
    }

    #[test]
    fn percentiles_are_near_and_never_past_the_longest() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.percentile(50), Duration::ZERO);
        (1..=1_000).for_each(|micros| latencies.add(Duration::from_micros(micros)));
        let mut all = Latencies::new();
        all.merge(&latencies);
        assert_eq!(all.count(), 1_000);
        assert_eq!(all.longest(), Duration::from_micros(1_000));
        for percent in [1, 50, 99] {
            let exact = 10 * percent;
            let said = all.percentile(percent).as_micros() as u64;
            assert!((exact..=exact + exact / STEPS).contains(&said), "{percent}: {said}");
        }
        assert_eq!(all.percentile(100), Duration::from_micros(1_000));
    }
}
