//! One lap: new tables, threads that use them, and a look at what they leave.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::{CancellationToken, Fairness, Options};

use crate::cli::Fault;
use crate::keys::Touchy;
use crate::locks::Locks;
use crate::oracle::{Breaches, Oracle};
use crate::permits::Permits;
use crate::queue::Queue;
use crate::read_writes::ReadWrites;
use crate::rng::Rng;
use crate::subject::{Kind, Progress, Subject};
use crate::sweeping::Sweeping;
use crate::values::Values;
use crate::watchdog::{Subjects, Watchdog};
use crate::worker::{Shared, Worker};

/// How long kept entries may outlive sweeps that should remove them.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) threads: u64,
    pub(crate) until: Instant,
    pub(crate) plant: Option<Fault>,
}

/// What a table is like.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) keys: usize,
    pub(crate) fairness: Fairness,
    pub(crate) idle_ttl: Option<Duration>,
    pub(crate) reentrant: bool,
    /// Whether it tracks owners. It does not look for deadlocks: those who hold something and wait with a time limit are in some.
    pub(crate) tracks: bool,
    pub(crate) breaches: Arc<Breaches>,
}

pub(crate) fn run(plan: &Plan, breaches: &Arc<Breaches>, progress: &Progress, watchdog: &Watchdog) {
    let subjects: Subjects = Arc::new(tables(plan.number, breaches));
    watchdog.look_at(Some(&subjects));
    let sweeping = Sweeping::default();
    let tokens = (0..4).map(|_| CancellationToken::new()).collect();
    let shared = Shared { tokens: Mutex::new(tokens), handed_over: Queue::default(), plant: plan.plant };
    thread::scope(|scope| {
        let (shared, subjects, sweeping) = (&shared, &subjects, &sweeping);
        let worker = |number: u64| {
            move || {
                let rng = Rng::new(plan.seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
                let mut worker = Worker::new(rng, shared);
                while Instant::now() < plan.until && breaches.is_empty() {
                    worker.step(subjects, progress);
                    if worker.rng.one_in(2000) {
                        sweeping.call(&mut worker, subjects);
                        progress.tick(Kind::Sweeper);
                    }
                }
            }
        };
        let named = |name: String| thread::Builder::new().name(name);
        let workers: Vec<_> = (0..plan.threads)
            .map(|number| named(format!("worker-{number}")).spawn_scoped(scope, worker(number)).expect("a thread"))
            .collect();
        let leavers: Vec<_> = (0..2)
            .map(|number| {
                let work = || shared.handed_over.work_off();
                named(format!("leaver-{number}")).spawn_scoped(scope, work).expect("a thread")
            })
            .collect();
        // By their handles: the scope's own way to wait is one that ThreadSanitizer does not see.
        let join = |handle: thread::ScopedJoinHandle<'_, ()>| {
            if let Err(payload) = handle.join() {
                let said = payload.downcast_ref::<String>().cloned();
                breaches.add(format!("a thread panicked: {}", said.as_deref().unwrap_or("see above")));
            }
        };
        workers.into_iter().for_each(join);
        shared.handed_over.close();
        leavers.into_iter().for_each(join);
    });
    sweeping.end();
    if plan.plant == Some(Fault::Thread) {
        thread::spawn(|| {
            loop {
                thread::park()
            }
        });
    }
    for subject in subjects.iter() {
        subject.judge_end();
    }
    watchdog.look_at(None);
}

/// Each kind of table with each kind of key that shows something of it; modes and times alternate from lap to lap.
fn tables(lap: u64, breaches: &Arc<Breaches>) -> Vec<Box<dyn Subject>> {
    let mut count = lap;
    let mut table = |name: &str, keys: usize| {
        count += 1;
        let fairness = if count.is_multiple_of(2) { Fairness::Eventual } else { Fairness::Fifo };
        let tracks = count.is_multiple_of(3);
        let name = format!("{name}, {keys} keys, {fairness:?}{}", if tracks { ", tracked" } else { "" });
        Table { name, keys, fairness, idle_ttl: None, reentrant: false, tracks, breaches: Arc::clone(breaches) }
    };
    let ttl = if lap.is_multiple_of(4) { Duration::ZERO } else { Duration::from_millis(1) };
    let kept = |table: Table| Table { name: format!("{}, kept for {ttl:?}", table.name), idle_ttl: Some(ttl), ..table };
    vec![
        Box::new(Locks::<u64>::new(table("lock", 1))),
        Box::new(Locks::<u64>::new(table("lock", 64))),
        Box::new(Locks::<String>::new(kept(table("lock", 3)))),
        Box::new(Locks::<u64>::new(Table { reentrant: true, ..table("reentrant lock", 4) })),
        Box::new(Locks::<Touchy>::new(table("lock with keys that panic", 6))),
        Box::new(Permits::<u64, 3>::fixed(table("semaphore", 1))),
        Box::new(Permits::<String, 2>::fixed(kept(table("semaphore", 16)))),
        Box::new(Permits::<u64>::live(table("semaphore whose limit changes", 2))),
        Box::new(Permits::<String>::live(kept(table("semaphore whose limit changes", 3)))),
        Box::new(Permits::<Touchy>::by_key(table("semaphore with keys that panic", 6))),
        Box::new(Values::<u64>::new(table("mutex", 1))),
        Box::new(Values::<u64>::new(table("mutex", 64))),
        Box::new(Values::<String>::new(kept(table("mutex", 3)))),
        Box::new(Values::<Touchy>::new(table("mutex with keys that panic", 6))),
        Box::new(ReadWrites::<u64>::new(table("rwlock", 1))),
        Box::new(ReadWrites::<u64>::new(table("rwlock", 4))),
        Box::new(ReadWrites::<u64>::new(table("rwlock", 64))),
        Box::new(ReadWrites::<String>::new(kept(table("rwlock", 3)))),
        Box::new(ReadWrites::<Touchy>::new(table("rwlock with keys that panic", 6))),
    ]
}

impl Table {
    pub(crate) fn options(&self) -> Options {
        let options = Options::new().fairness(self.fairness).reentrant(self.reentrant).name(self.name.clone());
        // Few shards, so that keys share them.
        let options = options.shards(4).track_owners(self.tracks);
        match self.idle_ttl {
            Some(ttl) => options.idle_ttl(ttl),
            None => options,
        }
    }

    /// Looks whether the table is empty once what is kept has been swept; without a time to keep, one sweep is enough.
    pub(crate) fn judge_empty(&self, oracle: &Oracle, sweep: impl Fn() -> usize, len: impl Fn() -> usize) {
        let begin = Instant::now();
        loop {
            if self.idle_ttl.is_some() {
                sweep();
            }
            let left = len();
            if left == 0 {
                return;
            }
            if self.idle_ttl.is_none_or(|ttl| ttl.is_zero()) || begin.elapsed() > PATIENCE {
                oracle.report(&format!("keys left: {left} are in the table at the end"));
                return;
            }
            thread::yield_now();
        }
    }
}
