//! Sweeps tables in the background.
//!
//! The thread holds only `Weak`s. It upgrades one for the length of one sweep, so it may come to drop the last `Arc` of a
//! table, and with it whatever the table's keys own: another sweeper, or this one.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lock::KeyedLock;
use crate::mutex::KeyedMutex;
use crate::rwlock::KeyedRwLock;
use crate::semaphore::KeyedSemaphore;
use crate::sync::{Condvar, Mutex};
use crate::unwind::survive;

/// A tick of zero would be a loop that does nothing else.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// A table that a [`Sweeper`] can sweep: [`KeyedLock`], [`KeyedRwLock`], [`KeyedMutex`] and [`KeyedSemaphore`], with keys and
/// values that may be dropped on its thread.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use perkey::{Sweep, Sweeper};
///
/// fn keep_tidy<T: Sweep>(table: &Arc<T>) -> Sweeper {
///     table.sweep();
///     Sweeper::spawn(table, Duration::from_secs(10))
/// }
/// ```
pub trait Sweep: sealed::Sealed + Send + Sync + 'static {
    /// Removes the entries that have been idle for the table's [`idle_ttl`](crate::Options::idle_ttl); returns how many.
    fn sweep(&self) -> usize;
}

mod sealed {
    pub trait Sealed {}
}

impl<K, S> sealed::Sealed for KeyedLock<K, S> {}

impl<K: Send + Sync + 'static, S: Send + Sync + 'static> Sweep for KeyedLock<K, S> {
    fn sweep(&self) -> usize {
        KeyedLock::sweep(self)
    }
}

impl<K, S> sealed::Sealed for KeyedRwLock<K, S> {}

impl<K: Send + Sync + 'static, S: Send + Sync + 'static> Sweep for KeyedRwLock<K, S> {
    fn sweep(&self) -> usize {
        KeyedRwLock::sweep(self)
    }
}

impl<K, V, S> sealed::Sealed for KeyedMutex<K, V, S> {}

impl<K, V, S> Sweep for KeyedMutex<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    S: Send + Sync + 'static,
{
    fn sweep(&self) -> usize {
        KeyedMutex::sweep(self)
    }
}

impl<K, const N: usize, S> sealed::Sealed for KeyedSemaphore<K, N, S> {}

impl<K: Send + Sync + 'static, const N: usize, S: Send + Sync + 'static> Sweep for KeyedSemaphore<K, N, S> {
    fn sweep(&self) -> usize {
        KeyedSemaphore::sweep(self)
    }
}

/// A background thread that sweeps tables, for as long as this is kept.
///
/// It keeps no table alive. When all of its tables are gone it ends within a tick; dropping it ends it at once, or when the
/// sweep that runs is done. It survives keys and values whose `Drop` panics in a sweep; the panic is reported by the panic
/// hook, as any is. (A table that is dropped with two such in it ends the process, on this thread as on any.)
///
/// # Deadlocks
///
/// Dropping the sweeper waits for its thread, and that may be dropping a key or a value: do not drop it while you hold
/// something that such a `Drop` waits for. On the sweeper's own thread it does not wait. Two sweepers that are each owned by
/// a key or a value of the other's table would wait for each other.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use perkey::{KeyedLock, KeyedSemaphore, Options, Sweeper};
///
/// let options = || Options::new().idle_ttl(Duration::from_secs(60));
/// let sessions = Arc::new(KeyedLock::<String>::with_options(options()));
/// let hosts = Arc::new(KeyedSemaphore::<String, 4>::with_options(options()));
///
/// let mut sweeper = Sweeper::spawn(&sessions, Duration::from_secs(10));
/// sweeper.add(&hosts);
/// ```
#[must_use = "dropping the sweeper ends it"]
pub struct Sweeper {
    shared: Arc<Shared>,
    every: Duration,
    /// There until drop.
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    /// The thread has found no table left and is about to end.
    ended: bool,
    tables: Vec<Weak<dyn Sweep>>,
}

impl Sweeper {
    /// Sweeps `table` every so often, on a thread of its own. The first sweep comes one tick from now. A tick of zero counts
    /// as a millisecond.
    ///
    /// # Panics
    ///
    /// If the system gives no thread; see [`try_spawn`](Self::try_spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options, Sweeper};
    ///
    /// let options = Options::new().idle_ttl(Duration::from_secs(60));
    /// let sessions = Arc::new(KeyedLock::<String>::with_options(options));
    /// let sweeper = Sweeper::spawn(&sessions, Duration::from_secs(10));
    /// ```
    pub fn spawn<T: Sweep>(table: &Arc<T>, every: Duration) -> Self {
        Self::try_spawn(table, every).expect("the system gives a thread for the sweeper")
    }

    /// As [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options, Sweeper};
    ///
    /// let options = Options::new().idle_ttl(Duration::from_secs(60));
    /// let sessions = Arc::new(KeyedLock::<String>::with_options(options));
    /// let sweeper = Sweeper::try_spawn(&sessions, Duration::from_secs(10))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_spawn<T: Sweep>(table: &Arc<T>, every: Duration) -> io::Result<Self> {
        let every = every.max(SHORTEST_TICK);
        let shared = Arc::new(Shared::default());
        shared.state.lock().tables.push(weak(table));
        let thread = Some(start(&shared, every)?);
        Ok(Self { shared, every, thread })
    }

    /// Sweeps `table` too, in the same ticks.
    ///
    /// # Panics
    ///
    /// If all earlier tables are gone, and with them the thread, and the system gives no new one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options, Sweeper};
    ///
    /// let table = || {
    ///     Arc::new(KeyedLock::<String>::with_options(Options::new().idle_ttl(Duration::from_secs(60))))
    /// };
    /// let (sessions, documents) = (table(), table());
    /// let mut sweeper = Sweeper::spawn(&sessions, Duration::from_secs(10));
    /// sweeper.add(&documents);
    /// ```
    pub fn add<T: Sweep>(&mut self, table: &Arc<T>) {
        let mut state = self.shared.state.lock();
        state.tables.push(weak(table));
        if state.ended {
            // The thread waits for the lock held here, so it finds the table and that it has not ended.
            self.thread = Some(start(&self.shared, self.every).expect("the system gives a thread for the sweeper"));
            state.ended = false;
        }
    }

    /// Ends the thread, and waits for that; the same as dropping the sweeper.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use perkey::{KeyedLock, Options, Sweeper};
    ///
    /// let options = Options::new().idle_ttl(Duration::from_secs(60));
    /// let sessions = Arc::new(KeyedLock::<String>::with_options(options));
    /// let sweeper = Sweeper::spawn(&sessions, Duration::from_secs(3600));
    /// sweeper.stop(); // at once, however long the tick
    /// ```
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.stopped.notify_one();
        let Some(thread) = self.thread.take() else { return };
        // A thread that waited for itself would wait for ever.
        if thread.thread().id() != thread::current().id() {
            // It does not panic; and if it did, there is nothing to do about it here.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.shared.state.lock().tables.len();
        f.debug_struct("Sweeper").field("every", &self.every).field("tables", &tables).finish_non_exhaustive()
    }
}

fn weak<T: Sweep>(table: &Arc<T>) -> Weak<dyn Sweep> {
    let weak: Weak<T> = Arc::downgrade(table);
    weak
}

fn start(shared: &Arc<Shared>, every: Duration) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("perkey-sweeper".to_owned()).spawn(move || run(&shared, every))
}

fn run(shared: &Shared, every: Duration) {
    while let Some(tables) = shared.next_tick(every) {
        for table in tables {
            if shared.state.lock().stop {
                return;
            }
            let Some(table) = table.upgrade() else { continue };
            survive(|| {
                table.sweep();
            });
            // Perhaps the last `Arc`, and then the keys go with it; not while the sweep unwinds.
            survive(|| drop(table));
        }
    }
}

impl Shared {
    /// Waits for a tick; the tables that are still there. `None` if that is none, or if the sweeper was stopped.
    fn next_tick(&self, every: Duration) -> Option<Vec<Weak<dyn Sweep>>> {
        // A tick too long for the clock never comes.
        let tick = Instant::now().checked_add(every);
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            match tick {
                None => self.stopped.wait(&mut state),
                Some(tick) => {
                    if self.stopped.wait_until(&mut state, tick).timed_out() {
                        break;
                    }
                }
            }
        }
        state.tables.retain(|table| table.strong_count() > 0);
        if state.stop || state.tables.is_empty() {
            state.ended = true;
            return None;
        }
        Some(state.tables.clone())
    }
}
