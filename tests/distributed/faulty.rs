//! Stores that fail, and what is made of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{
    Capabilities, Claim, DistributedLock, DistributedSemaphore, Error, Grant, Holder, Job, JobLimits, Lease,
    LeaseOptions, Lost, MemoryStore, Patience, Released, Renewal, Store, StoreError, StoreErrorKind,
};
use perkey::{AcquireError, Wait};

use crate::contract::{GENEROUS, SHORT, cause, limited};
use crate::support::{panic_message, panics, quiet_panic, quiet_panic_with, until, watched};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Nothing is done.
    Refuses(StoreErrorKind),
    /// It is done, and the reply never comes.
    Forgets,
    Panics,
    /// It is done first.
    DoesAndPanics,
    /// It is done, and the reply comes so late.
    Takes(Duration),
}

/// For which key, and the how manieth call of its kind.
type Plan = Box<dyn Fn(&str, usize) -> Fault + Send + Sync>;

/// A store in memory, with faults.
struct Faulty {
    inner: MemoryStore,
    acquire: (Plan, AtomicUsize),
    renew: (Plan, AtomicUsize),
    release: (Plan, AtomicUsize),
    /// So many releases come before the request that they are for, which is on its way.
    early_releases: AtomicUsize,
    /// How long each renewal might take.
    renewal_limits: Mutex<Vec<Duration>>,
    /// And each question whether something is held.
    question_limits: Mutex<Vec<Duration>>,
}

impl Faulty {
    fn new() -> Self {
        let sound = || (Box::new(|_: &str, _| Fault::None) as Plan, AtomicUsize::new(0));
        Self {
            inner: MemoryStore::new(),
            acquire: sound(),
            renew: sound(),
            release: sound(),
            early_releases: AtomicUsize::new(0),
            renewal_limits: Mutex::default(),
            question_limits: Mutex::default(),
        }
    }

    fn acquire(mut self, plan: impl Fn(&str, usize) -> Fault + Send + Sync + 'static) -> Self {
        self.acquire.0 = Box::new(plan);
        self
    }

    fn renew(mut self, plan: impl Fn(&str, usize) -> Fault + Send + Sync + 'static) -> Self {
        self.renew.0 = Box::new(plan);
        self
    }

    fn release(mut self, plan: impl Fn(&str, usize) -> Fault + Send + Sync + 'static) -> Self {
        self.release.0 = Box::new(plan);
        self
    }

    /// The store, and locks over it with this time to live.
    fn locks(self, ttl: Duration) -> (Arc<Self>, DistributedLock) {
        let store = Arc::new(self);
        let locks = DistributedLock::with_options(store.clone(), LeaseOptions::new().ttl(ttl));
        (store, locks)
    }

    fn acquired(&self) -> usize {
        self.acquire.1.load(Ordering::SeqCst)
    }

    fn renewed(&self) -> usize {
        self.renew.1.load(Ordering::SeqCst)
    }

    fn released(&self) -> usize {
        self.release.1.load(Ordering::SeqCst)
    }

    /// How many hold something.
    fn left(&self) -> usize {
        self.inner.holders("perkey", "").expect("it is sound").len()
    }
}

fn run<R>(
    (plan, count): &(Plan, AtomicUsize),
    key: &str,
    call: impl FnOnce() -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    match plan(key, count.fetch_add(1, Ordering::SeqCst)) {
        Fault::None => call(),
        Fault::Refuses(StoreErrorKind::Permanent) => Err(StoreError::permanent("wrong password")),
        Fault::Refuses(StoreErrorKind::UnknownOutcome) => Err(StoreError::unknown_outcome("connection lost")),
        Fault::Refuses(_) => Err(StoreError::transient("connection refused")),
        Fault::Forgets => call().and_then(|_| Err(StoreError::unknown_outcome("connection lost"))),
        Fault::Panics => quiet_panic(),
        Fault::DoesAndPanics => {
            drop(call());
            quiet_panic()
        }
        Fault::Takes(time) => {
            let result = call();
            thread::sleep(time);
            result
        }
    }
}

impl Store for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        "a faulty store".to_owned()
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        run(&self.acquire, claim.name().key(), || self.inner.acquire(claim, ttl, patience))
    }

    fn renew(&self, claim: &Claim, ttl: Duration, within: Duration) -> Result<Renewal, StoreError> {
        self.renewal_limits.lock().unwrap().push(within);
        run(&self.renew, claim.name().key(), || self.inner.renew(claim, ttl, within))
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        if self.early_releases.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Ok(Released::NotOwner);
        }
        run(&self.release, claim.name().key(), || self.inner.release(claim, keep_for, within))
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        self.question_limits.lock().unwrap().push(within);
        self.inner.verify(claim, within)
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.inner.holders(namespace, prefix)
    }
}

const REFUSES: Fault = Fault::Refuses(StoreErrorKind::Transient);
const FAILS: Fault = Fault::Refuses(StoreErrorKind::Permanent);
const TTL: Duration = Duration::from_secs(30);

/// One fault for the first calls, and then none.
fn first(times: usize, fault: Fault) -> impl Fn(&str, usize) -> Fault {
    move |_, number| if number < times { fault } else { Fault::None }
}

fn always(fault: Fault) -> impl Fn(&str, usize) -> Fault {
    first(usize::MAX, fault)
}

/// The kind of a store's error, and all that is said.
#[track_caller]
fn failure<T>(result: Result<T, Error>) -> (StoreErrorKind, String) {
    match result {
        Ok(_) => panic!("it was granted"),
        Err(error) => match &error {
            Error::Store { cause, .. } => (cause.kind(), error.to_string()),
            _ => panic!("the store did not fail: {error}"),
        },
    }
}

fn losses(lost: &Lost) -> Arc<AtomicUsize> {
    let losses = Arc::new(AtomicUsize::new(0));
    let count = losses.clone();
    lost.on_lost(move || _ = count.fetch_add(1, Ordering::SeqCst));
    losses
}

#[test]
fn what_may_pass_is_tried_again() {
    watched(|| {
        let (store, locks) = Faulty::new().acquire(first(3, REFUSES)).locks(TTL);
        let lease = locks.lock_with("a", GENEROUS).unwrap();
        assert_eq!((store.acquired(), store.left()), (4, 1));
        drop(lease);
        assert_eq!((store.released(), store.left()), (1, 0), "nothing was granted that was to be cleaned up");
    });
}

#[test]
fn what_may_pass_is_tried_until_the_deadline() {
    watched(|| {
        let (store, locks) = Faulty::new().acquire(always(REFUSES)).locks(TTL);
        let (limit, begin) = (Duration::from_millis(200), Instant::now());
        let (kind, message) = failure(locks.lock_with("a\n", limit));
        assert!(begin.elapsed() >= limit, "it gave up early");
        assert!(store.acquired() > 1, "it was tried once");
        assert_eq!(kind, StoreErrorKind::Transient);
        assert_eq!(message, "cannot acquire key \"a\\n\" on a faulty store: connection refused");
        let tried = store.acquired();
        assert_eq!(failure(locks.try_lock("a")).0, StoreErrorKind::Transient);
        assert_eq!(store.acquired(), tried + 1, "one attempt");
    });
}

#[test]
fn a_store_that_is_gone_does_not_hang_who_would_wait_for_ever() {
    watched(|| {
        let ttl = Duration::from_millis(100);
        let (store, locks) = Faulty::new().acquire(always(REFUSES)).locks(ttl);
        let begin = Instant::now();
        assert_eq!(failure(locks.lock("a")).0, StoreErrorKind::Transient);
        assert!(begin.elapsed() >= ttl && store.acquired() > 1);
    });
}

#[test]
fn what_will_not_pass_is_said_at_once() {
    watched(|| {
        let (store, locks) = Faulty::new().acquire(always(FAILS)).locks(TTL);
        let message = "cannot acquire key \"a\" on a faulty store: wrong password".to_owned();
        assert_eq!(failure(locks.lock("a")), (StoreErrorKind::Permanent, message));
        assert_eq!(store.acquired(), 1);
        // Nothing is left of it within the process.
        assert_eq!(failure(locks.lock_with("a", GENEROUS)).0, StoreErrorKind::Permanent);
    });
}

/// The second attempt waits for the first to be given back: with a time to live of 30 seconds that is not by its end.
#[test]
fn what_was_granted_without_a_reply_is_given_back() {
    watched(|| {
        let (store, locks) = Faulty::new().acquire(first(1, Fault::Forgets)).locks(TTL * 1_000);
        let lease = locks.lock_with("a", GENEROUS).unwrap();
        assert_eq!((store.acquired(), store.left()), (2, 1));
        assert_eq!(lease.release().unwrap(), Released::Freed);
        assert_eq!(store.left(), 0);
    });
}

#[test]
fn what_an_attempt_left_is_given_back_in_the_background() {
    watched(|| {
        let (store, locks) =
            Faulty::new().acquire(always(Fault::Forgets)).release(first(2, REFUSES)).locks(TTL * 1_000);
        let (kind, message) = failure(locks.try_lock("a"));
        assert_eq!(kind, StoreErrorKind::UnknownOutcome);
        let said = "cannot acquire key \"a\" on a faulty store: connection lost (it is not known whether it was done)";
        assert_eq!(message, said);
        until(|| store.left() == 0);
        assert!(store.released() >= 3);
    });
}

/// A store that does not know the claim may come to know it yet.
#[test]
fn what_is_done_late_is_given_back_too() {
    watched(|| {
        let faulty = Faulty { early_releases: AtomicUsize::new(3), ..Faulty::new() };
        let (store, locks) = faulty.acquire(always(Fault::Forgets)).locks(TTL * 1_000);
        assert_eq!(failure(locks.try_lock("a")).0, StoreErrorKind::UnknownOutcome);
        until(|| store.left() == 0);
        assert_eq!(store.early_releases.load(Ordering::SeqCst), 0);
    });
}

/// A job's term is longer than the time to live of other leases: it is cleaned up for as long as it lasts.
#[test]
fn what_a_job_left_is_given_back_for_as_long_as_it_lasts() {
    watched(|| {
        let ttl = Duration::from_millis(20);
        let (store, locks) = Faulty::new().acquire(always(Fault::Forgets)).release(first(4, REFUSES)).locks(ttl);
        let limits = JobLimits { at_most: TTL * 1_000, at_least: Duration::ZERO };
        assert_eq!(failure(locks.run_job("a", limits, |_| ())).0, StoreErrorKind::UnknownOutcome);
        until(|| store.left() == 0);
    });
}

#[test]
fn a_grant_that_comes_after_its_end_is_none() {
    watched(|| {
        let ttl = Duration::from_millis(20);
        let (store, locks) = Faulty::new().acquire(always(Fault::Takes(ttl * 2))).locks(ttl);
        let message = "cannot acquire key \"a\" on a faulty store: \
                       the grant came after its time to live, 20ms: give a longer one";
        assert_eq!(failure(locks.try_lock("a")).1, message);
        assert_eq!(failure(locks.lock_with("a", SHORT)).1, message);
        assert_eq!(failure(locks.lock("a")).1, message);
        until(|| store.left() == 0);

        let (_, locks) = Faulty::new().acquire(first(1, Fault::Takes(ttl * 20))).locks(ttl * 10);
        assert!(locks.lock_with("a", GENEROUS).unwrap().is_held());
    });
}

/// While the first key is granted the time runs out; the second is locked by another thread of the process.
#[test]
fn a_limit_that_runs_out_between_two_keys_is_a_timeout() {
    watched(|| {
        let slow = |key: &str, _| if key == "a" { Fault::Takes(SHORT * 2) } else { Fault::None };
        let (_, locks) = Faulty::new().acquire(slow).locks(TTL);
        let held = locks.lock("b").unwrap();
        assert_eq!(cause(locks.lock_many(["a", "b"], SHORT)), AcquireError::Timeout);
        assert_eq!(cause(locks.lock_many(["b"], Wait::now())), AcquireError::Busy);
        drop(held);
    });
}

#[test]
fn a_store_that_panics_while_it_is_asked_leaves_the_key_to_others() {
    watched(|| {
        let (_, locks) = Faulty::new().acquire(first(1, Fault::Panics)).locks(TTL);
        assert!(panics(|| drop(locks.lock("a"))));
        assert!(locks.try_lock("a").unwrap().is_some());
    });
}

#[test]
fn what_was_granted_by_a_store_that_panicked_is_given_back() {
    watched(|| {
        let (store, locks) = Faulty::new().acquire(first(1, Fault::DoesAndPanics)).locks(GENEROUS);
        assert!(panics(|| drop(locks.lock("a"))));
        drop(locks.lock("a").unwrap());
        until(|| store.left() == 0);
    });
}

/// However the renewals fail: to the end of the term the key is held, then it is lost, once.
#[track_caller]
fn check_lost_at_the_end(fault: Fault) {
    let ttl = Duration::from_millis(600);
    let (store, locks) = Faulty::new().renew(always(fault)).locks(ttl);
    let asked = Instant::now();
    let lease = locks.lock("a").unwrap();
    let losses = losses(lease.lost());
    assert!(lease.lost().wait_timeout(GENEROUS), "{fault:?}: it is never lost");
    let after = asked.elapsed();
    assert!(after >= ttl * 97 / 100, "{fault:?}: lost after {after:?}, before the end of its term");
    assert!(!lease.is_held() && store.renewed() >= 1, "{fault:?}");
    until(|| losses.load(Ordering::SeqCst) == 1);
    assert!(matches!(locks.try_lock("b"), Ok(Some(_))), "{fault:?}: others are held up");
    drop(lease);
    assert_eq!(losses.load(Ordering::SeqCst), 1, "{fault:?}");
}

#[test]
fn a_lease_that_cannot_be_renewed_is_lost_at_the_end_of_its_term() {
    watched(|| {
        check_lost_at_the_end(REFUSES);
        check_lost_at_the_end(FAILS);
        check_lost_at_the_end(Fault::Refuses(StoreErrorKind::UnknownOutcome));
    });
}

#[test]
fn a_store_that_panics_or_hangs_does_not_hide_a_loss() {
    watched(|| {
        check_lost_at_the_end(Fault::Panics);
        check_lost_at_the_end(Fault::Takes(Duration::from_millis(1_500)));
    });
}

/// Three times its term, in which renewals go on.
#[track_caller]
fn check_goes_on(fault: Fault) {
    let ttl = Duration::from_millis(1_500);
    let (store, locks) = Faulty::new().renew(first(2, fault)).locks(ttl);
    let lease = locks.lock("a").unwrap();
    let begin = Instant::now();
    until(|| begin.elapsed() > ttl * 2);
    assert!(lease.is_held() && !lease.lost().is_set(), "{fault:?}");
    assert!(store.renewed() > 2);
    assert_eq!(lease.release().unwrap(), Released::Freed);
}

#[test]
fn renewals_that_fail_are_tried_again() {
    watched(|| {
        check_goes_on(REFUSES);
        check_goes_on(Fault::Forgets);
        check_goes_on(Fault::Panics);
    });
}

/// So there is time for a second try.
#[test]
fn a_renewal_may_take_half_of_what_remains() {
    watched(|| {
        let ttl = Duration::from_millis(900);
        let (store, locks) = Faulty::new().renew(first(3, REFUSES)).locks(ttl);
        let lease = locks.lock("a").unwrap();
        until(|| store.renewed() > 3 || lease.lost().is_set());
        let limits = store.renewal_limits.lock().unwrap();
        // After a third of its time two thirds remain; and every try that fails leaves less.
        assert!(limits[0] <= ttl / 3, "{limits:?}");
        assert!(limits.iter().take(4).is_sorted_by(|earlier, later| earlier > later), "{limits:?}");
        assert!(limits.iter().all(|limit| !limit.is_zero()), "{limits:?}");
    });
}

/// One renewal that hangs does not keep quiet that another lease has ended.
#[test]
fn a_renewal_that_hangs_hides_no_other_loss() {
    watched(|| {
        let hang = Duration::from_secs(4);
        let hangs = move |key: &str, _| if key == "hangs" { Fault::Takes(hang) } else { Fault::None };
        let (store, locks) = Faulty::new().renew(hangs).locks(Duration::from_millis(300));
        let begin = Instant::now();
        let lease = locks.lock("hangs").unwrap();
        let other = locks.lock("other").unwrap();
        until(|| store.renewed() > 0);
        assert!(other.lost().wait_timeout(GENEROUS) && lease.lost().wait_timeout(GENEROUS));
        assert!(begin.elapsed() < hang, "only after the renewal");
    });
}

#[test]
fn a_store_that_says_so_ends_a_lease_at_once() {
    watched(|| {
        let (store, locks) = Faulty::new().locks(TTL);
        let lease = locks.lock("a").unwrap();
        let losses = losses(lease.lost());
        assert!(lease.renew().unwrap());
        store.inner.advance(TTL * 2);
        assert!(lease.is_held(), "nobody has told it");
        assert!(!lease.renew().unwrap());
        assert!(!lease.is_held() && lease.lost().is_set());
        assert_eq!(lease.remaining(), Some(Duration::ZERO));
        assert_eq!(losses.load(Ordering::SeqCst), 1);
        // Who waits in this process is not kept out by who has lost it.
        let next = locks.try_lock("a").unwrap().expect("it is free");
        assert_eq!(lease.release().unwrap(), Released::NotOwner);
        assert!(next.verify().unwrap());
    });
}

/// However little remains of the lease.
#[test]
fn a_store_has_time_to_say_what_is_held() {
    watched(|| {
        let (store, locks) = Faulty::new().locks(TTL);
        let lease = locks.lock("a").unwrap();
        store.inner.advance(TTL * 2);
        assert!(!lease.renew().unwrap() && !lease.verify().unwrap());
        let limits = store.question_limits.lock().unwrap();
        assert!(limits.iter().all(|limit| *limit >= Duration::from_secs(1)) && limits.len() == 1, "{limits:?}");
    });
}

#[test]
fn a_renewal_by_hand_that_fails_says_so_and_changes_nothing() {
    watched(|| {
        let (_, locks) = Faulty::new().renew(first(1, REFUSES)).locks(TTL);
        let lease = locks.lock("a").unwrap();
        let (kind, message) = failure(lease.renew());
        assert_eq!(kind, StoreErrorKind::Transient);
        assert_eq!(message, "cannot renew key \"a\" on a faulty store: connection refused");
        assert!(lease.is_held() && lease.renew().unwrap());
    });
}

#[test]
fn a_release_that_fails_says_so_and_is_done_in_the_background() {
    watched(|| {
        let ways: [fn(Lease); 2] = [
            |lease| {
                let message = "cannot release key \"a\" on a faulty store: connection refused".to_owned();
                assert_eq!(failure(lease.release()), (StoreErrorKind::Transient, message));
            },
            drop,
        ];
        for way in ways {
            let (store, locks) = Faulty::new().release(first(2, REFUSES)).locks(TTL * 1_000);
            way(locks.lock("a").unwrap());
            until(|| store.left() == 0);
            assert_eq!(store.released(), 3);
            assert!(locks.try_lock("a").unwrap().is_some());
        }
    });
}

/// Also while the thread unwinds.
#[test]
fn a_store_that_panics_at_a_drop_does_no_more_harm() {
    watched(|| {
        let (store, locks) = Faulty::new().release(first(2, Fault::Panics)).locks(TTL);
        drop(locks.lock("a").unwrap());
        let message = panic_message(|| locks.with_key("b", |_| quiet_panic_with("the first")));
        assert_eq!(message, "the first");
        assert_eq!((store.released(), store.left()), (2, 2));
        store.inner.advance(TTL);
        for key in ["a", "b"] {
            assert!(locks.try_lock(key).unwrap().is_some(), "{key} is left locked in the process");
        }
    });
}

#[test]
fn a_job_is_done_even_if_its_key_cannot_be_given_back() {
    watched(|| {
        let (store, locks) = Faulty::new().release(first(1, REFUSES)).locks(TTL);
        let limits = JobLimits { at_most: TTL, at_least: Duration::ZERO };
        assert_eq!(locks.run_job("a", limits, |_| 1).unwrap(), Job::Ran(1));
        until(|| store.left() == 0);
    });
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    watched(|| {
        let message = |options: LeaseOptions| {
            DistributedLock::with_options(MemoryStore::new(), options).lock("a").unwrap_err().to_string()
        };
        let ms = Duration::from_millis;
        assert_eq!(message(LeaseOptions::new().ttl(ms(9))), "a ttl of 9ms is too short: give 10ms or more");
        let long = message(LeaseOptions::new().ttl(Duration::MAX));
        assert!(long.starts_with("a ttl of ") && long.ends_with(" is too long: give ten years or less"), "{long}");
        let none = message(LeaseOptions::new().max_hold(Duration::ZERO));
        assert_eq!(none, "a max_hold of zero would end every lease at once: give more, or none");

        let locks = DistributedLock::new(MemoryStore::new());
        let message =
            |at_most, at_least| locks.run_job("a", JobLimits { at_most, at_least }, |_| ()).unwrap_err().to_string();
        for short in [Duration::ZERO, ms(1), ms(9)] {
            let expected = format!("at_most is {short:?}, which is too short: give 10ms or more");
            assert_eq!(message(short, Duration::ZERO), expected);
        }
        assert_eq!(message(ms(10), ms(11)), "at_least is 11ms, which is more than at_most, 10ms");
        assert!(message(Duration::MAX, ms(1)).ends_with(": give ten years or less"));
        assert!(locks.try_lock("a").unwrap().is_some(), "nothing is left of it");
    });
}

/// As small as a store can be: one key at a time, with no leases, tokens or semaphores, in a session that can end.
#[derive(Default)]
struct Small(parking_lot::Mutex<Option<Claim>>);

impl Store for Small {
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn describe(&self) -> String {
        "a small store".to_owned()
    }

    fn acquire(&self, claim: &Claim, _: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        loop {
            let mut held = self.0.lock();
            if held.is_none() {
                *held = Some(claim.clone());
                return Ok(Some(Grant::of_session(None)));
            }
            drop(held);
            if !patience.pause(Duration::from_millis(1)) {
                return Ok(None);
            }
        }
    }

    fn renew(&self, _: &Claim, _: Duration, _: Duration) -> Result<Renewal, StoreError> {
        unreachable!("it has no leases")
    }

    fn release(&self, claim: &Claim, _: Duration, _: Duration) -> Result<Released, StoreError> {
        let held = self.0.lock().take_if(|held| held.owner() == claim.owner());
        Ok(if held.is_some() { Released::Freed } else { Released::NotOwner })
    }

    fn verify(&self, claim: &Claim, _: Duration) -> Result<bool, StoreError> {
        Ok(self.0.lock().as_ref().is_some_and(|held| held.owner() == claim.owner()))
    }

    fn holders(&self, _: &str, _: &str) -> Result<Vec<Holder>, StoreError> {
        Err(StoreError::permanent("this store cannot list holders"))
    }
}

#[test]
fn a_store_of_ones_own_can_be_small() {
    watched(|| {
        let store = Arc::new(Small::default());
        let locks = DistributedLock::new(store.clone());
        let lease = locks.lock("a").unwrap();
        assert_eq!((lease.fencing_token(), lease.remaining()), (None, None));
        assert!(lease.renew().unwrap() && lease.verify().unwrap());
        assert_eq!(cause(locks.lock_with("b", SHORT)), AcquireError::Timeout);
        let message = "cannot list key \"\" on a small store: this store cannot list holders";
        assert_eq!(locks.holders("").unwrap_err().to_string(), message);
        let semaphore = DistributedSemaphore::new(store.clone(), limited(2));
        let message = "cannot acquire key \"a\" on a small store: this store has locks only, no semaphores";
        assert_eq!(failure(semaphore.acquire("a")).1, message);

        // Its session ends.
        let losses = losses(lease.lost());
        let ended = store.0.lock().take().expect("it is held");
        ended.lost().set();
        ended.lost().set();
        assert!(!lease.is_held() && lease.lost().is_set());
        assert_eq!(losses.load(Ordering::SeqCst), 1);
        let next = locks.try_lock("a").unwrap().expect("it is free");
        assert_eq!(lease.release().unwrap(), Released::NotOwner);
        assert!(next.verify().unwrap());
    });
}

/// What a call for a loss owns is dropped with the last that knows of the lease, which can be the clean-up.
#[test]
fn what_a_call_owns_may_call_when_it_is_dropped() {
    watched(|| {
        let (store, locks) = Faulty::new().release(first(2, Fault::Refuses(StoreErrorKind::Transient))).locks(GENEROUS);
        let (one, other) = (locks.lock("a").unwrap(), locks.lock("b").unwrap());
        one.lost().on_lost(move || drop(other));
        assert!(one.release().is_err());
        until(|| store.left() == 0);
        drop(locks.lock("c").unwrap());
    });
}

#[test]
fn what_a_call_owns_may_panic_when_it_is_dropped() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            quiet_panic();
        }
    }
    watched(|| {
        let fails = |_: &str, call: usize| match call {
            0 | 1 | 3 => Fault::Refuses(StoreErrorKind::Transient),
            _ => Fault::None,
        };
        let (store, locks) = Faulty::new().release(fails).locks(GENEROUS);
        let lease = locks.lock("a").unwrap();
        let owned = Panics;
        lease.lost().on_lost(move || drop(owned));
        assert!(lease.release().is_err());
        until(|| store.left() == 0);
        // There is still somebody who cleans up.
        assert!(locks.lock("b").unwrap().release().is_err());
        until(|| store.left() == 0);
    });
}

#[test]
fn a_job_is_held_no_longer_than_anything() {
    watched(|| {
        let options = LeaseOptions::new().max_hold(Duration::from_millis(50));
        let locks = DistributedLock::with_options(MemoryStore::new(), options);
        let limits = JobLimits { at_most: GENEROUS, at_least: Duration::ZERO };
        let ran = locks.run_job("a", limits, |lease| lease.lost().wait_timeout(GENEROUS / 2)).unwrap();
        assert_eq!(ran, Job::Ran(true));
    });
}

#[test]
fn a_wait_that_is_cancelled_while_the_store_fails_was_cancelled() {
    watched(|| {
        let token = perkey::CancellationToken::new();
        let cancels = token.clone();
        let (_, locks) = Faulty::new()
            .acquire(move |_, _| {
                cancels.cancel();
                Fault::Refuses(StoreErrorKind::Transient)
            })
            .locks(TTL);
        assert_eq!(cause(locks.lock_with("a", &token)), AcquireError::Cancelled);
    });
}

#[test]
fn the_threads_of_a_process_do_not_ask_for_what_one_of_them_holds() {
    watched(|| {
        let (store, locks) = Faulty::new().locks(TTL);
        let held = locks.lock("a").unwrap();
        assert!(locks.try_lock("a").unwrap().is_none());
        assert!(locks.clone().try_lock("a").unwrap().is_none());
        assert_eq!(store.acquired(), 1);
        drop(held);
        let permits = DistributedSemaphore::new(store.clone(), limited(2));
        let held = (permits.acquire("a").unwrap(), permits.acquire("a").unwrap());
        assert!(permits.try_acquire("a").unwrap().is_none());
        assert_eq!(store.acquired(), 3);
        drop(held);
    });
}
