//! Many who want the same key, and what it costs.

use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, PostgresStore};

use crate::children::Child;
use crate::postgres_server::{Database, until, url};
use crate::proxy::Proxy;
use crate::support::watched;

/// The statements of 100 stores, as far as they come alone: counted by the pieces that come through a proxy.
#[test]
fn a_hundred_who_wait_do_not_hammer_the_server() {
    const WAITERS: usize = 100;
    watched(|| {
        let database = Database::create();
        let proxy = Proxy::to(database.server().port());
        let holder = DistributedLock::new(database.store()).lock("report").unwrap();
        let begin = Instant::now();
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let store = PostgresStore::open(&url(proxy.port(), database.name())).unwrap();
                    scope.spawn(move || DistributedLock::new(store).lock("report").unwrap().fencing_token().unwrap())
                })
                .collect();
            until("all listen", || database.listening() == WAITERS);
            println!("all listen after {:?}", begin.elapsed());
            // Each looks once or twice in a second, after a while, and asks once in two whether the session is there.
            let (first, since) = (proxy.requested(), Instant::now());
            until("some seconds have passed", || since.elapsed() > Duration::from_secs(5));
            let (second, seconds) = (proxy.requested(), since.elapsed().as_secs_f64());
            let rate = (second - first) as f64 / seconds;
            println!("{rate:.0} statements per second of {WAITERS} waiters");
            assert!(rate < 4.0 * WAITERS as f64, "{rate:.0} statements per second");

            let since = Instant::now();
            drop(holder);
            let mut tokens: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            let each = (proxy.requested() - second) as f64 / WAITERS as f64;
            println!("{each:.1} statements per hand-over, {:?} for all", since.elapsed());
            // If all came each time, there would be fifty, and those that prepare them.
            assert!(each < 30.0, "{each:.1} statements per hand-over");
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), WAITERS);
        });
    });
}

/// It has looked again after it listened, and pauses.
const PAUSES: &str =
    "SELECT bool_and(clock_timestamp() - state_change > interval '350 milliseconds') FROM pg_stat_activity
    WHERE application_name = 'perkey' AND datname = current_database()";

/// Figures, to be read with `--nocapture`.
#[test]
fn what_a_hand_over_takes() {
    watched(|| {
        let database = Database::create();
        let (here, there) = (DistributedLock::new(database.store()), DistributedLock::new(database.store()));
        for locks in [&here, &there] {
            drop(locks.lock("report").unwrap());
        }

        let begin = Instant::now();
        for _ in 0..200 {
            drop(here.lock("report").unwrap());
        }
        println!("{:?} to acquire and release", begin.elapsed() / 200);

        let mut took: Vec<_> = (0..7)
            .map(|_| {
                let held = here.lock("report").unwrap();
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| {
                        let lease = there.lock("report").unwrap();
                        (Instant::now(), lease)
                    });
                    until("it waits", || database.listening() == 1 && database.ask(PAUSES));
                    let begin = Instant::now();
                    drop(held);
                    waiter.join().unwrap().0 - begin
                })
            })
            .collect();
        took.sort();
        println!("{:?} from a release to the next grant, {:?} at the most", took[took.len() / 2], took.last());
        // Not by looking at pauses that are of half a second by then.
        assert!(took[took.len() / 2] < Duration::from_millis(100), "{took:?}");

        let mut took: Vec<_> = (0..3)
            .map(|_| {
                let mut child = Child::start(&database);
                child.ask("lock report 30000");
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| {
                        let lease = there.lock("report").unwrap();
                        (Instant::now(), lease)
                    });
                    until("it waits", || database.listening() == 1 && database.ask(PAUSES));
                    let begin = Instant::now();
                    child.kill();
                    waiter.join().unwrap().0 - begin
                })
            })
            .collect();
        took.sort();
        println!("{:?} from a kill of the holder to the next grant, {:?} at the most", took[1], took[2]);
        assert!(took[2] < Duration::from_secs(10), "{took:?}");
    });
}
