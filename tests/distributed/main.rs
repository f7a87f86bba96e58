//! Tests of locks beyond one process: the contract of all stores, and what goes wrong.
//!
//! No test sleeps to synchronise: it waits for what can be observed, and a watchdog fails one that hangs. Time is waited for only
//! where a lease's end is what is tested.

#![cfg(not(loom))]

#[cfg(any(feature = "etcd", feature = "redis", all(feature = "postgres", unix)))]
mod certificate;
mod children;
mod contract;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_server;
mod faulty;
mod file;
mod memory;
#[cfg(all(feature = "postgres", unix))]
mod postgres;
#[cfg(all(feature = "postgres", unix))]
mod postgres_server;
#[cfg(any(feature = "etcd", feature = "redis", all(feature = "postgres", unix)))]
mod proxy;
mod recorded;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_server;
#[allow(dead_code, reason = "shared with the tests within one process")]
#[path = "../it/support.rs"]
mod support;
