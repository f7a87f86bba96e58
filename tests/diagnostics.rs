//! The unit tests of the examples `deadlock` and `stuck`. (`cargo test` runs those of no example.)

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/deadlock.rs"]
mod deadlock;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/stuck.rs"]
mod stuck;
