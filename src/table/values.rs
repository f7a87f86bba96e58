//! The keys that are there, and a visit of their values.

use std::panic::Location;

use super::acquire::{Ask, Kind};
use super::{Entry, Hold, Table};
use crate::content::{Content, Value};
use crate::sync::{for_each, now};
use crate::unwind::FirstPanic;

/// An entry that is looked at by [`Table::retain`]: held, and given back as if nobody had used it.
struct Visit<'a, K, S, V> {
    table: &'a Table<K, S, Value<V>>,
    hold: Hold<Value<V>>,
    /// The last sweep before the entry became idle.
    idle_since: u64,
}

impl<K, S, V> Drop for Visit<'_, K, S, V> {
    fn drop(&mut self) {
        self.table.release_noting(&mut self.hold, false, || self.idle_since);
    }
}

impl<K, S, C: Content> Table<K, S, C> {
    /// The keys of all entries, in no particular order.
    pub(crate) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::new();
        let mut panic = FirstPanic::default();
        panic.catch(|| {
            let _one_at_a_time = self.scan.lock();
            for_each(&self.map, |stored, _| keys.push(stored.key.clone()));
        });
        // As in `snapshot`.
        panic.resume_or(keys)
    }
}

impl<K, S, V> Table<K, S, Value<V>> {
    /// Shows every value to `keep`, and drops those that it does not want; skips keys that are held or waited for, and returns how
    /// many those were.
    pub(crate) fn retain(&self, location: &'static Location<'static>, mut keep: impl FnMut(&K, &mut V) -> bool) -> usize
    where
        K: Clone,
    {
        let mut entries = Vec::new();
        {
            let _one_at_a_time = self.scan.lock();
            for_each(&self.map, |stored, _| entries.push((stored.hash, stored.id)));
        }
        let mut skipped = 0;
        for (hash, id) in entries {
            let Some((key, mut visit)) = self.visit(hash, id, location, &mut skipped) else { continue };
            let mut unwanted = None;
            let mut panic = FirstPanic::default();
            panic.catch(|| unwanted = visit.hold.in_hand.take_if(|value| !keep(&key, value)));
            // The value goes when its key is free: its `Drop` may call the table for that key too.
            panic.catch(|| drop(visit));
            panic.catch(|| drop(key));
            panic.catch(|| drop(unwanted));
            panic.resume();
        }
        skipped
    }

    /// Takes the entry, if it has a value and nobody holds it or waits for it.
    fn visit(
        &self,
        hash: u64,
        id: u64,
        location: &'static Location<'static>,
        skipped: &mut usize,
    ) -> Option<(K, Visit<'_, K, S, V>)>
    where
        K: Clone,
    {
        let index = self.map.determine_shard(hash as usize);
        let mut shard = self.map.shards()[index].write();
        let (stored, entry) = shard.get_mut(hash, |(stored, _)| stored.id == id)?;
        let Entry { slot, content } = entry.get_mut();
        if !slot.is_idle() {
            *skipped += 1;
            return None;
        }
        if !content.is_kept() {
            return None;
        }
        let key = stored.key.clone();
        let idle_since = slot.last_sweep();
        let ask = Ask { weight: 1, kind: Kind::Owned, location };
        let taken = slot.try_take(ask.request(), now);
        debug_assert!(taken, "an idle slot is free");
        let mark = self.hold_in(index, id, slot, ask);
        let hold = Hold::new(hash, id, ask.weight, mark, content.take());
        Some((key, Visit { table: self, hold, idle_since }))
    }
}
