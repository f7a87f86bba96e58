//! Who waits for whom, and who of them can never go on.
//!
//! Pure: no locks, no threads, no clock. Who looks for a deadlock gathers holders and waiters into a [`Graph`] and asks it. The
//! tests below run it against a simulation in which everybody who can goes on.
//!
//! # Who is stuck
//!
//! To look for a circle of threads would not do. Who waits for a permit of a semaphore can go on as soon as one of its holders
//! does, so a circle need not be a deadlock; and who fits may still wait behind a request that does not. So it is done the other
//! way round: who does not wait goes on, and who goes on gives back all it holds, in the end. That lets others go on, and so
//! forth. Those who are left are stuck:
//!
//! | a thread that waits | is stuck, if and only if |
//! |---|---|
//! | in a queue | the permits that stuck threads hold do not leave enough for it, or a request in front of it is stuck |
//! | for others to let go | one of them is stuck |
//!
//! # Who is in its way
//!
//! | a stuck thread that waits | has in its way |
//! |---|---|
//! | in a queue, and the stuck holders do not leave enough for it | all stuck holders, perhaps itself |
//! | in a queue, and they do | the first stuck request of the queue |
//! | for others to let go | one of them that is stuck: if there is one, such that has the thread we ask about in its way |
//!
//! A thread, those who are in its way, those who are in theirs, and so on, are a deadlock by themselves: they would be stuck if
//! nobody else waited. Of several for whom a thread waits each alone is enough; so if one of them leads back to where we began,
//! that is the one to follow: another may be in a deadlock that is about to be broken.
//!
//! # Cost
//!
//! Linear in the size of the graph. Every request, hold and bar is settled once, and twice more where it is in the way.

use std::collections::{HashMap, VecDeque};
use std::mem;

/// A thread's number.
pub(crate) type Thread = u64;

/// A key of some table, with those who hold permits of it and those who wait for some.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) limit: u32,
    /// With how many permits each; a thread may be there several times, and the sum may be above the limit. A hold without an
    /// owner (by a guard that may move) has no thread, and is never stuck.
    pub(crate) holders: Vec<(Option<Thread>, u32)>,
    /// In order of arrival, with how many permits each asks for. Later ones do not overtake earlier ones.
    pub(crate) waiting: Vec<(Thread, u32)>,
}

/// Threads and what they wait for. A thread waits in one place at most; who is in none goes on.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) queues: Vec<Queue>,
    /// Threads that wait until every one of others has let go: who waits, and for whom. (Waits for a lock over all keys, and
    /// waits at the gate for it.)
    pub(crate) barred: Vec<(Thread, Vec<Thread>)>,
}

/// Threads of which none can ever go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deadlock {
    pub(crate) threads: Vec<Thread>,
    /// Whether the first is in the way of one of them, perhaps itself. Else the others are a deadlock without it, and it only
    /// waits for them.
    pub(crate) is_part: bool,
}

impl Graph {
    /// The threads of the deadlock that keeps `thread` from ever going on: itself first, then those who are in its way, and
    /// those who are in theirs, each once. `None` if it can go on.
    pub(crate) fn deadlock_of(&self, thread: Thread) -> Option<Deadlock> {
        let mut search = Search::new(self);
        search.let_go_on();
        let number = search.number(thread)?;
        search.waiters[number].stuck.then(|| search.closure(number))
    }
}

/// The waiters of a graph, numbered: queue by queue in order of arrival, then those who are barred.
struct Search<'a> {
    graph: &'a Graph,
    numbers: HashMap<Thread, usize>,
    waiters: Vec<Waiter>,
    /// One of each queue.
    lines: Vec<Line>,
    /// Of each barred thread: how many of those it waits for are stuck, as far as we know.
    bars: Vec<usize>,
    /// Those who were found to go on, until what they hold is given back.
    going: Vec<usize>,
}

struct Waiter {
    thread: Thread,
    place: Place,
    /// As far as we know.
    stuck: bool,
    /// The queues of which it holds permits, and how many.
    holds: Vec<(usize, u32)>,
    /// The bars that it is part of.
    bars: Vec<usize>,
}

#[derive(Clone, Copy)]
enum Place {
    Queue { queue: usize, request: usize },
    Bar(usize),
}

/// How far a queue is.
struct Line {
    /// The number of its first waiter; the others follow.
    start: usize,
    /// Permits that stuck threads hold, as far as we know. A graph in memory has too few holds to overflow this.
    held: u64,
    /// The first stuck request, as far as we know.
    front: usize,
    /// Whether its holders are in the closure already.
    in_closure: bool,
}

impl<'a> Search<'a> {
    /// Everybody who waits is stuck, until we know better.
    fn new(graph: &'a Graph) -> Self {
        let bars = vec![0; graph.barred.len()];
        let mut search =
            Self { graph, numbers: HashMap::new(), waiters: Vec::new(), lines: Vec::new(), bars, going: Vec::new() };
        for (queue, Queue { waiting, .. }) in graph.queues.iter().enumerate() {
            search.lines.push(Line { start: search.waiters.len(), held: 0, front: 0, in_closure: false });
            for (request, &(thread, _)) in waiting.iter().enumerate() {
                search.add(thread, Place::Queue { queue, request });
            }
        }
        for (bar, &(thread, _)) in graph.barred.iter().enumerate() {
            search.add(thread, Place::Bar(bar));
        }

        // Who does not wait lets go of what it holds at once.
        for (queue, Queue { holders, .. }) in graph.queues.iter().enumerate() {
            for &(thread, permits) in holders {
                if let Some(number) = thread.and_then(|thread| search.number(thread)) {
                    search.waiters[number].holds.push((queue, permits));
                    search.lines[queue].held += u64::from(permits);
                }
            }
        }
        for (bar, (_, others)) in graph.barred.iter().enumerate() {
            for &thread in others {
                if let Some(number) = search.number(thread) {
                    search.waiters[number].bars.push(bar);
                    search.bars[bar] += 1;
                }
            }
        }
        search
    }

    fn add(&mut self, thread: Thread, place: Place) {
        let known = self.numbers.insert(thread, self.waiters.len());
        debug_assert!(known.is_none(), "thread {thread} waits in two places");
        self.waiters.push(Waiter { thread, place, stuck: true, holds: Vec::new(), bars: Vec::new() });
    }

    /// The number of a thread that waits.
    fn number(&self, thread: Thread) -> Option<usize> {
        self.numbers.get(&thread).copied()
    }

    /// Lets everybody go on who can.
    fn let_go_on(&mut self) {
        for queue in 0..self.lines.len() {
            self.settle_queue(queue);
        }
        for bar in 0..self.bars.len() {
            self.settle_bar(bar);
        }
        while let Some(number) = self.going.pop() {
            for (queue, permits) in mem::take(&mut self.waiters[number].holds) {
                self.lines[queue].held -= u64::from(permits);
                self.settle_queue(queue);
            }
            for bar in mem::take(&mut self.waiters[number].bars) {
                self.bars[bar] -= 1;
                self.settle_bar(bar);
            }
        }
    }

    fn settle_queue(&mut self, queue: usize) {
        while let Some(&(_, permits)) = self.graph.queues[queue].waiting.get(self.lines[queue].front)
            && self.fits(queue, permits)
        {
            let line = &mut self.lines[queue];
            let number = line.start + line.front;
            line.front += 1;
            self.goes_on(number);
        }
    }

    fn settle_bar(&mut self, bar: usize) {
        if self.bars[bar] == 0 {
            // They follow the last queue.
            let number = self.waiters.len() - self.bars.len() + bar;
            self.goes_on(number);
        }
    }

    fn goes_on(&mut self, number: usize) {
        self.waiters[number].stuck = false;
        self.going.push(number);
    }

    /// Whether the stuck holders leave so many permits.
    fn fits(&self, queue: usize, permits: u32) -> bool {
        self.lines[queue].held + u64::from(permits) <= u64::from(self.graph.queues[queue].limit)
    }

    /// A stuck waiter and all who are in the way, once everybody who can has gone on.
    fn closure(&mut self, first: usize) -> Deadlock {
        let ranks = self.ranks_behind(first);
        let (mut members, mut is_part) = (vec![first], false);
        let mut is_member = vec![false; self.waiters.len()];
        is_member[first] = true;
        let mut add = |members: &mut Vec<usize>, number: usize| {
            is_part |= number == first;
            if !mem::replace(&mut is_member[number], true) {
                members.push(number);
            }
        };

        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            match self.waiters[member].place {
                Place::Queue { queue, request } => {
                    let Queue { holders, waiting, .. } = &self.graph.queues[queue];
                    if self.fits(queue, waiting[request].1) {
                        let line = &self.lines[queue];
                        add(&mut members, line.start + line.front);
                    } else if !mem::replace(&mut self.lines[queue].in_closure, true) {
                        // Once: many members may wait for the same many holders.
                        let holders = holders.iter().filter_map(|&(thread, _)| self.stuck_number(thread?));
                        holders.for_each(|number| add(&mut members, number));
                    }
                }
                Place::Bar(bar) => {
                    let stuck = self.graph.barred[bar].1.iter().filter_map(|&thread| self.stuck_number(thread));
                    stuck.min_by_key(|&number| ranks[number]).into_iter().for_each(|number| add(&mut members, number));
                }
            }
        }
        let threads = members.into_iter().map(|number| self.waiters[number].thread).collect();
        Deadlock { threads, is_part }
    }

    /// Of each waiter: how far it is from having `first` in its way, and `usize::MAX` if it has not. Each with a rank has one of
    /// a lower rank in its way, down to `first` itself.
    fn ranks_behind(&self, first: usize) -> Vec<usize> {
        let mut ranks = vec![usize::MAX; self.waiters.len()];
        let mut holders_done = vec![false; self.lines.len()];
        let mut next = VecDeque::from([first]);
        ranks[first] = 0;
        let mut ranked = 1;
        let mut behind = Vec::new();
        while let Some(number) = next.pop_front() {
            let waiter = &self.waiters[number];
            for &(queue, _) in &waiter.holds {
                if !mem::replace(&mut holders_done[queue], true) {
                    behind.extend(self.stuck_in(queue).filter(|(_, fits)| !fits).map(|(number, _)| number));
                }
            }
            if let Place::Queue { queue, request } = waiter.place
                && request == self.lines[queue].front
            {
                behind.extend(self.stuck_in(queue).filter(|(_, fits)| *fits).map(|(number, _)| number));
            }
            behind.extend(waiter.bars.iter().map(|bar| self.waiters.len() - self.bars.len() + bar));
            for number in behind.drain(..) {
                if ranks[number] == usize::MAX {
                    ranks[number] = ranked;
                    ranked += 1;
                    next.push_back(number);
                }
            }
        }
        ranks
    }

    /// The stuck requests of a queue, and whether each would fit.
    fn stuck_in(&self, queue: usize) -> impl Iterator<Item = (usize, bool)> {
        let (line, waiting) = (&self.lines[queue], &self.graph.queues[queue].waiting);
        let stuck = waiting.iter().enumerate().skip(line.front);
        stuck.map(move |(request, &(_, permits))| (line.start + request, self.fits(queue, permits)))
    }

    fn stuck_number(&self, thread: Thread) -> Option<usize> {
        self.number(thread).filter(|&number| self.waiters[number].stuck)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
