//! Rounds.

use crate::loads::{Effort, Entrant};
use crate::results::{Row, ShapeResult};
use crate::shapes::Shape;
use crate::watchdog::Watchdog;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) wait_rounds: usize,
    pub(crate) effort: Effort,
}

/// Everybody once per round, and a different one first in every round, so that what changes on the machine while this
/// runs hits everybody alike.
pub(crate) fn measure(shape: &Shape, plan: Plan, watchdog: &Watchdog) -> ShapeResult {
    let empty_row = |entrant: &Entrant| Row { name: entrant.name, rounds: vec![], wait_rounds: vec![] };
    let mut rows: Vec<Row> = shape.lineup.iter().map(empty_row).collect();
    let entrants = shape.lineup.len();
    let turns = |rounds| (0..rounds).flat_map(move |round| (0..entrants).map(move |turn| (turn + round) % entrants));

    for turn in turns(plan.rounds) {
        let entrant = &shape.lineup[turn];
        watchdog.watch(&shape.name, entrant.name);
        rows[turn].rounds.push((entrant.speed)(plan.effort));
    }
    for turn in turns(plan.wait_rounds) {
        let entrant = &shape.lineup[turn];
        let Some(waits) = &entrant.waits else { continue };
        watchdog.watch(&shape.name, entrant.name);
        rows[turn].wait_rounds.push(waits(plan.effort));
    }

    let mut result = ShapeResult { rows };
    result.subtract_empty_loop();
    result
}
