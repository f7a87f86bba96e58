//! Rings of two to thirty-two threads over tables of all types, closed by calls of each kind.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perkey::{AcquireError, KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore, Wait};

use crate::support::{Barrier, Random, threads, until, watched};
use crate::tangles::{Files, Told, detecting, files, locks, permits, values, wait_for_all};

const LONG: Duration = Duration::from_secs(3600);

/// What a member of a ring holds, and how the one before it asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Keys,
    Value,
    Values,
    AllPermits,
    Weights,
    ReadAndWrite,
    WriteAndRead,
    WriteKeysAndReadKeys,
    ReadAllAndWrite,
    WriteAllAndRead,
    WriteAndReadAll,
    ReadAndWriteAll,
    WriteAllAndWriteAll,
}

const KINDS: [Kind; 14] = [
    Kind::Lock,
    Kind::Keys,
    Kind::Value,
    Kind::Values,
    Kind::AllPermits,
    Kind::Weights,
    Kind::ReadAndWrite,
    Kind::WriteAndRead,
    Kind::WriteKeysAndReadKeys,
    Kind::ReadAllAndWrite,
    Kind::WriteAllAndRead,
    Kind::WriteAndReadAll,
    Kind::ReadAndWriteAll,
    Kind::WriteAllAndWriteAll,
];

struct Tables {
    locks: [Arc<KeyedLock<u32>>; 2],
    values: KeyedMutex<u32, u32>,
    permits: Arc<KeyedSemaphore<u32>>,
    files: Files,
}

impl Tables {
    fn new() -> Self {
        Self { locks: [locks(), locks()], values: values(), permits: permits(5), files: files() }
    }

    fn deadlocks(&self) -> u64 {
        let locks: u64 = self.locks.iter().map(|locks| locks.stats().deadlocks).sum();
        let permits = self.permits.stats().deadlocks;
        locks + self.values.stats().deadlocks + permits + self.files.stats().deadlocks
    }

    fn is_empty(&self) -> bool {
        let locks = self.locks.iter().all(|locks| locks.is_empty());
        locks && self.values.is_empty() && self.permits.is_empty() && self.files.is_empty()
    }
}

struct Place<'a> {
    kind: Kind,
    tables: &'a Tables,
    key: u32,
    /// For locks over every key: of this place alone. It keeps this key, so that a snapshot shows who waits for all.
    own: Files,
}

type Guard<'a> = Box<dyn Debug + 'a>;

/// How the ring is closed.
#[derive(Clone, Copy, Debug)]
enum Closing {
    With,
    Plain,
    TryFor,
}

/// Another key, which nobody else has.
const ASIDE: u32 = 1_000;

impl Place<'_> {
    fn hold(&self) -> Guard<'_> {
        let Self { tables, key, own, .. } = self;
        match self.kind {
            Kind::Lock => Box::new(tables.locks[*key as usize % 2].lock(key)),
            Kind::Keys => Box::new(tables.locks[0].lock_keys(&[*key, key + ASIDE])),
            Kind::Value => Box::new(tables.values.lock(key)),
            Kind::Values => Box::new(tables.values.lock_keys(&[*key, key + ASIDE])),
            Kind::AllPermits => Box::new(tables.permits.acquire_many(key, 5, LONG).unwrap()),
            Kind::Weights => Box::new(tables.permits.acquire_many(key, 3, LONG).unwrap()),
            Kind::ReadAndWrite => Box::new(tables.files.read(key)),
            Kind::WriteAndRead => Box::new(tables.files.write(key)),
            Kind::WriteKeysAndReadKeys => Box::new(tables.files.write_keys(&[*key, key + ASIDE])),
            Kind::ReadAllAndWrite => Box::new(own.read_all()),
            Kind::WriteAllAndRead | Kind::WriteAllAndWriteAll => Box::new(own.write_all()),
            Kind::WriteAndReadAll => Box::new(own.write(key)),
            Kind::ReadAndWriteAll => Box::new(own.read(key)),
        }
    }

    fn ask(&self, wait: Wait) -> Result<Guard<'_>, AcquireError> {
        let Self { tables, key, own, .. } = self;
        Ok(match self.kind {
            Kind::Lock => Box::new(tables.locks[*key as usize % 2].lock_with(key, wait)?),
            Kind::Keys => Box::new(tables.locks[0].lock_keys_with(&[*key, key + 2 * ASIDE], wait)?),
            Kind::Value => Box::new(tables.values.lock_with(key, wait)?),
            Kind::Values => Box::new(tables.values.lock_keys_with(&[*key, key + 2 * ASIDE], wait)?),
            Kind::AllPermits => Box::new(tables.permits.acquire_with(key, wait)?),
            Kind::Weights => Box::new(tables.permits.acquire_many(key, 3, wait)?),
            Kind::ReadAndWrite => Box::new(tables.files.write_with(key, wait)?),
            Kind::WriteAndRead => Box::new(tables.files.read_with(key, wait)?),
            Kind::WriteKeysAndReadKeys => Box::new(tables.files.read_keys_with(&[*key, key + 2 * ASIDE], wait)?),
            Kind::ReadAllAndWrite => Box::new(own.write_with(key, wait)?),
            Kind::WriteAllAndRead => Box::new(own.read_with(key, wait)?),
            Kind::WriteAndReadAll => Box::new(own.read_all_with(wait)?),
            Kind::ReadAndWriteAll | Kind::WriteAllAndWriteAll => Box::new(own.write_all_with(wait)?),
        })
    }

    fn ask_plainly(&self) -> Guard<'_> {
        let Self { tables, key, own, .. } = self;
        match self.kind {
            Kind::Lock => Box::new(tables.locks[*key as usize % 2].lock(key)),
            Kind::Keys => Box::new(tables.locks[0].lock_keys(&[*key, key + 2 * ASIDE])),
            Kind::Value => Box::new(tables.values.lock(key)),
            Kind::Values => Box::new(tables.values.lock_keys(&[*key, key + 2 * ASIDE])),
            Kind::AllPermits => Box::new(tables.permits.acquire(key)),
            Kind::Weights => self.ask(Wait::forever()).unwrap_or_else(|error| panic!("{error}")),
            Kind::ReadAndWrite => Box::new(tables.files.write(key)),
            Kind::WriteAndRead => Box::new(tables.files.read(key)),
            Kind::WriteKeysAndReadKeys => Box::new(tables.files.read_keys(&[*key, key + 2 * ASIDE])),
            Kind::ReadAllAndWrite => Box::new(own.write(key)),
            Kind::WriteAllAndRead => Box::new(own.read(key)),
            Kind::WriteAndReadAll => Box::new(own.read_all()),
            Kind::ReadAndWriteAll | Kind::WriteAllAndWriteAll => Box::new(own.write_all()),
        }
    }

    fn ask_for(&self, time: Duration) -> Option<Guard<'_>> {
        let Self { tables, key, own, .. } = self;
        Some(match self.kind {
            Kind::Lock => Box::new(tables.locks[*key as usize % 2].try_lock_for(key, time)?),
            Kind::Value => Box::new(tables.values.try_lock_for(key, time)?),
            Kind::AllPermits => Box::new(tables.permits.try_acquire_for(key, time)?),
            Kind::ReadAndWrite => Box::new(tables.files.try_write_for(key, time)?),
            Kind::WriteAndRead => Box::new(tables.files.try_read_for(key, time)?),
            Kind::ReadAllAndWrite => Box::new(own.try_write_for(key, time)?),
            Kind::WriteAllAndRead => Box::new(own.try_read_for(key, time)?),
            Kind::WriteAndReadAll => Box::new(own.try_read_all_for(time)?),
            Kind::ReadAndWriteAll | Kind::WriteAllAndWriteAll => Box::new(own.try_write_all_for(time)?),
            Kind::Keys | Kind::Values | Kind::Weights | Kind::WriteKeysAndReadKeys => {
                self.ask(Wait::at_most(time)).ok()?
            }
        })
    }

    fn is_waited_for(&self) -> bool {
        let Self { tables, key, own, .. } = self;
        match self.kind {
            Kind::Lock => tables.locks[*key as usize % 2].waiters(key) > 0,
            Kind::Keys => tables.locks[0].waiters(key) > 0,
            Kind::Value | Kind::Values => tables.values.waiters(key) > 0,
            Kind::AllPermits | Kind::Weights => tables.permits.waiters(key) > 0,
            Kind::ReadAndWrite | Kind::WriteAndRead | Kind::WriteKeysAndReadKeys => tables.files.waiters(key) > 0,
            Kind::ReadAllAndWrite | Kind::WriteAllAndRead => own.waiters(key) > 0,
            Kind::WriteAndReadAll | Kind::ReadAndWriteAll | Kind::WriteAllAndWriteAll => wait_for_all(own, 1),
        }
    }
}

/// Each of the threads holds one place and asks for the next, the last one when all others wait. Whether that one was told.
fn go_round(kinds: &[Kind], closing: Closing) -> bool {
    let tables = Tables::new();
    let place = |(key, kind): (usize, &Kind)| {
        let own = Arc::new(KeyedRwLock::with_options(detecting().idle_ttl(LONG)));
        own.with_read(&(key as u32), || ());
        Place { kind: *kind, tables: &tables, key: key as u32, own }
    };
    let places: Vec<Place<'_>> = kinds.iter().enumerate().map(place).collect();
    let (told, finished, closed) = (Told::default(), AtomicUsize::new(0), AtomicBool::new(false));
    let barrier = Barrier::new(places.len());
    threads(|scope| {
        for member in 0..places.len() {
            let (places, told, finished, barrier, closed) = (&places, &told, &finished, &barrier, &closed);
            scope.spawn(move || {
                let held = places[member].hold();
                let next = &places[(member + 1) % places.len()];
                barrier.meet();
                if member + 1 < places.len() {
                    told.note(next.ask(Wait::forever()));
                } else {
                    until(|| places[1..].iter().all(Place::is_waited_for));
                    let is_told = match closing {
                        Closing::With => told.note(next.ask(Wait::forever())),
                        Closing::Plain => told.note_panic(|| next.ask_plainly()),
                        Closing::TryFor => told.note_none(next.ask_for(LONG)),
                    };
                    closed.store(is_told, Ordering::Relaxed);
                }
                drop(held);
                finished.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(told.times(), 1, "{kinds:?} {closing:?}");
    assert_eq!(finished.load(Ordering::Relaxed), kinds.len());
    assert!(tables.is_empty());
    for status in places.iter().flat_map(|place| place.own.snapshot()) {
        assert_eq!((status.held, status.held_with_all, status.holders.len()), (0, 0, 0));
    }
    let deadlocks: u64 = places.iter().map(|place| place.own.stats().deadlocks).sum();
    assert_eq!(tables.deadlocks() + deadlocks, 1);
    closed.load(Ordering::Relaxed)
}

/// The last to ask is told; or, now and then, one that had queued before but only looks after that.
fn go_round_until_the_last_is_told(kinds: &[Kind], closing: Closing) {
    while !go_round(kinds, closing) {}
}

const CLOSINGS: [Closing; 3] = [Closing::With, Closing::Plain, Closing::TryFor];

#[test]
fn two_of_each_pair_of_kinds() {
    watched(|| {
        for (nth, one) in KINDS.into_iter().enumerate() {
            for (mth, other) in KINDS.into_iter().enumerate() {
                go_round_until_the_last_is_told(&[one, other], CLOSINGS[(nth + mth) % 3]);
            }
        }
        for kind in KINDS {
            for closing in CLOSINGS {
                go_round_until_the_last_is_told(&[kind, Kind::Lock], closing);
                go_round_until_the_last_is_told(&[Kind::Lock, kind], closing);
            }
        }
    });
}

#[test]
fn rings_of_every_size_over_mixed_types() {
    watched(|| {
        let mut random = Random::new(6);
        for size in 2..=32 {
            for closing in CLOSINGS {
                let kinds: Vec<Kind> = (0..size).map(|_| KINDS[random.below(KINDS.len() as u64) as usize]).collect();
                go_round_until_the_last_is_told(&kinds, closing);
            }
        }
    });
}
