//! What is measured: loads, and who takes part.
//!
//! A new shape is one more entry in [`all`]: a name, a title, a line-up, and its goals from `goals.rs`.

mod counters;
mod read_write;

use std::borrow::Borrow;

use crate::contestants::by_hand::{Counted, Leaking, Textbook};
use crate::contestants::floors::{EmptyLoop, OneMap, OneMutex, Shards};
use crate::contestants::pairs::{Both, BothValues, First};
use crate::contestants::published::{KeyMutex, Keyed, Lockable, Lockmap};
use crate::contestants::{Key, Locks, Lookup, names, perkey};
use crate::goals::{self, Goal};
use crate::loads::{Entrant, Load, Names, Numbers, Pairs, Together};
use crate::loops::Crowd;

pub(crate) struct Shape {
    /// For `--shape`.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) lineup: Vec<Entrant>,
    /// Whether perkey is compared with the peers here, or only with itself.
    pub(crate) against_peers: bool,
    pub(crate) goals: Vec<Goal>,
}

/// Every shape, in the order of the table.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes =
        vec![one_thread_numbers(), one_thread_names(), known_names(), own_calls(), two_keys(), many_keys()];
    for threads in [2, 8, 32] {
        for spins in [0, 20, 200] {
            shapes.push(one_key(Crowd { threads, spins }));
        }
    }
    shapes.push(sixteen_keys());
    shapes.extend(counters::all());
    shapes.extend(read_write::all());
    shapes
}

fn one_thread_numbers() -> Shape {
    let load = Numbers;
    let mut lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::FLOOR_ONE_MAP, OneMap::<u64>::new),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
    ];
    lineup.extend(peers::<u64, u64>(&load));
    Shape {
        name: "u64".into(),
        title: "1 thread, fresh u64".into(),
        lineup,
        against_peers: true,
        goals: goals::one_thread(1.3),
    }
}

fn one_thread_names() -> Shape {
    let load = Names::fresh();
    let mut lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::FLOOR_ONE_MAP, OneMap::<String>::new),
        load.entrant(names::PERKEY, perkey::Guard::<String>::new),
    ];
    lineup.extend(peers::<String, str>(&load));
    Shape {
        name: "string".into(),
        title: "1 thread, fresh 24-byte String by &str".into(),
        lineup,
        against_peers: true,
        goals: goals::one_thread(1.1),
    }
}

fn known_names() -> Shape {
    let load = Names::known(1_000);
    let lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::PERKEY, perkey::Guard::<String>::new),
        load.entrant(names::PERKEY_KEPT, perkey::Guard::<String>::kept),
    ];
    Shape {
        name: "known".into(),
        title: "1 thread, 1,000 Strings that come back".into(),
        lineup,
        against_peers: false,
        goals: goals::known_names(),
    }
}

fn own_calls() -> Shape {
    let load = Numbers;
    let lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_OWNERS, perkey::Guard::<u64>::owners),
        load.entrant(names::PERKEY_WITH_KEY, perkey::Closure::<u64>::new),
        load.entrant(names::PERKEY_SEMAPHORE, perkey::Permit::<u64, 4>::new),
    ];
    Shape {
        name: "calls".into(),
        title: "1 thread, fresh u64, perkey's calls".into(),
        lineup,
        against_peers: false,
        goals: goals::own_calls(),
    }
}

/// Every one of them gets the pairs, also those that lock one key of each: so the same is taken off for the loop.
fn two_keys() -> Shape {
    let load = Pairs;
    let lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::PERKEY, || First(perkey::Guard::<u64>::new())),
        load.entrant(names::PERKEY_LOCK_KEYS, Both::new),
        load.entrant(names::PERKEY_MUTEX, || First(perkey::Value::<u64>::new())),
        load.entrant(names::PERKEY_MUTEX_LOCK_KEYS, BothValues::new),
    ];
    Shape {
        name: "two-keys".into(),
        title: "1 thread, fresh u64, two in one call".into(),
        lineup,
        against_peers: false,
        goals: goals::two_keys(),
    }
}

fn many_keys() -> Shape {
    let load = Together { crowd: Crowd { threads: 2, spins: 0 }, keys: 100_000, contended: false };
    let mut lineup = vec![
        load.entrant(names::FLOOR_SHARDS, Shards::new),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_FIFO, perkey::Guard::<u64>::fifo),
        load.entrant(names::PERKEY_OWNERS, perkey::Guard::<u64>::owners),
    ];
    lineup.extend(peers::<u64, u64>(&load));
    Shape {
        name: "many-keys".into(),
        title: "2 threads, 100,000 keys".into(),
        lineup,
        against_peers: true,
        goals: goals::many_keys(),
    }
}

fn one_key(crowd: Crowd) -> Shape {
    let load = Together { crowd, keys: 1, contended: true };
    let mut lineup = vec![
        load.entrant(names::FLOOR_MUTEX, OneMutex::new),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_FIFO, perkey::Guard::<u64>::fifo),
    ];
    lineup.extend(peers::<u64, u64>(&load));
    let Crowd { threads, spins } = crowd;
    Shape {
        name: format!("hot-{threads}-{spins}"),
        title: format!("{threads} threads, 1 key, {spins} spins"),
        lineup,
        against_peers: true,
        goals: goals::one_key(crowd),
    }
}

fn sixteen_keys() -> Shape {
    let load = Together { crowd: Crowd { threads: 8, spins: 20 }, keys: 16, contended: true };
    let mut lineup = vec![
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_FIFO, perkey::Guard::<u64>::fifo),
        load.entrant(names::PERKEY_OWNERS, perkey::Guard::<u64>::owners),
        load.entrant(names::PERKEY_DETECT, perkey::Guard::<u64>::detects),
    ];
    lineup.extend(peers::<u64, u64>(&load));
    Shape {
        name: "keys-16".into(),
        title: "8 threads, 16 keys, 20 spins".into(),
        lineup,
        against_peers: true,
        goals: goals::sixteen_keys(),
    }
}

/// Everybody of [`names::PEERS`].
pub(crate) fn peers<K, Q>(load: &impl Load<Q>) -> Vec<Entrant>
where
    K: Key + Borrow<Q>,
    Q: ?Sized + Lookup<K>,
    Lockmap<K>: Locks<Q>,
{
    vec![
        load.entrant(names::LOCKMAP, Lockmap::<K>::new),
        load.entrant(names::LOCKABLE, Lockable::<K>::new),
        load.entrant(names::KEYED_LOCK, Keyed::<K>::new),
        load.entrant(names::KEY_MUTEX, KeyMutex::<K>::new),
        load.entrant(names::COUNTED, Counted::<K>::new),
        load.entrant(names::LEAKING, Leaking::<K>::new),
        load.entrant(names::TEXTBOOK, Textbook::<K>::new),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_shape_has_its_own_name_and_goals_about_who_takes_part() {
        let shapes = all();
        let names: HashSet<&str> = shapes.iter().map(|shape| shape.name.as_str()).collect();
        assert_eq!(names.len(), shapes.len());
        for shape in &shapes {
            let takes_part = |name| shape.lineup.iter().any(|entrant| entrant.name == name);
            assert!(takes_part(names::PERKEY));
            for goal in &shape.goals {
                assert!(goal.about().into_iter().all(takes_part), "{}: {goal:?}", shape.name);
            }
        }
    }
}
