//! Warnings of waits that go on for long.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perkey::{AcquireError, CancellationToken, KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore, Options, Wait};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

use crate::support::{Threads, panics, quiet_panic, threads, until, watched, watched_in_both_modes};

const D: Duration = Duration::from_millis(2);

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

type Fields = BTreeMap<&'static str, String>;

/// Collects the warnings of those threads that it is the subscriber of.
#[derive(Clone, Default)]
struct Log {
    warnings: Arc<Mutex<Vec<Fields>>>,
    #[expect(clippy::type_complexity, reason = "it is what it is: what is done at each warning")]
    then: Option<Arc<dyn Fn(&Fields) + Send + Sync>>,
}

impl Log {
    fn then(then: impl Fn(&Fields) + Send + Sync + 'static) -> Self {
        Self { then: Some(Arc::new(then)), ..Self::default() }
    }

    /// Does `work` with this subscriber.
    fn hears<R>(&self, work: impl FnOnce() -> R) -> R {
        subscriber::with_default(self.clone(), work)
    }

    fn len(&self) -> usize {
        self.warnings.lock().len()
    }

    fn all(&self) -> Vec<Fields> {
        self.warnings.lock().clone()
    }

    /// The first, once it is there.
    fn first(&self) -> Fields {
        until(|| self.len() > 0);
        self.warnings.lock()[0].clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "perkey"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Reads(Fields);
        impl Visit for Reads {
            fn record_str(&mut self, field: &Field, value: &str) {
                self.0.insert(field.name(), value.to_owned());
            }

            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0.insert(field.name(), format!("{value:?}"));
            }
        }

        assert_eq!(*event.metadata().level(), Level::WARN);
        let mut reads = Reads(Fields::new());
        event.record(&mut reads);
        self.warnings.lock().push(reads.0.clone());
        if let Some(then) = &self.then {
            then(&reads.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn warned() -> Options {
    Options::new().warn_waiting_over(D)
}

/// Here, as a warning shows it.
#[track_caller]
fn here() -> String {
    Location::caller().to_string()
}

fn waited_secs(warning: &Fields) -> f64 {
    warning["waited_secs"].parse().expect("a number")
}

fn spawn_named<'scope>(scope: &Threads<'scope, '_>, name: &'static str, work: impl FnOnce() + Send + 'scope) {
    scope.spawn_with(thread::Builder::new().name(name.to_owned()), work);
}

/// Does `work` on a thread with this name, which `log` hears.
fn spawn<'scope>(scope: &Threads<'scope, '_>, name: &'static str, log: &Log, work: impl FnOnce() + Send + 'scope) {
    let log = log.clone();
    spawn_named(scope, name, move || log.hears(work));
}

#[test]
fn a_wait_over_the_limit_warns_with_all_fields() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(warned().name("accounts"));
        let log = Log::default();
        let held = locks.lock(&1);
        let place = Mutex::new(String::new());
        threads(|scope| {
            spawn(scope, "waiter", &log, || {
                *place.lock() = here();
                drop(locks.lock(&1));
            });
            let warning = log.first();
            drop(held);
            let line: u32 = place.lock().rsplit(':').nth(1).expect("a line").parse().expect("a number");
            let fields: Vec<&str> = warning.keys().copied().collect();
            assert_eq!(
                fields,
                [
                    "held",
                    "holders",
                    "key_type",
                    "location",
                    "message",
                    "table",
                    "table_type",
                    "waited_secs",
                    "waiter",
                    "waiting"
                ]
            );
            assert_eq!(warning["message"], "a thread has waited long for a key");
            assert_eq!(warning["table"], "accounts");
            assert_eq!(warning["table_type"], "KeyedLock");
            assert_eq!(warning["key_type"], "u32");
            assert_eq!(warning["waiter"], "thread \"waiter\"");
            assert!(waited_secs(&warning) >= D.as_secs_f64());
            assert!(warning["location"].starts_with(&format!("{}:{}:", file!(), line + 1)), "{warning:?}");
            assert_eq!(warning["waiting"], "1");
            assert_eq!(warning["held"], "held");
            assert!(warning["holders"].contains("Options::track_owners"), "{warning:?}");
        });
    });
}

#[test]
fn a_wait_under_the_limit_does_not_warn() {
    watched(|| {
        // Zero turns it off, and the clock does not go so far as the last.
        for limit in [Some(LONG), Some(Duration::ZERO), Some(Duration::MAX), None] {
            let options = match limit {
                Some(limit) => Options::new().warn_waiting_over(limit),
                None => Options::new(),
            };
            let locks = KeyedLock::<u32>::with_options(options);
            let log = Log::default();
            let held = locks.lock(&1);
            threads(|scope| {
                spawn(scope, "waiter", &log, || assert!(locks.lock_with(&1, 3 * D).is_err()));
                spawn(scope, "waiter", &log, || drop(locks.lock(&1)));
                until(|| locks.stats().timeouts == 1);
                drop(held);
            });
            assert_eq!(log.len(), 0, "{limit:?}");
        }
    });
}

/// A wait warns after d, 2d, 4d and so on at most, counted from its beginning.
#[test]
fn a_wait_that_goes_on_warns_at_doubling_intervals() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(warned().fairness(fairness));
        let log = Log::default();
        let held = locks.lock(&1);
        threads(|scope| {
            spawn(scope, "waiter", &log, || drop(locks.lock(&1)));
            until(|| log.len() >= 5);
            drop(held);
        });
        for (number, warning) in log.all().iter().enumerate() {
            let least = D * (1 << number);
            assert!(waited_secs(warning) >= least.as_secs_f64(), "warning {number} came early: {warning:?}");
        }
    });
}

#[test]
fn many_that_wait_for_one_key_warn_as_one() {
    watched_in_both_modes(|fairness| {
        const WAITERS: usize = 10;
        const LIMIT: Duration = Duration::from_millis(50);
        let options = Options::new().warn_waiting_over(LIMIT).fairness(fairness);
        let locks = KeyedLock::<u32>::with_options(options);
        let log = Log::default();
        let held = locks.lock(&1);
        let begin = Instant::now();
        threads(|scope| {
            for _ in 0..WAITERS {
                spawn(scope, "waiter", &log, || drop(locks.lock(&1)));
            }
            until(|| log.len() >= 3);
            drop(held);
        });
        // If each warned for itself there would be some thirty in four intervals.
        let intervals = begin.elapsed().as_nanos() / LIMIT.as_nanos();
        let warnings = log.all();
        assert!(warnings.len() as u128 <= intervals, "{} warnings in {intervals} intervals", warnings.len());
        let most = warnings.iter().map(|warning| warning["waiting"].parse::<usize>().expect("a number")).max();
        assert!(most <= Some(WAITERS));
    });
}

/// Each key has its own warnings.
#[test]
fn other_keys_warn_too() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(warned());
        let logs: [Log; 4] = Default::default();
        let held: Vec<_> = (0..4).map(|key| locks.lock(&key)).collect();
        threads(|scope| {
            let locks = &locks;
            for (key, log) in (0..).zip(&logs) {
                spawn(scope, "waiter", log, move || drop(locks.lock(&key)));
            }
            until(|| logs.iter().all(|log| log.len() > 0));
            drop(held);
        });
    });
}

/// Who has no subscriber leaves the warnings to others.
#[test]
fn a_thread_that_is_not_heard_leaves_it_to_others() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(warned());
        let log = Log::default();
        let held = locks.lock(&1);
        threads(|scope| {
            scope.spawn(|| drop(locks.lock(&1)));
            until(|| locks.waiters(&1) == 1);
            spawn(scope, "heard", &log, || drop(locks.lock(&1)));
            assert_eq!(log.first()["waiter"], "thread \"heard\"");
            drop(held);
        });
    });
}

#[test]
fn holders_and_where_they_called_are_named_if_owners_are_tracked() {
    watched(|| {
        let hosts = KeyedSemaphore::<u32, 3>::with_options(warned().track_owners(true));
        let log = Log::default();
        let places = Mutex::new(Vec::new());
        let go = CancellationToken::new();
        threads(|scope| {
            for (name, left) in [("first", 2), ("second", 1)] {
                spawn_named(scope, name, || {
                    let _held = {
                        places.lock().push(here());
                        hosts.acquire(&1)
                    };
                    until(|| go.is_cancelled());
                });
                until(|| hosts.available_permits(&1) == left);
            }
            spawn(scope, "waiter", &log, || drop(hosts.acquire_many(&1, 2, Wait::forever()).unwrap()));
            let warning = log.first();
            go.cancel();
            assert_eq!(warning["held"], "2 of 3 held");
            let holders: Vec<&str> = warning["holders"].split("; ").collect();
            assert_eq!(holders.len(), 2, "{warning:?}");
            for (holder, (name, place)) in holders.iter().zip(["first", "second"].into_iter().zip(&*places.lock())) {
                assert!(holder.starts_with(&format!("held by thread \"{name}\" for ")), "{holder}");
                let line: u32 = place.rsplit(':').nth(1).expect("a line").parse().expect("a number");
                assert!(holder.contains(&format!("at {}:{}:", file!(), line + 1)), "{holder}");
            }
        });
    });
}

#[test]
fn of_many_holders_the_oldest_are_named() {
    watched(|| {
        let locks = KeyedRwLock::<u32>::with_options(warned().track_owners(true));
        let log = Log::default();
        let held: Vec<_> = (0..20).map(|_| locks.read(&1)).collect();
        threads(|scope| {
            spawn(scope, "waiter", &log, || drop(locks.write(&1)));
            let warning = log.first();
            drop(held);
            assert_eq!(warning["held"], "held by 20 to read");
            assert_eq!(warning["holders"].matches("held by thread").count(), 16, "{warning:?}");
            assert!(warning["holders"].ends_with("; and 4 more"), "{warning:?}");
        });
    });
}

#[test]
fn every_type_warns() {
    watched(|| {
        let values = KeyedMutex::<u32, u32>::with_options(warned());
        let log = Log::default();
        let held = values.lock(&1);
        threads(|scope| {
            spawn(scope, "waiter", &log, || drop(values.lock(&1)));
            assert_eq!(log.first()["table_type"], "KeyedMutex");
            drop(held);
        });
        let locks = KeyedRwLock::<u32>::with_options(warned());
        let log = Log::default();
        let held = locks.write(&1);
        threads(|scope| {
            spawn(scope, "waiter", &log, || drop(locks.read(&1)));
            let warning = log.first();
            assert_eq!((warning["table_type"].as_str(), warning["held"].as_str()), ("KeyedRwLock", "held to write"));
            assert!(!warning.contains_key("table"), "it has no name");
            drop(held);
        });
    });
}

#[test]
fn a_request_behind_a_lock_over_every_key_warns() {
    watched(|| {
        for tracked in [false, true] {
            let locks = KeyedRwLock::<u32>::with_options(warned().track_owners(tracked));
            let log = Log::default();
            let all = locks.write_all();
            threads(|scope| {
                spawn(scope, "waiter", &log, || drop(locks.read(&1)));
                let warning = log.first();
                drop(all);
                assert_eq!(warning["message"], "a thread has waited long for a key, behind a lock over every key");
                assert_eq!(warning["held"], "every key held to write");
                let named = warning["holders"].starts_with("held by thread") && warning["holders"].contains(file!());
                assert_eq!(named, tracked, "{warning:?}");
            });
            assert!(locks.is_empty());
        }
    });
}

#[test]
fn a_request_for_every_key_warns_and_so_does_one_behind_it() {
    watched(|| {
        for tracked in [false, true] {
            let locks = KeyedRwLock::<u32>::with_options(warned().track_owners(tracked));
            let (log, behind) = (Log::default(), Log::default());
            let held = locks.read(&1);
            threads(|scope| {
                spawn(scope, "closer", &log, || drop(locks.write_all()));
                let warning = log.first();
                assert_eq!(warning["message"], "a thread has waited long for every key");
                assert_eq!(warning["held"], "nobody has every key, 1 in the way that hold single keys or came before");
                let named = warning["holders"].starts_with("held by thread") && warning["holders"].contains(file!());
                assert_eq!(named, tracked, "{warning:?}");
                spawn(scope, "reader", &behind, || drop(locks.read(&2)));
                let warning = behind.first();
                assert_eq!(warning["waiting"], "2");
                assert!(
                    warning["held"].starts_with("nobody has every key, first in line for that: thread \"closer\""),
                    "{warning:?}"
                );
                drop(held);
            });
            assert!(locks.is_empty());
        }
    });
}

/// A request that was kept out and then queues for its key goes on counting from when it came.
#[test]
fn a_request_that_was_let_in_warns_on_at_its_key() {
    watched(|| {
        let locks = KeyedRwLock::<u32>::with_options(warned());
        let log = Log::default();
        let (first, done) = (CancellationToken::new(), CancellationToken::new());
        let all = locks.write_all();
        threads(|scope| {
            scope.spawn(|| {
                let _held = locks.write(&1);
                first.cancel();
                until(|| done.is_cancelled());
            });
            until(|| locks.waiters(&1) == 1);
            spawn(scope, "waiter", &log, || drop(locks.write(&1)));
            log.first();
            drop(all);
            until(|| first.is_cancelled());
            let at_key = |warning: &Fields| warning["message"] == "a thread has waited long for a key";
            until(|| log.all().iter().any(at_key));
            done.cancel();
            let warnings = log.all();
            assert!(!at_key(&warnings[0]));
            let secs: Vec<f64> = warnings.iter().map(waited_secs).collect();
            assert!(secs.is_sorted() && secs[secs.len() - 1] >= 2.0 * D.as_secs_f64(), "{secs:?}");
        });
    });
}

#[test]
fn a_time_limit_is_kept_to_with_warnings_before_it() {
    watched_in_both_modes(|fairness| {
        let locks = KeyedLock::<u32>::with_options(warned().fairness(fairness));
        let held = locks.lock(&1);
        threads(|scope| {
            for times in [1, 2, 3, 10] {
                let locks = &locks;
                spawn(scope, "waiter", &Log::default(), move || {
                    let begin = Instant::now();
                    let outcome = locks.lock_with(&1, times * D).map(drop);
                    assert_eq!(outcome, Err(AcquireError::Timeout));
                    assert!(begin.elapsed() >= times * D, "it gave up early");
                });
            }
        });
        assert_eq!(locks.stats().timeouts, 4);
        assert_eq!(locks.waiters(&1), 0);
        drop(held);
    });
}

/// The end of a wait comes before its warning.
#[test]
fn a_wait_that_ends_when_it_is_due_does_not_warn() {
    watched(|| {
        let locks = KeyedLock::<u32>::with_options(warned());
        let log = Log::default();
        let held = locks.lock(&1);
        threads(|scope| {
            spawn(scope, "waiter", &log, || {
                assert_eq!(locks.lock_with(&1, D / 2).map(drop), Err(AcquireError::Timeout));
            });
        });
        assert_eq!(log.len(), 0);
        drop(held);
    });
}

/// Whatever ends the wait while the subscriber runs, it is what the call returns.
#[test]
fn what_happens_while_the_subscriber_runs_is_the_outcome() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(warned().fairness(fairness)));
        let told = Arc::new(AtomicUsize::new(0));
        let go = CancellationToken::new();
        let log = {
            let (told, go) = (Arc::clone(&told), go.clone());
            Log::then(move |_| {
                told.fetch_add(1, Ordering::AcqRel);
                until(|| go.is_cancelled());
            })
        };
        let token = CancellationToken::new();
        let keys: Vec<_> = (0..3).map(|key| locks.lock(&key)).collect();
        let limit = 50 * D;
        threads(|scope| {
            spawn(scope, "timed", &log, || {
                assert_eq!(locks.lock_with(&0, limit).map(drop), Err(AcquireError::Timeout));
            });
            spawn(scope, "cancelled", &log, || {
                assert_eq!(locks.lock_with(&1, &token).map(drop), Err(AcquireError::Cancelled));
            });
            spawn(scope, "granted", &log, || drop(locks.lock_with(&2, LONG).expect("it is granted")));
            // On a machine that is busy the first may run out of time before it is due.
            until(|| told.load(Ordering::Acquire) + locks.stats().timeouts as usize == 3);
            let told_at = Instant::now();
            token.cancel();
            until(|| told_at.elapsed() > limit);
            let mut keys = keys.into_iter();
            let (first, second) = (keys.next(), keys.next());
            drop(keys);
            go.cancel();
            until(|| locks.waiters(&0) == 0 && locks.waiters(&1) == 0);
            drop((first, second));
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn a_subscriber_that_panics_ends_the_wait_and_no_more() {
    watched_in_both_modes(|fairness| {
        for tracked in [false, true] {
            let options = || warned().fairness(fairness).track_owners(tracked);
            let log = Log::then(|_| quiet_panic());
            let locks = KeyedLock::<u32>::with_options(options());
            let held = locks.lock(&1);
            threads(|scope| {
                spawn(scope, "waiter", &log, || assert!(panics(|| drop(locks.lock(&1)))));
                until(|| log.len() == 1 && locks.waiters(&1) == 0);
                spawn(scope, "another", &Log::default(), || drop(locks.lock(&1)));
                until(|| locks.waiters(&1) == 1);
                drop(held);
            });
            assert!(locks.is_empty());

            // At the gate, and in line for every key.
            let locks = KeyedRwLock::<u32>::with_options(options());
            let held = locks.read_all();
            threads(|scope| {
                spawn(scope, "kept out", &log, || assert!(panics(|| drop(locks.write(&1)))));
                until(|| log.len() == 2 && locks.waiters(&1) == 0);
                spawn(scope, "closer", &log, || assert!(panics(|| drop(locks.write_all()))));
                until(|| log.len() == 3);
            });
            // Nobody is in the way of readers any more.
            threads(|scope| drop(scope.spawn(|| drop(locks.read(&1)))));
            drop(held);
            drop(locks.write_all());
            assert!(locks.is_empty());
        }
    });
}

/// A thread that unwinds waits in a `Drop`. To panic there would end the process.
#[test]
fn a_subscriber_may_panic_while_the_thread_unwinds() {
    struct Locks<'a>(&'a KeyedLock<u32>);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            drop(self.0.lock(&1));
        }
    }

    watched(|| {
        let locks = KeyedLock::<u32>::with_options(warned());
        let log = Log::then(|_| quiet_panic());
        let held = locks.lock(&1);
        threads(|scope| {
            spawn(scope, "waiter", &log, || {
                assert!(panics(|| {
                    let _locks = Locks(&locks);
                    quiet_panic();
                }));
            });
            until(|| log.len() >= 2);
            drop(held);
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn a_subscriber_may_use_the_table() {
    watched_in_both_modes(|fairness| {
        for tracked in [false, true] {
            let locks = Arc::new(KeyedRwLock::<u32>::with_options(warned().fairness(fairness).track_owners(tracked)));
            let used = Arc::new(AtomicUsize::new(0));
            let log = {
                let (locks, used) = (Arc::clone(&locks), Arc::clone(&used));
                Log::then(move |_| {
                    // From then on the key may be free.
                    if used.load(Ordering::Acquire) == 3 {
                        return;
                    }
                    assert_eq!((locks.waiters(&1), locks.snapshot().len()), (1, 1));
                    assert!(locks.is_locked(&1) && locks.stats().contended == 1);
                    drop(locks.write(&2));
                    assert!(locks.try_read(&1).is_none());
                    used.fetch_add(1, Ordering::AcqRel);
                })
            };
            let held = locks.write(&1);
            threads(|scope| {
                spawn(scope, "waiter", &log, || drop(locks.read(&1)));
                until(|| used.load(Ordering::Acquire) == 3);
                drop(held);
            });
            assert!(locks.is_empty());
        }
    });
}

/// It waits like anybody, but for the warnings: else each would bring the next.
#[test]
fn a_subscriber_may_wait_and_is_not_told_of_that() {
    watched_in_both_modes(|fairness| {
        let locks = Arc::new(KeyedLock::<u32>::with_options(warned().fairness(fairness)));
        let log = {
            let locks = Arc::clone(&locks);
            Log::then(move |_| drop(locks.lock(&2)))
        };
        let held = locks.lock(&1);
        let wanted = locks.lock(&2);
        threads(|scope| {
            spawn(scope, "waiter", &log, || drop(locks.lock(&1)));
            until(|| locks.waiters(&2) == 1);
            let waits = Instant::now();
            until(|| waits.elapsed() > 5 * D);
            assert_eq!(log.len(), 1);
            drop(wanted);
            until(|| log.len() >= 2);
            drop(held);
        });
        assert!(locks.is_empty());
    });
}

/// A thread that waits for key 2 holds key 1. While its subscriber waits for key 3, key 1 is asked for by who holds key 2: when
/// the subscriber is done, that is a ring, and one of the two finds it.
#[test]
fn a_ring_that_closes_while_the_subscriber_waits_is_found_after_that() {
    watched_in_both_modes(|fairness| {
        let options = warned().fairness(fairness).detect_deadlocks(true);
        let locks = Arc::new(KeyedLock::<u32>::with_options(options));
        let log = {
            let locks = Arc::clone(&locks);
            Log::then(move |_| drop(locks.lock(&3)))
        };
        let (holds, refused) = (CancellationToken::new(), AtomicUsize::new(0));
        let ask = |key| match locks.lock_with(&key, Wait::forever()) {
            Ok(guard) => drop(guard),
            Err(AcquireError::WouldDeadlock(deadlock)) => {
                assert_eq!(deadlock.threads().len(), 2, "{deadlock}");
                refused.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => panic!("{error}"),
        };
        let wanted = locks.lock(&3);
        threads(|scope| {
            scope.spawn(|| {
                let _second = locks.lock(&2);
                holds.cancel();
                until(|| locks.waiters(&3) == 1);
                ask(1);
            });
            until(|| holds.is_cancelled());
            spawn(scope, "waiter", &log, || {
                let _first = locks.lock(&1);
                ask(2);
            });
            until(|| locks.waiters(&1) == 1);
            drop(wanted);
        });
        assert_eq!(refused.load(Ordering::Acquire), 1);
        assert!(locks.is_empty());
    });
}
