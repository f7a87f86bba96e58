//! Locks that are broken on purpose, each in one way that was seen in a library of this kind. The oracle must report
//! every one of them, and nothing of the same lock without a fault.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::drive::{Plan, run};
use crate::meeting;
use crate::oracle::{Breach, Kind};
use crate::rng;
use crate::target::{Call, Refusal, Release, Seen, Target, Time};

/// What is wrong with a [`Plain`] semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// Lets in one permit more than there are.
    OneTooMany,
    /// A waiter that times out does not look whether it was granted meanwhile.
    TimeoutLosesGrant,
    /// A wait that fails gives back what it never had.
    FailureGivesBack,
    /// A try that fails leaves its mark on the entry, which therefore stays.
    FailedTryLeavesEntry,
    /// A waiter that gives up stays in the queue.
    GhostInQueue,
    /// A release grants nobody.
    ReleaseGrantsNobody,
    /// A head that gives up does not look after those behind it.
    HeadLeavesUnsettled,
    /// A panic in the section keeps the permits.
    PanicKeepsPermits,
    /// Permits that come back on another thread than took them do not count.
    ForeignReleaseIgnored,
    /// A request with a cancelled token is granted if the permits are free.
    CancelledIsGranted,
    /// A request with a token that has to wait is cancelled at once.
    CancelledForNothing,
    /// A timed wait ends at once.
    TimesOutEarly,
    /// A call without a time limit ends like one that has a limit.
    EndlessEnds,
    /// A release lets some time pass before it grants.
    GrantsLate,
    /// A release grants nobody while a waiter that was granted has not run yet.
    OneGrantAtATime,
}

/// A keyed FIFO semaphore under one mutex and one condition variable: slow, and simple enough to be right.
#[derive(Clone)]
struct Plain(Arc<Inner>);

struct Inner {
    limit: u32,
    fault: Fault,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<usize, Entry>,
    next_ticket: u64,
    rescued: bool,
}

#[derive(Default)]
struct Entry {
    taken: u32,
    /// Tickets and weights, in order of arrival.
    queue: VecDeque<(u64, u32)>,
    /// Tickets that have been granted, until their waiters see it.
    granted: Vec<u64>,
    /// What keeps an entry that nobody needs.
    marks: u32,
}

impl Plain {
    fn new(limit: u32, fault: Fault) -> Self {
        Self(Arc::new(Inner { limit, fault, state: Mutex::default(), bell: Condvar::new() }))
    }

    fn is(&self, fault: Fault) -> bool {
        self.0.fault == fault
    }

    fn acquire(&self, call: &Call) -> Result<Hold, Refusal> {
        let outcome = self.wait_for(call);
        if outcome.is_err() && self.is(Fault::FailureGivesBack) {
            self.release(call.key, call.weight);
        }
        outcome.map(|()| Hold {
            of: self.clone(),
            key: call.key,
            weight: call.weight,
            taken_by: thread::current().id(),
        })
    }

    fn wait_for(&self, call: &Call) -> Result<(), Refusal> {
        let &Call { key, weight, ref patience, .. } = call;
        let deadline = match patience.time {
            Time::Now => Some(Instant::now()),
            Time::AtMost(duration) => Instant::now().checked_add(duration),
            Time::Until(instant) => Some(instant),
            Time::Forever if self.is(Fault::EndlessEnds) => Some(Instant::now() + Duration::from_micros(50)),
            Time::Forever => None,
        };
        let no_time = match patience.time {
            Time::AtMost(duration) => duration.is_zero(),
            _ => deadline.is_some_and(|deadline| deadline <= Instant::now()),
        };
        if patience.is_cancelled() && !self.is(Fault::CancelledIsGranted) {
            return Err(Refusal::Cancelled);
        }
        let mut state = self.0.state.lock();
        let State { entries, next_ticket, .. } = &mut *state;
        let entry = entries.entry(key).or_default();
        let room = self.0.limit + u32::from(self.is(Fault::OneTooMany));
        if entry.queue.is_empty() && entry.taken + weight <= room {
            entry.taken += weight;
            return Ok(());
        }
        if no_time {
            entry.marks += u32::from(self.is(Fault::FailedTryLeavesEntry));
            return Err(Refusal::Busy);
        }
        if patience.max_queued.is_some_and(|count| entry.queue.len() >= count) {
            return Err(Refusal::QueueFull);
        }
        let ticket = *next_ticket;
        *next_ticket += 1;
        entry.queue.push_back((ticket, weight));
        loop {
            if state.rescued {
                return Err(Refusal::Rescued);
            }
            let granted = &mut state.entry(key).granted;
            if let Some(place) = granted.iter().position(|granted| *granted == ticket) {
                granted.remove(place);
                return Ok(());
            }
            let cancelled = patience.is_cancelled();
            if cancelled || (self.is(Fault::CancelledForNothing) && !patience.tokens.is_empty()) {
                return self.give_up(state, key, ticket, Refusal::Cancelled);
            }
            let timed_out = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if timed_out || (self.is(Fault::TimesOutEarly) && deadline.is_some()) {
                return self.give_up(state, key, ticket, Refusal::Timeout);
            }
            // Nobody rings for a token: it is looked at once in a while.
            let next_look = (!patience.tokens.is_empty()).then(|| Instant::now() + Duration::from_micros(200));
            match deadline.into_iter().chain(next_look).min() {
                None => self.0.bell.wait(&mut state),
                Some(instant) => {
                    if self.0.bell.wait_until(&mut state, instant).timed_out() && self.is(Fault::TimeoutLosesGrant) {
                        // The window in which the grant comes.
                        MutexGuard::unlocked(&mut state, thread::yield_now);
                        state.entry(key).granted.retain(|granted| *granted != ticket);
                        return self.give_up(state, key, ticket, Refusal::Timeout);
                    }
                }
            }
        }
    }

    /// Leaves the queue. Whether the ticket has been granted was looked at before, under the same lock.
    fn give_up(
        &self,
        mut state: MutexGuard<'_, State>,
        key: usize,
        ticket: u64,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        if !self.is(Fault::GhostInQueue) {
            state.entry(key).queue.retain(|(queued, _)| *queued != ticket);
        }
        if self.is(Fault::HeadLeavesUnsettled) {
            state.clean_up(key);
        } else {
            self.settle(&mut state, key);
        }
        Err(refusal)
    }

    fn release(&self, key: usize, weight: u32) {
        let mut state = self.0.state.lock();
        let entry = state.entry(key);
        entry.taken = entry.taken.saturating_sub(weight);
        if self.is(Fault::ReleaseGrantsNobody) {
            return state.clean_up(key);
        }
        if self.is(Fault::GrantsLate) {
            MutexGuard::unlocked(&mut state, thread::yield_now);
        }
        self.settle(&mut state, key);
    }

    /// Grants those at the head of the queue that fit.
    fn settle(&self, state: &mut State, key: usize) {
        let room = self.0.limit + u32::from(self.is(Fault::OneTooMany));
        let entry = state.entry(key);
        if self.is(Fault::OneGrantAtATime) && !entry.granted.is_empty() {
            return;
        }
        while let Some(&(ticket, weight)) = entry.queue.front()
            && entry.taken + weight <= room
        {
            entry.queue.pop_front();
            entry.taken += weight;
            entry.granted.push(ticket);
        }
        state.clean_up(key);
        self.0.bell.notify_all();
    }

    fn is_rescued(&self) -> bool {
        self.0.state.lock().rescued
    }
}

impl State {
    fn entry(&mut self, key: usize) -> &mut Entry {
        self.entries.entry(key).or_default()
    }

    fn clean_up(&mut self, key: usize) {
        let Entry { taken, queue, granted: _, marks } = self.entry(key);
        if *taken == 0 && queue.is_empty() && *marks == 0 {
            self.entries.remove(&key);
        }
    }
}

/// Permits of a [`Plain`], until drop.
struct Hold {
    of: Plain,
    key: usize,
    weight: u32,
    taken_by: ThreadId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let kept = thread::panicking() && self.of.is(Fault::PanicKeepsPermits);
        let ignored = thread::current().id() != self.taken_by && self.of.is(Fault::ForeignReleaseIgnored);
        if !kept && !ignored {
            self.of.release(self.key, self.weight);
        }
    }
}

impl Target for Plain {
    type Movable = Hold;

    fn limit(&self) -> u32 {
        self.0.limit
    }

    fn enter(&self, call: &Call, inside: impl FnOnce()) -> Result<(), Refusal> {
        let _hold = self.acquire(call)?;
        inside();
        Ok(())
    }

    fn enter_movable(&self, call: &Call) -> Result<Hold, Refusal> {
        self.acquire(call)
    }

    fn leave_movable(&self, hold: Hold, _: Release) {
        drop(hold);
    }

    fn enter_both(&self, first: usize, second: usize, inside: impl FnOnce()) {
        let _first = self.acquire(&Call::endless(first));
        let _second = self.acquire(&Call::endless(second));
        if !self.is_rescued() {
            inside();
        }
    }

    fn free(&self, key: usize) -> u32 {
        let state = self.0.state.lock();
        state.entries.get(&key).map_or(self.0.limit, |entry| self.0.limit.saturating_sub(entry.taken))
    }

    fn waiters(&self, key: usize) -> usize {
        self.0.state.lock().entries.get(&key).map_or(0, |entry| entry.queue.len())
    }

    fn len(&self) -> usize {
        self.0.state.lock().entries.len()
    }

    fn snapshot(&self) -> Vec<Seen> {
        let state = self.0.state.lock();
        let seen = |entry: &Entry| Seen {
            held: entry.taken,
            limit: self.0.limit,
            waiting: entry.queue.iter().map(|(_, weight)| *weight).collect(),
        };
        state.entries.values().map(seen).collect()
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (key, entry) in &self.0.state.lock().entries {
            let Entry { taken, queue, granted, marks } = entry;
            let _ = write!(text, "key {key}: {taken} taken, waiting {queue:?}, granted {granted:?}, marks {marks}; ");
        }
        text
    }

    fn head_may_fit(&self) -> bool {
        false
    }

    fn rescue(&self) -> bool {
        self.0.state.lock().rescued = true;
        self.0.bell.notify_all();
        true
    }
}

/// The lock that everybody writes first: a map of mutexes, and a clean-up that looks at the reference count in one step
/// and removes the entry in the next.
struct CountThenRemove {
    locks: DashMap<usize, Arc<Mutex<()>>>,
}

impl CountThenRemove {
    fn new() -> Self {
        Self { locks: DashMap::new() }
    }

    fn let_go(&self, key: usize, lock: Arc<Mutex<()>>) {
        // The map's and ours.
        if Arc::strong_count(&lock) <= 2 {
            // The window in which somebody else gets hold of the entry.
            thread::yield_now();
            self.locks.remove(&key);
        }
    }
}

impl Target for CountThenRemove {
    type Movable = ();

    fn limit(&self) -> u32 {
        1
    }

    fn enter(&self, call: &Call, inside: impl FnOnce()) -> Result<(), Refusal> {
        if call.patience.is_cancelled() {
            return Err(Refusal::Cancelled);
        }
        let lock = Arc::clone(&self.locks.entry(call.key).or_default());
        let guard = match call.patience.time {
            Time::Now => lock.try_lock().ok_or(Refusal::Busy),
            Time::AtMost(duration) => lock.try_lock_for(duration).ok_or(Refusal::Timeout),
            Time::Until(instant) => lock.try_lock_until(instant).ok_or(Refusal::Timeout),
            Time::Forever => Ok(lock.lock()),
        };
        let outcome = guard.map(|guard| {
            inside();
            drop(guard);
        });
        self.let_go(call.key, lock);
        outcome
    }

    fn enter_movable(&self, _: &Call) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    fn leave_movable(&self, (): (), _: Release) {}

    fn enter_both(&self, first: usize, second: usize, inside: impl FnOnce()) {
        let _ = self.enter(&Call::endless(first), || {
            let _ = self.enter(&Call::endless(second), inside);
        });
    }

    fn free(&self, key: usize) -> u32 {
        self.locks.get(&key).map_or(1, |lock| u32::from(!lock.is_locked()))
    }

    fn waiters(&self, _: usize) -> usize {
        0
    }

    fn len(&self) -> usize {
        self.locks.len()
    }

    fn snapshot(&self) -> Vec<Seen> {
        Vec::new()
    }

    fn describe(&self) -> String {
        format!("{} entries", self.locks.len())
    }
}

/// Runs a broken lock until the oracle reports a breach of this kind.
fn hunt<T: Target>(plan: &Plan, expected: Kind, target: impl Fn() -> T) {
    hunt_by(&plan.name, expected, |seed| run(target(), plan, seed));
}

/// Runs something until it reports a breach of this kind. How soon that is depends on the scheduler, so the
/// bound is far beyond what any fault has needed.
fn hunt_by(name: &str, expected: Kind, run: impl Fn(u64) -> Vec<Breach>) {
    let seed = rng::seed();
    let mut others = Vec::new();
    for round in 0..1000 {
        let breaches = run(seed.wrapping_add(round));
        if let Some(breach) = breaches.iter().find(|breach| breach.kind == expected) {
            println!("{name} in run {round}: {breach}");
            return;
        }
        others.extend(breaches);
        others.truncate(5);
    }
    panic!("{name}: {expected:?} was never reported (PERKEY_SEED={seed}); but for example {others:?}");
}

fn plan(fault: impl std::fmt::Debug) -> Plan {
    Plan { calls: 300, ..Plan::new(format!("planted fault {fault:?}"), 1) }
}

/// A plan whose calls all have a time limit, for locks that lose permits or waiters: their callers would wait for ever.
fn limited(fault: Fault) -> Plan {
    Plan { endless: false, calls: 100, ..plan(fault) }
}

#[test]
fn nothing_is_reported_of_a_lock_without_a_fault() {
    for (limit, keys) in [(1, 1), (2, 1), (5, 3)] {
        let plan = Plan { keys, ..plan(Fault::None) };
        let seed = rng::seed();
        let breaches = run(Plain::new(limit, Fault::None), &plan, seed);
        assert!(breaches.is_empty(), "PERKEY_SEED={seed}: {breaches:?}");
    }
}

#[test]
fn a_count_that_is_read_before_the_entry_is_removed() {
    hunt(&plan("CountThenRemove"), Kind::TooManyInside, CountThenRemove::new);
}

#[test]
fn one_permit_too_many() {
    for limit in [1, 3] {
        hunt(&plan(Fault::OneTooMany), Kind::TooManyInside, || Plain::new(limit, Fault::OneTooMany));
    }
}

#[test]
fn two_in_an_exclusive_section() {
    // By the counters alone, without a look at who is inside.
    let plan = Plan { stop_early: false, ..plan(Fault::OneTooMany) };
    hunt(&plan, Kind::CountersDiffer, || Plain::new(1, Fault::OneTooMany));
}

#[test]
fn a_grant_that_meets_a_timeout_is_lost() {
    let fault = Fault::TimeoutLosesGrant;
    hunt(&limited(fault), Kind::PermitsMissing, || Plain::new(2, fault));
}

#[test]
fn a_failed_wait_gives_back_what_it_never_had() {
    let fault = Fault::FailureGivesBack;
    hunt(&limited(fault), Kind::TooManyInside, || Plain::new(2, fault));
}

#[test]
fn a_failed_try_leaves_an_entry_behind() {
    let fault = Fault::FailedTryLeavesEntry;
    hunt(&plan(fault), Kind::EntryLeft, || Plain::new(1, fault));
}

#[test]
fn a_waiter_that_gave_up_stays_in_the_queue() {
    let fault = Fault::GhostInQueue;
    hunt(&limited(fault), Kind::PermitsMissing, || Plain::new(2, fault));
}

#[test]
fn a_release_that_wakes_nobody() {
    let fault = Fault::ReleaseGrantsNobody;
    let plan = Plan { patience: Duration::from_millis(500), ..plan(fault) };
    hunt(&plan, Kind::Stuck, || Plain::new(1, fault));
}

#[test]
fn a_head_that_gives_up_leaves_the_others_asleep() {
    let fault = Fault::HeadLeavesUnsettled;
    hunt(&plan(fault), Kind::WrongReport, || Plain::new(3, fault));
}

#[test]
fn a_panic_keeps_the_permits() {
    let fault = Fault::PanicKeepsPermits;
    hunt(&limited(fault), Kind::PermitsMissing, || Plain::new(3, fault));
}

#[test]
fn a_release_on_another_thread_does_not_count() {
    let fault = Fault::ForeignReleaseIgnored;
    hunt(&limited(fault), Kind::PermitsMissing, || Plain::new(3, fault));
}

#[test]
fn a_cancelled_request_is_granted() {
    let fault = Fault::CancelledIsGranted;
    hunt(&plan(fault), Kind::WrongOutcome, || Plain::new(2, fault));
}

#[test]
fn a_request_is_cancelled_for_nothing() {
    let fault = Fault::CancelledForNothing;
    hunt(&plan(fault), Kind::WrongOutcome, || Plain::new(2, fault));
}

#[test]
fn a_timed_wait_ends_early() {
    let fault = Fault::TimesOutEarly;
    hunt(&plan(fault), Kind::WrongOutcome, || Plain::new(2, fault));
}

#[test]
fn a_wait_without_a_limit_times_out() {
    let fault = Fault::EndlessEnds;
    hunt(&plan(fault), Kind::WrongOutcome, || Plain::new(2, fault));
}

#[test]
fn a_head_that_fits_is_granted_late() {
    let fault = Fault::GrantsLate;
    hunt(&plan(fault), Kind::WrongReport, || Plain::new(2, fault));
}

#[test]
fn one_wake_up_for_two_permits() {
    let fault = Fault::OneGrantAtATime;
    let patience = Duration::from_millis(500);
    hunt_by("planted fault OneGrantAtATime", Kind::Stuck, |seed| {
        meeting::run(Plain::new(2, fault), "one wake-up for two permits", 200, seed, patience)
    });
}
