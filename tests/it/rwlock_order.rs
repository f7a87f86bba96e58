//! `KeyedRwLock`: who is let in, and in which order, after every three requests: by the conflict table and the order of
//! arrival.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perkey::{AcquireError, CancellationToken, Fairness, KeyedRwLockReadGuard, KeyedRwLockWriteGuard, Wait};

use crate::rwlock_api::What::{self, Read, ReadAll, Write, WriteAll};
use crate::rwlock_api::{ALL, Guard, J, K, Locks, check_free, table};
use crate::support::{MODES, threads, until, watched, watched_in_both_modes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Waits,
    Gone,
}

/// What each thread asked for, in order of arrival, and what has become of it. A thread asks once.
#[derive(Clone, Debug)]
struct Expected(Vec<(What, State)>);

impl Expected {
    fn is_all(what: What) -> bool {
        matches!(what, ReadAll | WriteAll)
    }

    /// Whether it is held back by a lock over every key that came before it: it is in no queue then.
    fn is_kept_out(&self, mine: usize) -> bool {
        let (asked, _) = self.0[mine];
        let before = self.0[..mine].iter().filter(|(_, state)| *state != State::Gone);
        !Self::is_all(asked) && before.into_iter().any(|(what, _)| Self::is_all(*what) && what.conflicts(asked))
    }

    fn has_to_wait(&self, mine: usize) -> bool {
        let (asked, _) = self.0[mine];
        self.0.iter().enumerate().any(|(place, &(what, state))| {
            let counts = match state {
                State::Held => true,
                // Requests for a key do not wait for one that is held back.
                State::Waits => place < mine && (Self::is_all(asked) || !self.is_kept_out(place)),
                State::Gone => false,
            };
            place != mine && counts && what.conflicts(asked)
        })
    }

    fn settle(&mut self) {
        for mine in 0..self.0.len() {
            if self.0[mine].1 == State::Waits && !self.has_to_wait(mine) {
                self.0[mine].1 = State::Held;
            }
        }
    }

    fn arrives(&mut self, what: What) {
        self.0.push((what, State::Waits));
        self.settle();
    }

    /// Gives back, or gives up.
    fn goes(&mut self, mine: usize) {
        self.0[mine].1 = State::Gone;
        self.settle();
    }

    fn becomes(&mut self, mine: usize, what: What) {
        self.0[mine].0 = what;
        self.settle();
    }

    fn can_upgrade(&self, mine: usize) -> bool {
        let conflicts = |(what, state): &(What, State)| *state == State::Held && what.conflicts(Write(K));
        self.0[mine] == (Read(K), State::Held)
            && !self.0.iter().enumerate().any(|(place, other)| place != mine && conflicts(other))
    }

    fn count(&self, state: State, like: impl Fn(What) -> bool) -> usize {
        self.0.iter().filter(|(what, is)| *is == state && like(*what)).count()
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Release,
    Downgrade,
    Upgrade,
}

enum Hold<'a> {
    Reader(KeyedRwLockReadGuard<'a, u32>),
    Writer(KeyedRwLockWriteGuard<'a, u32>),
    Other(#[expect(dead_code, reason = "it is held")] Guard<'a>),
}

/// A thread that asks for one lock, and does with it as it is told.
#[derive(Default)]
struct Actor {
    token: CancellationToken,
    inside: AtomicBool,
    gave_up: AtomicBool,
    upgraded: AtomicBool,
    /// Until it is done.
    order: Mutex<Option<Order>>,
}

impl Actor {
    fn play(&self, locks: &Locks, what: What, wait: &Wait) {
        let wait = wait.clone().or_cancelled(&self.token);
        let hold = match what {
            Read(key) => locks.read_with(&key, wait).map(Hold::Reader),
            Write(key) => locks.write_with(&key, wait).map(Hold::Writer),
            _ => what.lock_with(locks, wait).map(Hold::Other),
        };
        let mut hold = match hold {
            Ok(hold) => hold,
            Err(error) => {
                assert!(matches!(error, AcquireError::Cancelled | AcquireError::Timeout), "{error}");
                return self.gave_up.store(true, Ordering::Release);
            }
        };
        self.inside.store(true, Ordering::Release);
        loop {
            until(|| self.order.lock().is_some());
            let order = *self.order.lock();
            hold = match (order, hold) {
                (Some(Order::Downgrade), Hold::Writer(writer)) => {
                    Hold::Reader(KeyedRwLockWriteGuard::downgrade(writer))
                }
                (Some(Order::Upgrade), Hold::Reader(reader)) => match KeyedRwLockReadGuard::try_upgrade(reader) {
                    Ok(writer) => {
                        self.upgraded.store(true, Ordering::Release);
                        Hold::Writer(writer)
                    }
                    Err(reader) => Hold::Reader(reader),
                },
                (_, hold) => {
                    drop(hold);
                    *self.order.lock() = None;
                    return;
                }
            };
            *self.order.lock() = None;
        }
    }

    fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }

    fn does(&self, order: Order) {
        *self.order.lock() = Some(order);
        until(|| self.order.lock().is_none());
    }
}

/// Lets the actors end if the test fails.
struct Curtain<'a>(&'a [Actor]);

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        for actor in self.0 {
            actor.token.cancel();
            *actor.order.lock() = Some(Order::Release);
        }
    }
}

/// Whether at least so many wait for a lock over every key. To be asked by who holds nothing, while something is held.
pub(crate) fn wait_for_all(locks: &Locks, count: usize) -> bool {
    let probe = Wait::at_most(Duration::from_nanos(1)).max_queued(count);
    count == 0 || locks.write_all_with(probe).err() == Some(AcquireError::QueueFull)
}

/// The table and what is expected of it.
struct Scene<'a> {
    locks: &'a Locks,
    actors: &'a [Actor],
    expected: Expected,
}

impl Scene<'_> {
    fn how_many_wait(&self, key: u32) -> usize {
        self.expected.count(State::Waits, |what| what == Read(key) || what == Write(key))
    }

    /// That the table comes to where it is expected, and that nobody is let in who should wait.
    fn check(&self) {
        let waits_for_all = self.expected.count(State::Waits, Expected::is_all);
        for (actor, (what, state)) in self.actors.iter().zip(&self.expected.0) {
            match state {
                State::Held => until(|| actor.is_inside()),
                State::Waits => assert!(!actor.is_inside(), "{what:?} is in: {:?}", self.expected),
                State::Gone => {}
            }
        }
        let waiting = [K, J].map(|key| self.locks.waiters(&key));
        assert_eq!(waiting, [K, J].map(|key| self.how_many_wait(key)), "{:?}", self.expected);
        assert!(wait_for_all(self.locks, waits_for_all), "fewer than {waits_for_all} wait: {:?}", self.expected);
    }

    /// The newcomer either gets in or is seen to wait; both are told apart by who calls this.
    fn arrives(&mut self, what: What) {
        let mut expected = self.expected.clone();
        expected.arrives(what);
        let mine = expected.0.len() - 1;
        let actor = &self.actors[mine];
        let waits = || match what {
            Read(key) | Write(key) => self.locks.waiters(&key) > self.how_many_wait(key),
            _ => wait_for_all(self.locks, self.expected.count(State::Waits, Expected::is_all) + 1),
        };
        until(|| actor.is_inside() || waits() || actor.gave_up.load(Ordering::Acquire));
        self.expected = expected;
    }

    fn release(&mut self, mine: usize) {
        self.actors[mine].does(Order::Release);
        self.expected.goes(mine);
        self.check();
    }

    /// In order of arrival, as they get in.
    fn release_all(&mut self) {
        while let Some(next) = self.expected.0.iter().position(|(_, state)| *state == State::Held) {
            self.release(next);
        }
        assert_eq!(self.expected.count(State::Gone, |_| true), self.actors.len(), "{:?}", self.expected);
    }
}

/// Has threads ask for that, one after the other, and then does what is to be done; ends with all released. `waits` are of
/// those who do not wait for ever.
fn play(locks: &Locks, asked: &[What], waits: &[(usize, Wait)], then: impl FnOnce(&mut Scene<'_>)) {
    let actors: Vec<Actor> = asked.iter().map(|_| Actor::default()).collect();
    threads(|scope| {
        let _curtain = Curtain(&actors);
        let mut scene = Scene { locks, actors: &actors, expected: Expected(Vec::new()) };
        for (mine, &what) in asked.iter().enumerate() {
            let wait = waits.iter().find(|(place, _)| *place == mine).map_or(Wait::forever(), |(_, wait)| wait.clone());
            let actor = &actors[mine];
            scope.spawn(move || actor.play(locks, what, &wait));
            scene.arrives(what);
            if waits.is_empty() {
                scene.check();
            }
        }
        then(&mut scene);
        scene.release_all();
    });
    check_free(locks);
}

fn triples() -> impl Iterator<Item = [What; 3]> {
    ALL.into_iter()
        .flat_map(|held| ALL.into_iter().flat_map(move |waits| ALL.into_iter().map(move |asks| [held, waits, asks])))
}

/// Whether `fairness` leaves no choice: between requests for one key, `Eventual` lets newcomers overtake.
fn is_certain(fairness: Fairness, asked: &[What]) -> bool {
    fairness == Fairness::Fifo || asked.iter().any(|what| Expected::is_all(*what))
}

fn in_both_modes(asked: &[What], waits: &[(usize, Wait)], then: impl Fn(&mut Scene<'_>)) {
    for fairness in MODES.into_iter().filter(|fairness| is_certain(*fairness, asked)) {
        println!("{fairness:?}: {asked:?}");
        play(&table(fairness), asked, waits, &then);
    }
}

#[test]
fn every_triple_is_served_in_order_of_arrival() {
    watched(|| {
        for asked in triples() {
            in_both_modes(&asked, &[], |_| ());
        }
    });
}

/// Behind a reader of another key, and behind one of the same.
#[test]
fn both_locks_over_all_and_a_writer_in_each_order_of_arrival() {
    watched(|| {
        for held in [Read(J), Read(K), Write(K)] {
            let three = [ReadAll, WriteAll, Write(K)];
            for [first, second, third] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                in_both_modes(&[held, three[first], three[second], three[third]], &[], |_| ());
            }
        }
    });
}

/// What those orders are, spelled out: each is let in after the one before it.
#[test]
fn three_that_conflict_are_served_one_by_one() {
    watched(|| {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let asked = order.map(|place| [ReadAll, WriteAll, Write(K)][place]);
            in_both_modes(&[WriteAll, asked[0], asked[1], asked[2]], &[], |scene| {
                for turn in 0..3 {
                    scene.release(turn);
                    let inside: Vec<bool> = scene.actors[1..].iter().map(Actor::is_inside).collect();
                    assert_eq!(inside, [0, 1, 2].map(|place| place <= turn), "{asked:?}");
                }
            });
        }
    });
}

/// The second of three gives up: whom only that one held up is in at once.
#[test]
fn who_is_cancelled_lets_others_in() {
    watched(|| {
        for asked in triples().filter(|[held, waits, _]| held.conflicts(*waits)) {
            in_both_modes(&asked, &[], |scene| {
                scene.actors[1].token.cancel();
                until(|| scene.actors[1].gave_up.load(Ordering::Acquire));
                scene.expected.goes(1);
                scene.check();
            });
        }
    });
}

/// Those behind it have arrived by then, or it shows nothing.
#[test]
fn who_runs_out_of_time_lets_others_in() {
    watched(|| {
        for asked in [
            [Read(K), Write(K), Read(K)],
            [Read(J), WriteAll, Read(K)],
            [Read(J), WriteAll, Write(K)],
            [Read(J), WriteAll, ReadAll],
            [ReadAll, WriteAll, Read(K)],
            [ReadAll, Write(K), ReadAll],
            [Read(K), Write(K), ReadAll],
            [Write(J), ReadAll, Write(K)],
        ] {
            let time = [(1, Wait::at_most(Duration::from_millis(30)))];
            in_both_modes(&asked, &time, |scene| {
                until(|| scene.actors[1].gave_up.load(Ordering::Acquire));
                scene.expected.goes(1);
                assert_eq!(scene.expected.0[2].1, State::Held);
                scene.check();
            });
        }
    });
}

/// One that is kept out gives up: a lock over all keys waited for it, and nothing else.
#[test]
fn a_kept_out_writer_that_gives_up_lets_a_read_all_in() {
    watched_in_both_modes(|fairness| {
        play(&table(fairness), &[ReadAll, Write(K), Write(J), ReadAll, ReadAll], &[], |scene| {
            for writer in [1, 2] {
                assert!(!scene.actors[3].is_inside() && !scene.actors[4].is_inside());
                scene.actors[writer].token.cancel();
                until(|| scene.actors[writer].gave_up.load(Ordering::Acquire));
                scene.expected.goes(writer);
                scene.check();
            }
            assert!(scene.actors[3].is_inside() && scene.actors[4].is_inside());
        });
    });
}

/// Before any two others: readers and writers in each order, and locks over all keys.
#[test]
fn downgrade_lets_in_who_comes_next() {
    watched(|| {
        for [_, first, second] in triples().filter(|[held, ..]| *held == Write(K)) {
            for fairness in MODES {
                println!("{fairness:?}: {first:?}, {second:?}");
                play(&table(fairness), &[Write(K), first, second], &[], |scene| {
                    scene.actors[0].does(Order::Downgrade);
                    scene.expected.becomes(0, Read(K));
                    scene.check();
                });
            }
        }
    });
}

/// Beside any two others, that hold or wait, and those then wait for the writer.
#[test]
fn upgrade_overtakes_who_waits_and_keeps_out_who_comes() {
    watched(|| {
        let mut upgrades = 0;
        for asked in triples() {
            // Whichever came first.
            for reader in (0..3).filter(|place| asked[*place] == Read(K)) {
                for fairness in MODES.into_iter().filter(|fairness| is_certain(*fairness, &asked)) {
                    println!("{fairness:?}: {asked:?}, {reader}");
                    play(&table(fairness), &asked, &[], |scene| {
                        let [expected, upgraded] =
                            [scene.expected.can_upgrade(reader), scene.expected.0[reader].1 == State::Held];
                        if !upgraded {
                            return;
                        }
                        scene.actors[reader].does(Order::Upgrade);
                        assert_eq!(scene.actors[reader].upgraded.load(Ordering::Acquire), expected);
                        if expected {
                            upgrades += 1;
                            scene.expected.becomes(reader, Write(K));
                        }
                        scene.check();
                    });
                }
            }
        }
        assert!(upgrades > 20, "{upgrades}");
    });
}
