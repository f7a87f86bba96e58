//! A thread that asks for what it holds.

use std::sync::Arc;
use std::time::Duration;

use perkey::{AcquireError, Deadlock, KeyedLock, KeyedSemaphore, Options, Wait};

use crate::support::{elsewhere, panic_message, threads, watched};

fn deadlock<T>(outcome: Result<T, AcquireError>) -> Deadlock {
    match outcome {
        Err(AcquireError::WouldDeadlock(deadlock)) => deadlock,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("entered twice"),
    }
}

fn table() -> Arc<KeyedLock<String>> {
    Arc::new(KeyedLock::with_options(Options::new().name("accounts")))
}

#[test]
fn calls_that_cannot_fail_panic_and_name_the_fault_the_table_and_the_type() {
    watched(|| {
        let locks = table();
        let _held = locks.lock("a");
        for (line, message) in [
            (line!(), panic_message(|| drop(locks.lock("a")))),
            (line!(), panic_message(|| drop(locks.lock_arc("a")))),
            (line!(), panic_message(|| locks.with_key("a", || unreachable!("entered twice")))),
        ] {
            let place = format!("{}:{line}:", file!());
            for part in ["this thread already holds the key", "KeyedLock \"accounts\"", "String", &place] {
                assert!(message.contains(part), "{part} is not in: {message}");
            }
        }
        assert_eq!((locks.len(), locks.waiters("a")), (1, 0));
    });
}

#[test]
fn a_table_without_a_name_says_so() {
    let locks = KeyedLock::<u64>::new();
    let _held = locks.lock(&1);
    let message = panic_message(|| drop(locks.lock(&1)));
    assert!(message.contains("KeyedLock without a name") && message.contains("u64"), "{message}");
}

#[test]
fn try_calls_give_none() {
    watched(|| {
        let locks = table();
        let _held = locks.lock("a");
        assert!(locks.try_lock("a").is_none());
        assert!(locks.try_lock_arc("a").is_none());
        assert!(locks.try_lock_for("a", Duration::ZERO).is_none());
        // At once.
        assert!(locks.try_lock_for("a", Duration::MAX).is_none());
        assert_eq!(locks.try_with_key("a", || ()), None);
        assert!(locks.try_lock("b").is_some());
    });
}

#[test]
fn calls_with_a_wait_say_would_deadlock_at_once() {
    watched(|| {
        let locks = table();
        let _held = locks.lock("a");
        for wait in [Wait::forever(), Wait::at_most(Duration::MAX), Wait::now(), Wait::forever().max_queued(0)] {
            let (line, found) = (line!(), deadlock(locks.lock_with("a", &wait)));
            assert_eq!(found.table(), Some("accounts"));
            assert_eq!(found.key_type(), std::any::type_name::<String>());
            assert_eq!((found.location().file(), found.location().line()), (file!(), line));
            assert!(found.to_string().contains("\"accounts\""));

            let (line, found) = (line!(), deadlock(locks.lock_arc_with("a", &wait)));
            assert_eq!(found.location().line(), line);
            let (line, found) = (line!(), deadlock(locks.with_key_within("a", &wait, || ())));
            assert_eq!(found.location().line(), line);
        }
        let nameless = KeyedLock::<u8>::new();
        let _held = nameless.lock(&1);
        assert_eq!(deadlock(nameless.lock_with(&1, Wait::forever())).table(), None);
    });
}

#[test]
fn errors_compare() {
    let locks = KeyedLock::<u8>::new();
    let _held = locks.lock(&1);
    let [first, second] = [(); 2].map(|()| locks.lock_with(&1, Wait::forever()).unwrap_err());
    let other = locks.lock_with(&1, Wait::forever()).unwrap_err();
    assert_eq!(first, second);
    assert_eq!(first, first.clone());
    assert_ne!(first, other, "asked for elsewhere");
    assert_ne!(first, AcquireError::Busy);
    let error: Box<dyn std::error::Error + Send + Sync> = first.into();
    assert!(error.to_string().starts_with("this thread already holds the key"));
}

#[test]
fn an_arc_guard_has_no_owner() {
    watched(|| {
        let locks = table();
        let guard = locks.lock_arc("a");
        assert!(locks.is_locked("a") && !locks.is_locked_by_current_thread("a"));
        assert_eq!(locks.lock_with("a", Wait::now()).unwrap_err(), AcquireError::Busy);
        assert_eq!(locks.lock_arc_with("a", Wait::now()).unwrap_err(), AcquireError::Busy);
        assert_eq!(locks.lock_with("a", Duration::from_micros(1)).unwrap_err(), AcquireError::Timeout);
        assert!(locks.try_lock_for("a", Duration::from_micros(1)).is_none());

        // So asking again waits, until another thread drops it.
        threads(|scope| {
            scope.spawn(|| {
                crate::support::until(|| locks.waiters("a") == 1);
                drop(guard);
            });
            drop(locks.lock("a"));
        });
        assert!(locks.is_empty());
    });
}

#[test]
fn ownership_is_of_the_thread_and_of_the_key_and_of_the_table() {
    watched(|| {
        let (locks, others) = (table(), table());
        assert!(!locks.is_locked_by_current_thread("a"));
        let held = locks.lock("a");
        assert!(locks.is_locked_by_current_thread("a"));
        assert!(!locks.is_locked_by_current_thread("b") && !others.is_locked_by_current_thread("a"));
        drop((locks.lock("b"), others.lock("a")));
        elsewhere(|| {
            assert!(locks.is_locked("a") && !locks.is_locked_by_current_thread("a"));
            assert_eq!(locks.lock_with("a", Wait::now()).unwrap_err(), AcquireError::Busy);
        });
        drop(held);
        assert!(!locks.is_locked_by_current_thread("a"));
        drop(locks.lock("a"));
    });
}

#[test]
fn a_thread_may_take_several_permits_of_one_key() {
    watched(|| {
        let permits = KeyedSemaphore::<u32, 3>::new();
        let first = permits.acquire(&1);
        let second = permits.acquire(&1);
        let third = permits.acquire_many(&1, 1, Wait::forever()).unwrap();
        // Not a deadlock that is known as one: another thread might give back.
        assert!(permits.try_acquire(&1).is_none());
        assert_eq!(permits.acquire_with(&1, Wait::now()).unwrap_err(), AcquireError::Busy);
        assert_eq!(permits.acquire_with(&1, Duration::from_micros(1)).unwrap_err(), AcquireError::Timeout);
        drop((first, second, third));
        assert!(permits.is_empty());
    });
}
