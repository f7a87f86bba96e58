//! Random histories of one slot, beside a naive model and the invariants of `slot.rs` spelled out.
//!
//! `PERKEY_HISTORIES` sets how many histories are run.

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const DEFAULT_HISTORIES: u32 = 20_000;

/// A step of a history. Numbers are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
enum Step {
    /// A newcomer that queues if it is refused.
    Acquire {
        weight: u32,
    },
    /// A newcomer that goes away if it is refused.
    Try {
        weight: u32,
    },
    Release {
        holder: usize,
        hand_over: bool,
    },
    /// A waiter looks: because it was rung, however long ago, or for a ring of an earlier wait.
    Look {
        waiter: usize,
    },
    /// A waiter that was rung looks.
    LookRung {
        waiter: usize,
    },
    Abandon {
        waiter: usize,
    },
    /// A new limit, for those that wait and hold too.
    SetLimit {
        limit: u32,
    },
    /// The clock moves by so many microseconds; it may stand still, and step back.
    Clock {
        step: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u32>().prop_map(|weight| Step::Acquire { weight }),
        4 => any::<u32>().prop_map(|weight| Step::Try { weight }),
        6 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(holder, hand_over)| Step::Release { holder, hand_over }),
        2 => any::<usize>().prop_map(|waiter| Step::Look { waiter }),
        3 => any::<usize>().prop_map(|waiter| Step::LookRung { waiter }),
        2 => any::<usize>().prop_map(|waiter| Step::Abandon { waiter }),
        1 => (1_u32..=6).prop_map(|limit| Step::SetLimit { limit }),
        2 => prop_oneof![Just(0), -50_i64..400, Just(299), Just(300), Just(100_000)].prop_map(|step| Step::Clock { step }),
    ]
}

/// A limit and the weights that are asked of it.
fn limit_and_weights() -> impl Strategy<Value = (u32, Vec<u32>)> {
    prop_oneof![
        2 => Just((1, vec![1])),
        3 => (2_u32..=5).prop_map(|limit| (limit, (1..=limit).collect())),
        // Readers and writers: a writer takes every permit.
        1 => Just((u32::MAX, vec![1, 1, 1, u32::MAX])),
    ]
}

/// Some requests look out all the time.
impl Seated for usize {
    fn looks_out(&self) -> bool {
        self.is_multiple_of(5)
    }
}

/// The same slot, kept as lists of people.
struct Model {
    fairness: Fairness,
    limit: u32,
    /// By number of the request; those that were granted and have not looked are among them.
    holders: Vec<(usize, u32)>,
    /// Requests in order of arrival.
    queue: Vec<(usize, u32)>,
    head_since: u64,
    overtakes: u32,
    /// Overtakes of this head after its window.
    late_overtakes: u32,
    due: bool,
    /// Who was rung and has not looked since.
    rung: Vec<usize>,
    /// Who waited for more than the limit fell to, with that limit, and has not looked since.
    rejected: Vec<(usize, u32)>,
}

impl Model {
    fn free(&self) -> u32 {
        self.limit.saturating_sub(self.holders.iter().map(|(_, weight)| weight).sum::<u32>())
    }

    /// A newcomer takes permits, or not.
    fn arrive(&mut self, request: usize, weight: u32, now: u64) -> bool {
        if weight > self.free() {
            return false;
        }
        if !self.queue.is_empty() {
            if self.fairness == Fairness::Fifo {
                return false;
            }
            let late = now.saturating_sub(self.head_since) >= 300;
            if self.overtakes.is_multiple_of(8) && late {
                self.due = true;
            }
            if self.due {
                return false;
            }
            self.overtakes += 1;
            self.late_overtakes += u32::from(late);
        }
        self.holders.push((request, weight));
        true
    }

    fn queue_up(&mut self, request: usize, weight: u32, now: u64) {
        self.queue.push((request, weight));
        if self.queue.len() == 1 {
            self.new_head(now);
        }
    }

    fn new_head(&mut self, now: u64) {
        self.head_since = now;
        self.overtakes = 0;
        self.late_overtakes = 0;
        self.due = false;
    }

    fn is_queued(&self, request: usize) -> bool {
        self.queue.iter().any(|(queued, _)| *queued == request)
    }

    /// The head leaves the queue with its permits.
    fn grant_head(&mut self, now: u64) {
        let head = self.queue.remove(0);
        self.holders.push(head);
        self.new_head(now);
    }

    /// Grants and rings as the mode says; gives those that are rung now.
    fn settle(&mut self, now: u64) -> Vec<usize> {
        let mut bells = Vec::new();
        while let Some(&(head, weight)) = self.queue.first() {
            if weight > self.free() {
                let noticed = self.overtakes > 0 && !self.rung.contains(&head);
                self.due |= noticed && now.saturating_sub(self.head_since) >= 300;
                break;
            }
            let grant = self.fairness == Fairness::Fifo || self.due || head.looks_out();
            if !self.rung.contains(&head) {
                self.rung.push(head);
                bells.push(head);
            }
            if !grant {
                break;
            }
            self.grant_head(now);
        }
        bells
    }

    fn release(&mut self, holder: usize, hand_over: bool, now: u64) -> Vec<usize> {
        self.holders.remove(holder);
        if hand_over && !self.queue.is_empty() {
            self.due = true;
        }
        self.settle(now)
    }

    /// The verdict on a request that is not in the queue; it is read only once.
    fn verdict(&mut self, request: usize) -> Verdict {
        match self.rejected.iter().position(|(rejected, _)| *rejected == request) {
            Some(index) => Verdict::OverLimit { limit: self.rejected.remove(index).1 },
            None => Verdict::Granted,
        }
    }

    fn look(&mut self, request: usize, now: u64) -> (Option<Verdict>, Vec<usize>) {
        self.rung.retain(|rung| *rung != request);
        if !self.is_queued(request) {
            return (Some(self.verdict(request)), Vec::new());
        }
        let (head, weight) = self.queue[0];
        if head != request {
            return (None, Vec::new());
        }
        if weight <= self.free() {
            self.grant_head(now);
            return (Some(Verdict::Granted), self.settle(now));
        }
        self.due |= now.saturating_sub(self.head_since) >= 300;
        (None, Vec::new())
    }

    fn abandon(&mut self, request: usize, now: u64) -> (Option<Verdict>, Vec<usize>) {
        self.rung.retain(|rung| *rung != request);
        let Some(position) = self.queue.iter().position(|(queued, _)| *queued == request) else {
            return (Some(self.verdict(request)), Vec::new());
        };
        self.queue.remove(position);
        if position > 0 {
            return (None, Vec::new());
        }
        self.new_head(now);
        (None, self.settle(now))
    }

    fn set_limit(&mut self, limit: u32, now: u64) -> Vec<usize> {
        self.limit = limit;
        let head = self.queue.first().copied();
        let (fit, too_heavy): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(|(_, weight)| *weight <= limit);
        self.queue = fit;
        let mut bells = Vec::new();
        for (request, _) in too_heavy {
            self.rejected.push((request, limit));
            if !self.rung.contains(&request) {
                self.rung.push(request);
                bells.push(request);
            }
        }
        if self.queue.first().copied() != head {
            self.new_head(now);
        }
        bells.extend(self.settle(now));
        bells
    }
}

/// A slot, the model, and the requests that are under way. A slot that is idle is absent, as in the table.
struct History {
    model: Model,
    slot: Option<Slot<usize>>,
    /// A lock, and no semaphore that happens to have one permit.
    exclusive: bool,
    weights: Vec<u32>,
    base: Instant,
    now: Cell<u64>,
    next_request: usize,
    /// How much may be taken: the limit, or what was taken when it fell below that.
    most_taken: u64,
    /// Requests that wait, or were granted and have not looked, with their tickets.
    waiting: Vec<(usize, Ticket)>,
}

type Checked = Result<(), TestCaseError>;

fn numbers(bells: Bells<usize>) -> Vec<usize> {
    let mut numbers = Vec::new();
    bells.for_each(|number| numbers.push(number));
    numbers
}

impl History {
    fn new(fairness: Fairness, limit: u32, weights: Vec<u32>) -> Self {
        let model = Model {
            fairness,
            limit,
            holders: Vec::new(),
            queue: Vec::new(),
            head_since: 0,
            overtakes: 0,
            late_overtakes: 0,
            due: false,
            rung: Vec::new(),
            rejected: Vec::new(),
        };
        Self {
            model,
            slot: None,
            exclusive: limit == 1,
            weights,
            base: Instant::now(),
            now: Cell::new(1_000),
            next_request: 0,
            most_taken: limit.into(),
            waiting: Vec::new(),
        }
    }

    fn clock(&self) -> impl Fn() -> Instant + use<> {
        let instant = self.base + Duration::from_micros(self.now.get());
        move || instant
    }

    fn run(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Acquire { weight } => self.acquire(weight, true)?,
            Step::Try { weight } => self.acquire(weight, false)?,
            Step::Release { holder, hand_over } => self.release(holder, hand_over)?,
            Step::Look { waiter } => {
                if let Some(index) = waiter.checked_rem(self.waiting.len()) {
                    self.look(index)?;
                }
            }
            Step::LookRung { waiter } => {
                let rung = self.rung();
                if let Some(index) = waiter.checked_rem(rung.len()) {
                    self.look(rung[index])?;
                }
            }
            Step::Abandon { waiter } => self.abandon(waiter)?,
            Step::SetLimit { limit } => self.set_limit(limit)?,
            Step::Clock { step } => self.now.set(self.now.get().saturating_add_signed(step)),
        }
        self.check()
    }

    /// Places in `waiting` of those that were rung and have not looked.
    fn rung(&self) -> Vec<usize> {
        (0..self.waiting.len()).filter(|index| self.model.rung.contains(&self.waiting[*index].0)).collect()
    }

    fn acquire(&mut self, weight: u32, queue: bool) -> Checked {
        let weight = self.weights[weight as usize % self.weights.len()];
        if weight > self.model.limit {
            // The table turns it away.
            return Ok(());
        }
        let request = Request { weight, owner: u64::from(self.exclusive) };
        let number = self.next_request;
        self.next_request += 1;
        let (now, clock) = (self.now.get(), self.clock());
        let anybody_waits = !self.model.queue.is_empty();
        let due = self.model.due;
        let expected = self.model.arrive(number, weight, now);
        let Some(slot) = &mut self.slot else {
            prop_assert!(expected, "an absent key is free");
            self.slot = Some(Slot::held(self.model.limit, request));
            self.most_taken = self.model.limit.into();
            return Ok(());
        };
        let taken = slot.try_take(request, &clock);
        prop_assert!(!(taken && due), "request {number} overtook a head that is due");
        prop_assert!(
            !(taken && anybody_waits && self.model.fairness == Fairness::Fifo),
            "request {number} overtook under FIFO"
        );
        prop_assert_eq!(taken, expected, "whether newcomer {} takes {}", number, weight);
        if !taken && queue {
            let ticket = slot.enqueue(self.model.fairness, request, number, clock());
            self.model.queue_up(number, weight, now);
            self.waiting.push((number, ticket));
        }
        Ok(())
    }

    /// A lock's limit stays 1, and a readers' and writers' limit what it is.
    fn set_limit(&mut self, limit: u32) -> Checked {
        if self.exclusive || self.model.limit == u32::MAX {
            return Ok(());
        }
        let (now, clock) = (self.now.get(), self.clock());
        let mut bells = Bells::new();
        if let Some(slot) = &mut self.slot {
            slot.set_limit(limit, clock, &mut bells);
        }
        let bells = numbers(bells);
        self.check_bells(&bells)?;
        let expected = self.model.set_limit(limit, now);
        prop_assert_eq!(bells, expected, "who is rung by a limit of {}", limit);
        Ok(())
    }

    fn release(&mut self, holder: usize, hand_over: bool) -> Checked {
        // Whoever was granted and has not looked does not know that it holds.
        let aware: Vec<usize> = (0..self.model.holders.len())
            .filter(|index| self.waiting.iter().all(|(waiting, _)| *waiting != self.model.holders[*index].0))
            .collect();
        let Some(index) = holder.checked_rem(aware.len()).map(|index| aware[index]) else { return Ok(()) };
        let (_, weight) = self.model.holders[index];
        let (now, clock) = (self.now.get(), self.clock());
        let slot = self.slot.as_mut().expect("a key that is held has a slot");
        let last = slot.is_last_hold(weight);
        let bells = slot.release(weight, hand_over, clock).unwrap_or(Bells::new());
        prop_assert_eq!(last, slot.is_idle(), "the short cut of a release");
        let bells = numbers(bells);
        if self.exclusive {
            prop_assert!(bells.len() <= 1, "one exclusive release rang {} waiters", bells.len());
        }
        self.check_bells(&bells)?;
        let expected = self.model.release(index, hand_over, now);
        prop_assert_eq!(bells, expected, "who a release rings");
        Ok(())
    }

    fn look(&mut self, index: usize) -> Checked {
        let (number, ticket) = self.waiting[index];
        let (now, clock) = (self.now.get(), self.clock());
        let slot = self.slot.as_mut().expect("a key that is waited for, or was granted, has a slot");
        let mut bells = Bells::new();
        let look = slot.look(ticket, clock, &mut bells);
        let bells = numbers(bells);
        self.model.rung.retain(|rung| *rung != number);
        self.check_bells(&bells)?;
        let (expected, expected_bells) = self.model.look(number, now);
        prop_assert_eq!(look, expected, "what waiter {} finds", number);
        prop_assert_eq!(bells, expected_bells, "who the look of waiter {} rings", number);
        if look.is_some() {
            self.waiting.remove(index);
        }
        Ok(())
    }

    fn abandon(&mut self, waiter: usize) -> Checked {
        let Some(index) = waiter.checked_rem(self.waiting.len()) else { return Ok(()) };
        let (number, ticket) = self.waiting.remove(index);
        let (now, clock) = (self.now.get(), self.clock());
        let slot = self.slot.as_mut().expect("a key that is waited for, or was granted, has a slot");
        let mut bells = Bells::new();
        let outcome = slot.abandon(ticket, clock, &mut bells);
        let bells = numbers(bells);
        self.model.rung.retain(|rung| *rung != number);
        self.check_bells(&bells)?;
        let (expected, expected_bells) = self.model.abandon(number, now);
        prop_assert_eq!(outcome, expected, "what waiter {} finds as it gives up", number);
        prop_assert_eq!(bells, expected_bells, "who is rung as waiter {} gives up", number);
        Ok(())
    }

    fn check_bells(&self, bells: &[usize]) -> Checked {
        for (position, bell) in bells.iter().enumerate() {
            prop_assert!(
                !self.model.rung.contains(bell),
                "waiter {bell} was rung and has not looked, and is rung again"
            );
            prop_assert!(!bells[..position].contains(bell), "waiter {bell} is rung twice at once");
        }
        Ok(())
    }

    /// The invariants, and that slot and model agree.
    fn check(&mut self) -> Checked {
        let Some(slot) = &mut self.slot else { return Ok(()) };
        if slot.is_idle() {
            let Model { holders, queue, rejected, .. } = &self.model;
            prop_assert!(holders.is_empty() && queue.is_empty() && rejected.is_empty(), "an idle slot is in use");
            self.slot = None;
            return Ok(());
        }
        let taken: u64 = self.model.holders.iter().map(|(_, weight)| u64::from(*weight)).sum();
        prop_assert_eq!(u64::from(slot.taken()), taken);
        prop_assert_eq!(slot.limit(), self.model.limit);
        prop_assert!(
            u64::from(slot.taken()) <= self.most_taken.max(slot.limit().into()),
            "more is taken than there is"
        );
        self.most_taken = taken.max(slot.limit().into());
        prop_assert!(
            self.model.queue.iter().all(|(_, weight)| *weight <= slot.limit()),
            "one waits for what cannot be"
        );
        prop_assert_eq!(slot.available(), self.model.free());
        let queue: Vec<(usize, u32)> = slot.waiting().map(|(number, weight)| (*number, weight)).collect();
        prop_assert_eq!(&queue, &self.model.queue, "the queue is not in order of arrival");
        prop_assert_eq!(slot.waiters(), queue.len());
        prop_assert_eq!(slot.is_owned_by(1), self.exclusive && taken == 1);
        if let Some((head, weight)) = queue.first() {
            let fits = *weight <= slot.available();
            prop_assert!(!fits || self.model.rung.contains(head), "head {head} fits and sleeps");
            let inner = &slot.queue.as_ref().expect("somebody waits").head;
            prop_assert_eq!(inner.rung, self.model.rung.contains(head), "whether the head is rung");
            prop_assert_eq!(inner.due, self.model.due, "whether the head is due");
        }
        prop_assert!(self.model.late_overtakes < 8, "a head was overtaken eight times after its window");
        Ok(())
    }

    /// Everybody looks when rung, and releases: nobody may be left.
    fn drain(&mut self) -> Checked {
        for step in 0.. {
            prop_assert!(step < 1_000, "the history does not come to an end");
            if let Some(index) = self.rung().first().copied() {
                self.look(index)?;
            } else if !self.model.holders.is_empty() {
                self.release(0, false)?;
            } else {
                break;
            }
            self.check()?;
        }
        prop_assert!(self.slot.is_none(), "the key is left behind");
        prop_assert!(self.waiting.is_empty(), "waiters {:?} sleep for ever", self.waiting);
        Ok(())
    }
}

#[test]
fn histories() {
    let cases = std::env::var("PERKEY_HISTORIES").map_or(DEFAULT_HISTORIES, |count| {
        count.parse().unwrap_or_else(|_| panic!("PERKEY_HISTORIES is not a number: {count:?}"))
    });
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let fairness = prop_oneof![Just(Fairness::Eventual), Just(Fairness::Fifo)];
    let strategy = (fairness, limit_and_weights(), prop::collection::vec(step(), 1..60));
    let outcome = runner.run(&strategy, |(fairness, (limit, weights), steps)| {
        let mut history = History::new(fairness, limit, weights);
        for step in &steps {
            history.run(step)?;
        }
        history.drain()
    });
    if let Err(error) = outcome {
        panic!("the model of a slot was broken: {error}");
    }
    println!("{cases} histories passed");
}

/// The number of a sweep stands where an owner's number stood.
#[test]
fn an_idle_slot_has_no_owner() {
    let mut slot = Slot::<usize>::held(1, Request { weight: 1, owner: 7 });
    assert!(slot.is_owned_by(7));
    slot.release_last(8);
    assert!(!slot.is_owned_by(7) && !slot.is_owned_by(8));
    assert!(slot.is_idle_since(8) && !slot.is_idle_since(7));
}

/// The model is worth something only if it reports what is broken.
#[test]
fn histories_report_planted_faults() {
    for fault in [
        Fault::GrantLost,
        Fault::OneRingForTwoPermits,
        Fault::HeadLeavesUnsettled,
        Fault::RingIsGrant,
        Fault::FifoBarges,
        Fault::NeverDue,
        Fault::RungOutlivesHead,
        Fault::LookKeepsRung,
        Fault::RungTwice,
        Fault::TooHeavyStays,
    ] {
        let output = Command::new(std::env::current_exe().expect("the path of this test"))
            .args(["--exact", "slot::tests::histories", "--nocapture"])
            .env("PERKEY_FAULT", format!("{fault:?}"))
            .env("PERKEY_HISTORIES", DEFAULT_HISTORIES.to_string())
            .output()
            .expect("this test runs itself");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{fault:?} was not caught");
        assert!(said.contains("the model of a slot was broken"), "{fault:?} broke something else: {said}");
    }
}
