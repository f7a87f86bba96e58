//! What the tests share: a watchdog, places to meet, an oracle. With parking_lot instead of std's locks, which
//! ThreadSanitizer does not see.

use std::any::Any;
use std::cell::Cell;
use std::hint;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use perkey::{CancellationToken, Fairness, Options, Wait};

pub(crate) const MODES: [Fairness; 2] = [Fairness::Eventual, Fairness::Fifo];

/// Generous: it is only reached by a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Built with `PERKEY_TEST_SHORT` set, as for a checker that is slow.
pub(crate) const SHORT: bool = option_env!("PERKEY_TEST_SHORT").is_some();

/// How often a long test goes round: 20 times less if [`SHORT`].
pub(crate) const fn rounds(full: usize) -> usize {
    if SHORT { full.div_ceil(20) } else { full }
}

/// Runs a test, and fails it if it has not finished in time; what hangs stays behind.
pub(crate) fn watched(test: impl FnOnce() + Send + 'static) {
    struct Ends(Arc<(Mutex<bool>, Condvar)>);
    impl Drop for Ends {
        fn drop(&mut self) {
            *self.0.0.lock() = true;
            self.0.1.notify_one();
        }
    }

    let name = thread::current().name().unwrap_or("a test").to_owned();
    let ended = Arc::new((Mutex::new(false), Condvar::new()));
    let ends = Ends(Arc::clone(&ended));
    let body = Builder::new().name(name.clone()).spawn(move || {
        let _ends = ends;
        test();
    });
    let body = body.expect("a thread for the test");
    let deadline = Instant::now() + LIMIT;
    let mut has_ended = ended.0.lock();
    while !*has_ended {
        assert!(
            !ended.1.wait_until(&mut has_ended, deadline).timed_out() || *has_ended,
            "{name} hangs: not finished after {LIMIT:?}"
        );
    }
    drop(has_ended);
    if let Err(panic) = body.join() {
        panic::resume_unwind(panic);
    }
}

/// [`watched`], in one mode after the other.
pub(crate) fn watched_in_both_modes(test: impl Fn(Fairness) + Send + 'static) {
    watched(move || MODES.into_iter().for_each(test));
}

/// Options with that fairness, and so few shards that keys share them.
pub(crate) fn crowded(fairness: Fairness) -> Options {
    Options::new().fairness(fairness).shards(2)
}

/// Waits for what can be observed, by looking again and again; after a while less often, since where others keep the
/// cores busy each `yield_now` costs a time slice.
pub(crate) fn until(observed: impl Fn() -> bool) {
    let begin = Instant::now();
    while !observed() {
        if begin.elapsed() < Duration::from_micros(200) {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// [`until`], for what is about to be: sees it as early as it can be seen.
pub(crate) fn soon(observed: impl Fn() -> bool) {
    let begin = Instant::now();
    while !observed() {
        if begin.elapsed() > Duration::from_micros(500) {
            return until(observed);
        }
        hint::spin_loop();
    }
}

/// Runs `work` on another thread, and waits for it.
pub(crate) fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    threads(|scope| scope.spawn(work).join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
}

/// [`thread::scope`], with an end that ThreadSanitizer sees.
pub(crate) fn threads<'env, R>(body: impl for<'scope> FnOnce(&Threads<'scope, 'env>) -> R) -> R {
    let ended = Arc::new(AtomicUsize::new(0));
    let (result, started) = thread::scope(|scope| {
        let threads = Threads { scope, started: Cell::new(0), ended: Arc::clone(&ended) };
        (body(&threads), threads.started.get())
    });
    until(|| ended.load(Ordering::Acquire) == started);
    result
}

pub(crate) struct Threads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    started: Cell<usize>,
    ended: Arc<AtomicUsize>,
}

impl<'scope> Threads<'scope, '_> {
    pub(crate) fn spawn<R: Send + 'scope>(
        &self,
        work: impl FnOnce() -> R + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, R> {
        self.spawn_with(thread::Builder::new(), work)
    }

    pub(crate) fn spawn_with<R: Send + 'scope>(
        &self,
        builder: thread::Builder,
        work: impl FnOnce() -> R + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, R> {
        struct Ends(Arc<AtomicUsize>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        self.started.set(self.started.get() + 1);
        let ends = Ends(Arc::clone(&self.ended));
        let work = move || {
            let _ends = ends;
            work()
        };
        builder.spawn_scoped(self.scope, work).expect("a thread starts")
    }
}

/// The message that `work` panics with.
pub(crate) fn panic_message<R>(work: impl FnOnce() -> R) -> String {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(_) => panic!("expected a panic"),
        Err(payload) => message_of(&*payload),
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        (*payload.downcast_ref::<&str>().expect("a message")).to_owned()
    }
}

/// Whether `work` panicked by [`quiet_panic`].
pub(crate) fn panics(work: impl FnOnce()) -> bool {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => false,
        Err(payload) if payload.is::<Planned>() => true,
        Err(payload) => panic::resume_unwind(payload),
    }
}

struct Planned;

/// A panic that prints nothing.
pub(crate) fn quiet_panic() -> ! {
    panic::resume_unwind(Box::new(Planned))
}

/// The same, for [`panic_message`].
pub(crate) fn quiet_panic_with(message: &'static str) -> ! {
    panic::resume_unwind(Box::new(message))
}

pub(crate) fn spin(times: u64) {
    for _ in 0..times {
        hint::spin_loop();
    }
}

/// Work of a random length: some of it so long that others queue meanwhile, or run out of time.
pub(crate) fn work(random: &mut Random) {
    match random.below(16) {
        0 => thread::sleep(Duration::from_micros(1)),
        _ => spin(random.below(100)),
    }
}

/// A wait whose thread, once it has queued, registers with so many tokens that others can act before it parks.
pub(crate) fn slow_to_park(token: &CancellationToken) -> Wait {
    let other = CancellationToken::new();
    (0..200).fold(Wait::forever(), |wait, _| wait.or_cancelled(&other)).or_cancelled(token)
}

/// So many threads go on when all of them are here. Can be used again.
pub(crate) struct Barrier {
    size: usize,
    arrived: AtomicUsize,
}

impl Barrier {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, arrived: AtomicUsize::new(0) }
    }

    pub(crate) fn meet(&self) {
        let place = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (place / self.size + 1) * self.size;
        until(|| self.arrived.load(Ordering::Acquire) >= full);
    }
}

/// Random numbers that are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Below `bound`. By xorshift64*.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// Watches one key: that never more than its limit are inside and, if the limit is 1, that nothing written inside is
/// lost.
pub(crate) struct Oracle {
    limit: usize,
    inside: AtomicUsize,
    visits: AtomicUsize,
    /// Incremented by a load and a store, so it only counts right if one is inside at a time.
    plain: AtomicUsize,
}

impl Oracle {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, inside: AtomicUsize::new(0), visits: AtomicUsize::new(0), plain: AtomicUsize::new(0) }
    }

    pub(crate) fn exclusive() -> Self {
        Self::new(1)
    }

    /// To be called by who holds `weight` permits.
    pub(crate) fn visit(&self, weight: usize, work: impl FnOnce()) {
        let inside = self.inside.fetch_add(weight, Ordering::Relaxed) + weight;
        assert!(inside <= self.limit, "{inside} inside, with a limit of {}", self.limit);
        let plain = self.plain.load(Ordering::Relaxed);
        work();
        self.plain.store(plain + 1, Ordering::Relaxed);
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_sub(weight, Ordering::Relaxed);
    }

    /// To be called when all have left; gives the number of visits.
    pub(crate) fn check(&self) -> usize {
        let visits = self.visits.load(Ordering::Relaxed);
        assert_eq!(self.inside.load(Ordering::Relaxed), 0, "still inside");
        if self.limit == 1 {
            assert_eq!(self.plain.load(Ordering::Relaxed), visits, "what was written inside is lost");
        }
        visits
    }
}
