//! `Sweeper`, every call, on the tables of the lap.

use std::mem;
use std::time::Duration;

use parking_lot::Mutex;
use perkey::Sweeper;

use crate::subject::Subject;
use crate::worker::Worker;

#[derive(Clone, Copy)]
enum Call {
    Spawn,
    TrySpawn,
    Add,
    Print,
    Stop,
    Drop,
}

const CALLS: [Call; 6] = [Call::Spawn, Call::TrySpawn, Call::Add, Call::Print, Call::Stop, Call::Drop];

/// So many run side by side.
#[derive(Default)]
pub(crate) struct Sweeping([Mutex<Option<Sweeper>>; 3]);

impl Sweeping {
    pub(crate) fn call(&self, worker: &mut Worker<'_>, subjects: &[Box<dyn Subject>]) {
        let subject = &subjects[worker.rng.index(subjects.len())];
        let every = [Duration::ZERO, Duration::from_millis(3), Duration::from_secs(3600)][worker.rng.index(3)];
        let mut place = self.0[worker.rng.index(self.0.len())].lock();
        match (worker.pick(&CALLS), &mut *place) {
            (Call::Spawn, place) => *place = Some(subject.spawn_sweeper(every)),
            (Call::TrySpawn, place) => *place = Some(subject.try_spawn_sweeper(every).expect("a thread")),
            (Call::Add, Some(sweeper)) => subject.add_to(sweeper),
            (Call::Print, Some(sweeper)) => _ = format!("{sweeper:?}"),
            (Call::Stop, place) => {
                if let Some(sweeper) = mem::take(place) {
                    sweeper.stop();
                }
            }
            (Call::Drop, place) => *place = None,
            (Call::Add | Call::Print, None) => (),
        }
    }

    /// Ends all.
    pub(crate) fn end(&self) {
        for place in &self.0 {
            *place.lock() = None;
        }
    }
}
