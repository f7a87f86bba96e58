//! Panics that meet: a key's `Drop` panics, and something else of the user's does too. One comes out; were another to leave a
//! `Drop` while the first unwinds, that would end the process, and with it this whole binary.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering as Order;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use perkey::{ArcKeyedPermit, KeyedLock, KeyedMutex, KeyedSemaphore, Options, Wait};

use crate::support::{panic_message, quiet_panic_with, watched};

/// A key whose clones, as those in a table are, panic when they are dropped.
#[derive(Debug)]
struct Loud {
    id: u32,
    is_clone: bool,
}

thread_local! {
    /// How many clones can still be made in this thread; the next panics.
    static CLONES: Cell<usize> = const { Cell::new(usize::MAX) };
    /// What the next clone that is dropped in this thread does instead.
    static STEP: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

impl Loud {
    const fn new(id: u32) -> Self {
        Self { id, is_clone: false }
    }

    fn ids<const N: usize>() -> [Self; N] {
        std::array::from_fn(|id| Self::new(id as u32))
    }
}

impl Clone for Loud {
    fn clone(&self) -> Self {
        match CLONES.get() {
            0 => quiet_panic_with("clone"),
            left => CLONES.set(left - 1),
        }
        Self { id: self.id, is_clone: true }
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        if self.is_clone {
            match STEP.take() {
                Some(step) => step(),
                None => quiet_panic_with("key"),
            }
        }
    }
}

impl PartialEq for Loud {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Loud {}

impl PartialOrd for Loud {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Loud {
    fn cmp(&self, other: &Self) -> Order {
        self.id.cmp(&other.id)
    }
}

impl Hash for Loud {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// A value, or a result, that panics when it is dropped.
#[derive(Debug)]
struct LoudValue;

impl Drop for LoudValue {
    fn drop(&mut self) {
        quiet_panic_with("value");
    }
}

impl Clone for LoudValue {
    fn clone(&self) -> Self {
        quiet_panic_with("clone of a value")
    }
}

#[test]
fn a_loud_key_and_a_loud_result() {
    let key = Loud::new(1);
    let locks = KeyedLock::<Loud>::new();
    let permits = KeyedSemaphore::<Loud, 1>::new();
    let values = KeyedMutex::<Loud, LoudValue>::new();
    let calls: [&dyn Fn(); 11] = [
        &|| drop(locks.with_key(&key, || LoudValue)),
        &|| drop(locks.try_with_key(&key, || LoudValue)),
        &|| drop(locks.with_key_within(&key, Wait::forever(), || LoudValue)),
        &|| drop(locks.with_keys([&key], || LoudValue)),
        &|| drop(permits.with_key(&key, || LoudValue)),
        &|| drop(permits.try_with_key(&key, || LoudValue)),
        &|| drop(permits.with_key_within(&key, Wait::forever(), || LoudValue)),
        &|| drop(values.with_key(&key, |_| LoudValue)),
        &|| drop(values.try_with_key(&key, |_| LoudValue)),
        &|| drop(values.with_key_within(&key, Wait::forever(), |_| LoudValue)),
        &|| {
            assert!(values.insert(&key, LoudValue).is_none());
            drop(values.remove(&key));
        },
    ];
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(panic_message(call), "key", "call {n}");
        assert!(locks.is_empty() && permits.is_empty() && values.is_empty(), "call {n}");
    }
}

/// The work panics while one key is held, or several are, in every way to hold them.
#[test]
fn work_that_panics_and_a_loud_key() {
    let keys = Loud::ids::<3>();
    let key = &keys[0];
    let locks = Arc::new(KeyedLock::<Loud>::new());
    let permits = Arc::new(KeyedSemaphore::<Loud, 2>::new());
    let values = Arc::new(KeyedMutex::<Loud, u32>::new());
    fn work<T>(_held: T) {
        quiet_panic_with("work");
    }
    let calls: [&dyn Fn(); 18] = [
        &|| work(locks.lock(key)),
        &|| work(locks.lock_arc(key)),
        &|| work((locks.lock(key), locks.lock(&keys[1]))),
        &|| work(locks.lock_keys(&keys)),
        &|| work(locks.lock_keys_with(&keys, Wait::now())),
        &|| locks.with_key(key, || work(())),
        &|| assert!(locks.try_with_key(key, || work(())).is_none()),
        &|| drop(locks.with_key_within(key, Wait::now(), || work(()))),
        &|| locks.with_keys(&keys, || work(())),
        &|| work(permits.acquire(key)),
        &|| work(permits.acquire_arc(key)),
        &|| work((permits.acquire(key), permits.acquire(key))),
        &|| permits.with_key(key, || work(())),
        &|| work(values.lock(key)),
        &|| work(values.lock_arc(key)),
        &|| work(values.lock_keys(&keys)),
        &|| work(values.lock_keys_with(&keys, Wait::now())),
        &|| values.with_key(key, |_| work(())),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(panic_message(call), "work", "call {n}");
        assert!(locks.is_empty() && permits.is_empty() && values.is_empty(), "call {n}");
    }
    // An Arc guard that outlives the others' handles to the table.
    assert_eq!(panic_message(|| work(Arc::new(KeyedLock::<Loud>::new()).lock_arc(key))), "work");
}

#[test]
fn a_clone_that_panics_and_the_loud_keys_taken_by_then() {
    let keys = Loud::ids::<4>();
    let (locks, values) = (KeyedLock::<Loud>::new(), KeyedMutex::<Loud, u32>::new());
    let calls: [&dyn Fn(); 5] = [
        &|| drop(locks.lock_keys(&keys)),
        &|| drop(locks.lock_keys_with(&keys, Wait::now())),
        &|| locks.with_keys(&keys, || ()),
        &|| drop(values.lock_keys(&keys)),
        &|| drop(values.lock_keys_with(&keys, Wait::now())),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        CLONES.set(3);
        assert_eq!(panic_message(call), "clone", "call {n}");
        assert!(locks.is_empty() && values.is_empty(), "call {n}");
    }
    CLONES.set(usize::MAX);
}

#[test]
fn a_clone_that_panics_and_the_loud_clones_made_by_then() {
    let keys = Loud::ids::<4>();
    let (locks, values) = (KeyedLock::<Loud>::new(), KeyedMutex::<Loud, u32>::new());
    let held = (locks.lock_keys(&keys), values.lock_keys(&keys));
    let calls: [&dyn Fn(); 3] = [&|| drop(locks.snapshot()), &|| drop(values.snapshot()), &|| {
        values.keys().into_iter().for_each(std::mem::forget)
    }];
    for call in calls {
        CLONES.set(3);
        assert_eq!(panic_message(call), "clone");
        CLONES.set(usize::MAX);
        // No lock of a shard is left behind.
        assert_eq!((locks.len(), values.len()), (4, 4));
    }
    values.keys().into_iter().for_each(std::mem::forget);
    assert_eq!(panic_message(|| drop(held)), "key");
    assert!(locks.is_empty() && values.is_empty());
}

#[test]
fn a_clone_of_a_value_that_panics_leaves_it() {
    let key = Loud::new(1);
    let values = KeyedMutex::<Loud, LoudValue>::new();
    assert!(values.insert(&key, LoudValue).is_none());
    assert_eq!(panic_message(|| std::mem::forget(values.get_cloned(&key))), "clone of a value");
    assert!(!values.is_locked(&key) && values.len() == 1);
    assert_eq!(panic_message(|| std::mem::forget(values.remove(&key))), "key");
    assert!(values.is_empty());
}

#[test]
fn a_closure_of_retain_that_panics_and_a_loud_key() {
    let key = Loud::new(1);
    let values = KeyedMutex::<Loud, u32>::new();
    assert!(values.insert(&key, 7).is_none());
    assert_eq!(panic_message(|| values.retain(|_, _| quiet_panic_with("keep"))), "keep");
    assert!(!values.is_locked(&key));
    // Its clone is shown, and the key itself stays.
    assert_eq!(panic_message(|| values.retain(|_, value| *value == 7)), "key");
    assert_eq!(panic_message(|| values.retain(|_, value| *value != 7)), "key");
    assert!(values.is_empty());
}

#[test]
fn the_first_of_several_panics_comes_out() {
    let [one, two] = Loud::ids::<2>();
    let values = KeyedMutex::<Loud, LoudValue>::with_options(Options::new().idle_ttl(std::time::Duration::ZERO));
    assert!(values.insert(&one, LoudValue).is_none());
    assert_eq!(panic_message(|| values.sweep()), "key", "it goes before its value");
    assert!(values.insert(&two, LoudValue).is_none());
    assert_eq!(panic_message(|| values.retain(|_, _| false)), "key", "it goes before the value");
    assert_eq!(panic_message(|| values.sweep()), "key");
    assert!(values.is_empty());
}

const KEY: Loud = Loud::new(1);

type Permits = Arc<KeyedSemaphore<Loud>>;
type Meanwhile = Arc<Mutex<Option<ArcKeyedPermit<Loud>>>>;

/// A table of five permits; while its function is asked the first time, somebody else takes so many. So the key that was owned
/// for the function is not needed, and dropped when the request is in the queue, or granted.
fn asked_meanwhile(others: usize) -> (Permits, Meanwhile) {
    let meanwhile = Meanwhile::default();
    let permits = Arc::new_cyclic(|table: &Weak<KeyedSemaphore<Loud>>| {
        let (table, meanwhile, first) = (table.clone(), Arc::clone(&meanwhile), AtomicBool::new(true));
        KeyedSemaphore::with_limit_by(move |key| {
            if first.swap(false, Ordering::Relaxed) {
                let table = table.upgrade().expect("the call has it");
                let permit = table.acquire_many_arc(key, others, Wait::now()).expect("the key is absent");
                *meanwhile.lock() = Some(permit);
            }
            5
        })
    });
    (permits, meanwhile)
}

/// It reads that its request is over the limit when nobody holds any more: so it is the one who removes the entry.
#[test]
fn a_rejected_waiter_that_removes_a_loud_key() {
    watched(|| {
        let (permits, others) = asked_meanwhile(5);
        let table = Arc::clone(&permits);
        let leave = move || {
            assert_eq!(table.waiters(&KEY), 1, "it is in the queue");
            table.set_limit(2);
            drop(others.lock().take());
            assert_eq!(table.len(), 1, "it stays until the verdict is read");
        };
        STEP.set(Some(Box::new(leave)));
        assert_eq!(panic_message(|| drop(permits.acquire_many(&KEY, 3, Wait::forever()))), "key");
        assert!(permits.is_empty() && STEP.take().is_none());
    });
}

/// As its place in the queue is given up by unwinding, the entry goes, whose key panics too.
#[test]
fn a_waiter_that_unwinds_and_removes_a_loud_key() {
    watched(|| {
        let (permits, others) = asked_meanwhile(5);
        let leave = move || {
            drop(others.lock().take());
            quiet_panic_with("spare key")
        };
        STEP.set(Some(Box::new(leave)));
        assert_eq!(panic_message(|| drop(permits.acquire_many(&KEY, 3, Wait::forever()))), "spare key");
        assert!(permits.is_empty() && STEP.take().is_none());
    });
}

/// The same of permits that are granted and not yet in a guard.
#[test]
fn a_grant_that_unwinds_and_removes_a_loud_key() {
    watched(|| {
        let (permits, others) = asked_meanwhile(2);
        let leave = move || {
            drop(others.lock().take());
            quiet_panic_with("spare key")
        };
        STEP.set(Some(Box::new(leave)));
        assert_eq!(panic_message(|| drop(permits.acquire_many(&KEY, 3, Wait::forever()))), "spare key");
        assert!(permits.is_empty() && STEP.take().is_none());
    });
}

#[test]
fn a_limit_function_that_panics_and_a_loud_key() {
    let permits = Arc::new(KeyedSemaphore::<Loud>::with_limit_by(|_| quiet_panic_with("limit")));
    let key = Loud::new(1);
    let calls: [&dyn Fn(); 6] = [
        &|| drop(permits.acquire(&key)),
        &|| drop(permits.try_acquire(&key)),
        &|| drop(permits.acquire_many(&key, 2, Wait::now())),
        &|| drop(permits.acquire_arc(&key)),
        &|| assert_eq!(permits.limit(&key), 0),
        &|| assert_eq!(permits.available_permits(&key), 0),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(panic_message(call), "limit", "call {n}");
        assert!(permits.is_empty());
    }
}
