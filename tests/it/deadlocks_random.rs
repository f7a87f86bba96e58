//! Random load over tables of all types, with deadlocks and without. Every report is checked against the test's own record of who
//! held and who waited.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fmt::Debug;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::{
    AcquireError, CancellationToken, Deadlock, DeadlockedRequest, DeadlockedThread, Fairness, KeyedLock, KeyedMutex,
    KeyedRwLock, KeyedRwLockReadGuard, KeyedRwLockWriteGuard, KeyedSemaphore, Options, Wait,
};

use crate::support::{MODES, Random, SHORT, crowded, rounds, spin, threads, watched};

const TABLES: [&str; 5] = ["locks", "values", "permits", "files", "more files"];
const KEYS: u64 = 3;
const LIMIT: usize = 3;
const ALL_PERMITS: usize = (u32::MAX >> 2) as usize;

/// How often each load is run: more in the long checks.
fn loads() -> usize {
    env::var("PERKEY_STRESS_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(1)
}

struct World {
    locks: KeyedLock<u32>,
    values: KeyedMutex<u32, u32>,
    permits: KeyedSemaphore<u32, LIMIT>,
    files: [KeyedRwLock<u32>; 2],
    record: Record,
    own_holds: AtomicUsize,
    told: AtomicUsize,
    /// The wrong copies of reports that the check has rejected.
    altered: Mutex<HashSet<&'static str>>,
}

impl World {
    fn new(fairness: Fairness) -> Self {
        let options = |table: usize| -> Options { crowded(fairness).name(TABLES[table]).detect_deadlocks(true) };
        Self {
            locks: KeyedLock::with_options(options(0)),
            values: KeyedMutex::with_options(options(1)),
            permits: KeyedSemaphore::with_options(options(2)),
            files: [KeyedRwLock::with_options(options(3)), KeyedRwLock::with_options(options(4))],
            record: Record::default(),
            own_holds: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            altered: Mutex::default(),
        }
    }

    fn deadlocks(&self) -> u64 {
        let [files, more_files] = &self.files;
        self.locks.stats().deadlocks
            + self.values.stats().deadlocks
            + self.permits.stats().deadlocks
            + files.stats().deadlocks
            + more_files.stats().deadlocks
    }

    fn check_empty(&self) {
        assert!(self.locks.is_empty() && self.values.is_empty() && self.permits.is_empty());
        assert!(self.files.iter().all(KeyedRwLock::is_empty));
    }
}

type Guard<'a> = Box<dyn Debug + 'a>;

fn boxed<'a>(guard: impl Debug + 'a) -> Guard<'a> {
    Box::new(guard)
}

/// What is asked for. The first number of those of files is which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    Lock(u32),
    Value(u32),
    Permits(u32, usize),
    Read(usize, u32),
    Write(usize, u32),
    ReadAll(usize),
    WriteAll(usize),
}

use Ask::{Lock, Permits, Read, ReadAll, Value, Write, WriteAll};

impl Ask {
    fn random(random: &mut Random) -> Self {
        let key = random.below(KEYS) as u32;
        let files = random.below(2) as usize;
        match random.below(20) {
            0..4 => Lock(key),
            4..6 => Value(key),
            6..9 => Permits(key, 1 + random.below(LIMIT as u64) as usize),
            9..13 => Read(files, key),
            13..17 => Write(files, key),
            17..19 => ReadAll(files),
            _ => WriteAll(files),
        }
    }

    fn random_at_the_gate(random: &mut Random) -> Self {
        let key = random.below(KEYS) as u32;
        match random.below(20) {
            0..5 => Lock(key),
            5..10 => Read(0, key),
            10..14 => Write(0, key),
            14..18 => ReadAll(0),
            _ => WriteAll(0),
        }
    }

    fn take(self, world: &World, wait: impl Into<Wait>) -> Result<Guard<'_>, AcquireError> {
        Ok(match self {
            Lock(key) => Box::new(world.locks.lock_with(&key, wait)?),
            Value(key) => Box::new(world.values.lock_with(&key, wait)?),
            Permits(key, count) => Box::new(world.permits.acquire_many(&key, count, wait)?),
            Read(files, key) => Box::new(world.files[files].read_with(&key, wait)?),
            Write(files, key) => Box::new(world.files[files].write_with(&key, wait)?),
            ReadAll(files) => Box::new(world.files[files].read_all_with(wait)?),
            WriteAll(files) => Box::new(world.files[files].write_all_with(wait)?),
        })
    }

    fn table(self) -> usize {
        match self {
            Lock(_) => 0,
            Value(_) => 1,
            Permits(..) => 2,
            Read(files, _) | Write(files, _) | ReadAll(files) | WriteAll(files) => 3 + files,
        }
    }

    fn key(self) -> Option<u32> {
        match self {
            Lock(key) | Value(key) | Permits(key, _) | Read(_, key) | Write(_, key) => Some(key),
            ReadAll(_) | WriteAll(_) => None,
        }
    }

    fn permits(self) -> usize {
        match self {
            Permits(_, count) => count,
            Lock(_) | Value(_) | Read(..) | ReadAll(_) => 1,
            Write(..) | WriteAll(_) => ALL_PERMITS,
        }
    }

    fn writes(self) -> bool {
        self.permits() == ALL_PERMITS
    }

    /// In one table, and at least one of them for every key.
    fn conflicts_over_all(self, other: Self) -> bool {
        self.table() == other.table()
            && (self.key().is_none() || other.key().is_none())
            && (self.writes() || other.writes())
    }

    fn is_of_key(self, other: Self) -> bool {
        self.table() == other.table() && self.key().is_some() && self.key() == other.key()
    }
}

/// A thread's wait, with what it held meanwhile.
#[derive(Clone, Debug)]
struct Waited {
    asks: Ask,
    holds: Vec<(Ask, Instant)>,
    /// Noted before the call.
    begin: Instant,
    /// Noted after it.
    end: Option<Instant>,
}

#[derive(Default)]
struct Record(Mutex<HashMap<ThreadId, Vec<Waited>>>);

impl Record {
    fn begins(&self, asks: Ask, holds: &[(Ask, Instant)]) {
        let waited = Waited { asks, holds: holds.to_vec(), begin: Instant::now(), end: None };
        self.0.lock().entry(thread::current().id()).or_default().push(waited);
    }

    fn ends(&self) {
        let mut record = self.0.lock();
        let waits = record.get_mut(&thread::current().id()).expect("it began");
        waits.last_mut().expect("it began").end = Some(Instant::now());
        // A report is checked soon.
        if waits.len() > 2_000 {
            waits.drain(..1_000);
        }
    }

    /// What is wrong with a report, that this thread has just got.
    fn check(&self, threads: &[DeadlockedThread]) -> Result<(), String> {
        let record = self.0.lock();
        let of = |member: &DeadlockedThread| {
            let since = member.waits_for.since;
            let mut waits = record.get(&member.id)?.iter();
            waits.find(|waited| waited.begin <= since && waited.end.is_none_or(|end| since <= end)).cloned()
        };
        let find = |member: &DeadlockedThread| of(member).ok_or_else(|| format!("{:?} did not wait", member.id));
        let members: Vec<(&DeadlockedThread, Waited)> =
            threads.iter().map(|member| Ok((member, find(member)?))).collect::<Result<_, String>>()?;
        if threads.iter().map(|member| member.id).collect::<HashSet<_>>().len() != threads.len() {
            return Err("a thread is there twice".to_owned());
        }
        if threads.first().is_none_or(|first| first.id != thread::current().id()) {
            return Err("it is not this thread's".to_owned());
        }
        let begin = members.iter().map(|(_, waited)| waited.begin).max();
        let end = members.iter().filter_map(|(_, waited)| waited.end).min();
        if begin.zip(end).is_some_and(|(begin, end)| begin > end) {
            return Err("they never waited all at once".to_owned());
        }

        let mut keys = HashMap::new();
        for (member, waited) in &members {
            same(&member.waits_for, waited.asks, &mut keys)?;
            for hold in &member.holds {
                let holds = |(ask, since): &&(Ask, Instant)| {
                    same(hold, *ask, &mut keys.clone()).is_ok() && hold.since <= *since
                };
                let (ask, _) = waited.holds.iter().find(holds).ok_or_else(|| format!("{hold} is not held"))?;
                same(hold, *ask, &mut keys)?;
            }
        }
        let different: HashSet<&(usize, u32)> = keys.values().collect();
        if different.len() != keys.len() {
            return Err("one key has two numbers".to_owned());
        }
        for place in 0..members.len() {
            if !is_stuck(place, &members) {
                return Err(format!("{:?} can go on", members[place].1));
            }
        }
        Ok(())
    }
}

/// Whether a report's request is this, and its key the one that had this number before.
fn same(request: &DeadlockedRequest, ask: Ask, keys: &mut HashMap<usize, (usize, u32)>) -> Result<(), String> {
    let is = request.table.as_deref() == Some(TABLES[ask.table()])
        && request.permits == ask.permits()
        && request.every_key == ask.key().is_none()
        && request.location.file().ends_with(file!().rsplit('/').next().unwrap());
    // A key that is asked for at the gate has no number.
    let is_key = match (request.key, ask.key()) {
        (Some(number), Some(key)) => *keys.entry(number).or_insert((ask.table(), key)) == (ask.table(), key),
        (number, _) => number.is_none(),
    };
    if is && is_key { Ok(()) } else { Err(format!("{request} is not {ask:?}")) }
}

/// Whether one of the members cannot be granted while the others wait and hold what they hold.
fn is_stuck(place: usize, members: &[(&DeadlockedThread, Waited)]) -> bool {
    let (report, waited) = &members[place];
    let ask = waited.asks;
    let held = || members.iter().flat_map(|(_, member)| &member.holds).map(|(held, _)| *held);
    let others = || members.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, other)| other);
    let limit = match ask.table() {
        0 | 1 => 1,
        2 => LIMIT,
        _ => ALL_PERMITS,
    };
    let fits = |ask: Ask| {
        let taken: usize = held().filter(|held| held.is_of_key(ask)).map(Ask::permits).sum();
        taken + ask.permits() <= limit
    };
    if held().any(|held| held.conflicts_over_all(ask)) {
        return true;
    }
    if ask.key().is_none() {
        return others()
            .map(|(_, other)| other.asks)
            .any(|other| other.conflicts_over_all(ask) || (other.table() == ask.table() && other.key().is_none()));
    }
    // In the queue of its key it or one in front of it does not fit.
    if report.waits_for.key.is_some() {
        let in_front = |other: &&(&DeadlockedThread, Waited)| {
            // Who was kept out at the gate first has waited for longer than some who are in front of it.
            let came_first = ask.table() > 2 || other.0.waits_for.since <= report.waits_for.since;
            other.1.asks.is_of_key(ask) && came_first
        };
        return !fits(ask) || others().filter(in_front).any(|(_, other)| !fits(other.asks));
    }
    // At the gate another waits for every key; who holds something passes most.
    let own = || waited.holds.iter().map(|(held, _)| *held).filter(|held| held.table() == ask.table());
    let is_awaited = others().any(|(other, wait)| {
        other.waits_for.key.is_some() && wait.asks.writes() && own().any(|held| held.is_of_key(wait.asks))
    });
    others().map(|(_, other)| other.asks).any(|other| {
        let passes = own().next().is_some() && (other.writes() || own().any(Ask::writes) || is_awaited);
        other.conflicts_over_all(ask) && !passes
    })
}

/// One thread of a load with deadlocks: takes a few at random, and gives all back if it is told.
fn meets_deadlocks(world: &World, random: &mut Random, load: Load) {
    let mut held: Vec<(Ask, Instant)> = Vec::new();
    let mut guards = Vec::new();
    for _ in 0..1 + random.below(4) {
        let ask = if load.gate { Ask::random_at_the_gate(random) } else { Ask::random(random) };
        world.record.begins(ask, &held);
        let wait = match random.below(4) {
            0 if load.timed => Wait::at_most(Duration::from_micros(random.below(200))),
            _ => Wait::forever(),
        };
        let result = match ask {
            Read(files, key) if random.below(8) == 0 => {
                world.files[files].read_with(&key, wait).map(|guard| match KeyedRwLockReadGuard::try_upgrade(guard) {
                    Ok(guard) => (Write(files, key), boxed(guard)),
                    Err(guard) => (ask, boxed(guard)),
                })
            }
            Write(files, key) if random.below(8) == 0 => world.files[files]
                .write_with(&key, wait)
                .map(|guard| (Read(files, key), boxed(KeyedRwLockWriteGuard::downgrade(guard)))),
            ask => ask.take(world, wait).map(|guard| (ask, guard)),
        };
        if let Err(AcquireError::WouldDeadlock(deadlock)) = &result {
            check_report(world, deadlock, &held);
        }
        world.record.ends();
        match result {
            Ok((holds, guard)) => {
                held.push((holds, Instant::now()));
                guards.push(guard);
            }
            Err(AcquireError::WouldDeadlock(_)) => break,
            Err(AcquireError::Timeout | AcquireError::Busy) if load.timed => break,
            Err(error) => panic!("{error}"),
        }
        spin(random.below(50));
        if random.below(4) == 0 {
            thread::yield_now();
        }
    }
    // In any order.
    while !guards.is_empty() {
        drop(guards.swap_remove(random.below(guards.len() as u64) as usize));
    }
}

fn check_report(world: &World, deadlock: &Deadlock, held: &[(Ask, Instant)]) {
    if deadlock.threads().is_empty() {
        assert!(held.iter().any(|(held, _)| Some(TABLES[held.table()]) == deadlock.table()), "{deadlock}");
        world.own_holds.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let told = world.told.fetch_add(1, Ordering::Relaxed);
    if let Err(wrong) = world.record.check(deadlock.threads()) {
        panic!("{wrong}: {deadlock}\n{:#?}", deadlock.threads());
    }
    // A check that cannot fail is none.
    if told >= 100 {
        return;
    }
    for (how, altered) in altered(deadlock.threads()) {
        assert!(world.record.check(&altered).is_err(), "{how} is not noticed: {deadlock}");
        world.altered.lock().insert(how);
    }
}

/// Copies of a report that are wrong.
fn altered(threads: &[DeadlockedThread]) -> Vec<(&'static str, Vec<DeadlockedThread>)> {
    let mut copies = Vec::new();
    let mut alter = |how, alter: &dyn Fn(&mut Vec<DeadlockedThread>)| {
        let mut copy = threads.to_vec();
        alter(&mut copy);
        copies.push((how, copy));
    };
    let last = threads.len() - 1;
    alter("nobody", &|threads| threads.clear());
    alter("a wait that was never", &|threads| threads[last].waits_for.since -= Duration::from_secs(3600));
    alter("another table", &|threads| threads[last].waits_for.table = Some("no such table".into()));
    alter("other permits", &|threads| threads[last].waits_for.permits += 1);
    alter("every key", &|threads| threads[last].waits_for.every_key ^= true);
    alter("a thread twice", &|threads| threads.push(threads[0].clone()));
    alter("another thread", &|threads| threads[last].id = thread::spawn(|| thread::current().id()).join().unwrap());
    if let Some(holder) = threads.iter().position(|member| !member.holds.is_empty()) {
        alter("other permits held", &|threads| threads[holder].holds[0].permits += 1_000);
        alter("a hold that begins later", &|threads| threads[holder].holds[0].since += Duration::from_secs(3600));
        if threads[holder].holds[0].key.is_some() {
            alter("another table's key held", &|threads| threads[holder].holds[0].table = Some("no such table".into()));
        }
    }
    if last == 1 {
        alter("another first", &|threads| threads.swap(0, 1));
        if threads[0].waits_for.table != threads[1].waits_for.table {
            alter("waits exchanged", &|threads| {
                let first = threads[0].waits_for.clone();
                threads[0].waits_for = threads[1].waits_for.clone();
                threads[1].waits_for = first;
            });
        }
        // It may wait for permits of its own as well.
        if threads[0].waits_for.table.as_deref() != Some(TABLES[2]) {
            alter("too few threads", &|threads| threads.truncate(1));
        }
    }
    if let Some(number) = threads[0].waits_for.key
        && threads.iter().flat_map(|member| &member.holds).any(|hold| hold.key == Some(number))
    {
        alter("another number", &|threads| threads[0].waits_for.key = Some(1_000));
    }
    copies
}

#[derive(Clone, Copy)]
struct Load {
    threads: usize,
    /// Some waits have a time limit.
    timed: bool,
    /// Mostly locks over every key, and what they keep out.
    gate: bool,
}

fn load_with_deadlocks(fairness: Fairness, load: Load, seed: usize) {
    watched(move || {
        let world = World::new(fairness);
        threads(|scope| {
            for thread in 0..load.threads {
                let world = &world;
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + thread);
                    for _ in 0..rounds(600) {
                        meets_deadlocks(world, &mut random, load);
                    }
                });
            }
        });
        world.check_empty();
        let told = world.told.load(Ordering::Relaxed);
        assert!(told > 0, "no deadlocks were met");
        if load.threads > 3 && !SHORT {
            assert_eq!(world.altered.lock().len(), 14);
        }
        assert_eq!(world.deadlocks() as usize, told + world.own_holds.load(Ordering::Relaxed));
    });
}

#[test]
fn every_report_is_a_deadlock_and_all_finish() {
    for seed in 0..loads() {
        for fairness in MODES {
            for (threads, timed, gate) in [(3, false, false), (8, false, false), (8, true, false), (5, false, true)] {
                load_with_deadlocks(fairness, Load { threads, timed, gate }, seed);
            }
        }
    }
}

/// In one order over all tables, and locks over every key alone: nobody is ever told.
fn goes_in_order(world: &World, random: &mut Random, tokens: &Mutex<CancellationToken>) {
    let first = Ask::random(random);
    let mut asks = vec![first];
    if first.key().is_some() {
        asks.extend((0..random.below(4)).map(|_| Ask::random(random)).filter(|ask| ask.key().is_some()));
        asks.sort_unstable_by_key(|ask| (ask.table(), ask.key()));
        asks.dedup_by_key(|ask| (ask.table(), ask.key()));
    }
    let mut guards: Vec<Guard<'_>> = Vec::new();
    for ask in asks {
        let token = tokens.lock().clone();
        let wait = match random.below(8) {
            0 => Wait::at_most(Duration::from_micros(random.below(200))),
            1 => Wait::from(&token),
            _ => Wait::forever(),
        };
        if random.below(64) == 0 {
            mem::take(&mut *tokens.lock()).cancel();
        }
        // Both ways within a key.
        let result = match ask {
            Write(files, key) if random.below(4) == 0 => {
                let guard = world.files[files].write_with(&key, wait);
                guard.map(|guard| boxed(KeyedRwLockWriteGuard::downgrade(guard)))
            }
            Read(files, key) if random.below(4) == 0 => {
                let guard = world.files[files].read_with(&key, wait);
                guard.map(|guard| boxed(KeyedRwLockReadGuard::try_upgrade(guard)))
            }
            Lock(key) if random.below(4) == 0 => {
                let keys = [key, key + KEYS as u32];
                world.locks.lock_keys_with(&keys, wait).map(boxed)
            }
            ask => ask.take(world, wait),
        };
        match result {
            Ok(guard) => guards.push(guard),
            Err(AcquireError::Timeout | AcquireError::Busy | AcquireError::Cancelled) => break,
            Err(error) => panic!("{error}"),
        }
        spin(random.below(50));
        if random.below(8) == 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn nobody_is_told_who_goes_in_order() {
    // Five times as often: in the long checks that is a minute.
    for seed in 0..5 * loads() {
        for fairness in MODES {
            watched(move || {
                let world = World::new(fairness);
                let tokens = Mutex::new(CancellationToken::new());
                threads(|scope| {
                    for thread in 0..8 {
                        let (world, tokens) = (&world, &tokens);
                        scope.spawn(move || {
                            let mut random = Random::new(seed * 100 + thread);
                            (0..rounds(400)).for_each(|_| goes_in_order(world, &mut random, tokens));
                        });
                    }
                });
                world.check_empty();
                assert_eq!(world.deadlocks(), 0);
            });
        }
    }
}
