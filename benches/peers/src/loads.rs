//! Loads: what a contestant is made to do in a round.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use crate::contestants::Locks;
use crate::contestants::read_write::Access;
use crate::keys::{FreshNames, FreshNumbers, FreshPairs, NumbersBelow, ReadMostlyBelow};
use crate::loops::{Crowd, Waits, alone};

/// Every contestant gets the same keys in every round.
pub(crate) const SEED: u64 = 42;

/// How long a round is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Of one thread, in operations.
    pub(crate) operations: u64,
    /// Of several threads.
    pub(crate) window: Duration,
    /// Of several threads, where waits are measured: a scheduler's turns must be short beside it.
    pub(crate) wait_window: Duration,
}

/// A contestant under a load. Every round gets a new table, made before the clock starts.
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    /// One round: nanoseconds per operation.
    pub(crate) speed: Box<dyn Fn(Effort) -> f64>,
    /// One round for the waits, if the load is about waiting.
    pub(crate) waits: Option<Box<dyn Fn(Effort) -> Waits>>,
}

/// Puts contestants under a load with keys of one type.
pub(crate) trait Load<Q: ?Sized> {
    fn entrant<C: Locks<Q>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant;
}

/// One thread; fresh numbers.
pub(crate) struct Numbers;

impl Load<u64> for Numbers {
    fn entrant<C: Locks<u64>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let speed = move |effort: Effort| alone(&make(), &mut FreshNumbers::new(SEED), effort.operations);
        Entrant { name, speed: Box::new(speed), waits: None }
    }
}

/// One thread; fresh numbers, a fiftieth of them: for what takes microseconds.
pub(crate) struct Seldom;

impl Load<u64> for Seldom {
    fn entrant<C: Locks<u64>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let speed = move |effort: Effort| alone(&make(), &mut FreshNumbers::new(SEED), effort.operations / 50);
        Entrant { name, speed: Box::new(speed), waits: None }
    }
}

/// One thread; random numbers below `keys`, of which each has been taken once when the clock starts.
pub(crate) struct KnownNumbers {
    pub(crate) keys: u64,
}

impl Load<u64> for KnownNumbers {
    fn entrant<C: Locks<u64>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let keys = self.keys;
        let speed = move |effort: Effort| {
            let table = make();
            (0..keys).for_each(|key| table.with(&key, || ()));
            alone(&table, &mut NumbersBelow::new(SEED, keys), effort.operations)
        };
        Entrant { name, speed: Box::new(speed), waits: None }
    }
}

/// One thread; pairs of fresh numbers.
pub(crate) struct Pairs;

impl Load<[u64; 2]> for Pairs {
    fn entrant<C: Locks<[u64; 2]>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let speed = move |effort: Effort| alone(&make(), &mut FreshPairs::new(SEED), effort.operations);
        Entrant { name, speed: Box::new(speed), waits: None }
    }
}

/// One thread; names.
#[derive(Default)]
pub(crate) struct Names {
    /// So many that come back over and over; none of them comes back if this is none.
    known: Option<u64>,
    /// Made when the first round needs it.
    text: Rc<OnceCell<String>>,
}

impl Names {
    pub(crate) fn fresh() -> Self {
        Self::default()
    }

    pub(crate) fn known(count: u64) -> Self {
        Self { known: Some(count), ..Self::default() }
    }
}

impl Load<str> for Names {
    fn entrant<C: Locks<str>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let (known, text) = (self.known, Rc::clone(&self.text));
        let speed = move |effort: Effort| {
            let text = text.get_or_init(|| FreshNames::text(SEED, known.unwrap_or(effort.operations)));
            alone(&make(), &mut FreshNames::new(text), effort.operations)
        };
        Entrant { name, speed: Box::new(speed), waits: None }
    }
}

/// Several threads; random numbers below `keys`.
pub(crate) struct Together {
    pub(crate) crowd: Crowd,
    pub(crate) keys: u64,
    /// Whether threads wait for each other so often that waits and shares tell something.
    pub(crate) contended: bool,
}

impl Load<u64> for Together {
    fn entrant<C: Locks<u64>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let Self { crowd, keys, contended } = *self;
        let source = move |thread| NumbersBelow::new(SEED + thread, keys);
        let speed = move |effort: Effort| crowd.throughput(&make(), source, effort.window);
        let waits = move |effort: Effort| crowd.waits(&make(), source, effort.wait_window);
        Entrant { name, speed: Box::new(speed), waits: contended.then(|| Box::new(waits) as _) }
    }
}

/// Several threads; random numbers below `keys`, most of them read.
pub(crate) struct ReadMostly {
    pub(crate) crowd: Crowd,
    pub(crate) keys: u64,
    /// As in [`Together`].
    pub(crate) contended: bool,
}

impl Load<Access> for ReadMostly {
    fn entrant<C: Locks<Access>>(&self, name: &'static str, make: impl Fn() -> C + Copy + 'static) -> Entrant {
        let Self { crowd, keys, contended } = *self;
        let source = move |thread| ReadMostlyBelow::new(SEED + thread, keys);
        let speed = move |effort: Effort| crowd.throughput(&make(), source, effort.window);
        let waits = move |effort: Effort| crowd.waits(&make(), source, effort.wait_window);
        Entrant { name, speed: Box::new(speed), waits: contended.then(|| Box::new(waits) as _) }
    }
}
