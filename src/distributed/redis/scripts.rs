//! What the server does in one step.

use redis::Cmd;

/// The steps for locks, or those for permits.
pub(super) struct Scripts {
    pub(super) grant: &'static str,
    pub(super) renew: &'static str,
    pub(super) release: &'static str,
    pub(super) verify: &'static str,
    pub(super) holders: &'static str,
}

/// A lock is a string that ends by itself.
pub(super) const LOCK: Scripts = Scripts {
    grant: include_str!("lock_grant.lua"),
    renew: include_str!("lock_renew.lua"),
    release: include_str!("lock_release.lua"),
    verify: include_str!("lock_verify.lua"),
    holders: include_str!("lock_holders.lua"),
};

/// Permits are a set by when each ends.
pub(super) const PERMITS: Scripts = Scripts {
    grant: include_str!("permits_grant.lua"),
    renew: include_str!("permits_renew.lua"),
    release: include_str!("permits_release.lua"),
    verify: include_str!("permits_verify.lua"),
    holders: include_str!("permits_holders.lua"),
};

/// A call of a script, to which the arguments are added. The script goes along each time: it is small, the server compiles it once,
/// and there is nothing to do when the server forgets it.
pub(super) fn call(script: &str, keys: &[String]) -> Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(keys.len()).arg(keys);
    call
}
