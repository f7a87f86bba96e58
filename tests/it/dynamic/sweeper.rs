use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use perkey::{KeyedLock, KeyedSemaphore, Options, Sweep, Sweeper};

use crate::support::{quiet_panic, rounds, until, watched};

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

/// A sweeper that says when it has been dropped, and not by a panic.
struct Owned(Option<Sweeper>, Arc<AtomicBool>);

impl Drop for Owned {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.store(true, Ordering::Release);
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
        for _ in 0..rounds(20) {
            let table = owners();
            let (being_swept, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let first = Arc::new(AtomicBool::new(true));
            let run: Arc<dyn Fn() + Send + Sync> = {
                let (being_swept, dropped) = (Arc::clone(&being_swept), Arc::clone(&dropped));
                let main = std::thread::current().id();
                Arc::new(move || {
                    // On the sweeper's thread, in the middle of a sweep.
                    if std::thread::current().id() != main && first.swap(false, Ordering::AcqRel) {
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
            assert!(went_well.load(Ordering::Acquire), "the sweeper waited for itself");
        }
    });
}

#[test]
fn a_hundred_rounds_in_every_order_leave_no_thread() {
    watched(|| {
        let _alone = one_at_a_time();
        let mut orders = HashSet::new();
        for round in 0..rounds(100) {
            let tick = [TICK, NEVER][round % 2];
            let table = table();
            let mut sweeper = Sweeper::spawn(&table, tick);
            let other = owners();
            sweeper.add(&other);
            drop((table.lock(&1), other.lock(&Owns::nothing(1))));
            let order = round % 6;
            orders.insert(order);
            match order {
                0 => drop((sweeper, table, other)),
                1 => drop((table, sweeper, other)),
                2 => drop((table, other, sweeper)),
                3 => drop((other, sweeper, table)),
                4 => {
                    table.sweep();
                    std::thread::spawn(move || drop((other, table))).join().unwrap();
                    sweeper.stop();
                }
                _ => {
                    let holder = std::thread::spawn(move || drop((sweeper, other)));
                    drop(table);
                    holder.join().unwrap();
                }
            }
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
            let main = std::thread::current().id();
            Arc::new(move || {
                if std::thread::current().id() != main {
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
