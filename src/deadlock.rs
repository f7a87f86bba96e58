//! Who waits for each other, over all tables that look for it.
//!
//! A thread that is about to park looks whether it could ever go on. It collects, from the [accounts](crate::owners::tracked) of the
//! tables, what it waits for, who holds that, what these wait for, and so on; the [graph] decides. What is collected is not of one
//! moment, so a ring that was found is looked up once more: every wait and every hold that it is made of has a mark of
//! its own, and what is there both times was there all the time between. While a thread waits it holds what it holds; so
//! if the whole ring was there at one moment, it stays.
//!
//! None is missed: whoever of a ring begins to wait last finds the others waiting, and all that they wait for of each other. What
//! comes and goes beside them makes the look longer, no more.
//!
//! Whoever comes to be in a ring without asking for anything (because a limit fell, or because a request that was kept out
//! at a gate came to its key) is rung, and looks again.

pub(crate) mod graph;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::graph::{Graph, Queue, Thread};
use crate::mode::Mode;
use crate::owners::tracked::{AllKeys, Node, Owner, Party, Tracking, WaitPlace, WaitsFor};
use crate::report::{About, DeadlockedRequest, DeadlockedThread};
use crate::sync::{PlainMutex, now};

/// Held by who has found a ring, so that of two that close the same ring the second finds it broken.
static ALONE: PlainMutex<()> = PlainMutex::new(());

/// The threads that wait for each other, if the one with this request is among them, which it is first; and from then on it
/// counts as one that does not wait. To be called with no lock held.
pub(crate) fn ring(party: &Party) -> Option<Vec<DeadlockedThread>> {
    let mut looks = Looks::default();
    find(party, &mut looks)?;
    let _alone = ALONE.lock();
    loop {
        let ring = find(party, &mut looks)?;
        // If not, somebody has gone on.
        if ring.is_there() {
            *party.owner.waits.lock() = None;
            return Some(ring.report());
        }
    }
}

fn find(party: &Party, looks: &mut Looks) -> Option<Ring> {
    loop {
        let look = looks.next(party);
        let mut found = Found::new(look);
        found.follow(Arc::clone(&party.owner));
        // Who only waits for others that are in a ring need not give way: one of them does.
        match found.graph.deadlock_of(party.owner.number).filter(|deadlock| deadlock.is_part) {
            Some(deadlock) => return found.ring(&deadlock.threads),
            None if found.stand_ins.iter().all(|stand_in| stand_in.is_there(look)) => return None,
            None => {}
        }
    }
}

/// The looks of one thread, of which each is for nothing if somebody who was seen leaves meanwhile.
#[derive(Default)]
struct Looks(u32);

/// Whose waits count.
#[derive(Clone, Copy)]
struct Look {
    /// The thread that asks.
    asks: Thread,
    /// Who gives up before this goes on, as far as it matters here.
    leave_out_before: Option<Instant>,
}

impl Looks {
    /// After a few, those who give up soon are left out: others may come and go in their place for ever, faster than one can look. A
    /// ring of which they are part comes apart soon.
    fn next(&mut self, party: &Party) -> Look {
        self.0 += 1;
        let leave_out_before = (self.0 > 3).then(|| now() + Duration::from_secs(1));
        Look { asks: party.owner.number, leave_out_before }
    }
}

impl Look {
    /// What a thread waits for, if it does, and that counts.
    fn waits_for(self, owner: &Owner) -> Option<WaitsFor> {
        let waits_for = owner.waits_for()?;
        let leaves = self.leave_out_before.zip(waits_for.until).is_some_and(|(before, until)| until < before);
        (!leaves || owner.number == self.asks).then_some(waits_for)
    }

    /// What this request waits for, as long as it is what its thread waits for: not, once that was told of a deadlock.
    fn waits(self, party: &Party) -> Option<WaitsFor> {
        self.waits_for(&party.owner).filter(|waits_for| waits_for.mark == party.mark)
    }
}

/// Who holds what, and who waits for what, as far as it is in the way of one thread.
struct Found {
    look: Look,
    graph: Graph,
    /// Beside `graph.queues`.
    keys: Vec<Key>,
    /// Beside `graph.barred`, what each waits for, in the same order.
    bars: Vec<Vec<Bar>>,
    waits: HashMap<Thread, Wait>,
    stand_ins: Vec<StandIn>,
}

/// A request that waits at a gate, of several of which it is enough to follow one. If that one has left before it was followed, the
/// others were not seen.
struct StandIn(WaitsFor);

impl StandIn {
    /// Whether it waited all the time.
    fn is_there(&self, look: Look) -> bool {
        self.0.tracking.read_all(|all| all.find(&self.0).is_some_and(|(party, ..)| look.waits(party).is_some()))
    }
}

/// A key that somebody waits for.
struct Key {
    tracking: Arc<Tracking>,
    shard: usize,
    id: u64,
    limit: u32,
    holders: Vec<Party>,
    /// By ticket.
    waiting: BTreeMap<u64, (Thread, u32)>,
}

/// What somebody waits for who waits at a gate.
struct Bar {
    party: Party,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    HoldsAllKeys,
    HoldsKey {
        shard: usize,
        id: u64,
    },
    WaitsForKey,
    /// In this place; as the [stand-in](StandIn) of others.
    WaitsAtGate {
        place: i64,
    },
}

impl At {
    fn waits(self) -> bool {
        matches!(self, Self::WaitsForKey | Self::WaitsAtGate { .. })
    }
}

#[derive(Clone)]
struct Wait {
    waits_for: WaitsFor,
    party: Party,
    every_key: bool,
    /// At a gate: the mark of the request or hold that it waits for.
    bar: Option<u64>,
}

impl Found {
    fn new(look: Look) -> Self {
        let (graph, waits) = (Graph::default(), HashMap::new());
        Self { look, graph, keys: Vec::new(), bars: Vec::new(), waits, stand_ins: Vec::new() }
    }

    /// Collects what is in the way of a thread, and in the way of that, and so on.
    fn follow(&mut self, owner: Arc<Owner>) {
        let mut seen = HashSet::from([owner.number]);
        // The places in `keys` of those that matter.
        let mut places: HashMap<u64, Option<usize>> = HashMap::new();
        let mut next = vec![owner];
        while let Some(owner) = next.pop() {
            let Some(waits_for) = self.look.waits_for(&owner) else { continue };
            let in_the_way = match waits_for.place {
                WaitPlace::Key { shard, id, ticket } => {
                    let known = places.get(&id).copied();
                    let (place, holders) =
                        known.map_or_else(|| self.key(&waits_for.tracking, shard, id), |place| (place, Vec::new()));
                    places.insert(id, place);
                    if let Some(place) = place {
                        let party = waits_for.tracking.read(shard, id, |node| node.waiting.get(&ticket).cloned());
                        if let Some(party) = party.flatten() {
                            self.waits_in(place, ticket, party);
                        }
                    }
                    holders
                }
                WaitPlace::Gate { .. } => self.gate(&waits_for),
            };
            next.extend(in_the_way.into_iter().filter(|owner| seen.insert(owner.number)));
        }
        for (queue, key) in self.graph.queues.iter_mut().zip(&mut self.keys) {
            queue.waiting = mem::take(&mut key.waiting).into_values().collect();
        }
    }

    /// Collects a key: its place, if any of its holders waits, and who they are.
    ///
    /// Of those who wait for it, only whoever asks for more than all in front: of a queue that is stuck, the first that is. Others
    /// are in nobody's way, but who holds something, and is followed for that.
    fn key(&mut self, tracking: &Arc<Tracking>, shard: usize, id: u64) -> (Option<usize>, Vec<Arc<Owner>>) {
        let read = |node: &Node| {
            let stays = node.holders.values().filter(|party| !party.movable);
            let holders: Vec<Arc<Owner>> = stays.map(|party| party.owner.clone()).collect();
            // Most keys are held by threads that run: whoever waits goes on some day.
            if holders.iter().all(|owner| self.look.waits_for(owner).is_none()) {
                return (None, Vec::new());
            }
            let held = |party: &Party| ((!party.movable).then_some(party.owner.number), party.permits);
            let holds = node.holders.values().map(held).collect();
            self.graph.queues.push(Queue { limit: node.limit, holders: holds, waiting: Vec::new() });
            let (tracking, limit) = (Arc::clone(tracking), node.limit);
            let holders_found = node.holders.values().cloned().collect();
            let place = self.keys.len();
            self.keys.push(Key { tracking, shard, id, limit, holders: holders_found, waiting: BTreeMap::new() });
            let mut most = 0;
            for (ticket, party) in &node.waiting {
                if party.permits > most && self.waits_in(place, *ticket, party.clone()) {
                    most = party.permits;
                    if most >= limit {
                        break;
                    }
                }
            }
            (Some(place), holders)
        };
        tracking.read(shard, id, read).unwrap_or_default()
    }

    /// Notes that a request waits in a queue, if it does.
    fn waits_in(&mut self, place: usize, ticket: u64, party: Party) -> bool {
        let Some(waits_for) = self.look.waits(&party) else { return false };
        let thread = party.owner.number;
        if let Some(known) = self.waits.get(&thread) {
            // If elsewhere, it has gone on since, and looks for itself.
            return known.party.mark == party.mark;
        }
        self.keys[place].waiting.insert(ticket, (thread, party.permits));
        self.waits.insert(thread, Wait { waits_for, party, every_key: false, bar: None });
        true
    }

    /// Collects what somebody waits for who waits at a gate. Who that is.
    fn gate(&mut self, waits_for: &WaitsFor) -> Vec<Arc<Owner>> {
        let Some((party, every_key, bars)) = bars(waits_for, self.look) else { return Vec::new() };
        let stand_ins = bars.iter().filter_map(|bar| {
            let At::WaitsAtGate { place } = bar.at else { return None };
            let (tracking, mark, until) = (Arc::clone(&waits_for.tracking), bar.party.mark, bar.party.until);
            Some(StandIn(WaitsFor { tracking, place: WaitPlace::Gate { place }, mark, until }))
        });
        self.stand_ins.extend(stand_ins);
        let owners: Vec<Arc<Owner>> = bars.iter().map(|bar| bar.party.owner.clone()).collect();
        if owners.iter().all(|owner| self.look.waits_for(owner).is_none()) {
            return Vec::new();
        }
        let thread = party.owner.number;
        if self.waits.contains_key(&thread) {
            return Vec::new();
        }
        self.graph.barred.push((thread, owners.iter().map(|owner| owner.number).collect()));
        self.bars.push(bars);
        self.waits.insert(thread, Wait { waits_for: waits_for.clone(), party, every_key, bar: None });
        owners
    }

    /// What these threads are a ring by.
    fn ring(mut self, threads: &[Thread]) -> Option<Ring> {
        let members: HashSet<Thread> = threads.iter().copied().collect();
        let mut waits: Vec<Wait> = threads.iter().map(|thread| self.waits.remove(thread)).collect::<Option<_>>()?;
        let mut holds = Vec::new();
        for key in self.keys {
            let awaited =
                waits.iter().any(|wait| matches!(wait.waits_for.place, WaitPlace::Key { id, .. } if id == key.id));
            if !awaited {
                continue;
            }
            let at = At::HoldsKey { shard: key.shard, id: key.id };
            for party in key.holders.into_iter().filter(|party| !party.movable && members.contains(&party.owner.number))
            {
                holds.push(Hold { tracking: Arc::clone(&key.tracking), at, limit: Some(key.limit), party });
            }
        }
        for ((thread, _), bars) in self.graph.barred.iter().zip(self.bars) {
            let Some(wait) = waits.iter_mut().find(|wait| wait.party.owner.number == *thread) else { continue };
            // One would do, but who reads the report wants to see all.
            for bar in bars.into_iter().filter(|bar| members.contains(&bar.party.owner.number)) {
                wait.bar.get_or_insert(bar.party.mark);
                let is_known = |hold: &Hold| hold.party.mark == bar.party.mark;
                if !bar.at.waits() && !holds.iter().any(is_known) {
                    let tracking = Arc::clone(&wait.waits_for.tracking);
                    holds.push(Hold { tracking, at: bar.at, limit: None, party: bar.party });
                }
            }
        }
        Some(Ring { look: self.look, waits, holds })
    }
}

/// What a request waits for that waits at a gate; and whether it is for all keys.
fn bars(waits_for: &WaitsFor, look: Look) -> Option<(Party, bool, Vec<Bar>)> {
    let tracking = &waits_for.tracking;
    let mut bars = Vec::new();
    let (party, wanted) = tracking.read_all(|all| {
        let (party, wanted, place) = all.find(waits_for)?;
        for (_, party) in all.held.iter().filter(|(mode, _)| mode.conflicts(wanted.mode())) {
            bars.push(Bar { party: party.clone(), at: At::HoldsAllKeys });
        }
        let in_front = all.waiting.range(..place).map(|(place, (mode, party))| (*place, *mode, party));
        let mut in_front_of_all = in_front.clone().rev().filter(|(_, mode, _)| wanted.waits_behind(*mode));
        let in_front = in_front.take_while(|(_, mode, _)| !wanted.passes_from(*mode));
        let in_front = in_front.filter(|(_, mode, _)| wanted.waits_behind(*mode));
        // The last of them waits behind those in front of it.
        let waits = |(_, _, party): &(i64, Mode, &Party)| look.waits(party).is_some();
        let last = match wanted {
            Wanted::Key { holds: true, .. } => in_front.filter(waits).last(),
            _ => in_front_of_all.find(waits),
        };
        bars.extend(last.map(|(place, _, party)| Bar { party: party.clone(), at: At::WaitsAtGate { place } }));
        if let Wanted::AllKeys(wanted) = wanted {
            // Those of one mode wait for the same holds over all keys; and for requests in front of this one too.
            for mode in Mode::BOTH.into_iter().filter(|mode| mode.conflicts(wanted)) {
                let kept_out = all.kept_out.range(..place).filter(|(_, kept_out)| kept_out.mode == mode);
                let first = kept_out.map(|(number, kept_out)| (*number, mode, &kept_out.party)).find(waits);
                bars.extend(first.map(|(place, _, party)| Bar { party: party.clone(), at: At::WaitsAtGate { place } }));
            }
        }
        Some((party.clone(), wanted))
    })?;
    if let Wanted::AllKeys(wanted) = wanted {
        let conflicts = |party: &&Party| Mode::of_weight(party.permits).conflicts(wanted);
        tracking.for_each(|shard, id, node| {
            let holds = node.holders.values().filter(conflicts).map(|party| (party, At::HoldsKey { shard, id }));
            let waits = node.waiting.values().filter(conflicts).map(|party| (party, At::WaitsForKey));
            bars.extend(holds.chain(waits).map(|(party, at)| Bar { party: party.clone(), at }));
        });
    }
    let own = party.owner.number;
    if matches!(wanted, Wanted::Key { holds: true, .. }) && bars.iter().any(|bar| bar.at.waits()) {
        // It passes, if not yet, since a writer came to the queue of a key that it reads.
        let reads = |party: &Party| party.owner.number == own && !party.movable;
        let writes = |party: &Party| Mode::of_weight(party.permits) == Mode::Write;
        let mut passes = false;
        tracking.for_each(|_, _, node| {
            passes |= node.waiting.values().any(writes) && node.holders.values().any(reads);
        });
        bars.retain(|bar| !passes || !bar.at.waits());
    }
    bars.retain(|bar| bar.party.owner.number != own && (bar.at.waits() || !bar.party.movable));
    Some((party, matches!(wanted, Wanted::AllKeys(_)), bars))
}

/// What a request asks for that waits at a gate.
#[derive(Clone, Copy)]
enum Wanted {
    AllKeys(Mode),
    Key { mode: Mode, holds: bool },
}

impl Wanted {
    fn mode(self) -> Mode {
        match self {
            Self::AllKeys(mode) | Self::Key { mode, .. } => mode,
        }
    }

    /// Whether it passes a request for all keys, and all that are behind that one.
    fn passes_from(self, all: Mode) -> bool {
        matches!(self, Self::Key { holds: true, .. }) && all == Mode::Write
    }

    /// Whether it waits until a request for all keys that is in front of it is gone.
    fn waits_behind(self, all: Mode) -> bool {
        match self {
            Self::AllKeys(_) => true,
            Self::Key { mode, .. } => all.conflicts(mode),
        }
    }
}

impl AllKeys {
    /// A request that waits here: with what it asks for, and its place.
    fn find(&self, waits_for: &WaitsFor) -> Option<(&Party, Wanted, i64)> {
        let WaitPlace::Gate { place } = waits_for.place else { return None };
        let is_it = |party: &Party| party.mark == waits_for.mark;
        if let Some((mode, party)) = self.waiting.get(&place).filter(|(_, party)| is_it(party)) {
            return Some((party, Wanted::AllKeys(*mode), place));
        }
        let kept_out = self.kept_out.get(&place).filter(|kept_out| is_it(&kept_out.party))?;
        let wanted = Wanted::Key { mode: kept_out.mode, holds: kept_out.holds };
        Some((&kept_out.party, wanted, place))
    }
}

/// Threads that wait for each other, as it was found.
struct Ring {
    look: Look,
    waits: Vec<Wait>,
    /// What they wait for of each other's.
    holds: Vec<Hold>,
}

struct Hold {
    tracking: Arc<Tracking>,
    at: At,
    /// Of the key, if that mattered.
    limit: Option<u32>,
    party: Party,
}

impl Wait {
    fn is_there(&self, look: Look) -> bool {
        let WaitsFor { tracking, place, mark, .. } = &self.waits_for;
        if look.waits(&self.party).is_none() {
            return false;
        }
        match *place {
            WaitPlace::Key { shard, id, ticket } => {
                let waits = |node: &Node| node.waiting.get(&ticket).is_some_and(|party| party.mark == *mark);
                tracking.read(shard, id, waits).unwrap_or(false)
            }
            // It may have come to pass what it waited for.
            WaitPlace::Gate { .. } => bars(&self.waits_for, look)
                .is_some_and(|(_, _, bars)| bars.iter().any(|bar| Some(bar.party.mark) == self.bar)),
        }
    }
}

impl Hold {
    fn is_there(&self) -> bool {
        let is_it = |party: &Party| party.mark == self.party.mark && party.permits == self.party.permits;
        match self.at {
            At::HoldsAllKeys => self.tracking.read_all(|all| all.held.iter().any(|(_, party)| is_it(party))),
            At::HoldsKey { shard, id } => {
                let holds = |node: &Node| {
                    self.limit.is_none_or(|limit| limit == node.limit)
                        && node.holders.get(&self.party.mark).is_some_and(is_it)
                };
                self.tracking.read(shard, id, holds).unwrap_or(false)
            }
            At::WaitsForKey | At::WaitsAtGate { .. } => true,
        }
    }
}

impl Ring {
    /// Whether all of it is still there.
    fn is_there(&self) -> bool {
        self.waits.iter().all(|wait| wait.is_there(self.look)) && self.holds.iter().all(Hold::is_there)
    }

    fn report(&self) -> Vec<DeadlockedThread> {
        let mut keys = Vec::new();
        let mut number = |id: u64| {
            let place = keys.iter().position(|known| *known == id).unwrap_or_else(|| {
                keys.push(id);
                keys.len() - 1
            });
            place + 1
        };
        let mut thread = |wait: &Wait| {
            let Wait { waits_for, party, every_key, bar: _ } = wait;
            let key = match waits_for.place {
                WaitPlace::Key { id, .. } => Some(number(id)),
                WaitPlace::Gate { .. } => None,
            };
            let waits_for = request(&waits_for.tracking, party, key, *every_key);
            let own = self.holds.iter().filter(|hold| hold.party.owner.number == party.owner.number);
            let holds = own.map(|hold| match hold.at {
                At::HoldsKey { id, .. } => request(&hold.tracking, &hold.party, Some(number(id)), false),
                _ => request(&hold.tracking, &hold.party, None, true),
            });
            let (id, name) = (party.owner.thread.id(), party.owner.thread.name().map(str::to_owned));
            DeadlockedThread { id, name, waits_for, holds: holds.collect() }
        };
        self.waits.iter().map(&mut thread).collect()
    }
}

fn request(tracking: &Tracking, party: &Party, key: Option<usize>, every_key: bool) -> DeadlockedRequest {
    let About { name, table_type, key_type } = tracking.about.clone();
    DeadlockedRequest {
        table: name,
        table_type,
        key_type,
        key,
        every_key,
        permits: party.permits as usize,
        since: party.since,
        location: party.location,
    }
}
