//! `KeyedRwLock`: many threads that do everything at once, and crowds that give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use perkey::{
    AcquireError, ArcKeyedRwLockReadGuard, ArcKeyedRwLockWriteGuard, CancellationToken, Fairness, KeyedRwLock,
    KeyedRwLockReadGuard, KeyedRwLockWriteGuard, Wait,
};

use crate::rwlock_api::What::{self, Read, ReadAll, Write, WriteAll};
use crate::rwlock_api::{K, Locks, check_free, table};
use crate::rwlock_gate::others_wait_for_all;
use crate::support::{
    Random, SHORT, crowded, panics, quiet_panic, rounds, threads, until, watched_in_both_modes, work,
};

/// Who is inside, of one key.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    writes: AtomicUsize,
    /// Incremented by a load and a store.
    plain: AtomicUsize,
}

/// Who is inside anywhere: each enters its name first and then looks at the others', so of two one sees the other.
pub(crate) struct Everywhere {
    keys: Vec<Inside>,
    /// Of single keys together.
    keyed: Inside,
    all: Inside,
}

impl Everywhere {
    pub(crate) fn new(keys: u64) -> Self {
        Self { keys: (0..keys).map(|_| Inside::default()).collect(), keyed: Inside::default(), all: Inside::default() }
    }

    fn key(&self, key: u32) -> &Inside {
        &self.keys[key as usize % self.keys.len()]
    }

    fn enter(&self, what: What) {
        match what {
            Read(key) => {
                self.key(key).readers.fetch_add(1, Ordering::SeqCst);
                self.keyed.readers.fetch_add(1, Ordering::SeqCst);
                assert_eq!(self.key(key).writers.load(Ordering::SeqCst), 0, "a reader beside a writer of {key}");
                assert_eq!(self.all.writers.load(Ordering::SeqCst), 0, "a reader of {key} beside a `write_all`");
            }
            Write(key) => {
                let others = self.key(key).writers.fetch_add(1, Ordering::SeqCst);
                self.keyed.writers.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "two writers of {key}");
                assert_eq!(self.key(key).readers.load(Ordering::SeqCst), 0, "a writer beside readers of {key}");
                assert_eq!(self.all.readers.load(Ordering::SeqCst), 0, "a writer of {key} beside a `read_all`");
                assert_eq!(self.all.writers.load(Ordering::SeqCst), 0, "a writer of {key} beside a `write_all`");
            }
            ReadAll => {
                self.all.readers.fetch_add(1, Ordering::SeqCst);
                assert_eq!(self.all.writers.load(Ordering::SeqCst), 0, "a `read_all` beside a `write_all`");
                assert_eq!(self.keyed.writers.load(Ordering::SeqCst), 0, "a `read_all` beside a writer");
            }
            WriteAll => {
                assert_eq!(self.all.writers.fetch_add(1, Ordering::SeqCst), 0, "two `write_all`s");
                self.is_alone();
            }
        }
    }

    /// Nobody is inside but the holder of a `write_all`.
    fn is_alone(&self) {
        assert_eq!(self.all.readers.load(Ordering::SeqCst), 0, "a `write_all` beside a `read_all`");
        let keyed = [&self.keyed.readers, &self.keyed.writers].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(keyed, [0, 0], "a `write_all` beside readers and writers");
    }

    fn leave(&self, what: What) {
        let leave = |count: &AtomicUsize| assert!(count.fetch_sub(1, Ordering::SeqCst) > 0);
        match what {
            Read(key) => {
                leave(&self.keyed.readers);
                leave(&self.key(key).readers);
            }
            Write(key) => {
                leave(&self.keyed.writers);
                leave(&self.key(key).writers);
            }
            ReadAll => leave(&self.all.readers),
            WriteAll => leave(&self.all.writers),
        }
    }

    /// What a writer does: of its key, or of any.
    fn change(&self, key: u32, work: impl FnOnce()) {
        let Inside { writes, plain, .. } = self.key(key);
        let before = plain.load(Ordering::Relaxed);
        work();
        plain.store(before + 1, Ordering::Relaxed);
        writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn visit(&self, what: What, random: &mut Random) {
        self.enter(what);
        match what {
            Write(key) => self.change(key, || work(random)),
            WriteAll => self.change(random.below(self.keys.len() as u64) as u32, || work(random)),
            Read(_) | ReadAll => work(random),
        }
        if what == WriteAll {
            self.is_alone();
        }
        self.leave(what);
    }

    /// When all have left.
    pub(crate) fn check(&self) {
        for inside in self.keys.iter().chain([&self.keyed, &self.all]) {
            assert_eq!((inside.readers.load(Ordering::SeqCst), inside.writers.load(Ordering::SeqCst)), (0, 0));
            let [writes, plain] = [&inside.writes, &inside.plain].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(plain, writes, "what was written inside is lost");
        }
    }
}

pub(crate) fn some(random: &mut Random, keys: u64) -> What {
    let key = random.below(keys) as u32;
    match random.below(16) {
        0 => ReadAll,
        1 => WriteAll,
        2..10 => Read(key),
        _ => Write(key),
    }
}

/// Keys that have no entry yet when they are asked for, and hardly ever come again.
#[test]
fn locks_over_all_keys_cover_keys_that_do_not_exist_yet() {
    const THREADS: usize = 8;
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let (everywhere, done, visits) = (Everywhere::new(1 << 12), AtomicBool::new(false), AtomicUsize::new(0));
        threads(|scope| {
            for number in 0..THREADS {
                let (locks, everywhere, done, visits) = (&locks, &everywhere, &done, &visits);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    while !done.load(Ordering::Acquire) {
                        let key = random.below(1 << 12) as u32;
                        let what = if random.below(2) == 0 { Read(key) } else { Write(key) };
                        let moment = Duration::from_micros(random.below(40));
                        let guard = match random.below(4) {
                            0 => what.try_lock(locks),
                            1 => what.lock_with(locks, moment).ok(),
                            _ => Some(what.lock(locks)),
                        };
                        if let Some(_guard) = guard {
                            everywhere.visit(what, &mut random);
                            visits.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let mut random = Random::new(THREADS);
            for round in 0..rounds(300) {
                let before = visits.load(Ordering::Relaxed);
                let what = if round % 3 == 0 { ReadAll } else { WriteAll };
                let guard = what.lock(&locks);
                everywhere.visit(what, &mut random);
                // No entry either: who is kept out has none.
                assert!(what == ReadAll || locks.is_empty());
                drop(guard);
                until(|| visits.load(Ordering::Relaxed) > before);
            }
            done.store(true, Ordering::Release);
        });
        everywhere.check();
        check_free(&locks);
    });
}

/// What the threads of the stress test share.
struct Stress {
    locks: Locks,
    everywhere: Everywhere,
    keys: u64,
    tokens: Vec<Mutex<CancellationToken>>,
    /// Guards that go to other threads, counted out by who drops them.
    moving: Mutex<Vec<(What, Moving)>>,
    counts: [AtomicUsize; 9],
}

enum Moving {
    Reader(#[expect(dead_code, reason = "it is held")] ArcKeyedRwLockReadGuard<u32>),
    Writer(#[expect(dead_code, reason = "it is held")] ArcKeyedRwLockWriteGuard<u32>),
}

const COUNTED: [&str; 9] =
    ["granted", "tried in vain", "timed out", "cancelled", "downgraded", "upgraded", "moved", "panicked", "nested"];

impl Stress {
    fn count(&self, what: &str) {
        let place = COUNTED.iter().position(|counted| *counted == what).expect("it is counted");
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    fn end<T>(&self, outcome: &Result<T, AcquireError>) {
        match outcome {
            Ok(_) => self.count("granted"),
            Err(AcquireError::Timeout) => self.count("timed out"),
            Err(AcquireError::Cancelled) => self.count("cancelled"),
            Err(AcquireError::Busy) => self.count("tried in vain"),
            Err(error) => panic!("{error}"),
        }
    }

    fn visit(&self, what: What, random: &mut Random) {
        self.everywhere.visit(what, random);
    }

    /// A few locks in an order in which they wait for each other in no circle.
    fn nested(&self, random: &mut Random) {
        let (locks, everywhere) = (&self.locks, &self.everywhere);
        self.count("nested");
        match random.below(4) {
            // Ascending.
            0 | 1 => {
                let first = random.below(self.keys - 1) as u32;
                let next = first + 1 + random.below(self.keys - 1 - u64::from(first)) as u32;
                let [first, next] = [first, next].map(|key| if random.below(2) == 0 { Read(key) } else { Write(key) });
                let _first = first.lock(locks);
                everywhere.enter(first);
                let second = next.lock(locks);
                self.visit(next, random);
                drop(second);
                everywhere.leave(first);
            }
            // All, and then a key; the same key twice.
            2 => {
                let key = random.below(self.keys) as u32;
                let _all = locks.read_all();
                everywhere.enter(ReadAll);
                let (_one, _again) = (locks.read(&key), locks.read(&key));
                self.visit(Read(key), random);
                let _all_again = locks.read_all();
                everywhere.leave(ReadAll);
            }
            // A key and then all: others may wait for this thread, so it does not wait for ever.
            _ => {
                let key = random.below(self.keys) as u32;
                let _one = locks.read(&key);
                everywhere.enter(Read(key));
                match locks.read_all_with(Duration::from_micros(random.below(100))) {
                    Ok(_all) => self.visit(ReadAll, random),
                    Err(AcquireError::Timeout | AcquireError::Busy | AcquireError::WouldDeadlock(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                everywhere.leave(Read(key));
            }
        }
    }

    fn downgrade(&self, key: u32, random: &mut Random) {
        let writer = self.locks.write(&key);
        self.visit(Write(key), random);
        // Before the call, since others read after it.
        self.everywhere.enter(Read(key));
        let reader = KeyedRwLockWriteGuard::downgrade(writer);
        work(random);
        self.everywhere.leave(Read(key));
        drop(reader);
        self.count("downgraded");
    }

    fn upgrade(&self, key: u32, random: &mut Random) {
        let reader = self.locks.read(&key);
        self.visit(Read(key), random);
        match KeyedRwLockReadGuard::try_upgrade(reader) {
            Ok(_writer) => {
                self.visit(Write(key), random);
                self.count("upgraded");
            }
            Err(_reader) => self.visit(Read(key), random),
        }
    }

    /// Passes a guard on, and drops some that others passed on. Nothing is waited for meanwhile.
    fn moving(&self, key: u32, random: &mut Random) {
        let wait = Wait::at_most(Duration::from_micros(1 + random.below(50)));
        let guard = if random.below(2) == 0 {
            self.locks.read_arc_with(&key, wait).map(|guard| (Read(key), Moving::Reader(guard)))
        } else {
            self.locks.write_arc_with(&key, wait).map(|guard| (Write(key), Moving::Writer(guard)))
        };
        self.end(&guard);
        if let Ok((what, guard)) = guard {
            self.everywhere.enter(what);
            self.moving.lock().push((what, guard));
            self.count("moved");
        }
        // So that none stays behind while its holder waits for what it has.
        self.drop_what_moves();
    }

    fn drop_what_moves(&self) {
        for (what, guard) in std::mem::take(&mut *self.moving.lock()) {
            self.everywhere.leave(what);
            drop(guard);
        }
    }

    fn step(&self, number: usize, random: &mut Random) {
        let locks = &self.locks;
        let key = random.below(self.keys) as u32;
        let what = some(random, self.keys);
        match random.below(12) {
            0 => match what.try_lock(locks) {
                Some(_guard) => self.visit(what, random),
                None => self.count("tried in vain"),
            },
            1 | 2 => {
                let outcome = what.lock_with(locks, Duration::from_micros(random.below(60)));
                self.end(&outcome);
                if let Ok(_guard) = outcome {
                    self.visit(what, random);
                }
            }
            3 | 4 => {
                let token = CancellationToken::new();
                *self.tokens[number].lock() = token.clone();
                let outcome = what.lock_with(locks, &token);
                self.end(&outcome);
                if let Ok(_guard) = outcome {
                    self.visit(what, random);
                }
            }
            5 => self.downgrade(key, random),
            6 => self.upgrade(key, random),
            7 => self.moving(key, random),
            8 => {
                let unwinds = || {
                    self.visit(Write(key), &mut Random::new(number));
                    quiet_panic()
                };
                assert!(panics(|| match key % 3 {
                    0 => locks.with_write(&key, unwinds),
                    1 => locks.with_read(&key, || quiet_panic()),
                    _ => {
                        let _guard = what.lock(locks);
                        quiet_panic()
                    }
                }));
                self.count("panicked");
            }
            9 => self.nested(random),
            _ => {
                let _guard = what.lock(locks);
                self.visit(what, random);
                self.count("granted");
            }
        }
    }
}

#[test]
fn everything_at_once() {
    const THREADS: usize = 8;
    let each = rounds(1_500);
    watched_in_both_modes(move |fairness| {
        for (keys, keeps) in [(2, false), (40, false), (8, true)] {
            let options = crowded(fairness);
            let options = if keeps { options.idle_ttl(Duration::ZERO) } else { options };
            let stress = Stress {
                locks: Arc::new(KeyedRwLock::with_options(options)),
                everywhere: Everywhere::new(keys),
                keys,
                tokens: (0..THREADS).map(|_| Mutex::default()).collect(),
                moving: Mutex::default(),
                counts: Default::default(),
            };
            let at_work = AtomicUsize::new(THREADS);
            threads(|scope| {
                for number in 0..THREADS {
                    let (stress, at_work) = (&stress, &at_work);
                    scope.spawn(move || {
                        let mut random = Random::new(number);
                        for _ in 0..each {
                            stress.step(number, &mut random);
                        }
                        stress.drop_what_moves();
                        at_work.fetch_sub(1, Ordering::Release);
                    });
                }
                // Cancels what they wait for, and takes what moves when all others wait for that.
                let mut random = Random::new(THREADS);
                while at_work.load(Ordering::Acquire) > 0 {
                    stress.tokens[random.below(THREADS as u64) as usize].lock().clone().cancel();
                    stress.drop_what_moves();
                    stress.locks.sweep();
                    thread::sleep(Duration::from_micros(random.below(30)));
                }
            });
            stress.everywhere.check();
            // What is idle stays.
            until(|| !keeps || stress.locks.sweep() + stress.locks.len() == 0);
            assert!((0..keys as u32).all(|key| stress.locks.waiters(&key) == 0));
            check_free(&stress.locks);
            let counts = stress.counts.map(AtomicUsize::into_inner);
            println!("{fairness:?}, {keys} keys, kept: {keeps}: {:?}", COUNTED.iter().zip(counts).collect::<Vec<_>>());
            // In a few calls that is chance.
            assert!(SHORT || counts.iter().all(|count| *count > 0), "{counts:?}");
        }
    });
}

/// Starts up to so many threads that wait, as many as the machine lets.
fn crowd<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    most: usize,
    waiter: impl Fn(usize) -> bool + Clone + Send + 'scope,
) -> Vec<thread::ScopedJoinHandle<'scope, bool>> {
    let start = |number: usize| {
        let waiter = waiter.clone();
        thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, move || waiter(number)).ok()
    };
    let crowd: Vec<_> = (0..most).map_while(start).collect();
    assert!(crowd.len() >= most / 20, "only {} threads", crowd.len());
    crowd
}

#[test]
fn ten_thousand_that_are_kept_out_give_up_together() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        for waits in [false, true] {
            let token = CancellationToken::new();
            let arrived = AtomicUsize::new(0);
            // At the gate both modes are one, and threads are not for nothing.
            let most = if waits || fairness == Fairness::Fifo { 500 } else { 10_000 };
            thread::scope(|scope| {
                // Held, or waiting for a reader.
                let reader = waits.then(|| locks.read(&K));
                let all = (!waits).then(|| locks.write_all());
                let closer = waits.then(|| scope.spawn(|| drop(locks.write_all())));
                until(|| !waits || others_wait_for_all(&locks, 1));
                let crowd = crowd(scope, rounds(most), |number| {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    // Half of them for one key.
                    let key = if number % 2 == 0 { 0 } else { number as u32 };
                    let what = if number % 3 == 0 { Read(key) } else { Write(key) };
                    what.lock_with(&locks, &token).map(drop) == Err(AcquireError::Cancelled)
                });
                until(|| arrived.load(Ordering::Relaxed) == crowd.len());
                until(|| locks.waiters(&0) == crowd.len().div_ceil(2));
                token.cancel();
                assert!(crowd.into_iter().all(|waiter| waiter.join().unwrap()), "one was not cancelled");
                assert_eq!(locks.waiters(&0), 0);
                drop((all, reader));
                closer.into_iter().for_each(|closer| closer.join().unwrap());
            });
            check_free(&locks);
        }
    });
}

#[test]
fn two_thousand_locks_over_all_keys_give_up_together() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let token = CancellationToken::new();
        thread::scope(|scope| {
            let held = locks.write(&K);
            let crowd = crowd(scope, rounds(2_000), |number| {
                let what = if number % 2 == 0 { ReadAll } else { WriteAll };
                what.lock_with(&locks, &token).map(drop) == Err(AcquireError::Cancelled)
            });
            until(|| others_wait_for_all(&locks, crowd.len()));
            let behind = [Read(7), Write(8)].map(|what| {
                let locks = &locks;
                scope.spawn(move || drop(what.lock(locks)))
            });
            until(|| (locks.waiters(&7), locks.waiters(&8)) == (1, 1));
            token.cancel();
            assert!(crowd.into_iter().all(|waiter| waiter.join().unwrap()), "one was not cancelled");
            behind.into_iter().for_each(|behind| behind.join().unwrap());
            drop(held);
        });
        check_free(&locks);
    });
}

/// Those who are kept out and hold something look again each time that a lock over all keys goes.
#[test]
fn locks_over_all_keys_give_up_beside_those_who_look_again() {
    watched_in_both_modes(|fairness| {
        let locks = table(fairness);
        let token = CancellationToken::new();
        thread::scope(|scope| {
            let held = locks.write(&K);
            let first = scope.spawn(|| drop(locks.read_all()));
            until(|| others_wait_for_all(&locks, 1));
            let holders = crowd(scope, rounds(200), |number| {
                let key = 1_000 + number as u32;
                let _held = locks.read(&key);
                drop(locks.write(&7));
                true
            });
            until(|| locks.waiters(&7) == holders.len());
            let crowd = crowd(scope, rounds(400), |_| {
                ReadAll.lock_with(&locks, &token).map(drop) == Err(AcquireError::Cancelled)
            });
            until(|| others_wait_for_all(&locks, crowd.len() + 1));
            token.cancel();
            assert!(crowd.into_iter().all(|waiter| waiter.join().unwrap()), "one was not cancelled");
            assert_eq!(locks.waiters(&7), holders.len());
            drop(held);
            first.join().unwrap();
            assert!(holders.into_iter().all(|holder| holder.join().unwrap()));
        });
        check_free(&locks);
    });
}
