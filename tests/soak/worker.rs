//! A thread that makes random calls.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perkey::{AcquireError, CancellationToken};

use crate::cli::Fault;
use crate::keys::{Planned, panic_as_planned};
use crate::oracle::{Inside, Mark, Oracle};
use crate::patience::{self, Patience};
use crate::queue::{Job, Queue};
use crate::rng::Rng;
use crate::subject::{Progress, Subject};

/// What the threads of a lap share.
pub(crate) struct Shared {
    /// Tokens in use; one that is cancelled makes place for a new one.
    pub(crate) tokens: Mutex<Vec<CancellationToken>>,
    /// Guards that other threads give back.
    pub(crate) handed_over: Queue,
    pub(crate) plant: Option<Fault>,
}

pub(crate) struct Worker<'a> {
    pub(crate) rng: Rng,
    shared: &'a Shared,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(rng: Rng, shared: &'a Shared) -> Self {
        Self { rng, shared }
    }

    /// One call of one of `subjects`.
    pub(crate) fn step(&mut self, subjects: &[Box<dyn Subject>], progress: &Progress) {
        if self.rng.one_in(64) {
            self.cancel();
        }
        if self.plants(Fault::Leak) {
            mem::forget(std::hint::black_box(vec![1u8; 64]));
        }
        let subject = &subjects[self.rng.index(subjects.len())];
        match catch_unwind(AssertUnwindSafe(|| subject.call(self))) {
            Err(payload) if !payload.is::<Planned>() => resume_unwind(payload),
            _ => progress.tick(subject.kind()),
        }
    }

    fn cancel(&mut self) {
        let fresh = CancellationToken::new();
        let old = {
            let mut tokens = self.shared.tokens.lock();
            let place = self.rng.index(tokens.len());
            mem::replace(&mut tokens[place], fresh)
        };
        old.cancel();
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.index(all.len())]
    }

    /// Up to `most` of the numbers below `keys`, some perhaps twice.
    pub(crate) fn some_keys(&mut self, keys: usize, most: u64) -> Vec<usize> {
        (0..=self.rng.below(most)).map(|_| self.rng.index(keys)).collect()
    }

    pub(crate) fn short(&mut self) -> Duration {
        patience::short(&mut self.rng)
    }

    pub(crate) fn patience(&mut self) -> Patience {
        // With a permit missing a wait without end would be one, and hide what is missing.
        let endless = !self.plants(Fault::LostPermit);
        let tokens = self.shared.tokens.lock().clone();
        if self.rng.one_in(64) {
            tokens[0].cancel();
        }
        Patience::random(&mut self.rng, endless, &tokens)
    }

    pub(crate) fn plants(&self, fault: Fault) -> bool {
        self.shared.plant == Some(fault)
    }

    /// Whether now is one of the moments for `fault`.
    pub(crate) fn plants_now(&mut self, fault: Fault) -> bool {
        self.plants(fault) && self.rng.one_in(100)
    }

    pub(crate) fn hand_over(&self, job: Job) {
        self.shared.handed_over.push(job);
    }

    /// What is done by who holds one key.
    pub(crate) fn visit(&mut self, oracle: &Arc<Oracle>, key: usize, weight: u32, mark: Mark) {
        self.visit_all(oracle, &[key], weight, mark);
    }

    /// What is done by who holds `keys`, each once.
    pub(crate) fn visit_all(&mut self, oracle: &Arc<Oracle>, keys: &[usize], weight: u32, mark: Mark) {
        let inside: Vec<Inside> = keys.iter().map(|key| oracle.enter(*key, weight, mark)).collect();
        for inside in &inside {
            inside.work(&mut self.rng);
        }
        if self.rng.one_in(64) {
            panic_as_planned();
        }
    }

    /// Reports a grant or a refusal that had no reason.
    pub(crate) fn judge<G>(
        &self,
        oracle: &Oracle,
        call: &str,
        patience: &Patience,
        outcome: Result<G, AcquireError>,
    ) -> Option<G> {
        match outcome {
            Ok(guard) => {
                if !patience.allows_grant() {
                    oracle.report(&format!("wrong outcome: {call} granted, with {patience:?}"));
                }
                Some(guard)
            }
            Err(error) => {
                if !patience.allows(&error) {
                    oracle.report(&format!("wrong outcome: {call} gave {error:?}, with {patience:?}"));
                }
                None
            }
        }
    }

    /// As [`judge`](Self::judge), for calls that give no reason.
    pub(crate) fn judge_option<G>(
        &self,
        oracle: &Oracle,
        call: &str,
        patience: &Patience,
        outcome: Option<G>,
    ) -> Option<G> {
        if outcome.is_none() && !patience.time_is_up() {
            oracle.report(&format!("wrong outcome: {call} gave None, with {patience:?}"));
        }
        outcome
    }
}
