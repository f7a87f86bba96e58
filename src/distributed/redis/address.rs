//! Where the server is, and who asks.

use std::fmt;

use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::distributed::error::StoreError;
use crate::distributed::tls::choose_arithmetic;

/// What the URL says. Never shown as a whole: it can have a password in it.
pub(super) struct Address {
    /// Knows no password, so that its errors cannot contain one.
    client: Client,
    user: Option<String>,
    password: Option<String>,
    database: i64,
    shown: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split(':').next().filter(|scheme| scheme.len() < url.len()).unwrap_or("none");
        let is_no_url = |why: &str| {
            // Not the URL itself.
            StoreError::permanent(format!(
                "the URL, which begins with {scheme:?}, names no Redis server ({why}): write redis://user:password@host:port/database, \
                 rediss:// for TLS, or redis+unix:///path?db=database"
            ))
        };
        let parsed = redis::parse_redis_url(url).ok_or_else(|| is_no_url("it cannot be read"))?;
        let info = parsed.into_connection_info().map_err(|error| is_no_url(&error.to_string()))?;
        let (user, password) = (info.redis_settings().username(), info.redis_settings().password());
        let (user, password, database) =
            (user.map(str::to_owned), password.map(str::to_owned), info.redis_settings().db());
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(is_no_url("#insecure is not supported"));
        }
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            choose_arithmetic();
        }
        let shown = match database {
            0 => format!("Redis at {}", info.addr()),
            _ => format!("Redis at {}, database {database}", info.addr()),
        };
        let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let info = info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(|error| is_no_url(&error.to_string()))?;
        Ok(Self { client, user, password, database, shown })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Without a password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What has to be asked first, if there is a user or a password. A user can have none.
    pub(super) fn login(&self) -> Option<Cmd> {
        self.user.as_ref().or(self.password.as_ref())?;
        let mut login = redis::cmd("AUTH");
        login.arg(&self.user).arg(self.password.as_deref().unwrap_or_default());
        Some(login)
    }

    /// What has to be asked then, if it is not the first database.
    pub(super) fn select(&self) -> Option<Cmd> {
        (self.database != 0).then(|| {
            let mut select = redis::cmd("SELECT");
            select.arg(self.database);
            select
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_where_and_no_password() {
        for (url, shown) in [
            ("redis://cache.example", "Redis at cache.example:6379"),
            ("redis://user:s3cret@[::1]:7000/2", "Redis at ::1:7000, database 2"),
            ("rediss://:s3cret@cache.example:6380", "Redis at cache.example:6380"),
        ] {
            assert_eq!(Address::parse(url).expect(url).shown(), shown);
        }
    }

    #[test]
    fn refuses_other_urls_without_showing_them() {
        for url in [
            "",
            "s3cret",
            "http://user:s3cret@host",
            "redis://:s3cret@host/first",
            "redis://:s3cret@0.0.0.0",
            "redis://:s3cret@host:x",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("write redis://") && !error.contains("s3cret"), "{error}");
        }
        let error = Address::parse("rediss://host/#insecure").unwrap_err().to_string();
        assert!(error.contains("#insecure is not supported"), "{error}");
    }
}
