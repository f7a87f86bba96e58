//! Locks over every key, beside the locks of single keys.
//!
//! A request for one key is an *intent*, from when it is let in until it is given back or given up. Intents are counted per
//! shard, at the shard's [`Door`], which is changed only under the shard's lock: the keyed path writes no line that all
//! cores share. Who wants all keys *closes* the doors to what conflicts, adds the counts of the doors up, and waits until the
//! sum is zero; while the doors are closed, who leaves says so to the [`Gate`], and who comes goes through it.
//!
//! Pure, but for the atomics of the doors: no threads, no map. The table calls it under the gate's mutex, and takes that
//! before a shard's lock, never after. `S` is a waiter's seat.
//!
//! # Who waits for whom
//!
//! Requests are served in order of arrival where they conflict. A keyed request that conflicts with a lock over all keys, or
//! with one that came before it and still waits, is *kept out*: it is no intent yet, and takes its place in its key's queue
//! when it is let in. But a thread that holds something passes each waiting lock over all keys that waits for what that
//! thread holds; else both would wait for ever. That is ([`Gate::keeps_out`]):
//!
//! * a `write_all`, whatever the thread holds;
//! * a `read_all`, if the thread holds a key for writing, or if a `write_all` is in front of the `read_all`, or if a writer is
//!   queued for a key that the thread reads: that writer came first, or passed, so the `read_all` waits for it.
//!
//! A writer may be queued there later, by a thread that passes, and a `read_all` in front of a `write_all` may go; then those
//! who are kept out and hold something [look again](Gate::look_again).
//!
//! A thread that holds something passes waiting `write_all`s with `read_all` too: it waits just in front of the first of them.
//!
//! # Invariants, after every call
//!
//! 1. While the doors are closed to a mode, `active` of it is the number of intents of that mode, and of those gone of which
//!    the gate has not heard yet.
//! 2. Of the holds over all keys and the intents, none conflict (once the gate has heard of all who left).
//! 3. A request that is kept out is behind a conflicting lock over all keys that it does not pass.
//! 4. If the first that waits for all keys conflicts with nothing that is held or came before it, it has been granted.
//! 5. The doors are closed to a mode if and only if something conflicting over all keys is held or waits.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use crate::fault::{Fault, planted};
use crate::mode::Mode;
use crate::owners::notes::Holdings;
use crate::owners::slot_id;
use crate::slot::Bells;
use crate::sync::{AtomicU64, Mutex, Ordering};
#[cfg(feature = "tracing")]
use crate::warning::LastWarning;

/// Places of those who come after one another are so far apart, so that others fit between.
const GAP: i64 = 1 << 16;

/// A number of each mode.
type PerMode<T> = [T; 2];

/// What a table of read/write locks has besides its map.
pub(crate) struct Gates<K, S> {
    /// What this table's holds are noted under.
    pub(crate) table: u64,
    doors: Box<[CachePadded<Door>]>,
    pub(crate) gate: Mutex<Gate<K, S>>,
}

impl<K, S> Gates<K, S> {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            table: slot_id(),
            doors: (0..shards).map(|_| CachePadded::new(Door::new())).collect(),
            gate: Mutex::new(Gate::new()),
        }
    }

    /// Whether every door is open, with nobody in.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_zero = |number: &AtomicU64| number.load(Ordering::Relaxed) == 0;
        self.doors.iter().all(|door| door.intents.iter().chain(&door.closed).all(is_zero))
    }

    /// The door of a shard. To be used under that shard's lock.
    #[inline]
    pub(crate) fn door(&self, shard: usize) -> &Door {
        &self.doors[shard]
    }
}

/// The intents of one shard. All under the shard's lock: the atomics only say so to the compiler.
pub(crate) struct Door {
    intents: PerMode<AtomicU64>,
    /// The number of the closing, or 0: open.
    closed: PerMode<AtomicU64>,
}

impl Door {
    fn new() -> Self {
        let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
        Self { intents: zeros(), closed: zeros() }
    }

    /// The number of the closing if the door is closed to `mode`, else 0.
    #[inline]
    pub(crate) fn closed(&self, mode: Mode) -> u64 {
        self.closed[mode as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn enter(&self, mode: Mode) {
        let intents = &self.intents[mode as usize];
        intents.store(intents.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Who leaves tells the gate what this returns, if that is not 0, once the shard's lock is let go.
    #[inline]
    #[must_use]
    pub(crate) fn leave(&self, mode: Mode) -> u64 {
        let intents = &self.intents[mode as usize];
        intents.store(intents.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.closed(mode)
    }

    fn close(&self, mode: Mode, number: u64) -> u64 {
        self.closed[mode as usize].store(number, Ordering::Relaxed);
        self.intents[mode as usize].load(Ordering::Relaxed)
    }

    /// As [`Gate::begin_opening`] says, under the shard's lock.
    pub(crate) fn open(&self, mode: Mode) {
        self.closed[mode as usize].store(0, Ordering::Relaxed);
    }
}

/// Who holds or waits for all keys, and who is kept out.
pub(crate) struct Gate<K, S> {
    /// Holds over all keys.
    held: PerMode<u64>,
    /// Those who wait for all keys, by place.
    waiting: PerMode<BTreeMap<i64, S>>,
    /// Keyed requests that are kept out, by arrival; with numbers of the same sequence as the places in `waiting`.
    kept_out: PerMode<BTreeMap<i64, KeptOut<K, S>>>,
    /// What has become of those that were let in by others, until they look.
    let_in: BTreeMap<i64, (LetIn, Option<K>)>,
    next: i64,
    /// The number of the closing that the doors are closed by, or 0.
    closed: PerMode<u64>,
    closings: u64,
    active: PerMode<u64>,
    /// Of those who wait here.
    #[cfg(feature = "tracing")]
    pub(crate) warned: LastWarning,
}

/// A keyed request that is kept out.
pub(crate) struct KeptOut<K, S> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    /// Whether two keys are equal.
    pub(crate) same: fn(&K, &K) -> bool,
    pub(crate) owner: u64,
    pub(crate) seat: S,
    /// Whether its thread holds something, and so has to look again when a writer is queued.
    pub(crate) holds: bool,
}

/// What has become of a keyed request that was let in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LetIn {
    Granted {
        id: u64,
    },
    Queued {
        id: u64,
        ticket: crate::slot::Ticket,
    },
    /// It has to begin anew, on its own thread: its key's `Eq` panicked.
    Again,
}

impl<K, S> Gate<K, S> {
    fn new() -> Self {
        Self {
            held: [0; 2],
            waiting: [BTreeMap::new(), BTreeMap::new()],
            kept_out: [BTreeMap::new(), BTreeMap::new()],
            let_in: BTreeMap::new(),
            next: GAP,
            closed: [0; 2],
            closings: 0,
            active: [0; 2],
            #[cfg(feature = "tracing")]
            warned: LastWarning::default(),
        }
    }

    /// Whether keyed requests of this mode have to come here.
    pub(crate) fn is_closed(&self, mode: Mode) -> bool {
        self.closed[mode as usize] != 0
    }

    /// How all keys are held at once, if they are, and by how many.
    pub(crate) fn held(&self) -> Option<(Mode, u64)> {
        Mode::BOTH.into_iter().map(|mode| (mode, self.held[mode as usize])).find(|(_, held)| *held > 0)
    }

    /// Whether a keyed request has to wait here, of a thread with these holdings. `awaited` says whether a writer is queued for
    /// a key that the thread reads.
    pub(crate) fn keeps_out(&self, mode: Mode, holdings: Holdings, awaited: impl FnOnce() -> bool) -> bool {
        let [reads_all, writes_all] = &self.waiting;
        if mode.conflicting_over_all().any(|mode| self.held[mode as usize] > 0) {
            return true;
        }
        if planted(Fault::NobodyPasses) || !holdings.any {
            return mode.conflicting_over_all().any(|mode| !self.waiting[mode as usize].is_empty());
        }
        // It passes every `write_all`.
        let (Mode::Write, Some((reader, _))) = (mode, reads_all.first_key_value()) else { return false };
        let passes = holdings.writes
            || writes_all.first_key_value().is_some_and(|(writer, _)| writer < reader)
            || (!planted(Fault::OnlyOwnConflictsPass) && awaited());
        !passes
    }

    /// Keeps a request out; returns its number.
    pub(crate) fn keep_out(&mut self, mode: Mode, request: KeptOut<K, S>) -> i64 {
        let number = self.last();
        self.kept_out[mode as usize].insert(number, request);
        number
    }

    /// Takes a request out that is still kept out.
    pub(crate) fn take_out(&mut self, mode: Mode, number: i64) -> Option<KeptOut<K, S>> {
        self.kept_out[mode as usize].remove(&number)
    }

    /// What has become of a request that was let in, and its key if it was not needed. To be read once.
    pub(crate) fn outcome(&mut self, number: i64) -> Option<(LetIn, Option<K>)> {
        self.let_in.remove(&number)
    }

    /// Notes what has become of a request, until its thread looks, and drops the key that was not needed.
    pub(crate) fn note_outcome(&mut self, number: i64, outcome: (LetIn, Option<K>)) {
        self.let_in.insert(number, outcome);
    }

    /// The requests that are kept out.
    pub(crate) fn kept_out(&self) -> impl Iterator<Item = &KeptOut<K, S>> {
        self.kept_out.iter().flat_map(BTreeMap::values)
    }

    /// How many requests are kept out that want the key with this hash that `is` says is the one.
    pub(crate) fn kept_out_for(&self, hash: u64, is: impl Fn(&K) -> bool) -> usize {
        self.kept_out().filter(|other| other.hash == hash && is(&other.key)).count()
    }

    /// All in order of arrival, with what they ask for.
    pub(crate) fn kept_out_in_order(&self) -> impl Iterator<Item = (Mode, &KeptOut<K, S>)> {
        let of =
            |mode: Mode| self.kept_out[mode as usize].iter().map(move |(number, request)| (*number, (mode, request)));
        let both: BTreeMap<i64, (Mode, &KeptOut<K, S>)> = Mode::BOTH.into_iter().flat_map(of).collect();
        both.into_values()
    }

    /// The next request that nothing keeps out any more, in order of arrival.
    pub(crate) fn next_to_let_in(&mut self) -> Option<(i64, Mode, KeptOut<K, S>)> {
        let next = |mode: Mode| {
            let (number, _) = self.kept_out[mode as usize].first_key_value()?;
            let blocked = mode.conflicting_over_all().any(|all| {
                self.held[all as usize] > 0
                    || self.waiting[all as usize].first_key_value().is_some_and(|(place, _)| place < number)
            });
            (!blocked).then_some((*number, mode))
        };
        let (number, mode) = Mode::BOTH.into_iter().filter_map(next).min()?;
        let request = self.take_out(mode, number)?;
        Some((number, mode, request))
    }

    /// An intent was let in through the gate.
    pub(crate) fn entered(&mut self, mode: Mode) {
        if self.closed[mode as usize] != 0 {
            self.active[mode as usize] += 1;
        }
    }

    /// An intent has left by a door that was closed by the closing `number`.
    pub(crate) fn left(&mut self, mode: Mode, number: u64) {
        // What left under an earlier closing is in no sum.
        if number != 0 && self.closed[mode as usize] == number {
            self.active[mode as usize] -= 1;
        }
    }

    /// An intent has come in by a door that was closed by the closing `number`.
    pub(crate) fn came(&mut self, mode: Mode, number: u64) {
        if number != 0 && self.closed[mode as usize] == number {
            self.active[mode as usize] += 1;
        }
    }

    /// Closes the gate before all keys are held or waited for in `mode`: the modes that it was open to, and the number of this
    /// closing. The caller goes on to close the doors.
    pub(crate) fn begin_closing(&mut self, mode: Mode) -> Option<(Vec<Mode>, u64)> {
        let open: Vec<Mode> =
            mode.conflicting().iter().copied().filter(|mode| self.closed[*mode as usize] == 0).collect();
        if open.is_empty() {
            return None;
        }
        self.closings += 1;
        for mode in &open {
            self.closed[*mode as usize] = self.closings;
            self.active[*mode as usize] = 0;
        }
        Some((open, self.closings))
    }

    /// Closes a door, under its shard's lock.
    pub(crate) fn close(&mut self, door: &Door, mode: Mode, number: u64) {
        self.active[mode as usize] += door.close(mode, number);
    }

    /// Opens the gate to what conflicts with nothing over all keys any more: the modes that it was closed to. The caller goes on
    /// to open the doors.
    pub(crate) fn begin_opening(&mut self) -> Vec<Mode> {
        let is_used = |all: &Mode| self.held[*all as usize] > 0 || !self.waiting[*all as usize].is_empty();
        let open: Vec<Mode> = Mode::BOTH
            .into_iter()
            .filter(|mode| self.closed[*mode as usize] != 0 && !mode.conflicting_over_all().any(|all| is_used(&all)))
            .collect();
        for mode in &open {
            self.closed[*mode as usize] = 0;
        }
        open
    }

    /// Whether all keys can be had in `mode`, from the place `place` on.
    fn is_free(&self, mode: Mode, place: i64) -> bool {
        let nobody_in_front =
            |of: Mode| self.kept_out[of as usize].first_key_value().is_none_or(|(number, _)| *number > place);
        mode.conflicting().iter().all(|of| {
            self.held[*of as usize] == 0
                && (self.active[*of as usize] == 0 || planted(Fault::ClosersDoNotWait))
                && nobody_in_front(*of)
        })
    }

    /// The place behind all others.
    fn last(&mut self) -> i64 {
        let last = self.next;
        self.next += GAP;
        last
    }

    /// The place of a request for all keys, of a thread with these holdings.
    pub(crate) fn place(&mut self, holdings: Holdings) -> i64 {
        if holdings.reads_all {
            // Nobody writes, so it waits for nobody.
            return i64::MIN;
        }
        let [reads_all, writes_all] = &self.waiting;
        let Some((&writer, _)) = writes_all.first_key_value().filter(|_| holdings.any) else { return self.last() };
        let passed = reads_all.range(writer - GAP + 1..writer).next().map_or(writer, |(place, _)| *place);
        assert!(passed - 1 > writer - GAP, "fewer than {GAP} threads pass one that waits");
        passed - 1
    }

    /// Holds all keys if that is possible at once from this place on. The doors are closed.
    pub(crate) fn try_hold(&mut self, mode: Mode, place: i64) -> bool {
        let in_front = |of: Mode| self.waiting[of as usize].first_key_value().is_some_and(|(first, _)| *first < place);
        if in_front(Mode::Write) || (mode == Mode::Write && in_front(Mode::Read)) || !self.is_free(mode, place) {
            return false;
        }
        self.held[mode as usize] += 1;
        true
    }

    /// Waits for all keys, in this place.
    pub(crate) fn wait(&mut self, mode: Mode, place: i64, seat: S) {
        self.waiting[mode as usize].insert(place, seat);
    }

    /// The writers that are kept out in front of a place.
    pub(crate) fn writers_kept_out_before(&self, place: i64) -> impl Iterator<Item = &KeptOut<K, S>> {
        self.kept_out[Mode::Write as usize].range(..place).map(|(_, request)| request)
    }

    /// Whether a request for all keys still waits; else it was granted.
    pub(crate) fn waits(&self, mode: Mode, place: i64) -> bool {
        self.waiting[mode as usize].contains_key(&place)
    }

    /// How many wait for all keys.
    pub(crate) fn waiters(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    /// Those who wait for all keys, and how they want them, in line.
    pub(crate) fn waiting_in_order(&self) -> impl Iterator<Item = (Mode, &S)> {
        let of = |mode: Mode| self.waiting[mode as usize].iter().map(move |(place, seat)| (*place, (mode, seat)));
        let both: BTreeMap<i64, (Mode, &S)> = Mode::BOTH.into_iter().flat_map(of).collect();
        both.into_values()
    }

    /// Gives a place up. Says whether it was still waiting.
    pub(crate) fn give_up(&mut self, mode: Mode, place: i64) -> bool {
        self.waiting[mode as usize].remove(&place).is_some()
    }

    /// Gives a hold over all keys back.
    pub(crate) fn release(&mut self, mode: Mode) {
        self.held[mode as usize] -= 1;
    }

    /// The place of who is first in line for all keys.
    fn first_in_line(&self) -> Option<(i64, Mode)> {
        let first = |mode: Mode| self.waiting[mode as usize].first_key_value().map(|(place, _)| (*place, mode));
        Mode::BOTH.into_iter().filter_map(first).min()
    }

    /// Grants all keys to who is first in line for them, while that is possible.
    pub(crate) fn grant(&mut self, bells: &mut Bells<S>) {
        while let Some((place, mode)) = self.first_in_line() {
            if !self.is_free(mode, place) {
                return;
            }
            if let Some(seat) = self.waiting[mode as usize].remove(&place) {
                bells.push(seat);
            }
            self.held[mode as usize] += 1;
        }
    }
}

#[cfg(feature = "tracing")]
impl<K, S> Gate<K, S> {
    /// Whether a keyed request is still kept out.
    pub(crate) fn is_kept_out(&self, mode: Mode, number: i64) -> bool {
        self.kept_out[mode as usize].contains_key(&number)
    }

    /// How many wait here, for all keys or kept out.
    pub(crate) fn all_waiters(&self) -> usize {
        self.waiters() + self.kept_out.iter().map(BTreeMap::len).sum::<usize>()
    }

    /// Who is first in line for all keys, and how that one wants them.
    pub(crate) fn first_waiter(&self) -> Option<(Mode, &S)> {
        let (place, mode) = self.first_in_line()?;
        self.waiting[mode as usize].get(&place).map(|seat| (mode, seat))
    }

    /// How many intents are in the way of all keys in `mode`, to which the doors are closed.
    pub(crate) fn intents_in_the_way(&self, mode: Mode) -> u64 {
        mode.conflicting().iter().map(|of| self.active[*of as usize]).sum()
    }
}

impl<K, S: Clone> Gate<K, S> {
    /// A writer was queued, or a lock over all keys is gone: those kept out whose threads hold something look whether they
    /// pass what is left. (They are writers: with a hold, a reader passes all that waits.)
    pub(crate) fn look_again(&self, bells: &mut Bells<S>) {
        if planted(Fault::KeptOutLookOnce) {
            return;
        }
        for request in self.kept_out[Mode::Write as usize].values().filter(|request| request.holds) {
            bells.push(request.seat.clone());
        }
    }
}
