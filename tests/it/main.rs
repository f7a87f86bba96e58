//! Integration tests, one module per subject.
//!
//! No test sleeps to synchronise and none sets an upper bound on how long something takes: threads meet at barriers or wait for what
//! they can observe (`waiters(&key) == 1`), and a watchdog fails a test that hangs.

#![cfg(not(loom))]

mod api;
mod deadlocks;
mod deadlocks_gate;
mod deadlocks_races;
mod deadlocks_random;
mod deadlocks_rings;
mod dynamic;
mod keys;
mod mutex;
mod owners;
mod pitfalls;
mod rwlock_api;
mod rwlock_gate;
mod rwlock_hostile;
mod rwlock_order;
mod rwlock_stress;
mod several;
mod stats;
mod support;
mod tangles;
#[cfg(feature = "tracing")]
mod tracing;
mod traits;
mod unwinding;
