//! More and more keys in the table while one thread locks some: those that are there, or others if those are held.

use std::hash::RandomState;

use perkey::{KeyedLock, KeyedSemaphore};

use super::{Figures, Growth, Part, ends};
use crate::contestants::holding::{Counted, Holding, Lockmap, OneMap};
use crate::contestants::{by_hand, counters, names, perkey as calls};
use crate::keys::{Keys, NumbersBelow};
use crate::loads::{Effort, Entrant, KnownNumbers, Load, SEED};
use crate::loops::repeat;

pub(super) fn all(live: &[u64]) -> Vec<Growth> {
    let kept = "Keys that are idle in the table, one thread locks them at random, ns/op";
    let held = "Keys that are held in the table, one thread locks others at random, ns/op";
    vec![growth(live, "live-kept", kept, lineup_kept), growth(live, "live-held", held, lineup_held)]
}

fn growth(live: &[u64], name: &'static str, title: &str, lineup: fn(u64) -> Vec<Entrant>) -> Growth {
    Growth {
        part: Part::Live,
        name,
        title: title.into(),
        of: "key",
        sizes: live.to_vec(),
        lineups: live.iter().map(|&keys| lineup(keys)).collect(),
        figures: Figures::Each,
        compared: ends(live),
        goal: None,
    }
}

/// Whose entries stay by themselves, or while they have values: each lock finds its entry.
fn lineup_kept(keys: u64) -> Vec<Entrant> {
    let load = KnownNumbers { keys };
    vec![
        load.entrant(names::PERKEY_KEPT, calls::Guard::<u64>::kept),
        load.entrant(names::PERKEY_MUTEX_KEPT, counters::Perkey::new),
        load.entrant(names::LOCKMAP, counters::Lockmap::new),
        load.entrant(names::LOCKABLE, counters::Lockable::new),
        load.entrant(names::KEY_MUTEX, counters::KeyMutex::new),
        load.entrant(names::LEAKING, by_hand::Leaking::<u64>::new),
    ]
}

/// Whose guards can be kept: each lock makes an entry, and its release removes it.
fn lineup_held(keys: u64) -> Vec<Entrant> {
    vec![
        held(names::FLOOR_ONE_MAP, keys, OneMap::default),
        held(names::PERKEY, keys, KeyedLock::new),
        held(names::PERKEY_SEMAPHORE, keys, KeyedSemaphore::<u64, 4>::new),
        held(names::LOCKMAP, keys, || Lockmap::with_hasher(RandomState::new())),
        held(names::LOCKABLE, keys, lockable::LockPool::new),
        held(names::KEYED_LOCK, keys, keyed_lock::sync::KeyedLock::new),
        held(names::KEY_MUTEX, keys, key_mutex::KeyMutex::new),
        held(names::COUNTED, keys, Counted::default),
    ]
}

fn held<H: Holding>(name: &'static str, keys: u64, make: impl Fn() -> H + 'static) -> Entrant {
    let speed = move |effort: Effort| {
        let table = make();
        let holds: Vec<H::Hold<'_>> = (0..keys).map(|key| table.hold(key)).collect();
        let mut others = NumbersBelow::new(SEED, keys);
        let taken = repeat(effort.operations, || table.give_back(table.hold(keys + others.next_key())));
        holds.into_iter().for_each(|hold| table.give_back(hold));
        taken
    };
    Entrant { name, speed: Box::new(speed), waits: None }
}
