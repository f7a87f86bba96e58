//! Deadlocks drawn by hand, and random graphs beside a simulation.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use super::*;

impl Graph {
    fn threads_of(&self, thread: Thread) -> Option<Vec<Thread>> {
        self.deadlock_of(thread).map(|deadlock| deadlock.threads)
    }
}

fn queue(limit: u32, holders: &[(Thread, u32)], waiting: &[(Thread, u32)]) -> Queue {
    let holders = holders.iter().map(|&(thread, permits)| (Some(thread), permits)).collect();
    Queue { limit, holders, waiting: waiting.to_vec() }
}

/// A key that `holder` has and `waiting` wants.
fn lock(holder: Thread, waiting: Thread) -> Queue {
    queue(1, &[(holder, 1)], &[(waiting, 1)])
}

fn graph(queues: impl IntoIterator<Item = Queue>) -> Graph {
    Graph { queues: queues.into_iter().collect(), barred: Vec::new() }
}

fn barred(bars: &[(Thread, &[Thread])]) -> Vec<(Thread, Vec<Thread>)> {
    bars.iter().map(|&(thread, others)| (thread, others.to_vec())).collect()
}

#[track_caller]
fn assert_deadlock(graph: &Graph, members: &[Thread]) {
    assert_eq!(graph.threads_of(members[0]).as_deref(), Some(members), "{graph:?}");
}

#[track_caller]
fn assert_goes_on(graph: &Graph, threads: impl IntoIterator<Item = Thread>) {
    for thread in threads {
        assert_eq!(graph.threads_of(thread), None, "thread {thread} of {graph:?}");
    }
}

#[test]
fn nobody_waits() {
    assert_goes_on(&Graph::default(), [0, 1]);
    assert_goes_on(&graph([queue(1, &[(1, 1)], &[])]), [0, 1]);
}

#[test]
fn a_b_and_b_a() {
    let graph = graph([lock(1, 2), lock(2, 1)]);
    assert_deadlock(&graph, &[1, 2]);
    assert_deadlock(&graph, &[2, 1]);
    assert_goes_on(&graph, [3]);
}

#[test]
fn rings_of_every_size() {
    for size in 2..=32 {
        for first_kind in 0..5 {
            let ring = |size: u64, links: u64| {
                let mut graph = Graph::default();
                for thread in 0..links {
                    let next = (thread + 1) % size;
                    match (thread + first_kind) % 5 {
                        0 => graph.queues.push(lock(next, thread)),
                        1 => graph.queues.push(queue(3, &[(next, 1), (next, 2)], &[(thread, 1)])),
                        // A writer that waits for a reader.
                        2 => graph.queues.push(queue(u32::MAX, &[(next, 1)], &[(thread, u32::MAX)])),
                        // And the other way round.
                        3 => graph.queues.push(queue(u32::MAX, &[(next, u32::MAX)], &[(thread, 1)])),
                        _ => graph.barred.push((thread, vec![next, 1_000])),
                    }
                }
                graph
            };
            for start in 0..size {
                let members = (0..size).map(|step| (start + step) % size).collect::<Vec<_>>();
                assert_deadlock(&ring(size, size), &members);
            }
            assert_goes_on(&ring(size, size - 1), 0..size);
        }
    }
}

#[test]
fn a_thread_is_in_its_own_way() {
    assert_deadlock(&graph([lock(1, 1)]), &[1]);
    assert_deadlock(&graph([queue(3, &[(1, 2)], &[(1, 2)])]), &[1]);
    assert_deadlock(&graph([queue(3, &[(1, 1), (1, 1)], &[(1, 2)])]), &[1]);
    assert_goes_on(&graph([queue(3, &[(1, 2)], &[(1, 1)])]), [1]);
    // Two readers that would both write.
    let upgrades = graph([queue(u32::MAX, &[(1, 1), (2, 1)], &[(1, u32::MAX), (2, u32::MAX)])]);
    assert_deadlock(&upgrades, &[1, 2]);
    assert_deadlock(&upgrades, &[2, 1]);
}

#[test]
fn more_than_there_ever_is() {
    assert_deadlock(&graph([queue(2, &[], &[(1, 3)])]), &[1]);
    assert_deadlock(&graph([queue(2, &[], &[(1, 3), (2, 1)])]), &[2, 1]);
}

#[test]
fn one_holder_of_a_semaphore_runs() {
    for limit in 1..=8 {
        let holders = (1..=u64::from(limit)).map(|thread| (thread, 1)).collect::<Vec<_>>();
        // Thread 0 waits for a permit, and the holders for its lock; the first of them, only if `all`.
        let semaphore = |all: bool| {
            let mut waiting = holders.clone();
            waiting.drain(..usize::from(!all));
            graph([queue(limit, &holders, &[(0, 1)]), queue(1, &[(0, 1)], &waiting)])
        };
        assert_goes_on(&semaphore(false), 0..=u64::from(limit));
        assert_deadlock(&semaphore(true), &(0..=u64::from(limit)).collect::<Vec<_>>());
    }
}

#[test]
fn weights() {
    // Thread 1 holds 3 of 5, is stuck, and leaves 2; those of thread 4, which runs, come back.
    let ask = |permits| graph([queue(5, &[(4, 2), (1, 3)], &[(2, permits)]), lock(1, 1)]);
    assert_goes_on(&ask(1), [2]);
    assert_goes_on(&ask(2), [2]);
    assert_deadlock(&ask(3), &[2, 1]);
    assert_deadlock(&ask(5), &[2, 1]);
}

#[test]
fn sums_do_not_overflow() {
    let heavy = 1 << 30;
    let holders = [(1, heavy); 8]; // 0, modulo 2^32
    assert_deadlock(&graph([queue(u32::MAX, &holders, &[(2, 1)]), lock(1, 1)]), &[2, 1]);
    assert_deadlock(&graph([queue(u32::MAX, &holders, &[(2, u32::MAX)]), lock(1, 1)]), &[2, 1]);
    assert_deadlock(&graph([queue(u32::MAX, &[(1, u32::MAX), (1, u32::MAX)], &[(1, u32::MAX)])]), &[1]);
    assert_goes_on(&graph([queue(u32::MAX, &holders, &[(2, u32::MAX)])]), [2]);
}

#[test]
fn who_owns_a_key_may_hold_it_above_the_limit() {
    let locks = [queue(1, &[(1, 1), (1, 1), (1, 1)], &[(2, 1)]), queue(1, &[(2, 1), (2, 1)], &[(1, 1)])];
    assert_deadlock(&graph(locks), &[1, 2]);
    assert_goes_on(&graph([queue(1, &[(1, 1), (1, 1), (1, 1)], &[(2, 1)])]), [1, 2]);
}

#[test]
fn one_behind_a_head_that_is_stuck() {
    // Thread 3 would fit, but thread 2 came first and wants everything, some of which thread 1 has, which waits for thread 3.
    let behind = |permits| graph([queue(3, &[(1, 1)], &[(2, permits), (3, 1)]), lock(3, 1)]);
    assert_deadlock(&behind(3), &[3, 2, 1]);
    assert_deadlock(&behind(3), &[2, 1, 3]);
    assert_deadlock(&behind(3), &[1, 3, 2]);
    assert_goes_on(&behind(2), 1..=3);

    // Those between are not in the way.
    let far_behind = graph([queue(3, &[(1, 1)], &[(5, 2), (2, 3), (6, 1), (7, 2), (3, 1)]), lock(3, 1)]);
    assert_deadlock(&far_behind, &[3, 2, 1]);
    assert_deadlock(&far_behind, &[6, 2, 1, 3]);
    assert_goes_on(&far_behind, [5]);
}

#[test]
fn who_does_not_fit_either_has_no_head_in_its_way() {
    let both = graph([queue(3, &[(1, 1)], &[(2, 3), (3, 3)]), lock(1, 1)]);
    assert_deadlock(&both, &[2, 1]);
    assert_deadlock(&both, &[3, 1]);
}

#[test]
fn one_that_waits_for_a_loop_is_not_in_it() {
    let graph = graph([queue(1, &[(1, 1)], &[(2, 1), (4, 1)]), lock(2, 1), lock(4, 5)]);
    assert_deadlock(&graph, &[1, 2]);
    assert_deadlock(&graph, &[2, 1]);
    assert_deadlock(&graph, &[4, 1, 2]);
    assert_deadlock(&graph, &[5, 4, 1, 2]);
    let part = [1, 2, 4, 5].map(|thread| graph.deadlock_of(thread).unwrap().is_part);
    assert_eq!(part, [true, true, false, false]);
}

#[test]
fn ways_that_meet_again() {
    // 1 waits for 2 and 3, both wait for 4, and 4 and 5 wait for each other.
    let diamond = [queue(2, &[(2, 1), (3, 1)], &[(1, 1)]), queue(1, &[(4, 1)], &[(2, 1), (3, 1), (5, 1)]), lock(5, 4)];
    let diamond = graph(diamond);
    assert_deadlock(&diamond, &[1, 2, 3, 4, 5]);
    assert_deadlock(&diamond, &[3, 4, 5]);
    assert_deadlock(&diamond, &[5, 4]);

    // The same, but that 4 waits for nobody.
    let ways = [queue(2, &[(2, 1), (3, 1)], &[(1, 1)]), queue(1, &[(4, 1)], &[(2, 1), (3, 1), (5, 1)])];
    assert_goes_on(&graph(ways), 1..=5);

    // Two loops that share a thread, which waits for both.
    let eight = graph([queue(2, &[(2, 1), (3, 1)], &[(1, 1)]), queue(1, &[(1, 1)], &[(2, 1), (3, 1)])]);
    assert_deadlock(&eight, &[1, 2, 3]);
    assert_deadlock(&eight, &[3, 1, 2]);
}

#[test]
fn bars() {
    let bar = |bars: &[(Thread, &[Thread])]| Graph { queues: Vec::new(), barred: barred(bars) };
    assert_deadlock(&bar(&[(1, &[1])]), &[1]);
    assert_deadlock(&bar(&[(1, &[2, 2]), (2, &[3, 1, 1])]), &[1, 2]);
    assert_deadlock(&bar(&[(1, &[9, 2, 3]), (2, &[4]), (3, &[1]), (4, &[])]), &[1, 3]);
    // Only the first of those who are stuck is in the way.
    assert_deadlock(&bar(&[(1, &[2, 3]), (2, &[2]), (3, &[3])]), &[1, 2]);
    assert_goes_on(&bar(&[(1, &[])]), [1]);
    assert_goes_on(&bar(&[(1, &[2, 3, 3]), (2, &[3, 4]), (3, &[4])]), 1..=4);
}

#[test]
fn a_lock_over_all_keys_among_keys() {
    // 1 has a key and waits for all; 2 has another, and waits at the gate for 1; 3 waits for what 2 has.
    let all = |queues: Vec<Queue>| Graph { queues, barred: barred(&[(1, &[2]), (2, &[1])]) };
    assert_deadlock(&all(vec![lock(2, 3)]), &[3, 2, 1]);
    assert_deadlock(&all(vec![lock(2, 3)]), &[1, 2]);

    let key = |barred| Graph { queues: vec![lock(2, 3), lock(3, 2)], barred };
    assert_deadlock(&key(barred(&[(1, &[4, 3])])), &[1, 3, 2]);
    assert_goes_on(&key(barred(&[(1, &[4])])), [1]);
}

#[test]
fn holds_without_an_owner_come_back() {
    let ownerless = |holders: Vec<(Option<Thread>, u32)>| {
        graph([Queue { limit: 2, holders, waiting: vec![(1, 1)] }, lock(1, 2), lock(1, 3)])
    };
    assert_goes_on(&ownerless(vec![(None, 1), (None, 1)]), 1..=3);
    assert_goes_on(&ownerless(vec![(Some(2), 1), (None, 1)]), 1..=3);
    assert_deadlock(&ownerless(vec![(Some(2), 1), (Some(3), 1)]), &[1, 2, 3]);
    // The limit fell, or a guard was turned into one that may move after its key was entered again.
    assert_deadlock(&ownerless(vec![(Some(2), 1), (None, 1), (Some(3), 1)]), &[1, 2, 3]);
}

/// How long a chain is that shows what recursion, or looking at everything again and again, would cost.
const LONG: u64 = 100_000;

fn chain(end: Option<Queue>) -> Graph {
    graph((1..LONG).map(|thread| lock(thread + 1, thread)).chain(end))
}

#[test]
fn a_long_chain_to_a_thread_that_runs() {
    assert_goes_on(&chain(None), [1, LONG - 1, LONG]);
}

#[test]
fn a_long_chain_to_a_loop() {
    let everybody = (1..=LONG).collect::<Vec<_>>();
    let to_self = chain(Some(lock(LONG, LONG)));
    assert!(to_self.threads_of(1) == Some(everybody.clone()));
    assert_deadlock(&to_self, &[LONG]);
    assert!(chain(Some(lock(1, LONG))).threads_of(1) == Some(everybody));
    let mut to_others = chain(None);
    to_others.barred.push((LONG, vec![LONG - 3]));
    assert_deadlock(&to_others, &[LONG - 1, LONG, LONG - 3, LONG - 2]);
}

#[test]
fn a_crowd_at_one_key() {
    let limit = u32::try_from(LONG).unwrap();
    let everybody = (1..=LONG).map(|thread| (thread, 1)).collect::<Vec<_>>();
    let members = graph([queue(limit, &everybody, &everybody)]).threads_of(LONG).unwrap();
    assert_eq!(members.len(), everybody.len());

    // One more permit, and they go one after the other.
    assert!(graph([queue(limit + 1, &everybody, &everybody)]).threads_of(LONG).is_none());
}

/// Who is left waiting when everybody who can goes on: a thread that does not wait lets go of all it holds, and the first of a
/// queue is granted what is free.
fn left_waiting(graph: &Graph) -> BTreeSet<Thread> {
    let mut keys = Vec::new();
    for Queue { limit, holders, waiting } in &graph.queues {
        keys.push((*limit, holders.clone(), VecDeque::from(waiting.clone())));
    }
    let mut barred = graph.barred.clone();
    loop {
        let queued = keys.iter().flat_map(|(_, _, waiting)| waiting).map(|&(thread, _)| thread);
        let waits = queued.chain(barred.iter().map(|&(thread, _)| thread)).collect::<BTreeSet<_>>();
        let mut changed = false;
        for (limit, holders, waiting) in &mut keys {
            holders.retain(|&(thread, _)| thread.is_some_and(|thread| waits.contains(&thread)));
            let taken = holders.iter().map(|&(_, permits)| u128::from(permits)).sum::<u128>();
            if let Some(&(thread, permits)) = waiting.front()
                && taken + u128::from(permits) <= u128::from(*limit)
            {
                waiting.pop_front();
                holders.push((Some(thread), permits));
                changed = true;
            }
        }
        barred.retain(|(_, others)| {
            let goes = !others.iter().any(|other| waits.contains(other));
            changed |= goes;
            !goes
        });
        if !changed {
            return waits;
        }
    }
}

/// The graph without all waiting threads but `members`, and what they hold.
fn alone(graph: &Graph, members: &BTreeSet<Thread>) -> Graph {
    let mut queues = Vec::new();
    for Queue { limit, holders, waiting } in &graph.queues {
        let mut holders = holders.clone();
        let mut waiting = waiting.clone();
        holders.retain(|(thread, _)| thread.is_some_and(|thread| members.contains(&thread)));
        waiting.retain(|(thread, _)| members.contains(thread));
        queues.push(Queue { limit: *limit, holders, waiting });
    }
    let mut barred = graph.barred.clone();
    barred.retain(|(thread, _)| members.contains(thread));
    barred.iter_mut().for_each(|(_, others)| others.retain(|other| members.contains(other)));
    Graph { queues, barred }
}

/// Why a thread is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Holders,
    Front,
    Bar,
}

/// Who is in the way of a stuck thread, and why, if those who are stuck are known. Of a bar, each alone.
fn in_the_way_of(graph: &Graph, stuck: &BTreeSet<Thread>, thread: Thread) -> (Why, BTreeSet<Thread>) {
    for Queue { limit, holders, waiting } in &graph.queues {
        let Some(&(_, asked)) = waiting.iter().find(|&&(other, _)| other == thread) else { continue };
        let holders = holders.iter().filter_map(|&(holder, permits)| Some((holder?, permits)));
        let holders = holders.filter(|(holder, _)| stuck.contains(holder)).collect::<Vec<_>>();
        let left = i128::from(*limit) - holders.iter().map(|&(_, permits)| i128::from(permits)).sum::<i128>();
        return if left < i128::from(asked) {
            (Why::Holders, holders.into_iter().map(|(holder, _)| holder).collect())
        } else {
            let front = waiting.iter().find(|(other, _)| stuck.contains(other)).unwrap();
            (Why::Front, BTreeSet::from([front.0]))
        };
    }
    let (_, others) = graph.barred.iter().find(|&&(other, _)| other == thread).unwrap();
    (Why::Bar, others.iter().copied().filter(|other| stuck.contains(other)).collect())
}

/// Where a thread of a random graph waits. Numbers are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
enum Waits {
    Nowhere,
    InQueue { queue: usize, permits: u32 },
    ForOthers(Vec<usize>),
}

fn waits() -> impl Strategy<Value = Waits> {
    prop_oneof![
        1 => Just(Waits::Nowhere),
        6 => (any::<usize>(), 0_u32..12).prop_map(|(queue, permits)| Waits::InQueue { queue, permits }),
        2 => vec(any::<usize>(), 0..=3).prop_map(Waits::ForOthers),
    ]
}

#[derive(Clone, Debug)]
struct Hold {
    queue: usize,
    owner: Option<usize>,
    permits: u32,
    above_limit: bool,
}

fn hold() -> impl Strategy<Value = Hold> {
    (any::<usize>(), option::weighted(0.9, any::<usize>()), 0_u32..12, prop::bool::weighted(0.1))
        .prop_map(|(queue, owner, permits, above_limit)| Hold { queue, owner, permits, above_limit })
}

/// Few threads and few queues, so that they meet often.
fn graphs() -> impl Strategy<Value = Graph> {
    let threads = vec(waits(), 1..=6).prop_flat_map(|waits| {
        let numbers = (1..=waits.len() as u64).collect::<Vec<_>>();
        (Just(numbers).prop_shuffle(), Just(waits))
    });
    let limit = prop_oneof![1 => Just(1), 3 => 2_u32..=4];
    let unit = prop_oneof![Just(1), Just((1 << 30) - 1)];
    (threads, vec(limit, 1..=3), vec(hold(), 0..=9), unit).prop_map(|((numbers, waits), limits, holds, unit)| {
        let mut graph = graph(limits.iter().map(|limit| queue(limit * unit, &[], &[])));
        let weight = |permits: u32, queue: usize| (1 + permits % limits[queue]) * unit;
        for Hold { queue, owner, permits, above_limit } in holds {
            let queue = queue % limits.len();
            let permits = weight(permits, queue);
            let Queue { limit, holders, .. } = &mut graph.queues[queue];
            let taken = holders.iter().map(|&(_, permits)| u64::from(permits)).sum::<u64>();
            if above_limit || taken + u64::from(permits) <= u64::from(*limit) {
                holders.push((owner.map(|owner| numbers[owner % numbers.len()]), permits));
            }
        }
        for (&thread, waits) in numbers.iter().zip(waits) {
            match waits {
                Waits::Nowhere => {}
                Waits::InQueue { queue, permits } => {
                    let queue = queue % limits.len();
                    graph.queues[queue].waiting.push((thread, weight(permits, queue)));
                }
                Waits::ForOthers(others) => {
                    let others = others.into_iter().map(|other| numbers[other % numbers.len()]).collect();
                    graph.barred.push((thread, others));
                }
            }
        }
        graph
    })
}

/// How often it was what.
#[derive(Default)]
struct Tally {
    waits: Cell<u32>,
    stuck: Cell<u32>,
    /// Of those who are stuck.
    behind_front: Cell<u32>,
    barred: Cell<u32>,
    in_own_way: Cell<u32>,
    by_three: Cell<u32>,
    /// Not in the closure of another of its closure.
    outside: Cell<u32>,
    /// Others are stuck that are not in its closure.
    others_stuck: Cell<u32>,
}

fn count(cell: &Cell<u32>, holds: bool) {
    cell.set(cell.get() + u32::from(holds));
}

fn check(graph: &Graph, tally: &Tally) -> TestCaseResult {
    let queued = graph.queues.iter().flat_map(|queue| &queue.waiting).map(|&(thread, _)| thread);
    let waiting = queued.chain(graph.barred.iter().map(|&(thread, _)| thread)).collect::<BTreeSet<_>>();
    let stuck = left_waiting(graph);
    for thread in 0..=7 {
        let deadlock = graph.threads_of(thread);
        prop_assert_eq!(deadlock.is_some(), stuck.contains(&thread), "thread {}", thread);
        count(&tally.waits, waiting.contains(&thread));
        let Some(deadlock) = deadlock else { continue };

        prop_assert_eq!(deadlock[0], thread);
        let members = deadlock.iter().copied().collect::<BTreeSet<_>>();
        prop_assert_eq!(members.len(), deadlock.len(), "each once: {:?}", deadlock);
        prop_assert!(members.is_subset(&stuck), "{:?} are not all stuck", deadlock);
        prop_assert_eq!(&left_waiting(&alone(graph, &members)), &members, "the members alone");

        // Nobody missing.
        for &member in &members {
            match in_the_way_of(graph, &stuck, member) {
                (Why::Bar, others) => prop_assert!(!others.is_disjoint(&members), "who bars {}", member),
                (_, others) => prop_assert!(others.is_subset(&members), "who is in the way of {}", member),
            }
        }
        // Nobody without need.
        let reached = |within: &BTreeSet<Thread>| {
            let mut reached = BTreeSet::new();
            let mut next = vec![thread];
            while let Some(member) = next.pop() {
                let others = in_the_way_of(graph, &stuck, member).1;
                next.extend(others.into_iter().filter(|other| within.contains(other) && reached.insert(*other)));
            }
            reached
        };
        let mut needed = reached(&members);
        let in_own_way = needed.contains(&thread);
        needed.insert(thread);
        prop_assert_eq!(&needed, &members);

        // It is in its own way if it is so by any way at all; else the others are a deadlock without it.
        let is_part = reached(&stuck).contains(&thread);
        prop_assert_eq!(graph.deadlock_of(thread).map(|deadlock| deadlock.is_part), Some(is_part));
        prop_assert_eq!(in_own_way, is_part);
        if !is_part {
            let mut others = members.clone();
            others.remove(&thread);
            prop_assert_eq!(&left_waiting(&alone(graph, &others)), &others, "the others alone");
        }

        let (why, first) = in_the_way_of(graph, &stuck, thread);
        let others = members.iter().filter(|&&member| member != thread);
        let outside = !others.clone().any(|&member| graph.threads_of(member).unwrap().contains(&thread));
        count(&tally.stuck, true);
        count(&tally.behind_front, why == Why::Front);
        count(&tally.barred, why == Why::Bar);
        count(&tally.in_own_way, first.contains(&thread));
        count(&tally.by_three, members.len() >= 3);
        count(&tally.outside, outside && !first.contains(&thread));
        count(&tally.others_stuck, members.len() < stuck.len());
    }
    Ok(())
}

#[test]
fn random_graphs() {
    let tally = Tally::default();
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    if let Err(error) = runner.run(&graphs(), |graph| check(&graph, &tally)) {
        panic!("the simulation goes another way: {error}");
    }

    // The graphs are such that all of it happens.
    let share = |part: &Cell<u32>, of: &Cell<u32>| f64::from(part.get()) / f64::from(of.get());
    let shares = [
        ("stuck", share(&tally.stuck, &tally.waits), 0.2..0.8),
        ("behind the first of a queue", share(&tally.behind_front, &tally.stuck), 0.01..1.0),
        ("barred", share(&tally.barred, &tally.stuck), 0.1..1.0),
        ("in its own way", share(&tally.in_own_way, &tally.stuck), 0.1..0.9),
        ("by three or more", share(&tally.by_three, &tally.stuck), 0.1..0.9),
        ("outside of the loop", share(&tally.outside, &tally.stuck), 0.1..0.9),
        ("while others are too", share(&tally.others_stuck, &tally.stuck), 0.1..0.9),
    ];
    println!("{shares:.3?}");
    for (what, share, expected) in shares {
        assert!(expected.contains(&share), "{what}: {share} of the cases, not {expected:?}");
    }
}

/// Thread 1 waits for 2, who waits for 3 and 3 for 2; and for 4, who waits for 1.
#[test]
fn a_bar_leads_back_past_another_deadlock() {
    let mut graph = graph([lock(2, 3), lock(3, 2), lock(1, 4)]);
    graph.barred = barred(&[(1, &[2, 4])]);
    assert_deadlock(&graph, &[1, 4]);
    assert_deadlock(&graph, &[4, 1]);
    assert_deadlock(&graph, &[2, 3]);
    graph.barred = barred(&[(1, &[2, 5])]);
    let deadlock = graph.deadlock_of(1).unwrap();
    assert_eq!((deadlock.threads, deadlock.is_part), (vec![1, 2, 3], false));
}
