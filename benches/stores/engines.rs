//! The engines that are measured.

use std::fs;
use std::sync::Arc;

use perkey::distributed::Store;

use crate::{directory, stores};

/// An engine that other processes reach by an address; ended when this is dropped.
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) address: String,
    /// How many requests it has had.
    pub(crate) requests: Option<Box<dyn Fn() -> u64>>,
    end: Option<Box<dyn FnOnce()>>,
}

impl Engine {
    /// One of each kind, in the order of the table.
    pub(crate) const ALL: &[fn() -> Self] = &[
        files,
        #[cfg(feature = "redis")]
        redis::server,
        #[cfg(all(feature = "postgres", unix))]
        postgres::server,
        #[cfg(feature = "etcd")]
        etcd::alone,
        #[cfg(feature = "etcd")]
        etcd::three,
    ];

    /// One that somebody else runs.
    pub(crate) fn at(address: &str) -> Self {
        let mut engine = Self { name: String::new(), address: address.to_owned(), requests: None, end: None };
        engine.name = engine.open().describe();
        engine
    }

    /// A store object of its own.
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        open(&self.address)
    }
}

pub(crate) fn open(address: &str) -> Arc<dyn Store> {
    stores::open(address).unwrap_or_else(|error| panic!("{error}"))
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

fn files() -> Engine {
    let path = directory("files");
    let end = {
        let path = path.clone();
        move || drop(fs::remove_dir_all(path))
    };
    Engine { name: "lock files".to_owned(), address: format!("file:{path}"), requests: None, end: Some(Box::new(end)) }
}

#[cfg(feature = "redis")]
mod redis {
    use std::rc::Rc;

    use super::Engine;
    use crate::redis_server::RedisServer;

    pub(super) fn server() -> Engine {
        let server = Rc::new(RedisServer::start());
        let counted = Rc::clone(&server);
        Engine {
            name: "Redis, plain".to_owned(),
            address: server.url(),
            requests: Some(Box::new(move || counted.scripts())),
            end: Some(Box::new(move || drop(server))),
        }
    }
}

#[cfg(all(feature = "postgres", unix))]
mod postgres {
    use std::rc::Rc;

    use super::Engine;
    use crate::postgres_server::Database;

    pub(super) fn server() -> Engine {
        let database = Rc::new(Database::create());
        let counted = Rc::clone(&database);
        // Every statement of the stores is a transaction; and so is what counts them.
        let requests = move || {
            let count: i64 = counted.ask("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()");
            count.try_into().expect("not negative")
        };
        Engine {
            name: "PostgreSQL, without fsync".to_owned(),
            address: database.url(),
            requests: Some(Box::new(requests)),
            end: Some(Box::new(move || drop(database))),
        }
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use std::rc::Rc;

    use super::Engine;
    use crate::etcd_server::Etcd;

    pub(super) fn alone() -> Engine {
        engine("etcd, one member", 1)
    }

    pub(super) fn three() -> Engine {
        engine("etcd, three members", 3)
    }

    fn engine(name: &str, members: usize) -> Engine {
        let etcd = Rc::new(Etcd::with(members, &[]));
        let counted = Rc::clone(&etcd);
        let requests = move || {
            (0..members).map(|number| counted.metric_of(number, "grpc_server_started_total")).sum::<f64>() as u64
        };
        Engine {
            name: name.to_owned(),
            address: etcd.url(),
            requests: Some(Box::new(requests)),
            end: Some(Box::new(move || drop(etcd))),
        }
    }
}
