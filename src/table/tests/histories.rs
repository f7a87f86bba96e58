//! Random histories of a whole table of read/write locks, step by step against the [model](super::model).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::*;
use super::model::What::{All, Key};
use super::model::{self, Outcome, Passing, State, What};
use crate::cancel::CancellationToken;
use crate::content::Gated;
use crate::error::AcquireError;
use crate::mode::Mode::{Read, Write};
use crate::mode::{MAX_READERS, Mode};
use crate::wait::Wait;

const THREADS: u8 = 4;
const KEYS: u8 = 3;
const PATIENCE: Duration = Duration::from_secs(3);

type Locks = Table<u8, BuildHasherDefault<DefaultHasher>, Gated>;

/// What a thread is told to do next. It does nothing while it waits, but to give up.
#[derive(Clone, Copy, Debug)]
enum Step {
    Request {
        what: What,
        noted: bool,
    },
    /// Gives back one of what it holds.
    Release(usize),
    Downgrade(usize),
    TryUpgrade(usize),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(Read), Just(Write)];
    let what = prop_oneof![
        4 => (0..KEYS, mode.clone()).prop_map(|(key, mode)| Key(key, mode)),
        1 => mode.prop_map(All),
    ];
    prop_oneof![
        6 => (what, prop::bool::weighted(0.8)).prop_map(|(what, noted)| Step::Request { what, noted }),
        4 => (0..8_usize).prop_map(Step::Release),
        1 => (0..8_usize).prop_map(Step::Downgrade),
        1 => (0..8_usize).prop_map(Step::TryUpgrade),
        1 => Just(Step::GiveUp),
    ]
}

enum Order {
    Acquire { what: What, noted: bool, token: CancellationToken },
    Release(u64),
    Downgrade(u64),
    TryUpgrade(u64),
    End,
}

#[derive(Debug, PartialEq, Eq)]
enum Report {
    Acquired(Result<u64, AcquireError>),
    Done,
    Upgraded(bool),
}

enum Taken {
    Key(Hold<Gated>),
    All(all::HoldAll),
}

/// A thread that does as it is told, and holds what it got by number.
fn worker(locks: &Locks, orders: &Receiver<Order>, reports: &Sender<Report>) {
    let (mut held, mut next) = (HashMap::new(), 0);
    let location = Location::caller();
    for order in orders {
        let key = |held: &mut HashMap<u64, Taken>, number| match held.remove(&number) {
            Some(Taken::Key(hold)) => hold,
            _ => panic!("a key was held"),
        };
        let report = match order {
            Order::Acquire { what, noted, token } => {
                let wait = Wait::from(&token);
                let taken = match what {
                    All(mode) => locks.acquire_all(mode, location, &wait).map(Taken::All),
                    Key(key, mode) => {
                        let kind = match (mode, noted) {
                            (Read, true) => Kind::Reader,
                            (Read, false) => Kind::MovableReader,
                            (Write, true) => Kind::Owned,
                            (Write, false) => Kind::Movable,
                        };
                        locks.acquire_with(&key, Ask { weight: mode.weight(), kind, location }, &wait).map(Taken::Key)
                    }
                };
                Report::Acquired(taken.map(|taken| {
                    next += 1;
                    held.insert(next, taken);
                    next
                }))
            }
            Order::Release(number) => {
                match held.remove(&number).expect("it was held") {
                    Taken::Key(mut hold) => locks.release(&mut hold, false),
                    Taken::All(mut hold) => locks.release_all(&mut hold),
                }
                Report::Done
            }
            Order::Downgrade(number) => {
                let mut hold = key(&mut held, number);
                locks.downgrade(&mut hold);
                held.insert(number, Taken::Key(hold));
                Report::Done
            }
            Order::TryUpgrade(number) => {
                let mut hold = key(&mut held, number);
                let upgraded = locks.try_upgrade(&mut hold);
                held.insert(number, Taken::Key(hold));
                Report::Upgraded(upgraded)
            }
            Order::End => return,
        };
        if reports.send(report).is_err() {
            // The test has failed.
            return;
        }
    }
}

struct Thread {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    token: CancellationToken,
    /// What it calls the locks that it holds, by what the model calls them.
    held: HashMap<u64, u64>,
    /// What it waits for.
    waits: Option<u64>,
}

impl Thread {
    fn told(&self, order: Order) -> Result<Report, TestCaseError> {
        self.orders.send(order).expect("the thread lives");
        self.report()
    }

    fn report(&self) -> Result<Report, TestCaseError> {
        self.reports.recv_timeout(PATIENCE).map_err(|_| TestCaseError::fail("a thread hangs"))
    }
}

/// The table and the model side by side.
struct Beside {
    locks: Arc<Locks>,
    model: model::Table,
    next: u64,
    threads: Vec<Thread>,
}

impl Beside {
    fn how_many_wait(&self) -> usize {
        let queued: usize = (0..KEYS).filter_map(|key| self.locks.query(&key, Slot::waiters)).sum();
        let gate = self.locks.gates().expect("it has a gate").gate.lock();
        queued + gate.kept_out().count() + gate.waiters()
    }

    /// After a step: waits until the table has come to rest where the model says, with nobody granted who should wait.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.model.check();
        for (thread, told) in self.threads.iter_mut().enumerate() {
            if let Some(id) = told.waits
                && !self.model.waits(thread as u8)
            {
                let report = told.report()?;
                let Report::Acquired(Ok(mine)) = report else {
                    return Err(TestCaseError::fail(format!("thread {thread} should go on: {report:?}")));
                };
                told.held.insert(id, mine);
                told.waits = None;
            }
        }
        let expected = self.model.locks.iter().filter(|lock| lock.state != State::Held).count();
        let begin = Instant::now();
        while self.how_many_wait() != expected {
            prop_assert!(begin.elapsed() < PATIENCE, "{} wait: {:?}", self.how_many_wait(), self.model);
            thread::yield_now();
        }
        for (thread, told) in self.threads.iter().enumerate() {
            prop_assert!(told.reports.try_recv().is_err(), "thread {thread} should wait: {:?}", self.model);
        }
        Ok(())
    }

    /// What the thread holds, of what `like` says.
    fn nth_held(&self, thread: u8, nth: usize, like: impl Fn(What) -> bool) -> Option<u64> {
        let is = |lock: &&model::Lock| lock.thread == thread && lock.state == State::Held && like(lock.what);
        let held: Vec<u64> = self.model.locks.iter().filter(is).map(|lock| lock.id).collect();
        (!held.is_empty()).then(|| held[nth % held.len()])
    }

    fn step(&mut self, thread: u8, step: Step) -> Result<(), TestCaseError> {
        let told = &self.threads[thread as usize];
        match (step, told.waits) {
            (Step::Request { what, noted }, None) => {
                return self.request(thread, what, noted || matches!(what, All(_)));
            }
            (Step::Release(nth), None) => {
                let Some(id) = self.nth_held(thread, nth, |_| true) else { return Ok(()) };
                self.model.remove(id);
                let told = &mut self.threads[thread as usize];
                let mine = told.held.remove(&id).expect("it is held");
                prop_assert_eq!(told.told(Order::Release(mine))?, Report::Done);
            }
            (Step::Downgrade(nth), None) => {
                let Some(id) = self.nth_held(thread, nth, |what| matches!(what, Key(_, Write))) else { return Ok(()) };
                let report = told.told(Order::Downgrade(told.held[&id]))?;
                self.model.downgrade(id);
                prop_assert_eq!(report, Report::Done);
            }
            (Step::TryUpgrade(nth), None) => {
                let Some(id) = self.nth_held(thread, nth, |what| matches!(what, Key(_, Read))) else { return Ok(()) };
                let report = told.told(Order::TryUpgrade(told.held[&id]))?;
                prop_assert_eq!(report, Report::Upgraded(self.model.try_upgrade(id)));
            }
            (Step::GiveUp, Some(id)) => {
                told.token.cancel();
                prop_assert_eq!(told.report()?, Report::Acquired(Err(AcquireError::Cancelled)));
                self.threads[thread as usize].waits = None;
                self.model.remove(id);
            }
            (_, Some(_)) | (Step::GiveUp, None) => return Ok(()),
        }
        self.settle()
    }

    fn request(&mut self, thread: u8, what: What, noted: bool) -> Result<(), TestCaseError> {
        let unknown = |lock: &model::Lock| lock.thread == thread && !lock.noted && lock.what.conflicts(what);
        if self.model.locks.iter().any(unknown) {
            // The table does not know that it would wait for itself.
            return Ok(());
        }
        self.next += 1;
        let told = &mut self.threads[thread as usize];
        told.token = CancellationToken::new();
        told.orders.send(Order::Acquire { what, noted, token: told.token.clone() }).expect("the thread lives");
        if self.model.request(thread, what, noted, self.next, false) == Outcome::WouldDeadlock {
            let report = told.report()?;
            let refused = matches!(report, Report::Acquired(Err(AcquireError::WouldDeadlock(_))));
            prop_assert!(refused, "{report:?}");
        } else {
            told.waits = Some(self.next);
        }
        self.settle()
    }

    fn end(&mut self) -> Result<(), TestCaseError> {
        for thread in 0..THREADS {
            self.step(thread, Step::GiveUp)?;
        }
        for thread in 0..THREADS {
            while self.nth_held(thread, 0, |_| true).is_some() {
                self.step(thread, Step::Release(0))?;
            }
            self.threads[thread as usize].orders.send(Order::End).expect("the thread lives");
        }
        let gates = self.locks.gates().expect("it has a gate");
        prop_assert_eq!(self.locks.len(), 0);
        prop_assert_eq!(gates.gate.lock().held(), None);
        for mode in Mode::BOTH {
            prop_assert!(!gates.gate.lock().is_closed(mode), "closed to {mode:?}");
        }
        prop_assert!(gates.is_at_rest(), "a door has intents, or is closed");
        Ok(())
    }
}

fn run(steps: Vec<(u8, Step)>) -> Result<(), TestCaseError> {
    let options = Options::new().hasher(BuildHasherDefault::default()).fairness(Fairness::Fifo).shards(2);
    let locks: Arc<Locks> = Arc::new(Table::new("Locks", Source::Same(MAX_READERS as usize), options));
    thread::scope(|scope| {
        let threads = (0..THREADS).map(|_| {
            let ((orders, told), (done, reports)) = (channel(), channel());
            let locks = &*locks;
            scope.spawn(move || worker(locks, &told, &done));
            Thread { orders, reports, token: CancellationToken::new(), held: HashMap::new(), waits: None }
        });
        let threads = threads.collect();
        let mut beside =
            Beside { locks: Arc::clone(&locks), model: model::Table::new(Passing::WaitedFor), next: 0, threads };
        let mut outcome: Result<(), TestCaseError> = Ok(());
        for (thread, step) in steps {
            outcome = outcome.and_then(|()| beside.step(thread, step));
        }
        if outcome.is_ok() {
            outcome = beside.end();
        }
        // After a failure: what waits is freed, so that the scope can end; what is held goes with the threads.
        beside.threads.iter().for_each(|thread| thread.token.cancel());
        outcome
    })
}

#[test]
fn a_table_does_as_the_model_does() {
    let cases = std::env::var("PERKEY_TABLE_HISTORIES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    });
    runner.run(&prop::collection::vec((0..THREADS, step()), 1..60), run).unwrap_or_else(|error| panic!("{error}"));
}
