//! Where the servers are, and who asks.

use std::fmt;

use percent_encoding::percent_decode_str;
use ureq::http::Uri;

use crate::distributed::error::StoreError;

/// What the URL says. Never shown as a whole: it can have a password in it.
pub(super) struct Address {
    /// As `http://host:port`. At least one.
    endpoints: Vec<String>,
    is_tls: bool,
    login: Option<Login>,
    shown: String,
}

/// Who asks.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// Where etcd listens for its clients.
const PORT: u16 = 2379;

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split(':').next().filter(|scheme| scheme.len() < url.len()).unwrap_or("none");
        let is_no_url = |why: &str| {
            // Not the URL itself.
            StoreError::permanent(format!(
                "the URL, which begins with {scheme:?}, names no etcd servers ({why}): write etcd://user:password@host:port,host:port, \
                 or etcds:// for TLS"
            ))
        };
        let is_tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(is_no_url("it begins otherwise")),
        };
        let rest = url[scheme.len()..].strip_prefix("://").ok_or_else(|| is_no_url("there is no // in it"))?;
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        let login = login.map(|login| Login::parse(login).ok_or_else(|| is_no_url("user and password are no text")));
        let authorities = hosts.strip_suffix('/').unwrap_or(hosts).split(',').map(authority);
        let authorities: Option<Vec<_>> = authorities.collect();
        let authorities = authorities.ok_or_else(|| is_no_url("what should be hosts with their ports is not"))?;
        let protocol = if is_tls { "https" } else { "http" };
        let endpoints = authorities.iter().map(|authority| format!("{protocol}://{authority}")).collect();
        let shown = format!("etcd at {}", authorities.join(", "));
        Ok(Self { endpoints, is_tls, login: login.transpose()?, shown })
    }

    /// As `http://host:port`. At least one.
    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(super) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Without a password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

impl Login {
    /// Of `user:password`, in which any byte can be written as `%` and two hexadecimal digits.
    fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let plain = |text| percent_decode_str(text).decode_utf8().ok().map(String::from);
        Some(Self { user: plain(user).filter(|user| !user.is_empty())?, password: plain(password)? })
    }
}

/// Of `host` or `host:port`, with the port.
fn authority(host: &str) -> Option<String> {
    let uri: Uri = format!("http://{host}").parse().ok()?;
    let known = uri.authority().filter(|known| known.as_str() == host && !known.host().is_empty())?;
    // What is left of it has the port.
    match &host[known.host().len()..] {
        "" => Some(format!("{host}:{PORT}")),
        port => port.strip_prefix(':')?.parse::<u16>().ok().map(|_| host.to_owned()),
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
            ("etcd://a.example", "etcd at a.example:2379"),
            ("etcd://user:s3cret@[::1]:7000/", "etcd at [::1]:7000"),
            ("etcds://user:s3cret@a.example:1,b.example", "etcd at a.example:1, b.example:2379"),
        ] {
            let address = Address::parse(url).expect(url);
            assert_eq!(address.shown(), shown);
            assert!(!format!("{address:?}").contains("s3cret"));
        }
    }

    #[test]
    fn knows_the_endpoints_and_who_asks() {
        let address = Address::parse("etcds://us%65r:p%40ss:w%25rd@a,b:1").unwrap();
        assert_eq!(address.endpoints(), ["https://a:2379", "https://b:1"]);
        let login = address.login().unwrap();
        assert_eq!((&*login.user, &*login.password, address.is_tls()), ("user", "p@ss:w%rd", true));
        let address = Address::parse("etcd://127.0.0.1").unwrap();
        assert_eq!(address.endpoints(), ["http://127.0.0.1:2379"]);
        assert!(address.login().is_none() && !address.is_tls());
    }

    #[test]
    fn refuses_other_urls_without_showing_them() {
        for url in [
            "",
            "s3cret",
            "etcd:s3cret",
            "http://user:s3cret@host",
            "etcd://",
            "etcd://user:s3cret@",
            "etcd://:s3cret@host",
            "etcd://user:s3cret@host/path",
            "etcd://user:s3cret@host:x",
            "etcd://user:s3cret@host:",
            "etcd://user:s3cret@host:99999",
            "etcd://user:s3cret@host,",
            "etcd://user:s3cret@host?query",
            "etcd://user:%FFs3cret@host",
        ] {
            let error = Address::parse(url).map(|address| address.endpoints().to_vec()).expect_err(url).to_string();
            assert!(error.contains("write etcd://") && !error.contains("s3cret"), "{error}");
        }
    }
}
