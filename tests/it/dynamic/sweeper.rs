use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use perkey::{KeyedLock, KeyedSemaphore, Options, Sweep, Sweeper};

use crate::support::{Barrier, quiet_panic, rounds, until, watched};

const TICK: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

fn table() -> Arc<KeyedLock<u32>> {
    Arc::new(KeyedLock::with_options(Options::new().idle_ttl(Duration::ZERO)))
}

/// The sweepers' threads of this process. Tests that count them run one at a time.
fn threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "perkey-sweeper")
        .count()
}

/// The system may show a thread for a moment after it was joined; one that is left is left for good, and hangs the test.
fn no_thread_is_left() {
    until(|| threads() == 0);
}

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock()
}

#[test]
fn several_tables_are_swept_by_one_thread() {
    watched(|| {
        let _alone = one_at_a_time();
        let (locks, other) = (table(), table());
        let permits: Arc<KeyedSemaphore<String, 3>> =
            Arc::new(KeyedSemaphore::with_options(Options::new().idle_ttl(Duration::ZERO)));
        let mut sweeper = Sweeper::spawn(&locks, TICK);
        sweeper.add(&other);
        sweeper.add(&permits);
        if cfg!(target_os = "linux") {
            // A thread gives itself its name.
            until(|| threads() == 1);
        }
        for round in 0..10 {
            drop((locks.lock(&round), other.lock(&round), permits.acquire("a")));
            until(|| locks.is_empty() && other.is_empty() && permits.is_empty());
        }
        sweeper.stop();
        no_thread_is_left();
        drop(locks.lock(&1));
        assert_eq!(locks.len(), 1);
    });
}

#[test]
fn a_drop_does_not_wait_for_the_tick() {
    watched(|| {
        let _alone = one_at_a_time();
        for tick in [NEVER, Duration::MAX] {
            let locks = table();
            let sweeper = Sweeper::try_spawn(&locks, tick).unwrap();
            drop(locks.lock(&1));
            drop(sweeper);
            no_thread_is_left();
            assert_eq!(locks.len(), 1, "swept before the first tick");
        }
    });
}

#[test]
fn a_tick_of_zero_is_clamped() {
    watched(|| {
        let _alone = one_at_a_time();
        let locks = table();
        let sweeper = Sweeper::spawn(&locks, Duration::ZERO);
        drop(locks.lock(&1));
        until(|| locks.is_empty());
        assert!(format!("{sweeper:?}").contains("1ms"), "{sweeper:?}");
    });
}

#[test]
fn the_thread_ends_with_its_last_table_and_starts_again_for_a_new_one() {
    watched(|| {
        let _alone = one_at_a_time();
        let (first, second) = (table(), table());
        let mut sweeper = Sweeper::spawn(&first, TICK);
        sweeper.add(&second);
        drop(first);
        drop(second.lock(&1));
        until(|| second.is_empty());
        drop(second);
        no_thread_is_left();
        let (third, fourth) = (table(), table());
        sweeper.add(&third);
        sweeper.add(&fourth);
        drop((third.lock(&1), fourth.lock(&1)));
        until(|| third.is_empty() && fourth.is_empty());
        drop(sweeper);
        no_thread_is_left();
    });
}

/// A key that owns whatever it is given, and runs it when it is dropped.
struct Owns(u32, Option<Arc<dyn Fn() + Send + Sync>>, Arc<Mutex<Option<Owned>>>);

/// A sweeper that says when it has been dropped on its own thread, and not by a panic.
struct Owned(Option<Sweeper>, Arc<AtomicBool>);

impl Drop for Owned {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.store(thread::current().name() == Some("perkey-sweeper"), Ordering::Release);
    }
}

impl Owns {
    fn nothing(number: u32) -> Self {
        Self(number, None, Arc::default())
    }
}

impl Clone for Owns {
    fn clone(&self) -> Self {
        Self(self.0, self.1.clone(), Arc::clone(&self.2))
    }
}

impl PartialEq for Owns {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Owns {}

impl Hash for Owns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Owns {
    fn drop(&mut self) {
        if let Some(run) = &self.1 {
            run();
        }
    }
}

type Owners = KeyedLock<Owns>;

fn owners() -> Arc<Owners> {
    Arc::new(Owners::with_options(Options::new().idle_ttl(Duration::ZERO)))
}

#[test]
fn a_key_that_panics_on_drop_does_not_end_the_sweeper() {
    watched(|| {
        let _alone = one_at_a_time();
        let armed = Arc::new(AtomicBool::new(false));
        let panics = Arc::new(AtomicUsize::new(0));
        let run: Arc<dyn Fn() + Send + Sync> = {
            let (armed, panics) = (Arc::clone(&armed), Arc::clone(&panics));
            Arc::new(move || {
                if armed.load(Ordering::Acquire) {
                    panics.fetch_add(1, Ordering::Release);
                    quiet_panic();
                }
            })
        };
        let table = owners();
        for number in 0..4 {
            drop(table.lock(&Owns(number, Some(Arc::clone(&run)), Arc::default())));
        }
        armed.store(true, Ordering::Release);
        let sweeper = Sweeper::spawn(&table, TICK);
        until(|| panics.load(Ordering::Acquire) == 4);
        armed.store(false, Ordering::Release);
        drop(table.lock(&Owns::nothing(9)));
        until(|| table.is_empty());
        drop(sweeper);
    });
}

/// The sweeper holds the last `Arc` of the table while it sweeps, so the table goes on the sweeper's own thread; and with
/// it a key that owns the sweeper.
#[test]
fn a_table_that_goes_on_the_sweepers_own_thread_does_not_join_it() {
    watched(|| {
        let _alone = one_at_a_time();
        for _ in 0..rounds(100) {
            let table = owners();
            let (being_swept, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let first = Arc::new(AtomicBool::new(true));
            let run: Arc<dyn Fn() + Send + Sync> = {
                let (being_swept, dropped) = (Arc::clone(&being_swept), Arc::clone(&dropped));
                let main = thread::current().id();
                Arc::new(move || {
                    // On the sweeper's thread, in the middle of a sweep.
                    if thread::current().id() != main && first.swap(false, Ordering::AcqRel) {
                        being_swept.store(true, Ordering::Release);
                        until(|| dropped.load(Ordering::Acquire));
                    }
                })
            };
            let place = Arc::new(Mutex::new(None));
            // One key is held for ever, and owns the sweeper; it goes with the table.
            std::mem::forget(table.lock(&Owns(1, None, Arc::clone(&place))));
            drop(table.lock(&Owns(2, Some(run), Arc::default())));
            let went_well = Arc::new(AtomicBool::new(false));
            *place.lock() = Some(Owned(Some(Sweeper::spawn(&table, TICK)), Arc::clone(&went_well)));
            drop(place);
            until(|| being_swept.load(Ordering::Acquire));
            drop(table);
            dropped.store(true, Ordering::Release);
            no_thread_is_left();
            assert!(went_well.load(Ordering::Acquire), "the sweeper waited for itself, or went on another thread");
        }
    });
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Sweeper,
    Table,
    Other,
}

const ORDERS: [[Part; 3]; 6] = {
    use Part::{Other, Sweeper, Table};
    [
        [Sweeper, Table, Other],
        [Sweeper, Other, Table],
        [Table, Sweeper, Other],
        [Table, Other, Sweeper],
        [Other, Sweeper, Table],
        [Other, Table, Sweeper],
    ]
};

/// A sweeper and its two tables, each there until it is dropped.
struct Trio {
    tick: Duration,
    sweeper: Option<Sweeper>,
    table: Option<Arc<KeyedLock<u32>>>,
    other: Option<Arc<Owners>>,
    tables_seen: (Weak<KeyedLock<u32>>, Weak<Owners>),
}

impl Trio {
    fn new(tick: Duration) -> Self {
        let (table, other) = (table(), owners());
        let mut sweeper = Sweeper::spawn(&table, tick);
        sweeper.add(&other);
        let tables_seen = (Arc::downgrade(&table), Arc::downgrade(&other));
        Self { tick, sweeper: Some(sweeper), table: Some(table), other: Some(other), tables_seen }
    }

    /// What drops a part.
    fn end(&mut self, part: Part) -> Box<dyn FnOnce() + Send> {
        fn dropping<T: Send + 'static>(part: &mut Option<T>) -> Box<dyn FnOnce() + Send> {
            let part = part.take().expect("it is dropped once");
            Box::new(|| drop(part))
        }
        match part {
            Part::Sweeper => dropping(&mut self.sweeper),
            Part::Table => dropping(&mut self.table),
            Part::Other => dropping(&mut self.other),
        }
    }

    /// Waits until a part that was dropped is gone; the sweeper may have a table in hand.
    fn gone(&self, part: Part) {
        match part {
            Part::Sweeper => no_thread_is_left(),
            Part::Table => until(|| self.tables_seen.0.strong_count() == 0),
            Part::Other => until(|| self.tables_seen.1.strong_count() == 0),
        }
    }

    /// That the sweeper, if it is there, sweeps what is there, and that nobody else does.
    fn works(&self) {
        if let Some(table) = &self.table {
            drop(table.lock(&1));
        }
        if let Some(other) = &self.other {
            drop(other.lock(&Owns::nothing(1)));
        }
        let all_have = |len| {
            self.table.iter().all(|table| table.len() == len) && self.other.iter().all(|other| other.len() == len)
        };
        if self.sweeper.is_some() && self.tick == TICK {
            until(|| all_have(0));
        } else {
            assert!(all_have(1), "swept by nobody");
        }
    }
}

/// One part after the other, each gone before the next goes: by this thread, or each by a thread of its own.
#[test]
fn a_hundred_rounds_in_every_order_leave_no_thread() {
    watched(|| {
        let _alone = one_at_a_time();
        let mut ran = HashSet::new();
        for _ in 0..rounds(5) {
            for (order, tick, elsewhere) in every_way() {
                let mut trio = Trio::new(tick);
                for part in order {
                    trio.works();
                    let end = trio.end(part);
                    if elsewhere {
                        thread::spawn(end).join().unwrap()
                    } else {
                        end()
                    }
                    trio.gone(part);
                }
                no_thread_is_left();
                ran.insert((order, tick, elsewhere));
            }
        }
        assert_eq!(ran.len(), 6 * 2 * 2, "{ran:?}");
    });
}

fn every_way() -> impl Iterator<Item = ([Part; 3], Duration, bool)> {
    let places = [false, true];
    ORDERS.into_iter().flat_map(move |order| {
        [TICK, NEVER].into_iter().flat_map(move |tick| places.map(|elsewhere| (order, tick, elsewhere)))
    })
}

#[test]
fn a_hundred_rounds_all_at_once_leave_no_thread() {
    watched(|| {
        let _alone = one_at_a_time();
        for _ in 0..rounds(50) {
            for tick in [TICK, NEVER] {
                let mut trio = Trio::new(tick);
                trio.works();
                let all_here = Arc::new(Barrier::new(3));
                let ends = ORDERS[0].map(|part| {
                    let (end, all_here) = (trio.end(part), Arc::clone(&all_here));
                    thread::spawn(move || {
                        all_here.meet();
                        end();
                    })
                });
                ends.into_iter().for_each(|end| end.join().unwrap());
                ORDERS[0].into_iter().for_each(|part| trio.gone(part));
            }
        }
    });
}

/// A key's `Drop` is in the middle when the sweeper is dropped, by another thread, and ends only after that has begun.
#[test]
fn a_drop_waits_until_the_thread_has_ended() {
    watched(|| {
        let _alone = one_at_a_time();
        for round in 0..rounds(40) {
            let [in_drop, announced, released, done] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
            let main = thread::current().id();
            let run: Arc<dyn Fn() + Send + Sync> = {
                let (in_drop, released, done) = (Arc::clone(&in_drop), Arc::clone(&released), Arc::clone(&done));
                Arc::new(move || {
                    if thread::current().id() != main {
                        in_drop.store(true, Ordering::Release);
                        until(|| released.load(Ordering::Acquire));
                        done.store(true, Ordering::Release);
                    }
                })
            };
            let table = owners();
            drop(table.lock(&Owns(1, Some(run), Arc::default())));
            let sweeper = Sweeper::spawn(&table, TICK);
            until(|| in_drop.load(Ordering::Acquire));
            let dropper = {
                let (announced, done) = (Arc::clone(&announced), Arc::clone(&done));
                thread::spawn(move || {
                    announced.store(true, Ordering::Release);
                    if round % 2 == 0 {
                        drop(sweeper)
                    } else {
                        sweeper.stop()
                    }
                    done.load(Ordering::Acquire)
                })
            };
            until(|| announced.load(Ordering::Acquire));
            // A thread has to start before the key goes on; a drop that waits for nothing has returned by then.
            thread::spawn(move || released.store(true, Ordering::Release)).join().unwrap();
            assert!(dropper.join().unwrap(), "it returned while its thread was dropping a key");
            no_thread_is_left();
        }
    });
}

#[test]
fn two_sweepers_of_one_table() {
    watched(|| {
        let _alone = one_at_a_time();
        let table = table();
        let sweepers = [Sweeper::spawn(&table, TICK), Sweeper::spawn(&table, TICK)];
        for key in 0..rounds(500) as u32 {
            drop(table.lock(&key));
            Sweep::sweep(&*table);
        }
        until(|| table.is_empty());
        drop(sweepers);
        no_thread_is_left();
    });
}

/// A key panics in the sweep, and the last `Arc` is the sweeper's: the table goes after that, and not while it unwinds, for
/// its other key panics too.
#[test]
fn a_table_that_goes_after_a_sweep_that_panicked_ends_the_process() {
    watched(|| {
        let _alone = one_at_a_time();
        let table = owners();
        let [being_swept, dropped] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let panics = Arc::new(AtomicUsize::new(0));
        let run: Arc<dyn Fn() + Send + Sync> = {
            let (being_swept, dropped, panics) = (Arc::clone(&being_swept), Arc::clone(&dropped), Arc::clone(&panics));
            let main = thread::current().id();
            Arc::new(move || {
                if thread::current().id() != main {
                    being_swept.store(true, Ordering::Release);
                    until(|| dropped.load(Ordering::Acquire));
                    panics.fetch_add(1, Ordering::Release);
                    quiet_panic();
                }
            })
        };
        // One stays until the table goes.
        std::mem::forget(table.lock(&Owns(1, Some(Arc::clone(&run)), Arc::default())));
        drop(table.lock(&Owns(2, Some(run), Arc::default())));
        let sweeper = Sweeper::spawn(&table, TICK);
        until(|| being_swept.load(Ordering::Acquire));
        drop(table);
        dropped.store(true, Ordering::Release);
        until(|| panics.load(Ordering::Acquire) == 2);
        drop(sweeper);
        no_thread_is_left();
    });
}
