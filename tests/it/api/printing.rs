//! `Debug` of everything that is public.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perkey::{
    AcquireError, ArcKeyedLockGuard, ArcKeyedPermit, CancellationToken, DYNAMIC, Fairness, KeyedLock, KeyedLockGuard,
    KeyedPermit, KeyedSemaphore, Options, Wait,
};

use crate::support::{threads, until, watched};

/// A key that cannot be printed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Opaque(u32);

#[test]
fn tables_show_their_name_and_how_many_keys() {
    watched(|| {
        let locks = KeyedLock::<Opaque>::with_options(Options::new().name("accounts").fairness(Fairness::Fifo));
        let _held = (locks.lock(&Opaque(1)), locks.lock(&Opaque(2)));
        let shown = format!("{locks:?}");
        for part in ["KeyedLock", "accounts", "Fifo", "len: 2"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let permits = KeyedSemaphore::<Opaque, 3>::with_options(Options::new().name(String::from("hosts")));
        let _permit = permits.acquire(&Opaque(1));
        let shown = format!("{permits:?}");
        for part in ["KeyedSemaphore", "hosts", "Eventual", "len: 1"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert!(!format!("{:?}", KeyedLock::<Opaque>::new()).contains("name"));
    });
}

#[test]
fn guards_show_what_they_are() {
    let locks = Arc::new(KeyedLock::<Opaque>::new());
    let permits = Arc::new(KeyedSemaphore::<Opaque, 3>::new());
    let guard: KeyedLockGuard<'_, Opaque> = locks.lock(&Opaque(1));
    let arc_guard: ArcKeyedLockGuard<Opaque> = locks.lock_arc(&Opaque(2));
    let permit: KeyedPermit<'_, Opaque, 3> = permits.acquire_many(&Opaque(1), 2, Wait::now()).unwrap();
    let arc_permit: ArcKeyedPermit<Opaque, 3> = permits.acquire_arc(&Opaque(1));
    assert!(format!("{guard:?}").starts_with("KeyedLockGuard"));
    assert!(format!("{arc_guard:?}").starts_with("ArcKeyedLockGuard"));
    assert!(format!("{permit:?}").starts_with("KeyedPermit { permits: 2"));
    assert!(format!("{arc_permit:?}").starts_with("ArcKeyedPermit { permits: 1"));
}

#[test]
fn waits_tokens_errors_and_options() {
    let token = CancellationToken::new();
    assert!(format!("{token:?}").contains("cancelled: false"));
    token.cancel();
    assert!(format!("{token:?}").contains("cancelled: true"));
    let wait = Wait::at_most(Duration::from_secs(7)).or_cancelled(&token).max_queued(3);
    let shown = format!("{wait:?}");
    for part in ["Wait", "7s", "CancellationToken", "3"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(format!("{:?}", Wait::until(Instant::now())).contains("Wait"));
    assert!(format!("{:?}", Wait::forever()).contains("Wait"));

    let over = AcquireError::OverLimit { requested: 4, limit: 3 };
    assert_eq!(format!("{over:?}"), "OverLimit { requested: 4, limit: 3 }");
    assert_eq!(format!("{:?}", AcquireError::Busy), "Busy");
    assert_eq!(format!("{:?} {:?}", Fairness::default(), Fairness::Fifo), "Eventual Fifo");
    let options = format!("{:?}", Options::new().name("accounts").shards(8));
    for part in ["Options", "accounts", "8", "Eventual"] {
        assert!(options.contains(part), "{part} is not in {options}");
    }
}

#[test]
fn statuses() {
    watched(|| {
        let permits = KeyedSemaphore::<u32>::with_limit(3);
        threads(|scope| {
            let held = permits.acquire_many(&42, 3, Wait::now()).unwrap();
            scope.spawn(|| drop(permits.acquire_many(&42, 2, Wait::forever()).unwrap()));
            until(|| permits.waiters(&42) == 1);
            let shown = format!("{:?}", permits.snapshot());
            for part in ["KeyStatus", "key: 42", "held: 3", "limit: 3", "WaiterStatus", "permits: 2", "printing.rs"] {
                assert!(shown.contains(part), "{part} is not in {shown}");
            }
            drop(held);
        });
        assert_eq!(DYNAMIC, 0);
    });
}
