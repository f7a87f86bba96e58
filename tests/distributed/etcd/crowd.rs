//! Many who want the same keys.

use std::thread;
use std::time::{Duration, Instant};

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
