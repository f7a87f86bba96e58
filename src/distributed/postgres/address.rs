//! Where the server is, and who asks.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::distributed::error::StoreError;

/// What the URL says. Never shown as a whole: it can have a password in it.
pub(super) struct Address {
    config: Config,
    shown: String,
    /// Made when it is first needed: the system's certificates are many.
    tls: OnceLock<MakeRustlsConnect>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split(':').next().filter(|scheme| scheme.len() < url.len()).unwrap_or("none");
        let is_no_url = |why: &str| {
            // Not the URL itself.
            StoreError::permanent(format!(
                "the URL, which begins with {scheme:?}, names no PostgreSQL server ({why}): write \
                 postgres://user:password@host:port/database?sslmode=require, or postgres://user@%2Fdirectory/database for the socket in a \
                 directory"
            ))
        };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(is_no_url("it cannot be read"));
        }
        // The parser takes what is before the first for user and password, and the rest for a host, which is shown.
        let authority =
            url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
        if url.matches('@').count() > 1 || url.contains('@') != authority.contains('@') {
            return Err(is_no_url("an @ in a user name, a password or a database is written %40"));
        }
        // What the parser says can show a part of the URL.
        let mut config: Config = url.parse().map_err(|_| is_no_url("it cannot be read"))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(is_no_url("it has no host"));
        }
        // Of several only one has the locks.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("perkey");
        }
        let shown = show(&config);
        Ok(Self { config, shown, tls: OnceLock::new() })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Without a password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// How to speak TLS, if that may be needed.
    pub(super) fn tls(&self) -> Option<MakeRustlsConnect> {
        let is_tcp = |host: &Host| matches!(host, Host::Tcp(_));
        let has_tcp = self.config.get_hosts().iter().any(is_tcp) || !self.config.get_hostaddrs().is_empty();
        if self.config.get_ssl_mode() == SslMode::Disable || !has_tcp {
            return None;
        }
        Some(self.tls.get_or_init(|| MakeRustlsConnect::new(trusting_what_the_system_trusts())).clone())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn show(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |number: usize| ports.get(number).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(host) => host.clone(),
        #[cfg(unix)]
        Host::Unix(directory) => directory.display().to_string(),
    });
    let addresses = config.get_hostaddrs().iter().map(ToString::to_string);
    let all: Vec<_> = if config.get_hosts().is_empty() { addresses.collect() } else { hosts.collect() };
    let all: Vec<_> = all.iter().enumerate().map(|(number, host)| format!("{host}:{}", port(number))).collect();
    let shown = format!("PostgreSQL at {}", all.join(","));
    match config.get_dbname() {
        Some(database) => format!("{shown}, database {database}"),
        None => shown,
    }
}

/// The system's certificates, or those in the file that `SSL_CERT_FILE` names.
fn trusting_what_the_system_trusts() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    // What cannot be read is not trusted; if it was needed, the handshake says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let arithmetic = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(arithmetic).with_safe_default_protocol_versions();
    builder.expect("ring can do all versions").with_root_certificates(roots).with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_where_and_no_password() {
        for (url, shown) in [
            ("postgres://db.example", "PostgreSQL at db.example:5432"),
            ("postgresql://user:s3cret@[::1]:7000/jobs", "PostgreSQL at ::1:7000, database jobs"),
            ("postgres://user:s3cret@a,b:7000/jobs", "PostgreSQL at a:5432,b:7000, database jobs"),
            ("postgres:///jobs?hostaddr=10.0.0.1&password=s3cret", "PostgreSQL at 10.0.0.1:5432, database jobs"),
            ("postgres://user@%2Frun%2Fpostgresql/jobs", "PostgreSQL at /run/postgresql:5432, database jobs"),
        ] {
            let address = Address::parse(url).expect(url);
            assert_eq!(address.shown(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn refuses_other_urls_without_showing_them() {
        for url in [
            "",
            "s3cret",
            "host=s3cret",
            "http://user:s3cret@host",
            "postgres:s3cret",
            "postgres://",
            "postgres:///jobs",
            "postgres://user:s3cret@host:x",
            "postgres://user@host/jobs?s3cret=1",
            "postgres://user@host/jobs?sslmode=s3cret",
            "postgres://user:pass@s3cret@host/jobs",
            "postgres://user:pass@s/s3cret@host/jobs",
            "postgres://host/jobs?user=user&password=pass@s3cret",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("write postgres://") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn tls_is_for_tcp_unless_it_is_disabled() {
        let has_tls = |url| Address::parse(url).expect(url).tls().is_some();
        assert!(has_tls("postgres://host/jobs") && has_tls("postgres://host/jobs?sslmode=require"));
        assert!(!has_tls("postgres://host/jobs?sslmode=disable") && !has_tls("postgres://%2Frun%2Fpostgresql/jobs"));
    }
}
