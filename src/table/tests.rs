//! What can only be seen from inside: where keys are dropped, and how hashes spread.

mod deadlocks;
mod histories;
mod model;

use std::collections::HashSet;
use std::hash::RandomState;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::queued::Queued;
use super::*;
use crate::content::Value;
use crate::owners::slot_id;
use crate::slot::{Request, Ticket};
use crate::sync::SharedValue;

const HASH: u64 = 7;
const REQUEST: Request = Request { weight: 1, owner: 0 };

/// A key that notes whether it was dropped while its shard was free.
struct Key<'a> {
    table: &'a OnceLock<Table<Key<'a>, RandomState>>,
    dropped_outside: &'a AtomicBool,
    drops: &'a AtomicU32,
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        let table = self.table.get().expect("the table was made first");
        let free = table.map.shards()[table.map.determine_shard(HASH as usize)].try_write().is_some();
        self.dropped_outside.store(free, Ordering::Relaxed);
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn hold<C: Content>(id: u64, weight: u32) -> Hold<C> {
    Hold::new(HASH, id, weight, 0, C::InHand::default())
}

/// Runs `end` on a table in which one key is held by nobody any more and waited for once.
fn with_a_last_waiter(
    options: Options,
    weight: u32,
    end: impl for<'a, 'b> FnOnce(Queued<'b, Key<'a>, RandomState, ()>, u64),
) -> (bool, u32) {
    // Leaked, because the key refers to the table that holds it.
    let table = &*Box::leak(Box::new(OnceLock::new()));
    let (dropped_outside, drops) = &*Box::leak(Box::new((AtomicBool::new(false), AtomicU32::new(0))));
    let table_of_keys = table.get_or_init(|| Table::new("Keys", Source::Same(2), options));
    let id = slot_id();
    let key = Stored { hash: HASH, id, key: Key { table, dropped_outside, drops } };
    let mut slot = Slot::held(2, REQUEST);
    let one_wait = table_of_keys.begin_wait(Ask { weight, kind: Kind::Permit, location: Location::caller() }, None);
    let seat = one_wait.seat();
    let ticket: Ticket = slot.enqueue(Fairness::Eventual, Request { weight, ..REQUEST }, seat, now());
    let shard = table_of_keys.map.determine_shard(HASH as usize);
    table_of_keys.map.shards()[shard].write().insert(
        HASH,
        (key, SharedValue::new(Entry { slot, content: () })),
        |(stored, _)| stored.hash,
    );
    table_of_keys.release(&mut hold(id, 1), false);
    assert_eq!(table_of_keys.len(), 1, "the waiter keeps the entry");
    end(Queued { table: table_of_keys, hold: hold(id, weight), ticket: Some(ticket), one_wait }, id);
    let kept = table_of_keys.retention.is_some();
    assert_eq!(table_of_keys.len(), usize::from(kept), "whether the entry is left behind");
    (dropped_outside.load(Ordering::Relaxed), drops.load(Ordering::Relaxed))
}

#[test]
fn a_waiter_that_unwinds_gives_up_and_the_key_is_dropped_with_the_shard_free() {
    assert_eq!(with_a_last_waiter(Options::new(), 2, |queued, _| drop(queued)), (true, 1));
}

#[test]
fn a_waiter_that_unwinds_after_its_grant_gives_the_permits_back() {
    let granted = with_a_last_waiter(Options::new(), 2, |queued, id| {
        // Rung, and granted by its look; it unwinds before it has seen that.
        let ticket = queued.ticket.expect("it waits");
        let look = queued.table.change(HASH, id, |entry, bells| entry.look(ticket, bells, &mut ()));
        assert!(look.is_some());
        drop(queued);
    });
    assert_eq!(granted, (true, 1));
}

#[test]
fn what_a_waiter_leaves_idle_is_idle_from_then_on() {
    let options = Options::new().idle_ttl(std::time::Duration::from_secs(60));
    let kept = with_a_last_waiter(options, 2, |queued, id| {
        let table = queued.table;
        for _ in 0..3 {
            table.retention.as_ref().expect("idle keys are kept").begin_sweep(now);
        }
        drop(queued);
        let shard = table.map.shards()[table.map.determine_shard(HASH as usize)].read();
        let (_, entry) = shard.get(HASH, |(stored, _)| stored.id == id).expect("the entry is kept");
        let slot = &entry.get().slot;
        assert!(slot.is_idle_since(3) && !slot.is_idle_since(2));
    });
    assert_eq!(kept, (false, 0), "the key was dropped");
}

/// A table with a value whose key is waited for, and was handed over to the waiter.
#[test]
fn a_waiter_that_unwinds_after_its_grant_leaves_the_value() {
    let table: Table<u32, RandomState, Value<&str>> = Table::new("Values", Source::Same(1), Options::new());
    let ask = Ask { weight: 1, kind: Kind::Permit, location: Location::caller() };
    let mut first = table.acquire(&1, ask).expect("it is free");
    first.in_hand = Some("kept");
    let (hash, id) = (first.hash, first.id);
    let queue = || {
        let one_wait = table.begin_wait(ask, None);
        let seat = one_wait.seat();
        let ticket = table.change(hash, id, |entry, _| entry.slot.enqueue(Fairness::Eventual, REQUEST, seat, now()));
        Queued { table: &table, hold: Hold::new(hash, id, 1, 0, None), ticket: Some(ticket), one_wait }
    };
    let (second, third) = (queue(), queue());
    table.release(&mut first, true);
    drop(second);
    let (_, value) = third.wait(&crate::wait::Wait::FOREVER, crate::wait::Deadline::Never).expect("it is rung");
    assert_eq!(value, Some("kept"));
    table.release(&mut Hold::new(hash, id, 1, 0, value), false);
    assert_eq!(table.len(), 1, "the value keeps the entry");
}

#[test]
fn weak_hashes_are_spread_over_shards_and_buckets() {
    let map = DashMap::<Stored<u64>, (), NoHash>::with_hasher_and_shard_amount(NoHash, 64);
    for shift in [0, 8, 20, 32, 44, 51] {
        let hashes: Vec<u64> = (0..6_400_u64).map(|key| mix(key << shift)).collect();
        let shards: HashSet<usize> = hashes.iter().map(|hash| map.determine_shard(*hash as usize)).collect();
        assert_eq!(shards.len(), 64, "multiples of 2^{shift} crowd into some shards");
        let buckets: HashSet<u64> = hashes.iter().map(|hash| hash % 1_024).collect();
        assert!(buckets.len() > 900, "multiples of 2^{shift} crowd into {} buckets of 1,024", buckets.len());
    }
}
