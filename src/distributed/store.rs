//! What an engine has to be able to do.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::StoreError;
use super::lost::Lost;
use super::name::Name;
use super::patience::Patience;
use super::random::random;

/// A place that several processes can lock keys in.
///
/// perkey brings some ([`MemoryStore`](super::MemoryStore), [`FileStore`](super::FileStore) and others, by cargo features); write
/// your own for another engine. [`DistributedLock`](super::DistributedLock) and
/// [`DistributedSemaphore`](super::DistributedSemaphore) do the rest: they make the owner ids, renew leases, watch the clock, retry,
/// and clean up after a reply that never came. Calls come from several threads at once.
///
/// # What a store promises
///
/// * Of one name at most as many claims are granted at once as [`Claim::limit`] says, each to an owner of its own: also to
///   those that ask through the same connection or session.
/// * A token is taken in the same atomic step as the grant, and is higher than every one that the name had before: the
///   counter does not expire, and no release deletes it.
/// * [`renew`](Self::renew) never creates, [`release`](Self::release) only gives back what its owner has, and both can be
///   repeated.
/// * A call that ended with [`Transient`](super::StoreErrorKind::Transient) has changed nothing. If that is not known, it is
///   [`UnknownOutcome`](super::StoreErrorKind::UnknownOutcome).
///
/// # How engines fit
///
/// | engine | [`acquire`](Self::acquire) | [`renew`](Self::renew) | token |
/// |---|---|---|---|
/// | keys that expire | set the key to the owner if there is none; pause until it is freed, or expires | if the owner is still there, a new time | a counter beside it, raised in the same step |
/// | sessions (ephemeral nodes, advisory locks) | ask, and wait for a notice; [`Grant::of_session`] | never called; [`Claim::lost`] is set when the session ends | a counter, or the number of the node |
/// | compare and swap with revisions | make a key under a lease of the engine, wait for those before it | keep the lease alive | the revision in which it was made |
/// | conditional writes | write if the version is the one that was read; who holds it is taken over when the version has not changed for its term | write the next version | kept in the item, which a release does not delete |
pub trait Store: Send + Sync + 'static {
    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// What the store is called in messages, as `Redis at cache.example:6379`: without passwords.
    fn describe(&self) -> String;

    /// Tries to get a claim granted, for a term of `ttl` if the engine has leases, until it is granted or `patience` is over: then
    /// `None`, and nothing of the claim is left. At least one attempt is made.
    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError>;

    /// Grants another term to a claim, if it still has one; in about `within` at the most.
    fn renew(&self, claim: &Claim, ttl: Duration, within: Duration) -> Result<Renewal, StoreError>;

    /// Gives a claim back; in about `within` at the most. With `keep_for`, nobody is granted its place for so long.
    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError>;

    /// Whether the claim has what it was granted, as the engine sees it.
    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError>;

    /// Who holds the keys of a namespace that begin with `prefix`, by key; if the engine [can tell](Capabilities::lists_holders).
    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError>;
}

/// What an engine can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A grant ends by itself after a time, and can be renewed. Else it lasts as long as the session or the process.
    pub leases: bool,
    /// Grants have fencing tokens.
    pub tokens: bool,
    /// Names can have limits above one.
    pub semaphores: bool,
    /// It can tell who holds what.
    pub lists_holders: bool,
}

impl Capabilities {
    /// None; to be filled in.
    #[must_use]
    pub const fn none() -> Self {
        Self { leases: false, tokens: false, semaphores: false, lists_holders: false }
    }
}

/// What a [`Claim`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A lock.
    Lock,
    /// A permit of a semaphore.
    Permit {
        /// How many there are, as far as who asks knows.
        limit: NonZeroU32,
    },
}

/// Who asks for what: one acquisition, from before it is granted until it is given back.
#[derive(Clone, Debug)]
pub struct Claim {
    name: Name,
    owner: OwnerId,
    kind: Kind,
    lost: Lost,
}

impl Claim {
    /// With an owner id that nobody had before.
    pub(super) fn fresh(name: Name, kind: Kind) -> Self {
        Self { name, owner: OwnerId::fresh(), kind, lost: Lost::new() }
    }

    /// Of what.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// By whom: another for every acquisition.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Whether it is for a lock or for a permit: of one name these are independent of each other.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many may have the name at once: of a lock, one.
    #[must_use]
    pub fn limit(&self) -> u32 {
        match self.kind {
            Kind::Lock => 1,
            Kind::Permit { limit } => limit.get(),
        }
    }

    /// To be set by a store which finds that the claim's session is gone.
    #[must_use]
    pub fn lost(&self) -> &Lost {
        &self.lost
    }
}

/// 127 random bits that name one acquisition. Its `Display` has 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(u128);

impl OwnerId {
    /// What no acquisition has.
    pub(super) const NOBODY: Self = Self(0);

    pub(super) fn fresh() -> Self {
        Self(u128::from(random()) << 64 | u128::from(random()) | 1)
    }

    /// What its `Display` has written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) token: Option<u64>,
    pub(super) term: Option<Term>,
}

impl Grant {
    /// For as long as the session lasts.
    #[must_use]
    pub fn of_session(token: Option<u64>) -> Self {
        Self { token, term: None }
    }

    /// For a term.
    #[must_use]
    pub fn of_term(token: Option<u64>, term: Term) -> Self {
        Self { token, term: Some(term) }
    }
}

/// For how long something was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Just before the request was sent.
    pub asked: Instant,
    /// What the engine granted: not always what it was asked for.
    pub granted: Duration,
}

impl Term {
    /// When the holder has to think that it is over: reckoned from when it was asked for, and less 1 % and 2 ms for clocks
    /// that do not run at the same speed. `None` is never.
    pub(super) fn ends(self) -> Option<Instant> {
        let margin = self.granted / 100 + Duration::from_millis(2);
        self.asked.checked_add(self.granted.saturating_sub(margin))
    }
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It goes on.
    Renewed(Term),
    /// The claim has nothing to renew any more. That is final.
    NotOwner,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held until now, and is free.
    Freed,
    /// It was not this owner's any more.
    NotOwner,
}

/// Who holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The key.
    pub key: String,
    /// The acquisition, as the store knows it. Empty if the key is only kept for a while after a job.
    pub owner: String,
    /// The fencing token it was given.
    pub token: Option<u64>,
    /// For how long, if nobody renews it.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// Of that key.
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        owner: impl Into<String>,
        token: Option<u64>,
        remaining: Option<Duration>,
    ) -> Self {
        Self { key: key.into(), owner: owner.into(), token, remaining }
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        S::capabilities(self)
    }

    fn describe(&self) -> String {
        S::describe(self)
    }

    fn acquire(&self, claim: &Claim, ttl: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        S::acquire(self, claim, ttl, patience)
    }

    fn renew(&self, claim: &Claim, ttl: Duration, within: Duration) -> Result<Renewal, StoreError> {
        S::renew(self, claim, ttl, within)
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        S::release(self, claim, keep_for, within)
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        S::verify(self, claim, within)
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        S::holders(self, namespace, prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_a_bit_early_and_begins_when_it_was_asked_for() {
        let asked = Instant::now();
        let ends = |granted| Term { asked, granted }.ends().map(|ends| ends - asked);
        assert_eq!(ends(Duration::from_secs(10)), Some(Duration::from_millis(10_000 - 100 - 2)));
        assert_eq!(ends(Duration::from_millis(1)), Some(Duration::ZERO));
        assert_eq!(ends(Duration::MAX), None);
    }
}
