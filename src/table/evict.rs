//! Removes what has been idle for long enough, and gives memory back.

use std::time::Instant;

use super::{Entry, Table};
use crate::content::Content;
use crate::fault::{Fault, planted};
use crate::sync::{for_each, now};
use crate::unwind::FirstPanic;

/// A shard is shrunk by a sweep if it has room for this many entries at least, and for so many times what it holds.
const WORTH_SHRINKING: usize = 64;
const SPARSE: usize = 4;

impl<K, S, C: Content> Table<K, S, C> {
    /// Removes the entries that have been idle for the table's ttl, and returns how many went. Without a ttl there are none.
    ///
    /// # Panics
    ///
    /// With the first panic of a `Drop`, when all keys and what was kept for them have been dropped.
    pub(crate) fn sweep(&self) -> usize {
        self.sweep_at(now)
    }

    fn sweep_at(&self, clock: impl Fn() -> Instant) -> usize {
        let Some(retention) = &self.retention else { return 0 };
        let mut removed = Vec::new();
        {
            let _one_at_a_time = self.scan.lock();
            let Some(expired) = retention.begin_sweep(clock) else { return 0 };
            let mut idle = Vec::new();
            for_each(&self.map, |stored, Entry { slot, .. }| {
                if slot.is_idle_since(expired) {
                    idle.push((stored.hash, stored.id));
                }
            });
            for (hash, id) in idle {
                let mut shard = self.map.shards()[self.map.determine_shard(hash as usize)].write();
                // It may have been used, or removed, since it was read.
                removed.extend(shard.remove_entry(hash, |(stored, entry)| {
                    stored.id == id && (entry.get().slot.is_idle_since(expired) || planted(Fault::SweepsTheHeld))
                }));
            }
        }
        let count = removed.len();
        if count > 0 {
            self.counters.evicted(count);
            self.shrink_sparse_shards();
            self.track(|tracking| tracking.shrink_to_fit());
        }
        let mut panic = FirstPanic::default();
        for (key, entry) in removed {
            panic.catch(|| drop(key));
            panic.catch(|| drop(entry));
        }
        panic.resume();
        count
    }

    fn shrink_sparse_shards(&self) {
        for shard in self.map.shards() {
            let mut shard = shard.write();
            let (room, held) = (shard.capacity(), shard.len());
            if room >= WORTH_SHRINKING && room >= held.saturating_mul(SPARSE) {
                shard.shrink_to(held, |(stored, _)| stored.hash);
            }
        }
    }

    pub(crate) fn shrink_to_fit(&self) {
        for shard in self.map.shards() {
            shard.write().shrink_to(0, |(stored, _)| stored.hash);
        }
        self.track(|tracking| tracking.shrink_to_fit());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::content::Value;
    use crate::limit::Source;
    use crate::options::{Fairness, Options};
    use crate::slot::Request;
    use crate::table::{Ask, HasTable, Held, Kind};

    struct Keys(Table<u32, std::hash::RandomState>);

    impl HasTable for Keys {
        type Key = u32;
        type Hasher = std::hash::RandomState;
        type Content = ();

        fn table(&self) -> &Table<u32, std::hash::RandomState> {
            &self.0
        }
    }

    const TTL: Duration = Duration::from_secs(60);

    /// A table with a clock that the test moves.
    struct Moved {
        keys: Keys,
        base: Instant,
        now: Cell<Duration>,
    }

    impl Moved {
        fn new() -> Self {
            let table = Table::new("Keys", Source::Same(1), Options::new().idle_ttl(TTL));
            Self { keys: Keys(table), base: Instant::now(), now: Cell::new(Duration::ZERO) }
        }

        fn hold(&self, key: u32) -> Held<&Keys> {
            let ask = Ask { weight: 1, kind: Kind::Permit, location: std::panic::Location::caller() };
            Held::new(&self.keys, self.keys.0.acquire(&key, ask).unwrap())
        }

        fn sweep(&self, secs: u64) -> usize {
            self.now.set(Duration::from_secs(secs));
            self.keys.0.sweep_at(|| self.base + self.now.get())
        }
    }

    #[test]
    fn an_entry_goes_at_the_first_sweep_a_ttl_after_the_one_that_saw_it_idle() {
        let table = Moved::new();
        drop(table.hold(1));
        assert_eq!(table.keys.0.len(), 1, "it is kept");
        assert_eq!(table.sweep(10), 0, "seen first");
        assert_eq!(table.sweep(69), 0, "not yet");
        assert_eq!(table.sweep(70), 1);
        assert!(table.keys.0.is_empty());
    }

    #[test]
    fn what_is_held_longer_than_its_ttl_stays_and_its_time_begins_at_the_release() {
        let table = Moved::new();
        let held = table.hold(1);
        for secs in [10, 100, 1_000] {
            assert_eq!(table.sweep(secs), 0);
        }
        drop(held);
        assert_eq!(table.sweep(1_010), 0, "seen first");
        assert_eq!(table.sweep(1_069), 0, "not yet");
        assert_eq!(table.sweep(1_070), 1);
    }

    #[test]
    fn a_visit_by_retain_is_no_use() {
        let table: Table<u32, _, Value<u32>> = Table::new("Values", Source::Same(1), Options::new().idle_ttl(TTL));
        let (base, location) = (Instant::now(), std::panic::Location::caller());
        let sweep = |secs| table.sweep_at(|| base + Duration::from_secs(secs));
        let use_it = |value| {
            let mut hold = table.acquire(&1, Ask { weight: 1, kind: Kind::Permit, location }).unwrap();
            hold.in_hand = value;
            table.release(&mut hold, false);
        };
        use_it(Some(7));
        assert_eq!(sweep(10), 0, "seen first");
        assert_eq!(sweep(50), 0, "not yet");
        assert_eq!(table.retain(location, |_, value| *value == 7), 0);
        assert_eq!(sweep(69), 0, "younger than its ttl");
        assert_eq!(sweep(70), 1);
        // Nor is one that takes the value away.
        use_it(Some(7));
        assert_eq!(sweep(100), 0, "seen first");
        assert_eq!(table.retain(location, |_, _| false), 0);
        assert_eq!((sweep(159), sweep(160)), (0, 1));
        assert_eq!(table.len(), 0);
    }

    /// A key that is free and has a rung waiter is about to be used: it is no business of `retain`, and is idle from the time
    /// when the waiter leaves.
    #[test]
    fn retain_skips_a_key_that_is_waited_for() {
        let table: Table<u32, _, Value<u32>> = Table::new("Values", Source::Same(1), Options::new().idle_ttl(TTL));
        let (base, location) = (Instant::now(), std::panic::Location::caller());
        let sweep = |secs| table.sweep_at(|| base + Duration::from_secs(secs));
        let mut hold = table.acquire(&1, Ask { weight: 1, kind: Kind::Permit, location }).unwrap();
        hold.in_hand = Some(7);
        let (hash, id) = (hold.hash, hold.id());
        let one_wait = table.begin_wait(Ask { weight: 1, kind: Kind::Permit, location }, None);
        let seat = one_wait.seat();
        let request = Request { weight: 1, owner: 0 };
        let ticket = table.change(hash, id, |entry, _| entry.slot.enqueue(Fairness::Eventual, request, seat, now()));
        assert_eq!((sweep(0), sweep(100)), (0, 0));
        table.release(&mut hold, false);
        assert_eq!(table.retain(location, |_, _| unreachable!("it is waited for")), 1);
        table.change(hash, id, |entry, bells| entry.abandon(ticket, bells, &mut None));
        assert_eq!(sweep(200), 0, "seen first");
        assert_eq!((sweep(259), sweep(260)), (0, 1));
    }

    #[test]
    fn what_is_used_again_stays() {
        let table = Moved::new();
        drop(table.hold(1));
        for secs in (0..1_000).step_by(50) {
            assert_eq!(table.sweep(secs), 0);
            drop(table.hold(1));
        }
        assert_eq!(table.keys.0.len(), 1);
    }
}
