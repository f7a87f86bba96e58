//! `KeyedRwLock`, every call.
//!
//! Threads keep to the order that its docs ask for: a lock over every key before keys, and keys in their own order. What is
//! asked for beside that, or while an `Arc` guard is held, has a time limit. So nobody may wait for ever.

use std::sync::Arc;
use std::time::Duration;

use perkey::{
    AcquireError, ArcKeyedRwLockReadGuard, ArcKeyedRwLockWriteGuard, KeyedRwLock, KeyedRwLockReadGuard,
    KeyedRwLockWriteGuard, Sweeper, Wait,
};

use crate::cli::Fault;
use crate::keys::{Name, light_fuse, panic_as_planned};
use crate::lap::Table;
use crate::locks::each_once;
use crate::oracle::{Inside, Oracle, READER, Rules, WRITER};
use crate::patience::Patience;
use crate::subject::{Kind, Subject, describe};
use crate::worker::Worker;

#[derive(Clone, Copy)]
enum Take {
    Read,
    Write,
    TryRead,
    TryWrite,
    TryReadFor,
    TryWriteFor,
    ReadWith,
    WriteWith,
    ReadArc,
    WriteArc,
    TryReadArc,
    TryWriteArc,
    ReadArcWith,
    WriteArcWith,
    WithRead,
    WithWrite,
    ReadKeys,
    WriteKeys,
    ReadKeysWith,
    WriteKeysWith,
}

const TAKES: [Take; 20] = [
    Take::Read,
    Take::Write,
    Take::TryRead,
    Take::TryWrite,
    Take::TryReadFor,
    Take::TryWriteFor,
    Take::ReadWith,
    Take::WriteWith,
    Take::ReadArc,
    Take::WriteArc,
    Take::TryReadArc,
    Take::TryWriteArc,
    Take::ReadArcWith,
    Take::WriteArcWith,
    Take::WithRead,
    Take::WithWrite,
    Take::ReadKeys,
    Take::WriteKeys,
    Take::ReadKeysWith,
    Take::WriteKeysWith,
];

#[derive(Clone, Copy)]
enum TakeAll {
    Read,
    Write,
    TryRead,
    TryWrite,
    TryReadFor,
    TryWriteFor,
    ReadWith,
    WriteWith,
}

const TAKES_OF_ALL: [TakeAll; 8] = [
    TakeAll::Read,
    TakeAll::Write,
    TakeAll::TryRead,
    TakeAll::TryWrite,
    TakeAll::TryReadFor,
    TakeAll::TryWriteFor,
    TakeAll::ReadWith,
    TakeAll::WriteWith,
];

#[derive(Clone, Copy)]
enum Look {
    IsLocked,
    IsWriteLocked,
    IsLockedByCurrentThread,
    Waiters,
    Len,
    IsEmpty,
    Snapshot,
    Print,
    Sweep,
    ShrinkToFit,
}

const LOOKS: [Look; 10] = [
    Look::IsLocked,
    Look::IsWriteLocked,
    Look::IsLockedByCurrentThread,
    Look::Waiters,
    Look::Len,
    Look::IsEmpty,
    Look::Snapshot,
    Look::Print,
    Look::Sweep,
    Look::ShrinkToFit,
];

pub(crate) struct ReadWrites<K> {
    setup: Table,
    table: Arc<KeyedRwLock<K>>,
    names: Vec<K>,
    oracle: Arc<Oracle>,
}

impl<K: Name> ReadWrites<K> {
    pub(crate) fn new(setup: Table) -> Self {
        let table = Arc::new(KeyedRwLock::with_options(setup.options()));
        let names = (0..setup.keys).map(K::name).collect();
        let oracle = Oracle::new(&setup.name, setup.keys, |_| WRITER, &setup.breaches);
        Self { setup, table, names, oracle }
    }

    /// To be called when `key` has been granted.
    fn enter(&self, worker: &mut Worker<'_>, key: usize, weight: u32) -> Inside {
        let inside = self.oracle.enter(key, weight, self.oracle.mark());
        inside.work(&mut worker.rng);
        inside
    }

    /// What is done by who holds every key: to the oracle, as many keys.
    fn enter_all(&self, worker: &mut Worker<'_>, weight: u32) -> Vec<Inside> {
        let mark = self.oracle.mark();
        let inside: Vec<Inside> = (0..self.names.len()).map(|key| self.oracle.enter(key, weight, mark)).collect();
        let busy = worker.rng.index(inside.len());
        inside[busy].work(&mut worker.rng);
        if worker.rng.one_in(64) {
            panic_as_planned();
        }
        inside
    }

    fn take(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let name = &self.names[key];
        let short = worker.short();
        let at_most = Patience::at_most(short);
        let patience = worker.patience();
        let (table, oracle, mark) = (&self.table, &self.oracle, self.oracle.mark());
        match worker.pick(&TAKES) {
            Take::Read => self.hold_reader(worker, key, table.read(name)),
            Take::Write => self.hold_writer(worker, key, table.write(name)),
            Take::TryRead => {
                if let Some(guard) = table.try_read(name) {
                    self.hold_reader(worker, key, guard);
                }
            }
            Take::TryWrite => {
                if let Some(guard) = table.try_write(name) {
                    self.hold_writer(worker, key, guard);
                }
            }
            Take::TryReadFor => {
                let outcome = table.try_read_for(name, short);
                if let Some(guard) = worker.judge_option(oracle, "try_read_for", &at_most, outcome) {
                    self.hold_reader(worker, key, guard);
                }
            }
            Take::TryWriteFor => {
                let outcome = table.try_write_for(name, short);
                if let Some(guard) = worker.judge_option(oracle, "try_write_for", &at_most, outcome) {
                    self.hold_writer(worker, key, guard);
                }
            }
            Take::ReadWith => {
                let outcome = table.read_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "read_with", &patience, outcome) {
                    self.hold_reader(worker, key, guard);
                }
            }
            Take::WriteWith => {
                let outcome = table.write_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "write_with", &patience, outcome) {
                    self.hold_writer(worker, key, guard);
                }
            }
            Take::ReadArc => self.hold_arc_reader(worker, key, table.read_arc(name)),
            Take::WriteArc => self.hold_arc_writer(worker, key, table.write_arc(name)),
            Take::TryReadArc => {
                if let Some(guard) = table.try_read_arc(name) {
                    self.hold_arc_reader(worker, key, guard);
                }
            }
            Take::TryWriteArc => {
                if let Some(guard) = table.try_write_arc(name) {
                    self.hold_arc_writer(worker, key, guard);
                }
            }
            Take::ReadArcWith => {
                let outcome = table.read_arc_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "read_arc_with", &patience, outcome) {
                    self.hold_arc_reader(worker, key, guard);
                }
            }
            Take::WriteArcWith => {
                let outcome = table.write_arc_with(name, patience.wait());
                if let Some(guard) = worker.judge(oracle, "write_arc_with", &patience, outcome) {
                    self.hold_arc_writer(worker, key, guard);
                }
            }
            Take::WithRead => table.with_read(name, || worker.visit(oracle, key, READER, mark)),
            Take::WithWrite => table.with_write(name, || worker.visit(oracle, key, WRITER, mark)),
            Take::ReadKeys => {
                let keys = worker.some_keys(self.names.len(), 4);
                let guard = table.read_keys(keys.iter().map(|key| &self.names[*key]));
                self.hold_keys(worker, keys, READER, guard);
            }
            Take::WriteKeys => {
                let keys = worker.some_keys(self.names.len(), 4);
                let guard = table.write_keys(keys.iter().map(|key| &self.names[*key]));
                self.hold_keys(worker, keys, WRITER, guard);
            }
            Take::ReadKeysWith => {
                let keys = worker.some_keys(self.names.len(), 4);
                let outcome = table.read_keys_with(keys.iter().map(|key| &self.names[*key]), patience.wait());
                if let Some(guard) = worker.judge(oracle, "read_keys_with", &patience, outcome) {
                    self.hold_keys(worker, keys, READER, guard);
                }
            }
            Take::WriteKeysWith => {
                let keys = worker.some_keys(self.names.len(), 4);
                let outcome = table.write_keys_with(keys.iter().map(|key| &self.names[*key]), patience.wait());
                if let Some(guard) = worker.judge(oracle, "write_keys_with", &patience, outcome) {
                    self.hold_keys(worker, keys, WRITER, guard);
                }
            }
        }
    }

    fn take_all(&self, worker: &mut Worker<'_>) {
        let short = worker.short();
        let at_most = Patience::at_most(short);
        let patience = worker.patience();
        let (table, oracle) = (&self.table, &self.oracle);
        match worker.pick(&TAKES_OF_ALL) {
            TakeAll::Read => self.hold_all(worker, READER, table.read_all()),
            TakeAll::Write => self.hold_all(worker, WRITER, table.write_all()),
            TakeAll::TryRead => {
                if let Some(guard) = table.try_read_all() {
                    self.hold_all(worker, READER, guard);
                }
            }
            TakeAll::TryWrite => {
                if let Some(guard) = table.try_write_all() {
                    self.hold_all(worker, WRITER, guard);
                }
            }
            TakeAll::TryReadFor => {
                let outcome = table.try_read_all_for(short);
                if let Some(guard) = worker.judge_option(oracle, "try_read_all_for", &at_most, outcome) {
                    self.hold_all(worker, READER, guard);
                }
            }
            TakeAll::TryWriteFor => {
                let outcome = table.try_write_all_for(short);
                if let Some(guard) = worker.judge_option(oracle, "try_write_all_for", &at_most, outcome) {
                    self.hold_all(worker, WRITER, guard);
                }
            }
            TakeAll::ReadWith => {
                let outcome = table.read_all_with(patience.wait());
                if let Some(guard) = worker.judge(oracle, "read_all_with", &patience, outcome) {
                    self.hold_all(worker, READER, guard);
                }
            }
            TakeAll::WriteWith => {
                let outcome = table.write_all_with(patience.wait());
                if let Some(guard) = worker.judge(oracle, "write_all_with", &patience, outcome) {
                    self.hold_all(worker, WRITER, guard);
                }
            }
        }
    }

    // Of all of these: what the oracle counts goes before the guard, also while a panic unwinds.

    fn hold_reader(&self, worker: &mut Worker<'_>, key: usize, guard: KeyedRwLockReadGuard<'_, K>) {
        let mut inside = self.enter(worker, key, READER);
        match worker.rng.below(16) {
            0 => panic_as_planned(),
            1 => self.look_as_reader(worker, key),
            2 | 3 => self.take_another(worker, key),
            4 => {
                drop(inside);
                return KeyedRwLockReadGuard::unlock_fair(guard);
            }
            5..8 => {
                match KeyedRwLockReadGuard::try_upgrade(guard) {
                    Ok(guard) => {
                        inside.change(WRITER);
                        self.end_writer(worker, key, guard, inside);
                    }
                    Err(guard) => {
                        drop(inside);
                        drop(guard);
                    }
                }
                return;
            }
            _ => (),
        }
        drop(inside);
        drop(guard);
    }

    fn hold_writer(&self, worker: &mut Worker<'_>, key: usize, guard: KeyedRwLockWriteGuard<'_, K>) {
        let inside = self.enter(worker, key, WRITER);
        self.end_writer(worker, key, guard, inside);
    }

    fn end_writer(&self, worker: &mut Worker<'_>, key: usize, guard: KeyedRwLockWriteGuard<'_, K>, mut inside: Inside) {
        inside.work(&mut worker.rng);
        match worker.rng.below(16) {
            0 => panic_as_planned(),
            1 => self.look_as_writer(key),
            2 | 3 => self.take_another(worker, key),
            4 => {
                drop(inside);
                return KeyedRwLockWriteGuard::unlock_fair(guard);
            }
            5..8 => {
                inside.change(READER);
                let guard = KeyedRwLockWriteGuard::downgrade(guard);
                // Again after the guard, so that it goes before it.
                let inside = inside;
                inside.work(&mut worker.rng);
                if worker.rng.one_in(4) {
                    self.take_another(worker, key);
                }
                drop(inside);
                drop(guard);
                return;
            }
            _ => (),
        }
        drop(inside);
        drop(guard);
    }

    fn hold_arc_reader(&self, worker: &mut Worker<'_>, key: usize, guard: ArcKeyedRwLockReadGuard<K>) {
        let mut inside = self.enter(worker, key, READER);
        if !self.table.is_locked(&self.names[key]) {
            self.oracle.report("wrong answer: is_locked is false while an Arc guard reads the key");
        }
        match worker.rng.below(8) {
            0 => self.take_any_for_a_while(worker),
            1 => {
                drop(inside);
                return ArcKeyedRwLockReadGuard::unlock_fair(guard);
            }
            2 | 3 => {
                match ArcKeyedRwLockReadGuard::try_upgrade(guard) {
                    Ok(guard) => {
                        inside.change(WRITER);
                        self.end_arc_writer(worker, guard, inside);
                    }
                    Err(guard) => {
                        drop(inside);
                        drop(guard);
                    }
                }
                return;
            }
            4 | 5 => {
                return worker.hand_over(Box::new(move || {
                    drop(inside);
                    drop(guard);
                }));
            }
            _ => (),
        }
        drop(inside);
        drop(guard);
    }

    fn hold_arc_writer(&self, worker: &mut Worker<'_>, key: usize, guard: ArcKeyedRwLockWriteGuard<K>) {
        let inside = self.enter(worker, key, WRITER);
        if !self.table.is_write_locked(&self.names[key]) {
            self.oracle.report("wrong answer: is_write_locked is false while an Arc guard writes the key");
        }
        if self.table.is_locked_by_current_thread(&self.names[key]) {
            self.oracle.report("wrong answer: an Arc guard has no owner, and is said to have one");
        }
        self.end_arc_writer(worker, guard, inside);
    }

    fn end_arc_writer(&self, worker: &mut Worker<'_>, guard: ArcKeyedRwLockWriteGuard<K>, mut inside: Inside) {
        inside.work(&mut worker.rng);
        match worker.rng.below(8) {
            0 => self.take_any_for_a_while(worker),
            1 => {
                drop(inside);
                return ArcKeyedRwLockWriteGuard::unlock_fair(guard);
            }
            2 | 3 => {
                inside.change(READER);
                let guard = ArcKeyedRwLockWriteGuard::downgrade(guard);
                inside.work(&mut worker.rng);
                return worker.hand_over(Box::new(move || {
                    drop(inside);
                    drop(guard);
                }));
            }
            4 | 5 => {
                return worker.hand_over(Box::new(move || {
                    drop(inside);
                    drop(guard);
                }));
            }
            _ => (),
        }
        drop(inside);
        drop(guard);
    }

    fn hold_keys<G>(&self, worker: &mut Worker<'_>, keys: Vec<usize>, weight: u32, guard: G) {
        let keys = each_once(keys);
        let last = keys.iter().copied().max_by_key(|key| &self.names[*key]).expect("there is at least one");
        worker.visit_all(&self.oracle, &keys, weight, self.oracle.mark());
        match worker.rng.below(16) {
            0 if weight == READER => self.look_as_reader(worker, last),
            0 => self.look_as_writer(last),
            // What comes after the last comes after all.
            1 | 2 => self.take_later(worker, last),
            _ => (),
        }
        drop(guard);
    }

    fn hold_all<G>(&self, worker: &mut Worker<'_>, weight: u32, guard: G) {
        let inside = self.enter_all(worker, weight);
        if worker.rng.one_in(4) {
            if weight == READER { self.look_as_reader_of_all(worker) } else { self.look_as_writer_of_all(worker) }
        }
        drop(inside);
        drop(guard);
    }

    /// A second key while one is held by a guard that stays on this thread.
    fn take_another(&self, worker: &mut Worker<'_>, held: usize) {
        if worker.rng.one_in(4) {
            self.take_earlier(worker, held);
        } else {
            self.take_later(worker, held);
        }
    }

    /// What comes later in the order, without a limit.
    fn take_later(&self, worker: &mut Worker<'_>, held: usize) {
        let key = worker.rng.index(self.names.len());
        let (name, mark) = (&self.names[key], self.oracle.mark());
        if *name <= self.names[held] {
            return;
        }
        if worker.rng.one_in(2) {
            let guard = self.table.read(name);
            worker.visit(&self.oracle, key, READER, mark);
            drop(guard);
        } else {
            let guard = self.table.write(name);
            worker.visit(&self.oracle, key, WRITER, mark);
            drop(guard);
        }
    }

    /// What does not: never without a limit.
    fn take_earlier(&self, worker: &mut Worker<'_>, held: usize) {
        let key = worker.rng.index(self.names.len());
        let (name, mark) = (&self.names[key], self.oracle.mark());
        if key == held {
            return;
        }
        if worker.rng.one_in(2) {
            if let Some(guard) = self.table.try_read_for(name, worker.short()) {
                worker.visit(&self.oracle, key, READER, mark);
                drop(guard);
            }
        } else if let Some(guard) = self.table.try_write_for(name, worker.short()) {
            worker.visit(&self.oracle, key, WRITER, mark);
            drop(guard);
        }
    }

    /// Anything, also what is held, beside an `Arc` guard that the table does not know of.
    fn take_any_for_a_while(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let (name, mark, short) = (&self.names[key], self.oracle.mark(), worker.short());
        match worker.rng.below(4) {
            0 => {
                if let Some(guard) = self.table.try_read_for(name, short) {
                    worker.visit(&self.oracle, key, READER, mark);
                    drop(guard);
                }
            }
            1 => {
                if let Some(guard) = self.table.try_write_for(name, short) {
                    worker.visit(&self.oracle, key, WRITER, mark);
                    drop(guard);
                }
            }
            2 => {
                if let Some(guard) = self.table.try_read_all_for(short) {
                    drop(self.enter_all(worker, READER));
                    drop(guard);
                }
            }
            _ => {
                if self.table.try_write_all_for(short).is_some() {
                    self.oracle.report("wrong outcome: write_all was granted beside an Arc guard");
                }
            }
        }
    }

    /// Reports what was granted, or refused for another reason than that this thread would wait for itself.
    fn must_be_refused<G>(&self, what: &str, outcome: Result<G, AcquireError>) {
        let outcome = outcome.map(drop);
        if !matches!(outcome, Err(AcquireError::WouldDeadlock(_))) {
            self.oracle.report(&format!("wrong outcome: {what} gave {outcome:?}"));
        }
    }

    /// What this thread must be told while it reads `key`, and may have.
    fn look_as_reader(&self, worker: &mut Worker<'_>, key: usize) {
        let (name, forever) = (&self.names[key], Wait::forever());
        if !self.table.is_locked(name) || self.table.is_write_locked(name) || self.table.is_empty() {
            self.oracle.report("wrong answer: a key is read, and its table says it is not");
        }
        if self.table.is_locked_by_current_thread(name) {
            self.oracle.report("wrong answer: a key is read, and said to be written by this thread");
        }
        self.must_be_refused("write_with of a key that is read", self.table.write_with(name, &forever));
        self.must_be_refused("write_arc_with of a key that is read", self.table.write_arc_with(name, &forever));
        self.must_be_refused("write_keys_with of a key that is read", self.table.write_keys_with([name], &forever));
        self.must_be_refused("write_all_with while a key is read", self.table.write_all_with(&forever));
        if self.table.try_write(name).is_some() || self.table.try_write_all().is_some() {
            self.oracle.report("wrong outcome: a writer was let in beside a reader");
        }
        // Readers that wait for a writer who waits for them would wait for ever.
        let again = self.table.read(name);
        worker.visit(&self.oracle, key, READER, self.oracle.mark());
        drop(again);
        let patience = Patience::at_most(worker.short());
        match self.table.read_all_with(patience.wait()) {
            Ok(guard) => {
                drop(self.enter_all(worker, READER));
                drop(guard);
            }
            // If a writer waits for the key.
            Err(AcquireError::WouldDeadlock(_)) => (),
            Err(error) => {
                worker.judge::<()>(&self.oracle, "read_all_with", &patience, Err(error));
            }
        }
    }

    /// What this thread must be told while it writes `key`.
    fn look_as_writer(&self, key: usize) {
        let (name, forever) = (&self.names[key], Wait::forever());
        if !self.table.is_locked(name)
            || !self.table.is_write_locked(name)
            || !self.table.is_locked_by_current_thread(name)
            || self.table.is_empty()
        {
            self.oracle.report("wrong answer: a key is written, and its table says it is not");
        }
        self.refuses_key("a key that is written", name);
        self.must_be_refused("read_all_with while a key is written", self.table.read_all_with(&forever));
        self.must_be_refused("write_all_with while a key is written", self.table.write_all_with(&forever));
    }

    fn refuses_key(&self, what: &str, name: &K) {
        let forever = Wait::forever();
        self.must_be_refused(&format!("read_with of {what}"), self.table.read_with(name, &forever));
        self.must_be_refused(&format!("write_with of {what}"), self.table.write_with(name, &forever));
        self.must_be_refused(&format!("read_arc_with of {what}"), self.table.read_arc_with(name, &forever));
        self.must_be_refused(&format!("write_arc_with of {what}"), self.table.write_arc_with(name, &forever));
        self.must_be_refused(&format!("read_keys_with of {what}"), self.table.read_keys_with([name], &forever));
        self.must_be_refused(&format!("write_keys_with of {what}"), self.table.write_keys_with([name], &forever));
    }

    /// What this thread must be told while it reads every key, and must get at once: it passes all who wait.
    fn look_as_reader_of_all(&self, worker: &mut Worker<'_>) {
        let key = worker.rng.index(self.names.len());
        let (name, forever) = (&self.names[key], Wait::forever());
        if !self.table.is_locked(name) || self.table.is_write_locked(name) {
            self.oracle.report("wrong answer: every key is read, and the table says it is not");
        }
        self.must_be_refused("write_with beside one's own read_all", self.table.write_with(name, &forever));
        self.must_be_refused("write_all_with beside one's own read_all", self.table.write_all_with(&forever));
        match self.table.try_read(name) {
            Some(guard) => {
                worker.visit(&self.oracle, key, READER, self.oracle.mark());
                drop(guard);
            }
            None => self.oracle.report("wrong outcome: a key cannot be read beside one's own read_all"),
        }
        match self.table.try_read_all() {
            Some(guard) => {
                drop(self.enter_all(worker, READER));
                drop(guard);
            }
            None => self.oracle.report("wrong outcome: no second read_all beside one's own"),
        }
    }

    /// What this thread must be told while it writes every key.
    fn look_as_writer_of_all(&self, worker: &mut Worker<'_>) {
        let name = &self.names[worker.rng.index(self.names.len())];
        if !self.table.is_locked(name) || !self.table.is_write_locked(name) {
            self.oracle.report("wrong answer: every key is written, and the table says it is not");
        }
        self.refuses_key("a key under one's own write_all", name);
        let forever = Wait::forever();
        self.must_be_refused("read_all_with under one's own write_all", self.table.read_all_with(&forever));
        self.must_be_refused("write_all_with under one's own write_all", self.table.write_all_with(&forever));
    }

    fn look(&self, worker: &mut Worker<'_>) {
        let name = &self.names[worker.rng.index(self.names.len())];
        match worker.pick(&LOOKS) {
            Look::IsLocked => _ = self.table.is_locked(name),
            Look::IsWriteLocked => _ = self.table.is_write_locked(name),
            Look::IsLockedByCurrentThread => {
                if self.table.is_locked_by_current_thread(name) {
                    self.oracle.report("wrong answer: this thread holds no key, and is said to");
                }
            }
            Look::Waiters => _ = self.table.waiters(name),
            Look::Len => {
                let len = self.table.len();
                if len > self.names.len() {
                    self.oracle.report(&format!("wrong answer: len is {len} of {} keys", self.names.len()));
                }
            }
            Look::IsEmpty => _ = self.table.is_empty(),
            Look::Snapshot => self.oracle.judge_snapshot(
                &self.table.snapshot(),
                // It lists those too who are kept out by a lock over every key, and may fit.
                Rules { idle_may_stay: self.setup.idle_ttl.is_some(), ..Rules::default() },
            ),
            Look::Print => _ = format!("{:?}", self.table),
            Look::Sweep => {
                let swept = self.table.sweep();
                if swept > 0 && self.setup.idle_ttl.is_none() {
                    self.oracle.report(&format!("wrong answer: {swept} keys were swept that were not kept"));
                }
            }
            Look::ShrinkToFit => self.table.shrink_to_fit(),
        }
    }
}

impl<K: Name> Subject for ReadWrites<K> {
    fn kind(&self) -> Kind {
        Kind::RwLock
    }

    fn call(&self, worker: &mut Worker<'_>) {
        if worker.plants_now(Fault::ReaderBesideWriter) {
            let key = worker.rng.index(self.names.len());
            worker.visit(&self.oracle, key, READER, self.oracle.mark());
        }
        let _fuse = light_fuse::<K>(&mut worker.rng);
        match worker.rng.below(16) {
            0 | 1 => self.look(worker),
            2 => self.take_all(worker),
            _ => self.take(worker),
        }
    }

    fn judge_end(&self) {
        self.oracle.judge_end();
        for (key, name) in self.names.iter().enumerate() {
            if self.table.is_locked(name) || self.table.waiters(name) > 0 || self.table.try_write(name).is_none() {
                self.oracle.report(&format!("still held: key {key}\n{}", self.describe()));
            }
        }
        if self.table.try_read_all().is_none() || self.table.try_write_all().is_none() {
            self.oracle.report(&format!("still held: every key\n{}", self.describe()));
        }
        self.setup.judge_empty(&self.oracle, || self.table.sweep(), || self.table.len());
        if !self.table.is_empty() || !self.table.snapshot().is_empty() {
            self.oracle.report(&format!("still there: {}", self.describe()));
        }
    }

    fn describe(&self) -> String {
        describe(&self.setup.name, self.table.snapshot())
    }

    fn spawn_sweeper(&self, every: Duration) -> Sweeper {
        Sweeper::spawn(&self.table, every)
    }

    fn try_spawn_sweeper(&self, every: Duration) -> std::io::Result<Sweeper> {
        Sweeper::try_spawn(&self.table, every)
    }

    fn add_to(&self, sweeper: &mut Sweeper) {
        sweeper.add(&self.table);
    }
}
