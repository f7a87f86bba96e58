//! The shapes of tables with values: a counter per key, got or inserted, and added to.

use super::Shape;
use crate::contestants::counters::{KeyMutex, Leaking, Lockable, Lockmap, Perkey};
use crate::contestants::floors::EmptyLoop;
use crate::contestants::names;
use crate::goals::{self, Goal};
use crate::loads::{Entrant, KnownNumbers, Load, Numbers, Together};
use crate::loops::Crowd;

/// Every one of them.
pub(super) fn all() -> [Shape; 4] {
    [known(), fresh(), several_threads("add-hot", 1), several_threads("add-16", 16)]
}

fn known() -> Shape {
    let load = KnownNumbers { keys: 10_000 };
    shape("add-known", "1 thread, add to 10,000 u64 counters", one_thread(&load), goals::counters())
}

/// Most of it is the memory of a table that grows.
fn fresh() -> Shape {
    shape("add-fresh", "1 thread, insert u64 counters", one_thread(&Numbers), goals::counters())
}

fn several_threads(name: &str, keys: u64) -> Shape {
    let load = Together { crowd: Crowd { threads: 8, spins: 0 }, keys, contended: true };
    let title = format!("8 threads, add to {keys} u64 counter{}", if keys == 1 { "" } else { "s" });
    shape(name, &title, tables(&load), goals::counters())
}

fn shape(name: &str, title: &str, lineup: Vec<Entrant>, goals: Vec<Goal>) -> Shape {
    Shape { name: name.into(), title: title.into(), lineup, against_peers: true, goals }
}

fn one_thread(load: &impl Load<u64>) -> Vec<Entrant> {
    let mut lineup = vec![load.entrant(names::EMPTY_LOOP, || EmptyLoop)];
    lineup.extend(tables(load));
    lineup
}

/// Everybody whose tables keep values.
fn tables(load: &impl Load<u64>) -> Vec<Entrant> {
    vec![
        load.entrant(names::PERKEY, Perkey::new),
        load.entrant(names::LOCKMAP, Lockmap::new),
        load.entrant(names::LOCKABLE, Lockable::new),
        load.entrant(names::KEY_MUTEX, KeyMutex::new),
        load.entrant(names::LEAKING, Leaking::new),
    ]
}
