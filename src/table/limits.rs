//! The limit of keys: asked for, and changed.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use super::Table;
use crate::content::Content;
use crate::limit::clamp;
use crate::slot::Bells;
use crate::sync::{Ordering, for_each_mut, now};
use crate::unwind::Alone;

impl<K, S, C: Content> Table<K, S, C> {
    /// The limit of a new entry for `key`, by the user's function if there is one. To be called with no lock held.
    pub(super) fn ask_limit(&self, key: &K) -> u32 {
        let by_key = self.by_key.lock().clone();
        match by_key {
            Some(by_key) => clamp(by_key(key)),
            None => self.limit.load(Ordering::Relaxed),
        }
    }

    /// Gives every key `limit` permits, from now on. `limit` is not 0.
    pub(crate) fn set_limit(&self, limit: u32) {
        let mut bells = Bells::new();
        // Held to the end, so that of two changes one is whole before the other begins.
        let mut by_key = self.by_key.lock();
        let replaced = mem::take(&mut *by_key);
        self.limit.store(limit, Ordering::Relaxed);
        for_each_mut(&self.map, |stored, entry| {
            let slot = &mut entry.slot;
            slot.set_limit(limit, now, &mut bells);
            self.track(|tracking| {
                let shard = self.map.determine_shard(stored.hash as usize);
                tracking.reject(shard, stored.id, slot.state(), |ticket| slot.has_rejected(ticket));
                if tracking.detects {
                    // A lower limit can close a ring: each of them looks.
                    slot.waiting().for_each(|(seat, _)| bells.push(seat.clone()));
                }
            });
        });
        drop(by_key);
        bells.ring();
        drop(replaced);
    }
}

impl<K, S: BuildHasher, C: Content> Table<K, S, C> {
    /// The limit of `key`; that of a new entry if it has none.
    pub(crate) fn limit<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.query(key, |slot| slot.limit()).unwrap_or_else(|| self.limit_of_absent(key))
    }

    /// How many permits of `key` are free.
    pub(crate) fn available<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        self.query(key, |slot| slot.available()).unwrap_or_else(|| self.limit_of_absent(key))
    }

    fn limit_of_absent<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: ?Sized + ToOwned<Owned = K>,
    {
        let limit = || self.limit.load(Ordering::Relaxed);
        let mut owned = Alone(None);
        let asked = if limit() == 0 { self.ask_limit(owned.0.insert(key.to_owned())) } else { 0 };
        // It may have been replaced while it was asked.
        match limit() {
            0 => asked,
            limit => limit,
        }
    }
}
