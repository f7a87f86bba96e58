//! An etcd cluster: for the processes of many machines, also while some of its members fail.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::address::Address;
use self::calls::Kept;
use self::gateway::Gateway;
use self::keys::Keys;
use super::error::StoreError;
use super::lease::Lease;
use super::patience::Patience;
use super::store::{Capabilities, Claim, Grant, Holder, Released, Renewal, Store};

mod address;
mod calls;
mod fault;
mod gateway;
mod keys;
mod listing;
mod queue;
mod watch;
mod wire;

/// Leases that an etcd cluster keeps (version 3.4 or later), for all that can reach it. Clones share their connections.
///
/// **Promise**: of those who ask one is granted, in the order in which they asked, and as long as a majority of the members
/// works: also while the leader fails and another takes over. A renewal counts only if no other member has become the leader
/// meanwhile. But leases are no proof: a leader that stood still for longer than a lease, while another took over, can when it goes on
/// have the lease ended that was renewed by the other (etcd issue 15247, seen with 3.4.23, mended in later releases of 3.4 and 3.5);
/// then two believe to hold the key until the next renewal. For [correctness](super#efficiency-or-correctness) one of these
/// has to be added, as with every lease:
///
/// * the resource checks the [fencing token](super::Lease::fencing_token), which is the *create revision* of the holder's key: it only
///   rises, as long as the cluster is not put back to an older copy of its data;
/// * or what is written lies in the same etcd, and the transaction that writes it has a guard: see [`key_of`](Self::key_of).
///
/// Tokens of permits are in the order of asking, too: of two who wait at once, the one with the higher token may be told first.
///
/// # Times to live
///
/// etcd counts whole seconds: a [`ttl`](super::LeaseOptions::ttl) is rounded up, and etcd raises short ones (with its own settings to 2 s).
/// What it grants is what counts. The leader ends a lease up to half a second late, and a new leader lets every lease begin anew: so
/// long the key of a holder that was killed stays. The same goes for `at_least` of a [job](super::JobLimits).
///
/// # Waiting
///
/// Each who waits has a place in the queue, by a key and a lease of its own. For a lock it watches the key of the one before, so that a
/// release wakes one; for permits it watches all of the name, and looks once a place must be free. Each costs a thread and a connection
/// while it waits. Beside that it looks by itself, every five to ten seconds (or every second at the latest, if no server tells it
/// anything), and keeps its lease alive.
///
/// A process that is killed while it waits leaves its place in the queue until its `ttl` has passed, and those behind wait so long. A
/// try that finds the key taken writes nothing. Who has a semaphore with a higher limit than others waits behind those with a lower
/// one.
///
/// # What is in the cluster
///
/// A key for each who holds a name or waits for it, as `perkey/7:billing/lock/10:account-42/6f…` (the length of the namespace, the
/// namespace, `lock` or `permits`, the length of the key, the key, the owner), under a lease. Both go with the release. A
/// user needs a role with `readwrite` on the prefix `perkey/`.
///
/// To lock takes two requests that the cluster has to agree on, and writes to its disks; to give back takes one more, and one that
/// only reads, as a renewal's do. [`holders`](super::DistributedLock::holders) reads all keys of the namespace, 200 with each request, and then
/// how long each holder has.
///
/// # Time limits
///
/// A request has two seconds, and the time that the call has left if that is less, but at least a second, or half of what is
/// left of the lease for a renewal.
/// Each server gets its share of that; if one does not answer, the next is asked, and the next request begins with that
/// one. A wait that ends without the key may take two seconds more, to give its place in the queue back.
/// (For each request a thread looks up the name of the host, so that this is bounded, too.) Proxies that the environment names are
/// not used.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, EtcdStore};
///
/// // etcds:// is TLS, with the certificates that the system trusts (or those in the file that SSL_CERT_FILE names).
/// let store = EtcdStore::open("etcds://worker:password@one.example,two.example,three.example")?;
/// let jobs = DistributedLock::new(store);
/// let lease = jobs.lock_with("nightly-report", Duration::from_secs(5))?;
/// println!("writing the report, with token {:?}", lease.fencing_token());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EtcdStore {
    gateway: Arc<Gateway>,
}

/// No attempt takes longer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// An attempt may always take so long: one that is cut off has an outcome that nobody knows, and the members have to agree first.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);

impl EtcdStore {
    /// A store in the cluster that the URL names: `etcd://host,host` with some of its members, with `user:password@` before the hosts, and
    /// `:port` after each, where they are needed (else it is 2379); `etcds://` for TLS. In user and password any character can be
    /// written as `%` and two digits, as in other URLs.
    ///
    /// Does not connect: the first call does. For TLS the process needs a `CryptoProvider` of `rustls`: if it has chosen none, `ring` is
    /// chosen here.
    ///
    /// # Errors
    ///
    /// If this is no such URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Ok(Self { gateway: Arc::new(Gateway::new(Address::parse(url)?)) })
    }

    /// The name of the key in etcd that a lease of such a store has: for a guard.
    ///
    /// A transaction of your own, with the etcd client of your choice, writes only while the lease is held, if it compares the
    /// create revision of this key with the fencing token. No other check is needed then, and no clock.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use perkey::distributed::{DistributedLock, EtcdStore};
    ///
    /// let jobs = DistributedLock::new(EtcdStore::open("etcd://one.example")?);
    /// let lease = jobs.lock("nightly-report")?;
    /// let (key, token) = (EtcdStore::key_of(&lease), lease.fencing_token().expect("etcd has tokens"));
    /// // As `etcdctl txn` reads it: the comparisons, what is done if they hold, and what if not.
    /// println!("create({key:?}) = \"{token}\"\n\nput report/last written\n\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key_of(lease: &Lease) -> String {
        Keys::of(lease.claim()).own
    }
}

/// When a call that may take so long is over.
fn end(within: Duration) -> Instant {
    Instant::now() + within.clamp(SHORTEST_ATTEMPT, ATTEMPT)
}

impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leases: true, tokens: true, semaphores: true, lists_holders: true }
    }

    fn describe(&self) -> String {
        self.gateway.address().shown().to_owned()
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        Ok(queue::acquire(&self.gateway, claim, ttl, patience)?)
    }

    /// The lease has the time to live that it was made with.
    fn renew(&self, claim: &Claim, _: Duration, within: Duration) -> Result<Renewal, StoreError> {
        let term = self.gateway.renew(&Keys::of(claim), Instant::now() + within.min(ATTEMPT))?;
        Ok(term.map_or(Renewal::NotOwner, Renewal::Renewed))
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        let (keys, until) = (Keys::of(claim), end(within));
        let was_held = if keep_for.is_zero() {
            self.gateway.see(&keys, until)?.is_there
        } else {
            self.gateway.grant(keys.kept_lease, keep_for, until)?;
            let kept = self.gateway.keep(&keys, until)?;
            if kept == Kept::Never {
                self.gateway.revoke(keys.kept_lease, until)?;
            }
            kept == Kept::Now
        };
        // Also if the key is not there: what is still on its way finds no lease then.
        self.gateway.revoke(keys.lease, until)?;
        Ok(if was_held { Released::Freed } else { Released::NotOwner })
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        Ok(self.gateway.see(&Keys::of(claim), end(within))?.is_there)
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        Ok(listing::holders(&self.gateway, namespace, prefix)?)
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("address", self.gateway.address()).finish_non_exhaustive()
    }
}
