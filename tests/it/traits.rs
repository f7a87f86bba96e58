//! Auto traits, defaulted parameters, missing bounds: a change of any is a breaking change.

#![allow(dead_code, reason = "it is enough that these compile")]

use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::{BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use perkey::{
    AcquireError, ArcKeyedLockGuard, ArcKeyedMutexGuard, ArcKeyedPermit, ArcKeyedRwLockReadGuard,
    ArcKeyedRwLockWriteGuard, CancellationToken, DYNAMIC, Deadlock, DeadlockedRequest, DeadlockedThread, Fairness,
    HolderStatus, KeyStatus, KeyedLock, KeyedLockGuard, KeyedLockKeysGuard, KeyedMutex, KeyedMutexGuard,
    KeyedMutexKeysGuard, KeyedPermit, KeyedRwLock, KeyedRwLockReadAllGuard, KeyedRwLockReadGuard,
    KeyedRwLockReadKeysGuard, KeyedRwLockWriteAllGuard, KeyedRwLockWriteGuard, KeyedRwLockWriteKeysGuard,
    KeyedSemaphore, Options, Stats, Sweep, Wait, WaiterStatus,
};
use static_assertions::{assert_impl_all, assert_not_impl_any, assert_type_eq_all};

type Fixed = BuildHasherDefault<DefaultHasher>;

// The tables.
assert_impl_all!(KeyedLock<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedSemaphore<String, 3>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedSemaphore<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedLock<String, Fixed>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedSemaphore<String, 3, Fixed>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedMutex<String, u8>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedMutex<String, u8, Fixed>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_impl_all!(KeyedRwLock<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default, Sweep);
assert_impl_all!(KeyedRwLock<String, Fixed>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Default, Sweep);
assert_not_impl_any!(KeyedRwLock<String>: Clone);
assert_not_impl_any!(KeyedMutex<String, u8>: Clone);
assert_not_impl_any!(KeyedLock<String>: Clone);
assert_not_impl_any!(KeyedSemaphore<String, 3>: Clone);

// A key that must stay on its thread keeps the table there.
assert_not_impl_any!(KeyedLock<Rc<str>>: Send, Sync);
assert_not_impl_any!(KeyedSemaphore<Rc<str>, 3>: Send, Sync);
assert_not_impl_any!(KeyedRwLock<Rc<str>>: Send, Sync);
assert_not_impl_any!(ArcKeyedLockGuard<Rc<str>>: Send, Sync);
assert_not_impl_any!(ArcKeyedRwLockReadGuard<Rc<str>>: Send, Sync);
assert_not_impl_any!(ArcKeyedRwLockWriteGuard<Rc<str>>: Send, Sync);
assert_not_impl_any!(ArcKeyedPermit<Rc<str>, 3>: Send, Sync);

// So does a value. One that may move need not be shared.
assert_not_impl_any!(KeyedMutex<Rc<str>, u8>: Send, Sync);
assert_not_impl_any!(KeyedMutex<u8, Rc<str>>: Send, Sync);
assert_not_impl_any!(KeyedMutex<u8, MutexGuard<'static, u8>>: Send, Sync);
assert_impl_all!(KeyedMutex<u8, Cell<u8>>: Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(KeyedMutex<u8, &'static mut u8>: Send, Sync, UnwindSafe, RefUnwindSafe);
assert_not_impl_any!(KeyedMutexGuard<'static, u8, Cell<u8>>: Send, Sync);
assert_not_impl_any!(KeyedMutexKeysGuard<'static, u8, Cell<u8>>: Send, Sync);
assert_not_impl_any!(ArcKeyedMutexGuard<u8, Rc<str>>: Send, Sync);
assert_not_impl_any!(ArcKeyedMutexGuard<Rc<str>, u8>: Send, Sync);
assert_impl_all!(ArcKeyedMutexGuard<u8, Cell<u8>>: Send);
assert_not_impl_any!(ArcKeyedMutexGuard<u8, Cell<u8>>: Sync);

// One that may move but not be shared, likewise.
assert_impl_all!(KeyedLock<Cell<u8>>: Send);
assert_not_impl_any!(KeyedLock<Cell<u8>>: Sync);
assert_impl_all!(KeyedSemaphore<Cell<u8>, 3>: Send);
assert_not_impl_any!(KeyedSemaphore<Cell<u8>, 3>: Sync);
assert_impl_all!(KeyedRwLock<Cell<u8>>: Send);
assert_not_impl_any!(KeyedRwLock<Cell<u8>>: Sync);
assert_not_impl_any!(ArcKeyedLockGuard<Cell<u8>>: Send, Sync);
assert_not_impl_any!(ArcKeyedRwLockReadGuard<Cell<u8>>: Send, Sync);
assert_not_impl_any!(ArcKeyedRwLockWriteGuard<Cell<u8>>: Send, Sync);
assert_not_impl_any!(ArcKeyedPermit<Cell<u8>, 3>: Send, Sync);
assert_not_impl_any!(KeyedLockGuard<'static, Cell<u8>>: Send, Sync);

// No key makes a table unsafe to unwind through.
assert_impl_all!(KeyedLock<Cell<u8>>: UnwindSafe, RefUnwindSafe);
assert_impl_all!(KeyedLock<&'static mut u8>: UnwindSafe, RefUnwindSafe);
assert_impl_all!(KeyedRwLock<Cell<u8>>: UnwindSafe, RefUnwindSafe);
// The hasher is the user's.
assert_not_impl_any!(KeyedLock<u8, Cell<u8>>: RefUnwindSafe);
assert_impl_all!(KeyedSemaphore<Cell<u8>, 3>: UnwindSafe, RefUnwindSafe);

// Borrowed guards stay on their thread, and can be looked at from others.
assert_impl_all!(KeyedLockGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedPermit<'static, String, 3>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedPermit<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedLockKeysGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedMutexGuard<'static, String, u8>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedMutexGuard<'static, String, u8>: Deref<Target = Option<u8>>, DerefMut);
assert_impl_all!(KeyedMutexKeysGuard<'static, String, u8>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockReadGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockWriteGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockReadAllGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockWriteAllGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockReadKeysGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(KeyedRwLockWriteKeysGuard<'static, String>: Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_not_impl_any!(KeyedRwLockReadGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedRwLockWriteGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedRwLockReadAllGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedRwLockWriteAllGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedRwLockReadKeysGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedRwLockWriteKeysGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedLockGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedLockKeysGuard<'static, String>: Send, Clone);
assert_not_impl_any!(KeyedMutexGuard<'static, String, u8>: Send, Clone);
assert_not_impl_any!(KeyedMutexKeysGuard<'static, String, u8>: Send, Clone);
assert_not_impl_any!(KeyedPermit<'static, String, 3>: Send, Clone);
assert_not_impl_any!(KeyedPermit<'static, String>: Send, Clone);

// `Arc` guards move.
assert_impl_all!(ArcKeyedLockGuard<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(ArcKeyedPermit<String, 3>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(ArcKeyedPermit<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(ArcKeyedMutexGuard<String, u8>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(ArcKeyedMutexGuard<String, u8>: Deref<Target = Option<u8>>, DerefMut);
assert_impl_all!(ArcKeyedRwLockReadGuard<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_impl_all!(ArcKeyedRwLockWriteGuard<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug);
assert_not_impl_any!(ArcKeyedRwLockReadGuard<String>: Clone);
assert_not_impl_any!(ArcKeyedRwLockWriteGuard<String>: Clone);
assert_not_impl_any!(ArcKeyedMutexGuard<String, u8>: Clone);
assert_not_impl_any!(ArcKeyedLockGuard<String>: Clone);
assert_not_impl_any!(ArcKeyedPermit<String, 3>: Clone);

// The rest.
assert_impl_all!(Wait: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone, Default);
assert_impl_all!(Wait: From<Duration>, From<Instant>, From<&'static CancellationToken>, From<&'static Wait>);
assert_impl_all!(CancellationToken: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone, Default);
assert_impl_all!(AcquireError: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Display, Clone, PartialEq, Error);
assert_impl_all!(Deadlock: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Display, Clone, PartialEq, Error);
assert_impl_all!(Options: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone, Default);
assert_impl_all!(Options<Fixed>: Send, Sync, Debug, Clone, Default);
assert_impl_all!(Fairness: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Copy, Eq, Default);
assert_impl_all!(KeyStatus<String>: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone);
assert_impl_all!(WaiterStatus: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Display, Clone);
assert_impl_all!(HolderStatus: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Display, Clone);
assert_impl_all!(KeyStatus<String>: Display);
assert_impl_all!(Stats: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone, Default, PartialEq);
assert_impl_all!(DeadlockedThread: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Clone, PartialEq);
assert_impl_all!(DeadlockedRequest: Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Debug, Display, Clone, PartialEq);

// The hasher and the limit have defaults everywhere.
assert_type_eq_all!(KeyedLock<u8>, KeyedLock<u8, RandomState>);
assert_type_eq_all!(KeyedLockGuard<'static, u8>, KeyedLockGuard<'static, u8, RandomState>);
assert_type_eq_all!(ArcKeyedLockGuard<u8>, ArcKeyedLockGuard<u8, RandomState>);
assert_type_eq_all!(KeyedRwLock<u8>, KeyedRwLock<u8, RandomState>);
assert_type_eq_all!(KeyedRwLockReadGuard<'static, u8>, KeyedRwLockReadGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedRwLockWriteGuard<'static, u8>, KeyedRwLockWriteGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedRwLockReadAllGuard<'static, u8>, KeyedRwLockReadAllGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedRwLockWriteAllGuard<'static, u8>, KeyedRwLockWriteAllGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedRwLockReadKeysGuard<'static, u8>, KeyedRwLockReadKeysGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedRwLockWriteKeysGuard<'static, u8>, KeyedRwLockWriteKeysGuard<'static, u8, RandomState>);
assert_type_eq_all!(ArcKeyedRwLockReadGuard<u8>, ArcKeyedRwLockReadGuard<u8, RandomState>);
assert_type_eq_all!(ArcKeyedRwLockWriteGuard<u8>, ArcKeyedRwLockWriteGuard<u8, RandomState>);
assert_type_eq_all!(KeyedSemaphore<u8>, KeyedSemaphore<u8, DYNAMIC>, KeyedSemaphore<u8, DYNAMIC, RandomState>);
assert_type_eq_all!(KeyedPermit<'static, u8>, KeyedPermit<'static, u8, DYNAMIC, RandomState>);
assert_type_eq_all!(ArcKeyedPermit<u8>, ArcKeyedPermit<u8, DYNAMIC, RandomState>);
assert_type_eq_all!(KeyedLockKeysGuard<'static, u8>, KeyedLockKeysGuard<'static, u8, RandomState>);
assert_type_eq_all!(KeyedMutex<u8, i8>, KeyedMutex<u8, i8, RandomState>);
assert_type_eq_all!(KeyedMutexGuard<'static, u8, i8>, KeyedMutexGuard<'static, u8, i8, RandomState>);
assert_type_eq_all!(KeyedMutexKeysGuard<'static, u8, i8>, KeyedMutexKeysGuard<'static, u8, i8, RandomState>);
assert_type_eq_all!(ArcKeyedMutexGuard<u8, i8>, ArcKeyedMutexGuard<u8, i8, RandomState>);
assert_type_eq_all!(Options, Options<RandomState>);

/// What can be held in a struct needs no bounds there.
struct Holds<'a, K, V, const N: usize, S> {
    lock: KeyedLock<K, S>,
    mutex: KeyedMutex<K, V, S>,
    value: KeyedMutexGuard<'a, K, V, S>,
    values: KeyedMutexKeysGuard<'a, K, V, S>,
    arc_value: ArcKeyedMutexGuard<K, V, S>,
    keys: KeyedLockKeysGuard<'a, K, S>,
    rwlock: KeyedRwLock<K, S>,
    reader: KeyedRwLockReadGuard<'a, K, S>,
    writer: KeyedRwLockWriteGuard<'a, K, S>,
    arc_reader: ArcKeyedRwLockReadGuard<K, S>,
    arc_writer: ArcKeyedRwLockWriteGuard<K, S>,
    reads_all: KeyedRwLockReadAllGuard<'a, K, S>,
    writes_all: KeyedRwLockWriteAllGuard<'a, K, S>,
    reads_keys: KeyedRwLockReadKeysGuard<'a, K, S>,
    writes_keys: KeyedRwLockWriteKeysGuard<'a, K, S>,
    semaphore: KeyedSemaphore<K, N, S>,
    guard: KeyedLockGuard<'a, K, S>,
    permit: KeyedPermit<'a, K, N, S>,
    arc_guard: ArcKeyedLockGuard<K, S>,
    arc_permit: ArcKeyedPermit<K, N, S>,
    options: Options<S>,
    status: KeyStatus<K>,
}

struct HoldsByDefault<'a, K> {
    lock: KeyedLock<K>,
    semaphore: KeyedSemaphore<K>,
    guard: KeyedLockGuard<'a, K>,
    permit: KeyedPermit<'a, K>,
    arc_guard: ArcKeyedLockGuard<K>,
    arc_permit: ArcKeyedPermit<K>,
}

/// Nor does printing it.
fn needs_no_bounds_to_be_printed<K, S>(lock: &KeyedLock<K, S>, guard: &KeyedLockGuard<'_, K, S>) -> [String; 2] {
    [format!("{lock:?}"), format!("{guard:?}")]
}

fn holds_its_table<T: 'static>() {}

fn arc_guards_borrow_nothing() {
    holds_its_table::<ArcKeyedLockGuard<String>>();
    holds_its_table::<ArcKeyedPermit<String, 3>>();
    holds_its_table::<ArcKeyedRwLockReadGuard<String>>();
    holds_its_table::<ArcKeyedRwLockWriteGuard<String>>();
}

/// A guard can be returned from where the key's borrow ends.
fn does_not_borrow_the_key(locks: &KeyedLock<String>) -> KeyedLockGuard<'_, String> {
    let key = String::from("a key of this function");
    locks.lock(&*key)
}

/// A guard of a shorter life can stand in for one of a longer one, so a table in a local can be used with one in a
/// static.
fn guards_are_covariant<'short>(guard: KeyedLockGuard<'static, u8>) -> KeyedLockGuard<'short, u8> {
    guard
}

/// So can one of several keys. (One with a value cannot, in the value's type: it may be given another.)
fn guards_of_several_keys_are_covariant<'short>(
    guard: KeyedLockKeysGuard<'static, u8>,
    values: KeyedMutexKeysGuard<'static, u8, i8>,
    value: KeyedMutexGuard<'static, u8, i8>,
) -> (KeyedLockKeysGuard<'short, u8>, KeyedMutexKeysGuard<'short, u8, i8>, KeyedMutexGuard<'short, u8, i8>) {
    (guard, values, value)
}

fn guards_of_a_reader_and_a_writer_are_covariant<'short>(
    reader: KeyedRwLockReadGuard<'static, u8>,
    writer: KeyedRwLockWriteGuard<'static, u8>,
) -> (KeyedRwLockReadGuard<'short, u8>, KeyedRwLockWriteGuard<'short, u8>) {
    (reader, writer)
}

fn guards_over_every_key_are_covariant<'short>(
    reader: KeyedRwLockReadAllGuard<'static, u8>,
    writer: KeyedRwLockWriteAllGuard<'static, u8>,
) -> (KeyedRwLockReadAllGuard<'short, u8>, KeyedRwLockWriteAllGuard<'short, u8>) {
    (reader, writer)
}

fn guards_of_several_keys_to_read_or_write_are_covariant<'short>(
    readers: KeyedRwLockReadKeysGuard<'static, u8>,
    writers: KeyedRwLockWriteKeysGuard<'static, u8>,
) -> (KeyedRwLockReadKeysGuard<'short, u8>, KeyedRwLockWriteKeysGuard<'short, u8>) {
    (readers, writers)
}

/// Becoming a reader or a writer, and giving up, need no bounds either.
fn changes_without_bounds<'a, K, S>(
    writer: KeyedRwLockWriteGuard<'a, K, S>,
) -> Result<KeyedRwLockWriteGuard<'a, K, S>, KeyedRwLockReadGuard<'a, K, S>> {
    KeyedRwLockReadGuard::try_upgrade(KeyedRwLockWriteGuard::downgrade(writer))
}
