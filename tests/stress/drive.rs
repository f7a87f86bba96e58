//! One run: threads that ask for whatever comes to their mind, beside threads that give back what others took.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use perkey::CancellationToken;

use crate::oracle::{Breach, Kind, Oracle};
use crate::rng::Rng;
use crate::target::{Call, Form, Patience, Planned, Release, Target, Time, panic_as_planned};
use crate::watchdog::{self, Watchdog};

/// How a run goes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) threads: usize,
    pub(crate) keys: usize,
    /// How many calls each thread makes.
    pub(crate) calls: usize,
    /// Whether calls may wait without limit. With a lock that loses permits such a call never comes back.
    pub(crate) endless: bool,
    /// Whether the keys' own code is told to panic now and then.
    pub(crate) fuses: bool,
    /// Whether the first breach ends the run.
    pub(crate) stop_early: bool,
    /// How long nobody may get on.
    pub(crate) patience: Duration,
}

impl Plan {
    pub(crate) fn new(name: impl Into<String>, keys: usize) -> Self {
        Self {
            name: name.into(),
            threads: 8,
            keys,
            calls: 1000,
            endless: true,
            fuses: false,
            stop_early: true,
            patience: Duration::from_secs(60),
        }
    }
}

/// Runs the plan on a fresh target and gives what was broken.
pub(crate) fn run<T: Target>(target: T, plan: &Plan, seed: u64) -> Vec<Breach> {
    let target = Arc::new(target);
    let run = Run {
        target: &target,
        plan,
        oracle: Oracle::new(target.limit(), plan.keys, plan.stop_early),
        watchdog: Watchdog::default(),
        tokens: Mutex::new((0..4).map(|_| CancellationToken::new()).collect()),
        handed_over: Queue::default(),
    };
    thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..plan.threads as u64)
            .map(|thread| {
                scope.spawn(move || {
                    let rng = Rng::new(seed ^ thread.wrapping_mul(0xD6E8_FEB8_6659_FD93));
                    Worker { run, rng }.work();
                })
            })
            .collect();
        let leavers: Vec<_> = (0..2).map(|_| scope.spawn(|| run.leave_for_others())).collect();
        let watch = scope.spawn(|| run.watch(seed));
        let join = |handle: thread::ScopedJoinHandle<'_, ()>| {
            if let Err(payload) = handle.join() {
                let text = payload.downcast_ref::<String>().cloned();
                run.oracle.report(Kind::Panicked, text.unwrap_or_else(|| "see above".to_owned()));
            }
        };
        workers.into_iter().for_each(join);
        run.handed_over.close();
        leavers.into_iter().for_each(join);
        run.watchdog.finish();
        // By its handle too: the scope's own way to wait is one that ThreadSanitizer does not see.
        join(watch);
    });
    run.oracle.judge_end(&*target);
    run.oracle.into_breaches()
}

struct Run<'a, T: Target> {
    target: &'a Arc<T>,
    plan: &'a Plan,
    oracle: Oracle,
    watchdog: Watchdog,
    /// Tokens in use; one that is cancelled makes place for a new one.
    tokens: Mutex<Vec<CancellationToken>>,
    handed_over: Queue<HandedOver<T::Movable>>,
}

impl<T: Target> Run<'_, T> {
    fn watch(&self, seed: u64) {
        let patience = self.plan.patience;
        if self.watchdog.watch(patience) {
            return;
        }
        let description = self.target.describe();
        if !self.target.rescue() {
            watchdog::abort(&format!("{:?} with PERKEY_SEED={seed}", self.plan.name), patience, self.target);
        }
        self.oracle.report(Kind::Stuck, format!("nobody got on for {patience:?}: {description}"));
    }

    /// Gives back what other threads took. Waits for nothing but for work: a worker may wait for what lies here.
    fn leave_for_others(&self) {
        while let Some(HandedOver { hold, release, key, weight }) = self.handed_over.pop() {
            drop(self.oracle.stay(key, weight));
            self.target.leave_movable(hold, release);
            self.watchdog.tick();
        }
    }
}

/// A hold on its way to the thread that gives it back.
struct HandedOver<M> {
    hold: M,
    release: Release,
    key: usize,
    weight: u32,
}

struct Worker<'a, T: Target> {
    run: &'a Run<'a, T>,
    rng: Rng,
}

impl<T: Target> Worker<'_, T> {
    fn work(&mut self) {
        for _ in 0..self.run.plan.calls {
            if self.run.oracle.stopped() {
                return;
            }
            match self.rng.below(64) {
                0..2 => self.cancel(),
                2..4 => self.look(),
                4..6 if self.run.plan.keys > 1 && self.run.plan.endless => self.take_two(),
                6..16 => self.take_and_hand_over(),
                _ => self.take(),
            }
            self.run.watchdog.tick();
        }
    }

    fn cancel(&mut self) {
        let fresh = CancellationToken::new();
        let old = {
            let mut tokens = self.run.tokens.lock();
            let place = self.rng.index(tokens.len());
            std::mem::replace(&mut tokens[place], fresh)
        };
        old.cancel();
    }

    fn look(&mut self) {
        let Run { target, oracle, plan, .. } = self.run;
        let key = self.rng.index(plan.keys);
        if self.rng.one_in(8) {
            oracle.judge_snapshot(&target.snapshot(), target.head_may_fit());
        }
        let (free, len, waiters) = (target.free(key), target.len(), target.waiters(key));
        if free > target.limit() || len > plan.keys || waiters > plan.threads {
            let detail = format!("key {key}: {free} permits free, {waiters} waiters, {len} keys");
            oracle.report(Kind::WrongReport, detail);
        }
    }

    /// One acquisition on this thread, perhaps with a panic in it, perhaps with others inside it.
    fn take(&mut self) {
        let call = self.call(true);
        let fuse = if self.run.plan.fuses && self.rng.one_in(8) { 1 + self.rng.below(6) as u32 } else { 0 };
        let panics = self.rng.one_in(16);
        let Run { target, oracle, .. } = self.run;
        let cancelled = call.patience.is_cancelled();
        let started = Instant::now();
        // The section runs in the middle of the target's call, and wants the worker again.
        let worker = RefCell::new(&mut *self);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            target.arm(fuse);
            target.enter(&call, || {
                target.arm(0);
                let inside = oracle.enter(call.key, call.weight);
                oracle.judge_grant(&call, cancelled);
                let worker = &mut *worker.borrow_mut();
                inside.work(&mut worker.rng);
                match worker.rng.below(32) {
                    0 => {
                        if let Err(wrong) = target.look_from_inside(&call) {
                            oracle.report(Kind::WrongReport, wrong);
                        }
                    }
                    1 | 2 => worker.take_inside(call.key),
                    _ => (),
                }
                if panics {
                    panic_as_planned();
                }
                drop(inside);
            })
        }));
        target.arm(0);
        match outcome {
            Ok(Ok(())) => (),
            Ok(Err(refusal)) => oracle.judge_refusal(&call, &refusal, started),
            Err(payload) if payload.is::<Planned>() => (),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// A second key while one is held, or the same one again; never without a limit, or threads wait in a circle.
    fn take_inside(&mut self, held: usize) {
        let mut call = self.call(false);
        if call.key == held && self.run.target.limit() == 1 {
            return; // Re-entry; `look_from_inside` sees to that.
        }
        if call.patience.time == Time::Forever {
            call.patience.time = Time::Now;
        }
        let Run { target, oracle, .. } = self.run;
        let cancelled = call.patience.is_cancelled();
        let started = Instant::now();
        let outcome = target.enter(&call, || {
            let inside = oracle.enter(call.key, call.weight);
            oracle.judge_grant(&call, cancelled);
            inside.work(&mut self.rng);
            drop(inside);
        });
        if let Err(refusal) = outcome {
            oracle.judge_refusal(&call, &refusal, started);
        }
    }

    /// Two keys without a limit: in the order of their numbers, or threads wait in a circle.
    fn take_two(&mut self) {
        let Run { target, oracle, plan, .. } = self.run;
        let first = self.rng.index(plan.keys - 1);
        let second = first + 1 + self.rng.index(plan.keys - 1 - first);
        target.enter_both(first, second, || {
            let (first, second) = (oracle.enter(first, 1), oracle.enter(second, 1));
            first.work(&mut self.rng);
            second.work(&mut self.rng);
        });
    }

    /// An acquisition that ends on another thread.
    fn take_and_hand_over(&mut self) {
        let call = self.call(true);
        let Run { target, oracle, handed_over, .. } = self.run;
        let cancelled = call.patience.is_cancelled();
        let started = Instant::now();
        match target.enter_movable(&call) {
            Ok(hold) => {
                let inside = oracle.enter(call.key, call.weight);
                oracle.judge_grant(&call, cancelled);
                inside.work(&mut self.rng);
                inside.leave_to_another();
                handed_over.push(HandedOver { hold, release: call.release, key: call.key, weight: call.weight });
            }
            Err(refusal) => oracle.judge_refusal(&call, &refusal, started),
        }
    }

    fn call(&mut self, may_be_endless: bool) -> Call {
        let rng = &mut self.rng;
        let limit = self.run.target.limit();
        let key = rng.index(self.run.plan.keys);
        let weight = match rng.below(4) {
            0 => 1 + rng.below(u64::from(limit)) as u32,
            1 => limit,
            _ => 1,
        };
        let form = [Form::Closure, Form::Short, Form::With][rng.index(3)];
        let release =
            [Release::Dropped, Release::Dropped, Release::Fair, Release::Boxed, Release::Replaced][rng.index(5)];
        // Short enough for time-outs to meet grants, and now and then too long for the clock.
        let duration = match rng.below(8) {
            0 => Duration::ZERO,
            1 if may_be_endless && self.run.plan.endless => Duration::MAX,
            2 => Duration::from_micros(rng.below(3000)),
            _ => Duration::from_nanos(rng.below(150_000)),
        };
        let time = match rng.below(16) {
            0..4 => Time::Now,
            4..9 => Time::AtMost(duration),
            9 => Time::Until(Instant::now() + duration.min(Duration::from_millis(3))),
            _ if may_be_endless && self.run.plan.endless => Time::Forever,
            _ => Time::AtMost(Duration::from_micros(500 + rng.below(3000))),
        };
        let tokens = match rng.below(12) {
            0..3 => 1,
            3 => 2,
            _ => 0,
        };
        let tokens = (0..tokens).map(|_| self.token()).collect();
        let max_queued = if self.rng.one_in(12) { Some(self.rng.index(4)) } else { None };
        Call { key, weight, patience: Patience { time, tokens, max_queued }, form, release }
    }

    fn token(&mut self) -> CancellationToken {
        let token = {
            let tokens = self.run.tokens.lock();
            tokens[self.rng.index(tokens.len())].clone()
        };
        // Cancelled before the call: such a call is never granted.
        if self.rng.one_in(16) {
            token.cancel();
        }
        token
    }
}

/// Work for other threads, until it is closed.
struct Queue<W> {
    state: Mutex<(VecDeque<W>, bool)>,
    bell: Condvar,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { state: Mutex::new((VecDeque::new(), false)), bell: Condvar::new() }
    }
}

impl<W> Queue<W> {
    fn push(&self, work: W) {
        self.state.lock().0.push_back(work);
        self.bell.notify_one();
    }

    fn close(&self) {
        self.state.lock().1 = true;
        self.bell.notify_all();
    }

    /// `None` when the queue is closed and empty.
    fn pop(&self) -> Option<W> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.0.pop_front() {
                return Some(work);
            }
            if state.1 {
                return None;
            }
            self.bell.wait(&mut state);
        }
    }
}
