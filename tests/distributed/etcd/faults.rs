//! Servers that stop, start again, and are none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use perkey::distributed::{DistributedLock, EtcdStore, Released, StoreErrorKind};
use serde_json::json;

use super::{kind, locks, long, queue, seconds};
use crate::etcd_server::{Etcd, WATCHDOG, encoded, until};
use crate::proxy::{Bytes, Proxy};

fn at(port: u16) -> EtcdStore {
    EtcdStore::open(&format!("etcd://127.0.0.1:{port}")).unwrap()
}

#[test]
fn a_server_that_stands_still_past_the_ttl_has_lost_the_lease() {
    let etcd = Etcd::start();
    let (here, there) = (locks(&etcd, seconds(2)), locks(&etcd, seconds(30)));
    let first = here.lock("report").unwrap();
    etcd.signal(0, "STOP");
    let asked = Instant::now();
    let error = there.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(10), "after {:?}", asked.elapsed());
    assert!(first.lost().wait_timeout(WATCHDOG) && !first.is_held());
    thread::scope(|scope| {
        let second = scope.spawn(|| there.lock("report").unwrap());
        etcd.signal(0, "CONT");
        let second = second.join().unwrap();
        assert!(second.fencing_token() > first.fencing_token());
        drop(second);
    });
    drop(first);
    // Also what the stopped server had been sent.
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

#[test]
fn a_restart_loses_nothing() {
    let mut etcd = Etcd::start();
    let (here, there) = (locks(&etcd, seconds(20)), locks(&etcd, seconds(20)));
    let first = here.lock("report").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").unwrap());
        until("it is in the queue", || queue(&etcd) == 2);
        etcd.kill(0);
        etcd.run(0);
        etcd.wait_for_a_leader();
        assert_eq!(queue(&etcd), 2);
        until("it answers again", || first.verify().is_ok());
        assert!(first.renew().unwrap() && first.is_held());
        let token = first.fencing_token();
        assert_eq!(first.release().unwrap(), Released::Freed);
        assert!(waiter.join().unwrap().fencing_token() > token);
    });
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

#[test]
fn who_waits_gets_a_server_that_starts_late() {
    let mut etcd = Etcd::planned(1, &[]);
    let here = locks(&etcd, seconds(30));
    let error = here.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("is the server running there?"), "{error}");
    let error = here.lock_with("report", Duration::from_millis(50)).unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| here.lock_with("report", WATCHDOG).map(drop));
        etcd.run(0);
        waiter.join().unwrap().unwrap();
    });
}

/// What it was told to watch from is gone then.
#[test]
fn a_compaction_during_a_wait_does_no_harm() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.port(0));
    let held = locks(&etcd, long()).lock("report").unwrap();
    let there = DistributedLock::with_options(at(proxy.port()), long());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock("report").unwrap().release().unwrap());
        until("it watches", || etcd.watchers(0) == 1);
        // It asks again for what came after it looked, and that is under way for a while...
        proxy.requests(Bytes::Wait);
        proxy.cut();
        until("it watches no more", || etcd.watchers(0) == 0);
        let before = proxy.requested();
        until("it has asked a few times", || proxy.requested() > before + 6);
        // ...in which it is forgotten.
        let mut revision = String::new();
        for _ in 0..5 {
            let said = etcd.ask(0, "kv/put", &json!({"key": encoded("other"), "value": encoded("x")}));
            said["header"]["revision"].as_str().unwrap().clone_into(&mut revision);
        }
        let compacted = etcd.ask(0, "kv/compaction", &json!({"revision": revision, "physical": true}));
        assert!(compacted["header"].is_object(), "{compacted}");
        proxy.requests(Bytes::Pass);
        until("it watches", || etcd.watchers(0) == 1);
        held.release().unwrap();
        assert_eq!(waiter.join().unwrap(), Released::Freed);
    });
    until("nothing is left", || etcd.leftovers() == (vec![], 0));
}

#[test]
fn a_server_without_room_is_asked_again() {
    let etcd = Etcd::with(1, &["--quota-backend-bytes", "1"]);
    let here = locks(&etcd, seconds(2));
    etcd.ask(0, "kv/put", &json!({"key": encoded("other"), "value": encoded("x")}));
    let error = here.try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("disarm the alarm"), "{error}");
    until("nothing is left", || etcd.leases() == 0);
}

/// Answers every connection with these bytes, one by one with a pause between.
fn speaks(bytes: &'static [u8], pause: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                for byte in bytes {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                    thread::sleep(pause);
                }
                // What was not read would reset the connection when it is closed.
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    port
}

#[test]
fn what_speaks_otherwise_is_refused() {
    let no_etcd = speaks(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", Duration::ZERO);
    let error = DistributedLock::new(at(no_etcd)).lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("HTTP status 404: is it etcd"), "{error}");

    // Where it says is not followed.
    let elsewhere =
        speaks(b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", Duration::ZERO);
    let error = DistributedLock::new(at(elsewhere)).lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Permanent), "{error}");
    assert!(error.to_string().contains("HTTP status 307"), "{error}");

    let senseless = speaks(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", Duration::ZERO);
    let error = DistributedLock::new(at(senseless)).try_lock("report").unwrap_err();
    assert!(error.to_string().contains("the reply makes no sense: is it an etcd server"), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = DistributedLock::new(at(silent.local_addr().unwrap().port())).try_lock("report").unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
}

/// Answers requests as that says of their paths.
fn acts(answer: fn(&str) -> serde_json::Value) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = BufReader::new(stream.unwrap());
                loop {
                    let (mut first, mut length) = (String::new(), 0);
                    if stream.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    loop {
                        let mut line = String::new();
                        stream.read_line(&mut line).unwrap();
                        match line.to_lowercase().strip_prefix("content-length:") {
                            Some(number) => length = number.trim().parse().unwrap(),
                            None if line.trim().is_empty() => break,
                            None => {}
                        }
                    }
                    stream.read_exact(&mut vec![0; length]).unwrap();
                    let body = answer(first.split(' ').nth(1).unwrap()).to_string();
                    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.get_mut().write_all(reply.as_bytes()).unwrap();
                }
            });
        }
    });
    port
}

/// A member that was the leader renews leases until it knows that it is no more, and the new leader does not know of that.
#[test]
fn a_renewal_by_one_who_leads_no_more_does_not_count() {
    fn answer(path: &str, renewed_in: &str) -> serde_json::Value {
        let header = |reign: &str| json!({"revision": "5", "raft_term": reign});
        match path {
            "/v3/lease/grant" => json!({"header": header("2"), "ID": "1", "TTL": "600"}),
            "/v3/lease/keepalive" => json!({"result": {"header": header(renewed_in), "ID": "1", "TTL": "600"}}),
            "/v3/kv/txn" => {
                json!({"header": header("2"), "succeeded": true, "responses": [{}, {"response_range": {}}]})
            }
            "/v3/kv/range" => {
                let own = json!({"key": encoded("any"), "value": encoded("limit 1"), "create_revision": "5"});
                json!({"header": header("3"), "kvs": [own]})
            }
            _ => json!({"header": header("3")}),
        }
    }
    let old = acts(|path| answer(path, "2"));
    let lease = DistributedLock::with_options(at(old), long()).lock("report").unwrap();
    let before = lease.remaining();
    let error = lease.renew().unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Transient), "{error}");
    assert!(error.to_string().contains("another member has become the leader"), "{error}");
    assert!(lease.remaining() <= before && lease.verify().unwrap());

    let new = acts(|path| answer(path, "3"));
    let lease = DistributedLock::with_options(at(new), long()).lock("report").unwrap();
    assert!(lease.renew().unwrap());
}

#[test]
fn a_server_that_sends_byte_by_byte_is_not_waited_for() {
    let slow = speaks(&[b'H'; 10_000], Duration::from_millis(50));
    let slower = speaks(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{}", Duration::from_millis(50));
    for port in [slow, slower] {
        let asked = Instant::now();
        let error = DistributedLock::new(at(port)).lock_with("report", Duration::from_secs(1)).unwrap_err();
        assert_eq!(kind(&error), Some(StoreErrorKind::UnknownOutcome), "{error}");
        // Half of a minute would be the time to live.
        assert!(asked.elapsed() < Duration::from_secs(15), "after {:?}", asked.elapsed());
    }
}
