//! A certificate for a server of a test.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Signed by itself: so who trusts it trusts no other. Gone at the end.
pub(crate) struct Certificate {
    directory: PathBuf,
}

impl Certificate {
    /// Of a server that is called so, as `DNS:localhost` or `IP:127.0.0.1`.
    pub(crate) fn of(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("perkey-certificate-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("the directory for temporary files can be written");
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=perkey test", "-addext", &format!("subjectAltName={name}")])
            // It is trusted as it is, and signs no others.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "certificate.pem"])
            .current_dir(&directory)
            .stderr(Stdio::null())
            .status()
            .unwrap_or_else(|error| panic!("cannot start openssl ({error}): install the Debian package openssl"));
        assert!(made.success());
        Self { directory }
    }

    /// The file of the certificate, which is also what has to be trusted.
    pub(crate) fn file(&self) -> String {
        self.directory.join("certificate.pem").display().to_string()
    }

    /// The file of its key.
    pub(crate) fn key(&self) -> String {
        self.directory.join("key.pem").display().to_string()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
