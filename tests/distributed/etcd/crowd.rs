//! Many who want the same keys.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::DistributedSemaphore;

use super::{locks, long, queue};
use crate::etcd_server::{Etcd, until};

#[test]
fn a_hundred_who_wait_do_not_hammer_the_server() {
    const WAITERS: usize = 100;
    let etcd = Etcd::start();
    let holder = locks(&etcd, long()).lock("report").unwrap();
    let requests = || etcd.metric("grpc_server_started_total");
    let begin = Instant::now();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let there = locks(&etcd, long());
                scope.spawn(move || there.lock("report").unwrap().fencing_token().unwrap())
            })
            .collect();
        until("all wait", || queue(&etcd) == WAITERS + 1);
        until("all watch", || etcd.watchers(0) as usize == WAITERS);
        println!("all watch after {:?}", begin.elapsed());
        // They look every five to ten seconds: so at most twice in this time.
        let (first, since) = (requests(), Instant::now());
        until("some seconds have passed", || since.elapsed() > Duration::from_secs(10));
        let (second, seconds) = (requests(), since.elapsed().as_secs_f64());
        let rate = (second - first) / seconds;
        println!("{rate:.1} requests per second of {WAITERS} waiters");
        assert!(rate < WAITERS as f64 / 2.0, "{rate:.1} requests per second");

        let since = Instant::now();
        drop(holder);
        let mut tokens: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        let each = (requests() - second) / WAITERS as f64;
        println!("{each:.1} requests per hand-over, {:?} for all", since.elapsed());
        // Those who look by themselves meanwhile are in it. If all came each time, there would be fifty more.
        assert!(each < 25.0, "{each:.1} requests per hand-over");
        assert!(tokens.len() == WAITERS);
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), WAITERS);
    });
    assert_eq!(etcd.leftovers(), (vec![], 0));
    until("nobody watches any more", || etcd.watchers(0) == 0);
}

/// Who waits for a permit looks by itself only every five to ten seconds.
#[test]
fn a_permit_that_is_given_back_wakes_who_waits() {
    let etcd = Etcd::start();
    let permits = || DistributedSemaphore::with_options(etcd.store(), NonZeroU32::new(2).unwrap(), long());
    let wake = |_| {
        let (here, there) = (permits(), permits());
        let (first, _second) = (here.acquire("report").unwrap(), here.acquire("report").unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                drop(there.acquire("report").unwrap());
                Instant::now()
            });
            until("it watches", || etcd.watchers(0) == 1);
            let begin = Instant::now();
            drop(first);
            waiter.join().unwrap() - begin
        })
    };
    let took: Vec<Duration> = (0..3).map(wake).collect();
    assert!(took.iter().any(|took| *took < Duration::from_secs(4)), "woken after {took:?}");
}
