//! The state machine of one key: who holds it, who waits, who is next.
//!
//! Pure: no threads, no map, no clock of its own. The table calls it under the key's shard lock and hands it a clock,
//! which is read only where a decision needs it. `S` is a waiter's *seat*: whatever the caller needs to ring that
//! waiter. The tests below run it against a naive model.
//!
//! # States of a slot
//!
//! | state | taken | queue | a newcomer | leaves the state by |
//! |---|---|---|---|---|
//! | absent | | | makes the slot and holds it | acquire → held |
//! | held | > 0 | empty | takes what fits, else queues | last release → absent, or idle; enqueue → blocked |
//! | idle | 0 | empty | takes (only where the table keeps idle entries) | acquire → held; a sweep → absent |
//! | blocked | > 0 | head does not fit | `Eventual`: takes what fits until the head is due; `Fifo`: queues | release that makes room → rung or a grant |
//! | rung | ≥ 0 | head fits and was rung (`Eventual` only) | as for blocked | the head looks → held or blocked; a newcomer takes → blocked |
//!
//! # States of a waiter
//!
//! | state | is | becomes |
//! |---|---|---|
//! | queued | in the queue, not first | head, when those before it are gone; gone, by `abandon` |
//! | head | first in the queue | rung, when it fits; due, once it was overtaken and 300 µs have passed |
//! | rung | head, told to look | head again, by a look that finds no room; granted, by one that finds it |
//! | due | head, perhaps rung too; nobody overtakes it | granted, by the release that makes room, or its own look |
//! | granted | no longer in the queue: its permits are in `taken` | a holder |
//! | rejected | out of the queue, because the limit fell below its weight; the slot stays for it | gone, by its look or `abandon` |
//! | gone | no longer in the slot | |
//!
//! # Invariants, after every call
//!
//! 1. `taken ≤ limit`, but for two cases: after the limit fell, until enough has been released; and where a thread
//!    re-enters a key that it owns, which counts its guards in `taken`. In both nobody else enters.
//! 2. If the head of the queue fits, it has been rung and has not looked since. (Under `Fifo`, and for a head that is due, or
//!    looks out, when room is made, it has been granted instead and is no longer in the queue.)
//! 3. Only the head is rung or due, and a waiter has at most one ring outstanding. Both go when the head changes.
//! 4. Waiters leave the queue by a grant in order of arrival.
//! 5. Under `Fifo` nobody takes permits while others wait; under `Eventual` nobody while the head is due.
//! 6. A ticket that is neither in the queue nor rejected, and that its waiter has not abandoned, was granted. Tickets are
//!    not used twice while a slot is in use, so a late ring cannot be taken for a grant.
//! 7. No request in the queue is heavier than the limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::fault::{Fault, planted};
use crate::options::Fairness;
#[cfg(feature = "tracing")]
use crate::warning::{Due, LastWarning};

/// How long the head of a queue may be overtaken under [`Fairness::Eventual`].
pub(crate) const WINDOW: Duration = Duration::from_micros(300);

/// The clock is read on the first overtake of a head and then on every one of this many.
pub(crate) const OVERTAKES_PER_CLOCK_READ: u32 = 8;

/// What a waiter leaves in the queue.
pub(crate) trait Seated: Clone {
    /// Whether the waiter notices a ring at once: so it loses nothing if it is granted what it waits for, and nobody else does.
    fn looks_out(&self) -> bool;
}

/// What a caller wants of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// How many permits.
    pub(crate) weight: u32,
    /// The thread to record as the exclusive owner, or 0 for none.
    pub(crate) owner: u64,
}

#[derive(Debug)]
pub(crate) struct Slot<S> {
    taken: u32,
    limit: u32,
    /// While held: the thread that owns the key, or 0 for none. While idle: the number of the last sweep before that.
    owner_or_sweep: u64,
    /// Made by the first waiter, and kept, because it hands out the slot's tickets.
    queue: Option<Box<Queue<S>>>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Queue<S> {
    fairness: Fairness,
    next_ticket: u64,
    /// By ticket: in order of arrival, and a waiter that gives up leaves in O(log n).
    waiting: BTreeMap<u64, Queued<S>>,
    /// Requests that the limit fell below, by ticket, with that limit: until they have read it.
    rejected: BTreeMap<u64, u32>,
    /// Of the first in `waiting`; without meaning while that is empty.
    head: Head,
    #[cfg(feature = "tracing")]
    warned: LastWarning,
}

#[derive(Debug)]
struct Queued<S> {
    request: Request,
    seat: S,
}

#[derive(Debug)]
struct Head {
    since: Instant,
    overtakes: u32,
    rung: bool,
    due: bool,
}

/// A waiter's place in the queue of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// What has become of a request that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The permits are the caller's.
    Granted,
    /// The limit fell to this, and could never satisfy the request.
    OverLimit { limit: u32 },
}

/// The waiters to ring once the shard lock is let go.
#[derive(Debug)]
#[must_use = "a waiter that is not rung sleeps on"]
pub(crate) struct Bells<S> {
    first: Option<S>,
    // Only several permits that come free at once ring more than one.
    rest: Vec<S>,
}

impl<S> Slot<S> {
    /// A slot made for its first holder.
    #[inline]
    pub(crate) fn held(limit: u32, request: Request) -> Self {
        Self { taken: request.weight, limit, owner_or_sweep: request.owner, queue: None }
    }

    /// How many permits are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn available(&self) -> u32 {
        self.limit.saturating_sub(self.taken)
    }

    /// Whether `thread` holds the key exclusively. `thread` is not 0.
    pub(crate) fn is_owned_by(&self, thread: u64) -> bool {
        self.taken > 0 && self.owner_or_sweep == thread
    }

    /// The first ticket in the queue.
    pub(crate) fn first_ticket(&self) -> Option<u64> {
        self.queue.as_ref()?.waiting.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// Whether the request with this ticket was rejected, and has not read that yet.
    pub(crate) fn has_rejected(&self, ticket: u64) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.rejected.contains_key(&ticket))
    }

    /// How many wait.
    pub(crate) fn waiters(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.waiting.len())
    }

    /// Who waits, in order of arrival, and for how many permits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&S, u32)> {
        self.queue.iter().flat_map(|queue| queue.waiting.values().map(|waiter| (&waiter.seat, waiter.request.weight)))
    }

    /// Whether the request with this ticket still waits, and is to warn of that now that it is due; then others are not.
    #[cfg(feature = "tracing")]
    pub(crate) fn may_warn(&mut self, ticket: Ticket, due: Due) -> bool {
        self.queue
            .as_deref_mut()
            .is_some_and(|queue| queue.waiting.contains_key(&ticket.0) && queue.warned.gives_way_to(due))
    }

    /// Whether nobody holds or waits: the critical section that finds it so removes the entry, or
    /// [retires](Self::retire) the slot.
    pub(crate) fn is_idle(&self) -> bool {
        self.taken == 0 && !self.is_waited_for()
    }

    /// Whether the release of `weight` leaves the slot idle.
    #[inline]
    pub(crate) fn is_last_hold(&self, weight: u32) -> bool {
        self.taken == weight && !self.is_waited_for()
    }

    #[inline]
    fn is_waited_for(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.waiting.is_empty() || !queue.rejected.is_empty())
    }

    /// Releases the [last hold](Self::is_last_hold), and notes that `sweep` was the last sweep before that.
    #[inline]
    pub(crate) fn release_last(&mut self, sweep: u64) {
        self.taken = 0;
        self.retire(sweep);
    }

    /// Notes of an idle slot that `sweep` was the last sweep before it became so, and frees what only waiting needs.
    #[inline]
    pub(crate) fn retire(&mut self, sweep: u64) {
        debug_assert!(self.is_idle());
        self.owner_or_sweep = sweep;
        self.queue = None;
    }

    /// Whether the slot has been idle since before the sweep that followed `sweep`.
    pub(crate) fn is_idle_since(&self, sweep: u64) -> bool {
        self.is_idle() && self.owner_or_sweep <= sweep
    }

    /// Of an idle slot: the last sweep before it became so.
    pub(crate) fn last_sweep(&self) -> u64 {
        self.owner_or_sweep
    }

    /// Adds a guard to the hold of the thread that owns the key.
    pub(crate) fn reenter(&mut self) {
        self.taken = self.taken.checked_add(1).expect("fewer than 2^32 guards of one key are alive");
    }

    #[inline]
    fn take(&mut self, request: Request) {
        self.taken += request.weight;
        self.owner_or_sweep = request.owner;
    }

    /// Takes the permits for a newcomer, if they are free and nobody who waits forbids it.
    #[inline]
    pub(crate) fn try_take(&mut self, request: Request, clock: impl Fn() -> Instant) -> bool {
        if request.weight > self.available() {
            return false;
        }
        if let Some(queue) = &mut self.queue
            && !queue.waiting.is_empty()
            && !queue.lets_overtake(clock)
        {
            return false;
        }
        self.take(request);
        true
    }
}

impl<S> Slot<S> {
    /// Takes the permits of a thread that has some already, if they are free, whoever waits.
    pub(crate) fn take_more(&mut self, request: Request) -> bool {
        let fits = request.weight <= self.available();
        if fits {
            self.take(request);
        }
        fits
    }

    /// Whether a request for `weight` waits.
    pub(crate) fn is_waited_for_by(&self, weight: u32) -> bool {
        self.waiting().any(|(_, waiting)| waiting == weight)
    }

    /// Turns the only hold into another. The caller settles the slot, or has made sure that there is nothing to settle.
    pub(crate) fn convert(&mut self, request: Request) {
        self.taken = 0;
        self.take(request);
    }
}

impl<S: Seated> Slot<S> {
    /// Takes the permits for a request that has waited elsewhere, if they are free and nobody waits here; else queues it.
    pub(crate) fn admit(&mut self, fairness: Fairness, request: Request, seat: S, now: Instant) -> Option<Ticket> {
        if request.weight <= self.available() && !self.is_waited_for() {
            self.take(request);
            return None;
        }
        Some(self.enqueue(fairness, request, seat, now))
    }

    /// Turns the only hold, which is of all permits, into one that leaves room, and lets in who is next.
    pub(crate) fn downgrade(&mut self, request: Request, clock: impl Fn() -> Instant, bells: &mut Bells<S>) {
        self.convert(request);
        self.settle(clock, bells);
    }

    /// Queues a request that does not get in at once.
    pub(crate) fn enqueue(&mut self, fairness: Fairness, request: Request, seat: S, now: Instant) -> Ticket {
        let queue = self.queue.get_or_insert_with(|| Box::new(Queue::new(fairness, now)));
        if queue.waiting.is_empty() {
            queue.head = Head::new(now);
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.insert(ticket, Queued { request, seat });
        Ticket(ticket)
    }

    /// A waiter looks what has become of its request; if it is the head and fits, it takes its permits. `None` if it has to
    /// wait on.
    pub(crate) fn look(
        &mut self,
        ticket: Ticket,
        clock: impl Fn() -> Instant,
        bells: &mut Bells<S>,
    ) -> Option<Verdict> {
        let available = self.available();
        let queue = match self.queued(ticket) {
            Ok(queue) => queue,
            Err(verdict) => return Some(verdict),
        };
        let entry = queue.waiting.first_entry().filter(|entry| *entry.key() == ticket.0)?;
        queue.head.rung &= planted(Fault::LookKeepsRung);
        if entry.get().request.weight > available && !planted(Fault::RingIsGrant) {
            queue.head.notice_the_time(clock);
            return None;
        }
        let request = entry.remove().request;
        queue.change_head(&clock);
        self.take(request);
        if !planted(Fault::OneRingForTwoPermits) {
            self.settle(clock, bells);
        }
        Some(Verdict::Granted)
    }

    /// Gives permits back. With `hand_over` the head of the queue gets them whatever the mode. `None` if nobody is to be rung.
    #[inline]
    pub(crate) fn release(&mut self, weight: u32, hand_over: bool, clock: impl Fn() -> Instant) -> Option<Bells<S>> {
        self.taken = self.taken.saturating_sub(weight);
        if self.taken == 0 {
            self.owner_or_sweep = 0;
        }
        let queue = self.queue.as_deref_mut()?;
        queue.head.due |= hand_over;
        if queue.head.rung && !queue.head.due && !planted(Fault::RungTwice) {
            // It looks soon, and takes what is free then: most releases end here.
            return None;
        }
        let mut bells = Bells::new();
        self.settle(clock, &mut bells);
        Some(bells)
    }

    /// A waiter gives up. If there is a verdict already, that stands. `None` if it has left.
    pub(crate) fn abandon(
        &mut self,
        ticket: Ticket,
        clock: impl Fn() -> Instant,
        bells: &mut Bells<S>,
    ) -> Option<Verdict> {
        let queue = match self.queued(ticket) {
            Ok(queue) => queue,
            Err(Verdict::Granted) if planted(Fault::GrantLost) => return None,
            Err(verdict) => return Some(verdict),
        };
        let was_head = queue.is_head(ticket.0);
        queue.waiting.remove(&ticket.0);
        if was_head {
            queue.change_head(&clock);
            if !planted(Fault::HeadLeavesUnsettled) {
                self.settle(clock, bells);
            }
        }
        None
    }

    /// Changes the limit. What is held stays held; who waits for more than there is now is rejected.
    pub(crate) fn set_limit(&mut self, limit: u32, clock: impl Fn() -> Instant, bells: &mut Bells<S>) {
        self.limit = limit;
        let Some(queue) = self.queue.as_deref_mut() else { return };
        let too_heavy: Vec<u64> = queue
            .waiting
            .iter()
            .filter(|(_, queued)| queued.request.weight > limit && !planted(Fault::TooHeavyStays))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in too_heavy {
            let was_head = queue.is_head(ticket);
            let already_rung = was_head && queue.head.rung;
            if let Some(queued) = queue.waiting.remove(&ticket) {
                queue.rejected.insert(ticket, limit);
                if !already_rung {
                    bells.push(queued.seat);
                }
            }
            if was_head {
                queue.change_head(&clock);
            }
        }
        self.settle(clock, bells);
    }

    /// The queue, if the ticket is in it; else the verdict, which is hereby read.
    fn queued(&mut self, ticket: Ticket) -> Result<&mut Queue<S>, Verdict> {
        let Some(queue) = self.queue.as_deref_mut() else { return Err(Verdict::Granted) };
        if queue.waiting.contains_key(&ticket.0) {
            return Ok(queue);
        }
        Err(match queue.rejected.remove(&ticket.0) {
            Some(limit) => Verdict::OverLimit { limit },
            None => Verdict::Granted,
        })
    }

    /// Brings invariant 2 about; the end of every change that can make room or a new head.
    // Not inlined, so that a release with nothing to settle stays small.
    #[inline(never)]
    fn settle(&mut self, clock: impl Fn() -> Instant, bells: &mut Bells<S>) {
        loop {
            let available = self.available();
            let Some(queue) = self.queue.as_deref_mut() else { return };
            let Some(entry) = queue.waiting.first_entry() else { return };
            if entry.get().request.weight > available {
                // Small requests go on around a big one. Releases read the clock for it, so that it is due in time.
                if queue.head.overtakes > 0 && !queue.head.rung {
                    queue.head.notice_the_time(clock);
                }
                return;
            }
            let already_rung = queue.head.rung && !planted(Fault::RungTwice);
            if !queue.head.due && queue.fairness != Fairness::Fifo && !entry.get().seat.looks_out() {
                if !already_rung {
                    queue.head.rung = true;
                    bells.push(entry.get().seat.clone());
                }
                return;
            }
            let Queued { request, seat } = entry.remove();
            if !already_rung {
                bells.push(seat);
            }
            queue.change_head(&clock);
            self.take(request);
        }
    }
}

impl<S> Queue<S> {
    fn new(fairness: Fairness, now: Instant) -> Self {
        let (waiting, rejected) = (BTreeMap::new(), BTreeMap::new());
        Self {
            fairness,
            next_ticket: 0,
            waiting,
            rejected,
            head: Head::new(now),
            #[cfg(feature = "tracing")]
            warned: LastWarning::default(),
        }
    }

    fn is_head(&self, ticket: u64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    /// Whether a newcomer may take free permits although others wait. Counts the overtake if so.
    #[inline]
    fn lets_overtake(&mut self, clock: impl Fn() -> Instant) -> bool {
        match self.fairness {
            Fairness::Fifo => planted(Fault::FifoBarges),
            Fairness::Eventual => self.head.lets_overtake(clock),
        }
    }

    /// After the first in `waiting` has left.
    fn change_head(&mut self, clock: impl Fn() -> Instant) {
        if self.waiting.is_empty() {
            return;
        }
        let rung = planted(Fault::RungOutlivesHead) && self.head.rung;
        self.head = Head { rung, ..Head::new(clock()) };
    }
}

impl Head {
    fn new(since: Instant) -> Self {
        Self { since, overtakes: 0, rung: false, due: false }
    }

    fn lets_overtake(&mut self, clock: impl Fn() -> Instant) -> bool {
        if self.overtakes.is_multiple_of(OVERTAKES_PER_CLOCK_READ) {
            self.notice_the_time(clock);
        }
        if self.due {
            return false;
        }
        self.overtakes = self.overtakes.wrapping_add(1);
        true
    }

    #[cold]
    fn notice_the_time(&mut self, clock: impl Fn() -> Instant) {
        if !self.due && !planted(Fault::NeverDue) {
            self.due = clock().saturating_duration_since(self.since) >= WINDOW;
        }
    }
}

impl<S> Bells<S> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { first: None, rest: Vec::new() }
    }

    pub(crate) fn push(&mut self, seat: S) {
        match self.first {
            None => self.first = Some(seat),
            Some(_) => self.rest.push(seat),
        }
    }

    /// Hands out the seats of those to be rung.
    #[inline]
    pub(crate) fn for_each(self, mut ring: impl FnMut(S)) {
        if let Some(first) = self.first {
            ring(first);
            self.rest.into_iter().for_each(ring);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
