//! A Redis server: for the processes of many machines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use self::address::Address;
use self::fault::Effect;
use self::keys::Keys;
use self::listener::Listener;
use self::pool::Pool;
use super::error::StoreError;
use super::patience::{Backoff, Patience};
use super::store::{Capabilities, Claim, Grant, Holder, OwnerId, Released, Renewal, Store, Term};

mod address;
mod fault;
mod keys;
mod listener;
mod pool;
mod scripts;
mod wire;

/// Leases that one Redis server keeps (version 6 or later, or Valkey), for all that can reach it. Clones share their connections.
///
/// **Promise**: a lock for [efficiency](super#efficiency-or-correctness). Of those who ask one is granted, as long as the server is one
/// and has its data:
///
/// * A replica that is promoted does not have what the master had not sent it yet; and a server that starts without its data has
///   nothing. Then a key can be granted while its holder still believes in its lease, until the next renewal finds out.
/// * Leases end by the server's wall clock. If that is set forward, they end early.
/// * It is one server. Several, as in "Redlock", are not asked; of a cluster or a group under Sentinel, give the address of the master.
///
/// For correctness the resource has to check the [fencing token](super::Lease::fencing_token). It is higher than the last one of the
/// key, which stays in the server, and not lower than the server's clock in microseconds: so tokens also rise if the server
/// loses its data, or another takes over, unless its clock is late.
///
/// # What the server should be told
///
/// Nothing, for efficiency. Else: `appendonly yes` with `appendfsync always`, so that a restart keeps what was granted;
/// `maxmemory-policy noeviction` (or one of the `volatile-` ones, which spare the tokens but not the leases), so that it forgets nothing
/// to make room; and `min-replicas-to-write`, so that a master that is cut off soon stops to grant.
///
/// A user under an access list needs `+@read +@write +@scripting +@connection +@pubsub +time ~perkey:* &perkey:*`; without the channels waiting is
/// by polling only.
///
/// # What is in the server
///
/// Each key has a name as `perkey:{7:billing:account-42}:lock` (the length of the namespace, the namespace, the key), which goes with
/// the lease; or `…:permits` and `…:permits-tokens` for a semaphore. The token counter `…:lock-token` or `…:permits-token`
/// stays **for ever**: some 150 bytes for each key that was ever locked. Do not delete one while somebody may still write with
/// an old token.
///
/// # Waiting
///
/// A release is announced (pub/sub), and about four of those who wait then try; there is no order. Who waits also looks by itself at the
/// latest when the lease would end, and at pauses that grow to a second: so much a lost message costs. One thread and one
/// connection per store listen while somebody waits, and ten seconds longer.
///
/// # Time limits
///
/// Connecting, sending and receiving are bounded by two seconds, and by the time that the call has left if that is less, but not below 100 ms
/// for an attempt to acquire. (Only the look-up of a host name takes as long as the system takes; and
/// a reply that comes byte by byte is waited for as long as each byte is in time.) A connection on which
/// something went wrong is closed, so that a late reply is never taken for that of the next request.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, RedisStore};
///
/// // rediss:// is TLS, with the certificates that the system trusts (or those in the file that SSL_CERT_FILE names).
/// let store = RedisStore::open("rediss://worker:password@cache.example:6380")?;
/// let jobs = DistributedLock::new(store);
/// let lease = jobs.lock_with("nightly-report", Duration::from_secs(5))?;
/// println!("writing the report, with token {:?}", lease.fencing_token());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    address: Arc<Address>,
    pool: Arc<Pool>,
    listener: Arc<Listener>,
}

/// No attempt takes longer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// An attempt may always take so long: one that is cut off has an outcome that nobody knows.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// So late a waiter comes if a message is lost.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What an attempt found.
enum Found {
    Free(Grant),
    /// For so long, unless it is renewed or released.
    Held(Duration),
}

impl RedisStore {
    /// A store in the server that the URL names: `redis://host`, with `user:password@` before the host, `:port` and `/database` after it
    /// where they are needed, `rediss://` for TLS, or `redis+unix:///path?db=database&user=user&pass=password` for a socket on this
    /// machine.
    ///
    /// Does not connect: the first call does. For TLS the process needs a `CryptoProvider` of `rustls`: if it has chosen none, `ring` is
    /// chosen here.
    ///
    /// # Errors
    ///
    /// If this is no such URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let address = Arc::new(Address::parse(url)?);
        let (pool, listener) = (Pool::new(Arc::clone(&address)), Listener::new(Arc::clone(&address)));
        Ok(Self { address, pool: Arc::new(pool), listener: Arc::new(listener) })
    }

    /// Takes the lock, or a permit, if one is free.
    fn attempt(&self, claim: &Claim, keys: &Keys, ttl: Duration, until: Instant) -> Result<Found, StoreError> {
        let ttl = millis(ttl);
        let mut grant = step(keys.scripts.grant, keys, claim);
        grant.arg(ttl).arg(claim.limit());
        let ((is_granted, number), asked): ((bool, i64), _) = self.pool.ask(&grant, Effect::Changes, until)?;
        if !is_granted {
            // Negative if somebody made the key last for ever.
            return Ok(Found::Held(u64::try_from(number).map_or(Duration::MAX, Duration::from_millis)));
        }
        let term = Term { asked, granted: Duration::from_millis(ttl) };
        Ok(Found::Free(Grant::of_term(u64::try_from(number).ok(), term)))
    }

    /// Has the listener wake who waits.
    fn listen(&self, keys: &Keys, patience: &Patience<'_>) -> listener::Waiting<'_> {
        let (waiting, has_to_be_rung) = self.listener.wait(&keys.channel, patience.waker());
        if has_to_be_rung {
            let mut ring = redis::cmd("PUBLISH");
            ring.arg(self.listener.bell()).arg("");
            // If it fails, who waits looks by itself.
            let _ = self.pool.ask::<Value>(&ring, Effect::Looks, end(attempt_within(patience)));
        }
        waiting
    }

    /// The locks and semaphores of a namespace that somebody holds, whose keys begin with `prefix`.
    fn find(&self, namespace: &str, prefix: &str) -> Result<BTreeMap<String, (String, Keys)>, StoreError> {
        let (pattern, mut cursor) = (keys::pattern(namespace, prefix), "0".to_owned());
        // What changes meanwhile can be found twice.
        let mut all = BTreeMap::new();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let until = end(ATTEMPT);
            let ((next, found), _): ((String, Vec<Vec<u8>>), _) = self.pool.ask(&scan, Effect::Looks, until)?;
            for name in found.into_iter().filter_map(|name| String::from_utf8(name).ok()) {
                if let Some(known) = Keys::of_found(namespace, &name) {
                    all.insert(name, known);
                }
            }
            if next == "0" {
                return Ok(all);
            }
            cursor = next;
        }
    }
}

fn step(script: &str, keys: &Keys, claim: &Claim) -> Cmd {
    let mut step = scripts::call(script, &keys.keys);
    step.arg(claim.owner().to_string());
    step
}

/// How long the next attempt may take.
fn attempt_within(patience: &Patience<'_>) -> Duration {
    let remaining = patience.remaining().filter(|_| patience.allows_waiting());
    remaining.map_or(ATTEMPT, |remaining| remaining.clamp(SHORTEST_ATTEMPT, ATTEMPT))
}

/// When a call that may take so long is over. A connection that is dead would else be waited for as long as the lease lasts, and not
/// be replaced.
fn end(within: Duration) -> Instant {
    Instant::now() + within.min(ATTEMPT)
}

/// At least one.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Of "owner token".
fn holder(key: &str, who: &str, left: i64) -> Holder {
    let (owner, token) = who.split_once(' ').unwrap_or((who, ""));
    // Kept for nobody.
    let owner = if owner.starts_with(&OwnerId::NOBODY.to_string()) { "" } else { owner };
    Holder::new(key, owner, token.parse().ok(), u64::try_from(left).ok().map(Duration::from_millis))
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leases: true, tokens: true, semaphores: true, lists_holders: true }
    }

    fn describe(&self) -> String {
        self.address.shown().to_owned()
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        let keys = Keys::of(claim);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut waiting = None;
        loop {
            let left = match self.attempt(claim, &keys, ttl, end(attempt_within(patience)))? {
                Found::Free(grant) => return Ok(Some(grant)),
                Found::Held(left) => left,
            };
            if patience.allows_waiting() && waiting.is_none() {
                waiting = Some(self.listen(&keys, patience));
            }
            // A moment after the end, so that the next attempt finds it free.
            let end = left.saturating_add(Duration::from_millis(1));
            if !patience.pause(backoff.pause().min(end)) {
                return Ok(None);
            }
        }
    }

    fn renew(&self, claim: &Claim, ttl: Duration, within: Duration) -> Result<Renewal, StoreError> {
        let (keys, ttl) = (Keys::of(claim), millis(ttl));
        let mut renew = step(keys.scripts.renew, &keys, claim);
        renew.arg(ttl);
        let (is_held, asked) = self.pool.ask(&renew, Effect::Changes, end(within))?;
        let term = Term { asked, granted: Duration::from_millis(ttl) };
        Ok(if is_held { Renewal::Renewed(term) } else { Renewal::NotOwner })
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        let keys = Keys::of(claim);
        let keep_for = if keep_for.is_zero() { 0 } else { millis(keep_for) };
        let mut release = step(keys.scripts.release, &keys, claim);
        release.arg(keep_for).arg(OwnerId::NOBODY.to_string()).arg(&keys.channel);
        let (was_held, _) = self.pool.ask(&release, Effect::Changes, end(within))?;
        Ok(if was_held { Released::Freed } else { Released::NotOwner })
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        let keys = Keys::of(claim);
        let verify = step(keys.scripts.verify, &keys, claim);
        Ok(self.pool.ask(&verify, Effect::Looks, end(within))?.0)
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let mut holders = Vec::new();
        for (key, keys) in self.find(namespace, prefix)?.into_values() {
            let list = scripts::call(keys.scripts.holders, &keys.keys);
            let (held, _): (Vec<(String, i64)>, _) = self.pool.ask(&list, Effect::Looks, end(ATTEMPT))?;
            holders.extend(held.into_iter().map(|(who, left)| holder(&key, &who, left)));
        }
        holders.sort_by(|one, other| (&one.key, one.token).cmp(&(&other.key, other.token)));
        Ok(holders)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("address", &self.address).finish_non_exhaustive()
    }
}
