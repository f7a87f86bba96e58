//! The store that the command line names.

use std::sync::Arc;

#[cfg(feature = "etcd")]
use perkey::distributed::EtcdStore;
#[cfg(feature = "postgres")]
use perkey::distributed::PostgresStore;
#[cfg(feature = "redis")]
use perkey::distributed::RedisStore;
use perkey::distributed::{FileStore, Store};

/// The one place where a text becomes a store: another engine is another line, under the `cfg` of its cargo feature.
pub(crate) fn open(text: &str) -> Result<Arc<dyn Store>, String> {
    match text.split_once(':') {
        Some(("file", "")) => Err("the store \"file:\" names no directory: give file:DIR".to_owned()),
        Some(("file", directory)) => match FileStore::open(directory) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(format!("cannot open the store {text:?}: {error}")),
        },
        // The message does not show the URL, which can have a password in it.
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => match PostgresStore::open(text) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(format!("cannot open the store: {error}")),
        },
        #[cfg(not(feature = "postgres"))]
        Some(("postgres" | "postgresql", _)) => Err(without("postgres")),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "redis+unix", _)) => match RedisStore::open(text) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(format!("cannot open the store: {error}")),
        },
        #[cfg(not(feature = "redis"))]
        Some(("redis" | "rediss" | "redis+unix", _)) => Err(without("redis")),
        #[cfg(feature = "etcd")]
        Some(("etcd" | "etcds", _)) => match EtcdStore::open(text) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(format!("cannot open the store: {error}")),
        },
        #[cfg(not(feature = "etcd"))]
        Some(("etcd" | "etcds", _)) => Err(without("etcd")),
        _ => {
            // Of the rest nothing: it may have a password in it.
            let kind = text.split(['/', ':', '@']).next().unwrap_or_default();
            Err(format!(
                "{kind:?} is no store: give file:DIR (cargo feature `distributed`), redis://HOST:PORT (cargo feature `redis`), \
                 postgres://HOST/DATABASE (cargo feature `postgres`) or etcd://HOST:PORT (cargo feature `etcd`)"
            ))
        }
    }
}

/// What is known, and was not built in.
#[cfg(not(all(feature = "etcd", feature = "postgres", feature = "redis")))]
fn without(feature: &str) -> String {
    format!(
        "a store in {feature} needs the cargo feature `{feature}`: build with --features {feature}, or give file:DIR"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_store_is_named_with_the_ways_out() {
        let message = |text| open(text).map(|store| store.describe()).unwrap_err();
        for (text, kind) in [
            ("", ""),
            ("file", "file"),
            ("tmp/locks", "tmp"),
            ("nfs:x", "nfs"),
            ("FILE:x", "FILE"),
            ("REDIS://user:s3cret@host", "REDIS"),
            ("redis//user:s3cret@host", "redis"),
            ("postgres//user:s3cret@host", "postgres"),
            ("etcd//user:s3cret@host", "etcd"),
        ] {
            let said = message(text);
            assert!(!said.contains("s3cret"), "{said}");
            assert!(said.starts_with(&format!("{kind:?} is no store: give file:DIR")), "{said}");
            for feature in ["`distributed`", "`etcd`", "`postgres`", "`redis`"] {
                assert!(said.contains(feature), "{said}");
            }
        }
        assert_eq!(message("file:"), "the store \"file:\" names no directory: give file:DIR");
        let file = concat!("file:", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(message(file).starts_with(&format!("cannot open the store {file:?}: ")), "{}", message(file));
        let redis = message("redis:localhost");
        let way_out = match cfg!(feature = "redis") {
            true => "write redis://user:password@host",
            false => "needs the cargo feature `redis`: build with --features redis",
        };
        assert!(redis.contains(way_out), "{redis}");
        let postgres = message("postgres:user:s3cret@localhost");
        let way_out = match cfg!(feature = "postgres") {
            true => "write postgres://user:password@host",
            false => "needs the cargo feature `postgres`: build with --features postgres",
        };
        assert!(postgres.contains(way_out) && !postgres.contains("s3cret"), "{postgres}");
        let etcd = message("etcds:localhost");
        let way_out = match cfg!(feature = "etcd") {
            true => "write etcd://user:password@host",
            false => "needs the cargo feature `etcd`: build with --features etcd",
        };
        assert!(etcd.contains(way_out), "{etcd}");
    }
}
