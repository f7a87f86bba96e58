//! More and more threads, on many keys and on one.

use super::{Figures, Growth, Part, ends};
use crate::contestants::floors::{OneMutex, Shards};
use crate::contestants::{names, perkey};
use crate::loads::{Entrant, Load, Together};
use crate::loops::Crowd;
use crate::shapes::peers;

pub(super) fn all(threads: &[u64]) -> Vec<Growth> {
    vec![growth(threads, "threads-many", 100_000), growth(threads, "threads-one", 1)]
}

fn growth(threads: &[u64], name: &'static str, keys: u64) -> Growth {
    Growth {
        part: Part::Threads,
        name,
        title: match keys {
            1 => "Threads that use one key, ns/op of all together".into(),
            _ => "Threads that use 100,000 keys at random, ns/op of all together".into(),
        },
        of: "thread",
        sizes: threads.to_vec(),
        lineups: threads.iter().map(|&threads| lineup(threads, keys)).collect(),
        figures: Figures::Each,
        compared: ends(threads),
        goal: None,
    }
}

fn lineup(threads: u64, keys: u64) -> Vec<Entrant> {
    let load = Together { crowd: Crowd { threads, spins: 0 }, keys, contended: false };
    let floor = match keys {
        1 => load.entrant(names::FLOOR_MUTEX, OneMutex::new),
        _ => load.entrant(names::FLOOR_SHARDS, Shards::new),
    };
    let mut lineup = vec![
        floor,
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_FIFO, perkey::Guard::<u64>::fifo),
    ];
    lineup.extend(peers::<u64, u64>(&load));
    lineup
}
