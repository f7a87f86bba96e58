//! The rows that are claimed without a lock: the statements of the documentation.

use std::collections::HashMap;
use std::thread;

use postgres::Client;

use crate::postgres_server::Database;
use crate::support::watched;

const CLAIM: &str = include_str!("../../../src/distributed/postgres/claim.sql");
const DONE: &str = include_str!("../../../src/distributed/postgres/done.sql");
const TABLE: &str = "CREATE TABLE job (
    id bigint PRIMARY KEY, owner text, claimed_at timestamptz, token bigint NOT NULL DEFAULT 0, done_at timestamptz, result text
)";

fn claim(client: &mut Client, owner: &str) -> Option<(i64, i64)> {
    client.query_opt(CLAIM, &[&owner]).unwrap().map(|row| (row.get(0), row.get(1)))
}

fn done(client: &mut Client, result: &str, (id, token): (i64, i64)) -> bool {
    client.execute(DONE, &[&result, &id, &token]).unwrap() == 1
}

#[test]
fn of_competing_workers_each_row_has_one() {
    watched(|| {
        let database = Database::create();
        database.execute(&format!("{TABLE}; INSERT INTO job (id) SELECT generate_series(1, 100)"));
        let all: Vec<_> = thread::scope(|scope| {
            let worker = |number: usize| {
                let (mut client, owner) = (database.client(), format!("worker {number}"));
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    while let Some(claimed) = claim(&mut client, &owner) {
                        assert!(done(&mut client, &owner, claimed));
                        mine.push((claimed.0, owner.clone()));
                    }
                    mine
                })
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 100);
        let by_id: HashMap<_, _> = all.into_iter().collect();
        let mut client = database.client();
        let rows = client.query("SELECT id, result, token FROM job", &[]).unwrap();
        for row in rows {
            assert_eq!(Some(row.get(1)), by_id.get(&row.get(0)).cloned());
            assert_eq!(row.get::<_, i64>(2), 1);
        }
    });
}

#[test]
fn a_claim_whose_owner_is_gone_is_free_after_a_time_and_the_late_owner_is_refused() {
    watched(|| {
        let database = Database::create();
        database.execute(&format!("{TABLE}; INSERT INTO job (id) VALUES (1)"));
        let (mut crashed, mut next) = (database.client(), database.client());
        let first = claim(&mut crashed, "crashed").unwrap();
        assert_eq!(claim(&mut next, "next"), None);
        // Five minutes pass.
        database.execute("UPDATE job SET claimed_at = claimed_at - interval '6 minutes'");
        let second = claim(&mut next, "next").unwrap();
        assert!(second.0 == first.0 && second.1 > first.1);
        // It was not dead, but slow.
        assert!(!done(&mut crashed, "late", first));
        assert!(done(&mut next, "in time", second));
        assert!(!done(&mut crashed, "late", first));
        assert_eq!(database.ask::<String>("SELECT result FROM job"), "in time");
        assert_eq!(claim(&mut next, "next"), None);
    });
}
