//! Many who want the same keys.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, DistributedSemaphore, Lease};

use super::long;
use crate::redis_server::{RedisServer, until};

/// Commands that clients have sent: not those of scripts, nor those of these counts.
fn requests(server: &RedisServer) -> u64 {
    let stats: String = server.ask("INFO commandstats");
    let calls = |name: &str| {
        let line =
            stats.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name)?.strip_prefix(":calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    ["eval", "evalsha", "ping", "subscribe", "unsubscribe"].into_iter().map(calls).sum()
}

#[test]
fn a_hundred_who_wait_do_not_hammer_the_server() {
    const WAITERS: usize = 100;
    let server = RedisServer::start();
    let holder = DistributedLock::with_options(server.store(), long()).lock("report").unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let locks = DistributedLock::with_options(server.store(), long());
                scope.spawn(move || locks.lock("report").unwrap().fencing_token().unwrap())
            })
            .collect();
        until("all listen", || {
            let heard: (String, usize) = server.ask("PUBSUB NUMSUB perkey:{6:perkey:report}:lock-free");
            heard.1 == WAITERS
        });
        println!("all listen after {:?}", begin.elapsed());
        // They poll at least once in a second, and at most twice: once they have waited for a while.
        let (first, since) = (requests(&server), Instant::now());
        until("some seconds have passed", || since.elapsed() > Duration::from_secs(5));
        let (second, seconds) = (requests(&server), since.elapsed().as_secs_f64());
        let rate = (second - first) as f64 / seconds;
        println!("{rate:.0} requests per second of {WAITERS} waiters");
        assert!(rate < 4.0 * WAITERS as f64, "{rate:.0} requests per second");

        let since = Instant::now();
        drop(holder);
        let mut tokens: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        let each = (requests(&server) - second) as f64 / WAITERS as f64;
        println!("{each:.1} requests per hand-over, {:?} for all", since.elapsed());
        // Two are the grant and the release. If all came each time, there would be fifty more.
        assert!(each < 25.0, "{each:.1} requests per hand-over");
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), WAITERS);
    });
    assert_eq!(server.leftovers(), [""; 0]);
}

/// What those who believe that they hold a key find out.
#[derive(Default)]
struct Witness {
    inside: AtomicU32,
    most: AtomicU32,
    last_token: AtomicU64,
}

impl Witness {
    fn visit(&self, lease: &Lease, limit: u32) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= limit, "{inside} hold the key");
        self.most.fetch_max(inside, Ordering::SeqCst);
        let token = lease.fencing_token().unwrap();
        if limit == 1 {
            assert!(self.last_token.swap(token, Ordering::SeqCst) < token, "token {token} comes late");
        }
        thread::yield_now();
        assert!(lease.is_held());
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn those_who_hold_a_key_never_overlap() {
    const KEYS: [&str; 2] = ["a", "b"];
    let server = RedisServer::start();
    let locks: Vec<_> = (0..4).map(|_| DistributedLock::with_options(server.store(), long())).collect();
    let witnesses = [Witness::default(), Witness::default()];
    thread::scope(|scope| {
        for number in 0..8 {
            let (locks, witnesses) = (&locks[number % 4], &witnesses);
            scope.spawn(move || {
                for round in 0..60 {
                    let which = (number + round) % 2;
                    let lease = locks.lock(KEYS[which]).unwrap();
                    witnesses[which].visit(&lease, 1);
                }
            });
        }
    });
    assert_eq!(server.leftovers(), [""; 0]);
}

#[test]
fn those_who_hold_permits_are_never_too_many() {
    const LIMIT: u32 = 3;
    let server = RedisServer::start();
    let limit = NonZeroU32::new(LIMIT).unwrap();
    let permits: Vec<_> = (0..4).map(|_| DistributedSemaphore::with_options(server.store(), limit, long())).collect();
    let witness = Witness::default();
    thread::scope(|scope| {
        for number in 0..12 {
            let (permits, witness) = (&permits[number % 4], &witness);
            scope.spawn(move || {
                for _ in 0..40 {
                    witness.visit(&permits.acquire("host").unwrap(), LIMIT);
                }
            });
        }
    });
    assert!(witness.most.load(Ordering::SeqCst) > 1);
    assert_eq!(server.leftovers(), [""; 0]);
}
