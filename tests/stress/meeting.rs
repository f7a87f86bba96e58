//! Waiters that fit must be inside together: a permit that lies free while somebody sleeps in the queue shows only when
//! those inside wait for one another, and nobody new comes to cover it up.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::oracle::{Breach, Kind, Oracle};
use crate::rng::Rng;
use crate::target::{Call, Form, Release, Target, Time};
use crate::watchdog::{self, Watchdog};

/// Twice as many threads as the key has permits play `games`: in each, every thread enters once, and leaves when the
/// permits are all inside. Another thread opens each game: it holds all permits until so many others wait that they will be
/// taken, and gives them back at once.
pub(crate) fn run<T: Target>(target: T, name: &str, games: usize, seed: u64, patience: Duration) -> Vec<Breach> {
    let target = Arc::new(target);
    let limit = target.limit() as usize;
    let oracle = Oracle::new(target.limit(), 1, true);
    let watchdog = Watchdog::default();
    let [start, end] = [(); 2].map(|()| Meeting::new(2 * limit + 1));
    let room = Meeting::new(limit);
    thread::scope(|scope| {
        let (target, oracle, watchdog) = (&target, &oracle, &watchdog);
        let (start, room, end) = (&start, &room, &end);
        let play = move |thread: usize| {
            let mut rng = Rng::new(seed ^ thread as u64);
            for _ in 0..games {
                start.wait();
                let call = call(&mut rng);
                let enter = || {
                    target.enter(&call, || {
                        let inside = oracle.enter(0, 1);
                        room.wait();
                        drop(inside);
                    })
                };
                // A time-out only makes the others' lives harder.
                while enter().is_err() && !oracle.stopped() {}
                if oracle.stopped() {
                    return;
                }
                watchdog.tick();
                end.wait();
            }
        };
        let open = move || {
            let all = Call { weight: limit as u32, ..Call::endless(0) };
            for _ in 0..games {
                // Those with a time limit come and go; that enough wait at one time may never be seen.
                let mut looks = 0..10_000;
                let hold_back = || {
                    let inside = oracle.enter(0, all.weight);
                    start.wait();
                    while target.waiters(0) < limit && !oracle.stopped() && looks.next().is_some() {
                        thread::yield_now();
                    }
                    drop(inside);
                };
                if target.enter(&all, hold_back).is_err() || oracle.stopped() {
                    return;
                }
                end.wait();
            }
        };
        let opener = scope.spawn(open);
        let players: Vec<_> = (0..2 * limit).map(|thread| scope.spawn(move || play(thread))).collect();
        let watch = scope.spawn(move || {
            if watchdog.watch(patience) {
                return;
            }
            let description = target.describe();
            oracle.report(Kind::Stuck, format!("a permit is free and its waiter sleeps: {description}"));
            [start, room, end].into_iter().for_each(Meeting::call_off);
            if !target.rescue() {
                watchdog::abort(&format!("{name:?} with PERKEY_SEED={seed}"), patience, target);
            }
        });
        let join = |handle: thread::ScopedJoinHandle<'_, ()>| {
            if handle.join().is_err() {
                oracle.report(Kind::Panicked, "see above".to_owned());
            }
        };
        players.into_iter().for_each(join);
        join(opener);
        watchdog.finish();
        join(watch);
    });
    oracle.judge_end(&*target);
    oracle.into_breaches()
}

fn call(rng: &mut Rng) -> Call {
    let mut call = Call::endless(0);
    if rng.one_in(4) {
        call.patience.time = Time::AtMost(Duration::from_micros(rng.below(100)));
    }
    call.form = [Form::Closure, Form::Short, Form::With][rng.index(3)];
    call.release = [Release::Dropped, Release::Fair][rng.index(2)];
    call
}

/// A barrier that can be called off.
struct Meeting {
    size: usize,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    arrived: usize,
    generation: u64,
    called_off: bool,
}

impl Meeting {
    fn new(size: usize) -> Self {
        Self { size, state: Mutex::default(), bell: Condvar::new() }
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        state.arrived += 1;
        if state.arrived == self.size {
            state.arrived = 0;
            state.generation += 1;
            self.bell.notify_all();
            return;
        }
        let generation = state.generation;
        while state.generation == generation && !state.called_off {
            self.bell.wait(&mut state);
        }
    }

    fn call_off(&self) {
        self.state.lock().called_off = true;
        self.bell.notify_all();
    }
}
