//! Integration tests, one module per subject.
//!
//! No test sleeps to synchronise and none looks at how long something took: threads meet at barriers or wait for what
//! they can observe (`waiters(&key) == 1`), and a watchdog fails a test that hangs.

#![cfg(not(loom))]

mod api;
mod keys;
mod pitfalls;
mod support;
mod traits;
