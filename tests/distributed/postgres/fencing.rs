//! A table that refuses what comes late.

use perkey::distributed::DistributedLock;
use postgres::{Client, NoTls};
use rustix::process::Signal;

use crate::children::Child;
use crate::postgres_server::{Database, until};
use crate::support::watched;

const TABLE: &str = "CREATE TABLE report (id bigint PRIMARY KEY, text text, token bigint NOT NULL);
    INSERT INTO report VALUES (7, 'none', 0)";

/// The statement of the documentation; so many rows it has changed.
pub(crate) fn update(url: &str, token: u64, text: &str) -> u64 {
    let mut client = Client::connect(url, NoTls).expect("the server runs");
    let changed = client.execute(
        "UPDATE report SET text = $1, token = $2 WHERE id = 7 AND token <= $2",
        &[&text, &token.cast_signed()],
    );
    changed.expect("the table is there")
}

/// A holder in another process is stopped, its session ends, the next one writes; and the first goes on as if nothing had happened.
#[test]
fn a_stopped_holder_whose_session_has_ended_is_refused() {
    watched(|| {
        let database = Database::create();
        database.execute(TABLE);
        let text = || database.ask::<String>("SELECT text FROM report");
        let mut stopped = Child::start(&database);
        stopped.ask("lock report 30000");
        assert_eq!((stopped.ask("update first"), text()), ("1".to_owned(), "first".to_owned()));
        assert_eq!(stopped.ask("update again"), "1");
        stopped.signal(Signal::STOP);
        let locks = DistributedLock::new(database.store());
        assert!(locks.try_lock("report").unwrap().is_none(), "who is stopped keeps it");

        database.end_holder();
        let next = locks.lock("report").unwrap();
        let token = next.fencing_token().unwrap();
        assert_eq!(update(&database.url(), token, "next"), 1);

        // It does not look whether it still holds the key, as nobody can who is stopped after the look.
        stopped.tell("update late");
        stopped.signal(Signal::CONT);
        assert_eq!((stopped.answer(), text()), ("0".to_owned(), "next".to_owned()));
        // It is told, too.
        until("it is told", || stopped.ask("state") == "held false, lost true");
        assert_eq!(stopped.ask("release"), "NotOwner");
        assert!(next.verify().unwrap());
        assert_eq!(update(&database.url(), token, "last"), 1);
    });
}
