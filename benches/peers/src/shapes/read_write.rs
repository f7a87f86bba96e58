//! The shapes of read/write locks.

use super::Shape;
use crate::contestants::floors::EmptyLoop;
use crate::contestants::read_write::{Counted, Perkey, Read, ReadAll, Write, WriteAll};
use crate::contestants::{names, perkey};
use crate::goals;
use crate::loads::{Load, Numbers, ReadMostly, Seldom};
use crate::loops::Crowd;

/// Every one of them.
pub(super) fn all() -> Vec<Shape> {
    let mut shapes = vec![uncontended(), every_key()];
    for keys in [1, 1_000] {
        for spins in [0, 20, 200] {
            shapes.push(read_mostly(keys, spins));
        }
    }
    shapes
}

fn uncontended() -> Shape {
    let load = Numbers;
    let lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_READ, Read::new),
        load.entrant(names::PERKEY_WRITE, Write::new),
    ];
    Shape {
        name: "rw-calls".into(),
        title: "1 thread, fresh u64, read and write".into(),
        lineup,
        against_peers: false,
        goals: goals::read_and_write(),
    }
}

fn every_key() -> Shape {
    let load = Seldom;
    let lineup = vec![
        load.entrant(names::EMPTY_LOOP, || EmptyLoop),
        load.entrant(names::PERKEY, perkey::Guard::<u64>::new),
        load.entrant(names::PERKEY_READ_ALL, ReadAll::new),
        load.entrant(names::PERKEY_WRITE_ALL, WriteAll::new),
    ];
    Shape {
        name: "rw-all".into(),
        title: "1 thread, every key of 64 empty shards".into(),
        lineup,
        against_peers: false,
        goals: vec![],
    }
}

fn read_mostly(keys: u64, spins: u32) -> Shape {
    let load = ReadMostly { crowd: Crowd { threads: 8, spins }, keys, contended: keys == 1 };
    let lineup = vec![
        load.entrant(names::PERKEY, Perkey::new),
        load.entrant(names::PERKEY_FIFO, Perkey::fifo),
        load.entrant(names::COUNTED, Counted::new),
    ];
    let title = match keys {
        1 => format!("8 threads, 95 % reads, 1 key, {spins} spins"),
        _ => format!("8 threads, 95 % reads, {keys} keys, {spins} spins"),
    };
    Shape { name: format!("rw-{keys}-{spins}"), title, lineup, against_peers: false, goals: goals::read_mostly(keys) }
}
