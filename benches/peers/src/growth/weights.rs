//! Heavier and heavier requests for one semaphore's permits. No peer has the call.

use super::{Figures, Growth, Part, ends};
use crate::contestants::names;
use crate::contestants::perkey::Weighted;
use crate::keys::{FreshNumbers, NumbersBelow};
use crate::loads::{Effort, Entrant, SEED};
use crate::loops::{Crowd, alone};

pub(super) fn all(weights: &[u64]) -> Vec<Growth> {
    let alone = "Permits of one acquire_many, one thread, fresh keys, ns/op".into();
    let together =
        "Permits of one acquire_many, 8 threads, one key with room for four of them, ns/op of all together".into();
    vec![growth(weights, "weights-alone", alone, by_one), growth(weights, "weights-8", together, by_eight)]
}

fn growth(weights: &[u64], name: &'static str, title: String, entrant: fn(u64, bool) -> Entrant) -> Growth {
    Growth {
        part: Part::Weights,
        name,
        title,
        of: "permit",
        sizes: weights.to_vec(),
        lineups: weights.iter().map(|&weight| vec![entrant(weight, false), entrant(weight, true)]).collect(),
        figures: Figures::Each,
        compared: ends(weights),
        goal: None,
    }
}

fn by_one(weight: u64, fifo: bool) -> Entrant {
    entrant(fifo, move |effort| alone(&Weighted::new(weight, fifo), &mut FreshNumbers::new(SEED), effort.operations))
}

fn by_eight(weight: u64, fifo: bool) -> Entrant {
    let crowd = Crowd { threads: 8, spins: 20 };
    let keys = |thread| NumbersBelow::new(SEED + thread, 1);
    entrant(fifo, move |effort| crowd.throughput(&Weighted::new(weight, fifo), keys, effort.window))
}

fn entrant(fifo: bool, speed: impl Fn(Effort) -> f64 + 'static) -> Entrant {
    let name = if fifo { names::PERKEY_FIFO } else { names::PERKEY };
    Entrant { name, speed: Box::new(speed), waits: None }
}
