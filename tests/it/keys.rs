//! Kinds of keys, and the keys that other tests use.

use std::borrow::{Borrow, Cow};
use std::cell::Cell;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use perkey::{KeyedLock, KeyedMutex, KeyedSemaphore, Options, Wait};

use crate::support::{crowded, elsewhere, panics, quiet_panic, threads, until, watched, watched_in_both_modes};

/// How often a key's methods ran.
#[derive(Default)]
pub(crate) struct Counts {
    clones: AtomicUsize,
    hashes: AtomicUsize,
}

impl Counts {
    pub(crate) fn clones(&self) -> usize {
        self.clones.load(Ordering::Relaxed)
    }

    pub(crate) fn hashes(&self) -> usize {
        self.hashes.load(Ordering::Relaxed)
    }
}

pub(crate) struct Counting {
    id: u32,
    counts: Arc<Counts>,
}

impl Counting {
    pub(crate) fn new(id: u32, counts: &Arc<Counts>) -> Self {
        Self { id, counts: Arc::clone(counts) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl Clone for Counting {
    fn clone(&self) -> Self {
        self.counts.clones.fetch_add(1, Ordering::Relaxed);
        Self::new(self.id, &self.counts)
    }
}

impl Hash for Counting {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.counts.hashes.fetch_add(1, Ordering::Relaxed);
        self.id.hash(state);
    }
}

impl PartialEq for Counting {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Counting {}

/// All are equal to the hasher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Alike(pub(crate) u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Hash,
    Eq,
    Clone,
    /// Of a key that was cloned, as those in a table are: not of the one that the test has.
    Drop,
}

impl Call {
    pub(crate) const ALL: [Self; 4] = [Self::Hash, Self::Eq, Self::Clone, Self::Drop];
}

/// Says which call of a [`Hostile`] key panics.
#[derive(Default)]
pub(crate) struct Fuse([AtomicUsize; 4]);

impl Fuse {
    /// The `nth` call from here panics, and only that.
    pub(crate) fn arm(&self, call: Call, nth: usize) {
        self.0[call as usize].store(nth, Ordering::Relaxed);
    }

    pub(crate) fn disarm(&self) {
        Call::ALL.into_iter().for_each(|call| self.arm(call, 0));
    }

    fn burn(&self, call: Call) {
        let before =
            self.0[call as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        // A second panic while the first unwinds would abort.
        if before == Ok(1) && !thread::panicking() {
            quiet_panic();
        }
    }
}

/// A key that panics in the call that its fuse says.
pub(crate) struct Hostile {
    id: u32,
    fuse: Arc<Fuse>,
    is_clone: bool,
}

impl Hostile {
    pub(crate) fn new(id: u32, fuse: &Arc<Fuse>) -> Self {
        Self { id, fuse: Arc::clone(fuse), is_clone: false }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        self.fuse.burn(Call::Clone);
        let mut clone = Self::new(self.id, &self.fuse);
        clone.is_clone = true;
        clone
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if self.is_clone {
            self.fuse.burn(Call::Drop);
        }
    }
}

impl Hash for Hostile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuse.burn(Call::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for Hostile {
    fn eq(&self, other: &Self) -> bool {
        self.fuse.burn(Call::Eq);
        self.id == other.id
    }
}

impl Eq for Hostile {}

/// Locks that key both ways, and sees that it is one and the same.
fn is_one_key<K, Q, R>(key: &Q, same: &R)
where
    K: Borrow<Q> + Borrow<R> + Clone + Send + Sync,
    Q: ?Sized + Hash + Eq + ToOwned<Owned = K> + Sync,
    R: ?Sized + Hash + Eq + ToOwned<Owned = K> + Sync,
{
    let locks = KeyedLock::<K>::new();
    let permits = KeyedSemaphore::<K, 2>::new();
    let guard = locks.lock(key);
    let permit = permits.acquire(key);
    elsewhere(|| assert!(locks.try_lock(same).is_none()));
    assert!(locks.is_locked(same) && locks.is_locked_by_current_thread(same));
    assert_eq!(permits.available_permits(same), 1);
    threads(|scope| {
        scope.spawn(|| drop(locks.lock(same)));
        until(|| locks.waiters(same) == 1);
        drop(guard);
    });
    drop(permit);
    assert!(locks.is_empty() && permits.is_empty());
}

#[test]
fn kinds_of_keys() {
    watched(|| {
        is_one_key::<String, str, String>("a", &"a".to_owned());
        is_one_key::<String, str, str>("", "");
        is_one_key::<Vec<u8>, [u8], Vec<u8>>(b"ab", &vec![b'a', b'b']);
        is_one_key::<PathBuf, Path, Path>(Path::new("a/b"), Path::new("a//b"));
        is_one_key::<OsString, std::ffi::OsStr, OsString>("a".as_ref(), &"a".into());
        is_one_key::<&'static str, &'static str, &'static str>(&"a", &"a");
        is_one_key::<Arc<str>, Arc<str>, Arc<str>>(&"a".into(), &"a".into());
        is_one_key::<Cow<'static, str>, _, Cow<'static, str>>(&Cow::Borrowed("a"), &Cow::Owned("a".to_owned()));
        is_one_key::<(u32, String), _, (u32, String)>(&(1, "a".to_owned()), &(1, "a".to_owned()));
        is_one_key::<u128, u128, u128>(&u128::MAX, &u128::MAX);
        is_one_key::<Option<u8>, _, Option<u8>>(&None, &None);
        is_one_key::<(), (), ()>(&(), &());
        is_one_key::<[u8; 0], [u8; 0], [u8; 0]>(&[], &[]);
        is_one_key::<Alike, Alike, Alike>(&Alike(1), &Alike(1));
        is_one_key::<[u64; 64], [u64; 64], [u64; 64]>(&[7; 64], &[7; 64]);
    });
}

#[test]
fn an_arc_key_is_counted_and_not_copied() {
    let locks = KeyedLock::<Arc<str>>::new();
    let key: Arc<str> = "a".into();
    let guard = locks.lock(&key);
    assert_eq!(Arc::strong_count(&key), 2);
    drop(guard);
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn a_borrowed_form_may_be_another_type_with_its_own_to_owned() {
    #[derive(PartialEq, Eq, Hash)]
    struct Name(u32);
    #[derive(PartialEq, Eq, Hash)]
    struct Owned(Name);
    impl Borrow<Name> for Owned {
        fn borrow(&self) -> &Name {
            &self.0
        }
    }
    impl ToOwned for Name {
        type Owned = Owned;
        fn to_owned(&self) -> Owned {
            Owned(Self(self.0))
        }
    }
    // Neither is `Clone`.
    let locks = KeyedLock::<Owned>::new();
    let guard = locks.lock(&Name(1));
    assert!(locks.try_lock(&Name(1)).is_none() && locks.try_lock(&Name(2)).is_some());
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn every_key_is_dropped_once() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key(u32, CountsDrops);
    #[derive(Clone)]
    struct CountsDrops(Arc<AtomicUsize>);
    impl PartialEq for CountsDrops {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }
    impl Eq for CountsDrops {}
    impl Hash for CountsDrops {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    impl Clone for Key {
        fn clone(&self) -> Self {
            self.1.0.fetch_add(1, Ordering::Relaxed);
            Self(self.0, self.1.clone())
        }
    }
    let clones = Arc::new(AtomicUsize::new(0));
    let locks = KeyedLock::<Key>::with_options(Options::new().shards(2));
    let keys: Vec<_> = (0..100).map(|id| Key(id, CountsDrops(Arc::clone(&clones)))).collect();
    let alive = || Arc::strong_count(&clones) - 1 - keys.len();
    for (held, key) in keys.iter().enumerate() {
        if held < 50 {
            std::mem::forget(locks.lock(key));
        } else {
            drop(locks.lock(key));
        }
        assert_eq!((clones.load(Ordering::Relaxed), alive()), (held + 1, (held + 1).min(50)));
    }
    // What was forgotten goes with the table.
    drop(locks);
    assert_eq!(alive(), 0);
}

#[test]
fn a_hasher_of_ones_own() {
    /// As a careless user writes it: an identity.
    #[derive(Clone, Default)]
    struct Identity;
    struct Last(u64);
    impl Hasher for Last {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {
            unreachable!("the keys are u64");
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }
    }
    impl BuildHasher for Identity {
        type Hasher = Last;
        fn build_hasher(&self) -> Last {
            Last(0)
        }
    }
    let locks = KeyedLock::<u64, _>::with_options(Options::new().hasher(Identity));
    let permits = KeyedSemaphore::<u64, 3, _>::with_options(Options::new().hasher(Identity));
    let keys = || (0..64).map(|bit| 1_u64 << bit).chain([0, u64::MAX]);
    let guards: Vec<_> = keys().map(|key| (locks.lock(&key), permits.acquire(&key))).collect();
    assert_eq!((locks.len(), permits.len()), (66, 66));
    assert!(keys().all(|key| locks.is_locked(&key) && permits.available_permits(&key) == 2));
    drop(guards);
    assert!(locks.is_empty() && permits.is_empty());
    assert!(KeyedLock::<u64, Identity>::default().is_empty());
}

thread_local! {
    /// How many calls deep the `Drop` of a [`Caller`] still goes.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A key whose table calls it back: `Drop` calls every method.
#[derive(Clone)]
struct Caller {
    id: u32,
    table: Weak<Tables>,
    calls: Arc<AtomicUsize>,
}

struct Tables {
    locks: Arc<KeyedLock<Caller>>,
    permits: Arc<KeyedSemaphore<Caller, 2>>,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some(depth) = DEPTH.get().checked_sub(1) else { return };
        let Some(tables) = self.table.upgrade() else { return };
        DEPTH.set(depth);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let Tables { locks, permits } = &*tables;
        for id in [self.id, self.id + 1] {
            let key = Self { id, table: self.table.clone(), calls: Arc::clone(&self.calls) };
            drop(locks.lock(&key));
            drop(locks.try_lock(&key));
            drop(locks.lock_with(&key, Wait::forever()));
            drop(locks.try_lock_for(&key, Duration::MAX));
            drop(locks.lock_arc(&key));
            locks.with_key(&key, || ());
            let _ = (locks.is_locked(&key), locks.is_locked_by_current_thread(&key), locks.waiters(&key));
            let _ = (locks.len(), locks.is_empty(), locks.snapshot(), format!("{locks:?}"));
            drop(permits.acquire(&key));
            drop(permits.try_acquire(&key));
            drop(permits.acquire_many(&key, 2, Wait::forever()));
            drop(permits.acquire_arc(&key));
            permits.with_key(&key, || ());
            let _ = (permits.available_permits(&key), permits.limit(&key), permits.waiters(&key));
            let _ = (permits.len(), permits.is_empty(), permits.snapshot(), format!("{permits:?}"));
        }
        DEPTH.set(depth + 1);
    }
}

#[test]
fn a_key_that_calls_its_table_when_it_is_dropped() {
    watched_in_both_modes(|fairness| {
        let calls = Arc::new(AtomicUsize::new(0));
        let tables = Arc::new(Tables {
            locks: Arc::new(KeyedLock::with_options(crowded(fairness))),
            permits: Arc::new(KeyedSemaphore::with_options(crowded(fairness))),
        });
        let key = Caller { id: 1, table: Arc::downgrade(&tables), calls: Arc::clone(&calls) };
        DEPTH.set(2);
        drop(tables.locks.lock(&key));
        drop(tables.locks.lock_arc(&key));
        drop(tables.permits.acquire(&key));
        drop(tables.permits.acquire_many(&key, 2, Wait::forever()).unwrap());
        tables.locks.with_key(&key, || ());
        tables.permits.with_key(&key, || ());
        let guard = tables.locks.lock(&key);
        elsewhere(|| assert!(tables.locks.try_lock_for(&key, Duration::from_micros(1)).is_none()));
        drop(guard);
        DEPTH.set(0);
        assert!(calls.load(Ordering::Relaxed) >= 7);
        assert!(tables.locks.is_empty() && tables.permits.is_empty());

        // In threads that compete for it.
        threads(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    DEPTH.set(1);
                    for _ in 0..50 {
                        drop(tables.locks.lock(&key));
                        drop(tables.permits.try_acquire_for(&key, Duration::from_micros(5)));
                    }
                    DEPTH.set(0);
                });
            }
        });
        assert!(tables.locks.is_empty() && tables.permits.is_empty());
    });
}

/// `Clone` may panic in a snapshot; the keys that were cloned before are dropped then, and may call the table.
#[test]
fn a_key_that_calls_its_table_when_a_snapshot_of_it_panics() {
    struct Key {
        id: u32,
        table: Weak<KeyedLock<Self>>,
        clones: Arc<AtomicUsize>,
        in_snapshot: bool,
    }
    impl Clone for Key {
        fn clone(&self) -> Self {
            let number = self.clones.fetch_add(1, Ordering::Relaxed);
            if number == 5 {
                quiet_panic();
            }
            let (table, clones) = (self.table.clone(), Arc::clone(&self.clones));
            Self { id: self.id, table, clones, in_snapshot: (3..5).contains(&number) }
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.id == other.id
        }
    }
    impl Eq for Key {}
    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.id.hash(state);
        }
    }
    impl Drop for Key {
        fn drop(&mut self) {
            if self.in_snapshot
                && let Some(table) = self.table.upgrade()
            {
                drop(table.snapshot());
            }
        }
    }
    watched(|| {
        let locks = Arc::new(KeyedLock::<Key>::new());
        let clones = Arc::new(AtomicUsize::new(0));
        let key = |id| Key { id, table: Arc::downgrade(&locks), clones: Arc::clone(&clones), in_snapshot: false };
        // Three clones, and then those of the snapshot.
        let keys = [key(0), key(1), key(2)];
        let guards: Vec<_> = keys.iter().map(|key| locks.lock(key)).collect();
        assert!(crate::support::panics(|| drop(locks.snapshot())));
        assert_eq!(locks.len(), 3);
        drop(guards);
    });
}

/// The key's `Drop` panics at the end of a call that returns something: that is dropped, and no leak.
#[test]
fn a_panic_at_the_release_leaks_no_result() {
    let alive = Arc::new(());
    let fuse = Arc::new(Fuse::default());
    let key = Hostile::new(1, &fuse);
    let locks = KeyedLock::<Hostile>::new();
    let permits = KeyedSemaphore::<Hostile, 1>::new();
    let values = KeyedMutex::<Hostile, Arc<()>>::new();
    let result = || Arc::clone(&alive);
    let calls: [&dyn Fn(); 11] = [
        &|| drop(locks.with_key(&key, result)),
        &|| drop(locks.try_with_key(&key, result)),
        &|| drop(locks.with_key_within(&key, Wait::forever(), result)),
        &|| drop(locks.with_keys([&key], result)),
        &|| drop(permits.with_key(&key, result)),
        &|| drop(permits.try_with_key(&key, result)),
        &|| drop(permits.with_key_within(&key, Wait::forever(), result)),
        &|| drop(values.with_key(&key, |_| result())),
        &|| drop(values.try_with_key(&key, |_| result())),
        &|| drop(values.with_key_within(&key, Wait::forever(), |_| result())),
        &|| drop(values.remove(&key)),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        if n == 10 {
            values.insert(&key, result());
        }
        fuse.arm(Call::Drop, 1);
        assert!(panics(call), "call {n}");
        assert_eq!(Arc::strong_count(&alive), 1, "call {n} leaked its result");
        assert!(locks.is_empty() && permits.is_empty() && values.is_empty());
    }
}
