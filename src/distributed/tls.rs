//! What the clients of several engines leave to the process: who does the arithmetic of TLS.

use rustls::crypto::CryptoProvider;

/// rustls panics if nobody has chosen. What the process has chosen stays.
pub(super) fn choose_arithmetic() {
    if CryptoProvider::get_default().is_none() {
        // If another thread was quicker, that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
