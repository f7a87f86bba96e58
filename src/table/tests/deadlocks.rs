//! Whether the rules of the gate hold together: every interleaving of small programs on the [model](super::model).
//!
//! The programs take keys in one order, and locks over every key first, so they finish on any table that grants what
//! conflicts with nothing that is held. A deadlock would be the doing of the order in which requests are served.

use std::collections::HashSet;

use super::model::What::{All, Key};
use super::model::{Outcome, Passing, Table, What};
use crate::mode::Mode::{Read, Write};

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    table: Table,
    /// How many steps of its program each thread has made; the last step gives everything back.
    steps: Vec<usize>,
}

/// A history that ends with every thread that is left waiting, if there is one. Newcomers overtake or not, as they like.
fn deadlock(passing: Passing, programs: &[&[What]]) -> Option<Vec<(u8, Option<What>)>> {
    let start = World { table: Table::new(passing), steps: vec![0; programs.len()] };
    let (mut seen, mut history) = (HashSet::new(), Vec::new());
    explore(programs, start, &mut seen, &mut history).then_some(history)
}

fn explore(
    programs: &[&[What]],
    world: World,
    seen: &mut HashSet<World>,
    history: &mut Vec<(u8, Option<What>)>,
) -> bool {
    if !seen.insert(world.clone()) {
        return false;
    }
    world.table.check();
    let (mut unfinished, mut stuck) = (false, true);
    for (thread, program) in programs.iter().enumerate() {
        let step = world.steps[thread];
        let number = thread as u8;
        unfinished |= step <= program.len();
        if step > program.len() || world.table.waits(number) {
            continue;
        }
        stuck = false;
        for overtakes in [false, true] {
            if overtakes && step == program.len() {
                continue;
            }
            let mut next = world.clone();
            next.steps[thread] += 1;
            let what = program.get(step).copied();
            let refused =
                what.is_some_and(|what| next.table.request(number, what, true, 0, overtakes) == Outcome::WouldDeadlock);
            if refused || what.is_none() {
                next.steps[thread] = program.len() + 1;
                next.table.remove_all_of(number);
            }
            history.push((number, what));
            if explore(programs, next, seen, history) {
                return true;
            }
            history.pop();
        }
    }
    unfinished && stuck
}

/// Every program of up to `most` of the keys 1 to `keys` in ascending order, and those that begin with all keys.
fn programs(keys: u8, most: usize) -> Vec<Vec<What>> {
    let mut programs =
        vec![vec![All(Read)], vec![All(Write)], vec![All(Read), All(Read)], vec![Key(1, Read), All(Read)]];
    let mut longer: Vec<Vec<What>> = vec![Vec::new()];
    for _ in 0..most {
        longer = longer
            .iter()
            .flat_map(|program| {
                let last = program.last().map_or(0, |what| if let Key(key, _) = what { *key } else { 0 });
                (last + 1..=keys).flat_map(|key| [Read, Write].map(|mode| Key(key, mode))).map(|what| {
                    let mut longer = program.clone();
                    longer.push(what);
                    longer
                })
            })
            .collect();
        programs.extend(longer.iter().cloned());
    }
    programs.extend((1..=keys).map(|key| vec![Key(key, Read), Key(key, Read)]));
    programs.extend((1..=keys).map(|key| vec![All(Read), Key(key, Read)]));
    programs
}

/// Tries all sets of so many programs; returns how many.
fn try_all(programs: &[Vec<What>], threads: usize) -> usize {
    let mut sets = 0;
    let mut chosen = vec![0; threads];
    loop {
        let set: Vec<&[What]> = chosen.iter().map(|program| &programs[*program][..]).collect();
        sets += 1;
        if let Some(history) = deadlock(Passing::WaitedFor, &set) {
            panic!("{set:?} can end in a deadlock: {history:?}");
        }
        let Some(last) = chosen.iter().rposition(|program| program + 1 < programs.len()) else {
            return sets;
        };
        let next = chosen[last] + 1;
        chosen[last..].fill(next);
    }
}

/// How many threads there are, and of how many keys each takes up to how many. `.ci/full` asks for more.
fn sizes() -> &'static [(usize, u8, usize)] {
    if std::env::var_os("PERKEY_MODEL_WHOLE").is_some() { &[(3, 3, 3), (4, 2, 2), (4, 3, 1)] } else { &[(3, 3, 2)] }
}

#[test]
fn no_order_of_arrival_is_a_deadlock() {
    for &(threads, keys, most) in sizes() {
        let sets = try_all(&programs(keys, most), threads);
        println!("{sets} sets of programs of {threads} threads, each with up to {most} of {keys} keys");
    }
}

/// The rule that seems enough: a thread passes what conflicts with its own holds.
#[test]
fn to_pass_what_conflicts_with_ones_own_holds_is_not_enough() {
    let behind_a_writer: [&[What]; 3] = [&[Key(1, Read), Key(2, Write)], &[All(Write)], &[All(Read)]];
    let through_a_writer: [&[What]; 3] =
        [&[Key(2, Read), Key(3, Write)], &[Key(1, Write), Key(2, Write)], &[All(Read)]];
    for set in [behind_a_writer, through_a_writer] {
        assert!(deadlock(Passing::OwnConflicts, &set).is_some(), "{set:?}");
        assert_eq!(deadlock(Passing::WaitedFor, &set), None);
    }
}
