//! A PostgreSQL server: for what uses one anyway.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::address::Address;
use self::answer::Answer;
use self::book::Entry;
use self::engine::Engine;
use self::listener::Listener;
use self::session::{Found, Session, Sessions};
use super::error::StoreError;
use super::name::Name;
use super::patience::{Backoff, Patience};
use super::store::{Capabilities, Claim, Grant, Holder, Released, Renewal, Store, Term};

mod address;
mod answer;
mod book;
mod engine;
mod fault;
mod listener;
mod numbers;
mod session;
mod transaction;
mod wire;

pub use self::transaction::{lock_in_transaction, try_lock_in_transaction};

/// Advisory locks of a PostgreSQL server (version 12 or later; tried with 15), held by one session per store, with fencing tokens in a table. Clones
/// share that session.
///
/// **Promise**: of those who ask one is granted, and nobody else until that session has ended: there are no leases that run out, so
/// [`renew`](super::LeaseOptions::renew) does nothing, and [`ttl`](super::LeaseOptions::ttl) only says for how long a server that fails is
/// asked again. But the session can end while its holder works on. So:
///
/// * For data that is written **in the same transaction** it is correct, without a token: see [`lock_in_transaction`].
/// * Else it is a lock for [efficiency](super#efficiency-or-correctness); for correctness the resource has to check the
///   [fencing token](super::Lease::fencing_token), as [below](#fencing). Tokens rise as long as the server keeps its data: not over a
///   failover to a replica that is behind, nor if a backup is restored.
///
/// # The table
///
/// Tokens are counted in a table `perkey_fence`, which [`create_table`](Self::create_table) makes, once. It has a row for each
/// key that was ever locked, and one for each permit of a semaphore. All users have to find the same table on their `search_path`: two tables
/// would count two sequences of tokens. The rows stay **for ever**: do not delete one while somebody may still
/// write with an old token. A user needs `SELECT`, `INSERT` and `UPDATE` on it. Lock and token are taken by one
/// statement, and what is granted has been written to the disk.
///
/// Locks are advisory locks of the database, with the key's [hash](super::Name::hash) as a signed number; place `n` of a semaphore is a
/// lock too, with the hash going on over a byte `0xFF` and the four bytes of `n`, the highest first. Where the hashes of two names meet they share
/// a lock, and their tokens. Other programs that use advisory locks by a 64-bit number should keep out of the way. All who use a semaphore should have
/// the same limit: one with a smaller limit does not look at the places above it.
///
/// # When the session ends
///
/// Then everything that was held by it is [lost](super::Lease::lost), and its holders are told: within milliseconds if the connection is
/// closed (the server was shut down or has crashed, an administrator has ended the session). If it is not closed (the
/// server stands still, the network swallows everything), the store asks every 2 s, and gives the session up after 6 s without an answer: so holders
/// are told after some 8 s. The server, where it still runs, notices that the client is gone some 20 s after it last heard
/// from it (by `tcp_user_timeout` and keep-alives, which the store sets; not over a socket of one machine, which always tells), and frees the
/// keys. Whoever asks after that gets a new session.
///
/// Who is stopped (by the system, a debugger) keeps the key, since the system keeps the connection. A machine that is suspended for more
/// than those 20 s does not, and finds out when it goes on.
///
/// # Poolers
///
/// Session locks need one session from beginning to end. A pooler that gives each transaction another one (PgBouncer with
/// `pool_mode = transaction`) is noticed, by a mark in the session, and refused: when the store connects, and with each
/// request. Give the address of the server itself, or of a pooler in session mode.
///
/// # Waiting
///
/// A release is announced (`NOTIFY`), and who waits then tries; where many wait, only a part of them; there is no order. Who waits also looks
/// by itself, at pauses that grow to a second: a holder that is killed announces nothing. No session waits within a statement: what runs into
/// `lock_timeout` there can hold the lock all the same. One session per store listens while somebody waits, and some seconds longer; so
/// a store needs two of the server's `max_connections`, and for a moment one more when it connects.
///
/// # Time limits
///
/// An attempt to acquire, connecting included, waits for the server for three seconds, and for the time that the call has left if
/// that is less, but not below one second. What is granted after that is given back at once, in the background. Giving back waits for two seconds, and
/// goes on in the background. Dropping the store waits for nothing. One thread per store speaks with the server, from the first call until the
/// store is dropped.
///
/// # Fencing
///
/// The table that is to be protected remembers the highest token it was written with:
///
/// ```no_run
/// use perkey::distributed::{DistributedLock, PostgresStore};
/// use postgres::{Client, NoTls};
///
/// let jobs = DistributedLock::new(PostgresStore::open("postgres://worker@localhost/jobs")?);
/// let mut client = Client::connect("postgres://worker@localhost/jobs", NoTls)?;
/// client.batch_execute("CREATE TABLE IF NOT EXISTS report (id bigint PRIMARY KEY, text text, token bigint NOT NULL)")?;
///
/// let lease = jobs.lock("report-7")?;
/// let token = lease.fencing_token().expect("this store has tokens").cast_signed();
/// let text = "what takes a while to find out";
/// let changed = client.execute("UPDATE report SET text = $1, token = $2 WHERE id = 7 AND token <= $2", &[&text, &token])?;
/// if changed == 0 {
///     eprintln!("somebody else has the report by now");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Without a lock: rows that are claimed
///
/// For a table of jobs no lock is needed. A worker claims a row in one statement, with a token that rises with each claim; a claim whose owner
/// is gone is free again after a time, by the server's clock:
///
/// ```sql
#[doc = include_str!("postgres/claim.sql")]
/// ```
///
/// No row: there is nothing to do. Else the worker does the job, and writes its result under the condition that the claim is still its own.
/// If no row was changed, it took too long, and another has claimed the job:
///
/// ```sql
#[doc = include_str!("postgres/done.sql")]
/// ```
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use perkey::distributed::{DistributedLock, PostgresStore};
///
/// // TLS, with the certificates that the system trusts (or those in the file that SSL_CERT_FILE names).
/// let store = PostgresStore::open("postgres://worker:password@db.example/jobs?sslmode=require")?;
/// store.create_table()?;
/// let jobs = DistributedLock::new(store);
/// let lease = jobs.lock_with("nightly-report", Duration::from_secs(5))?;
/// println!("writing the report, with token {:?}", lease.fencing_token());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    address: Arc<Address>,
    sessions: Arc<Sessions>,
    listener: Arc<Listener>,
    engine: Engine,
}

/// No attempt takes longer.
const ATTEMPT: Duration = Duration::from_secs(3);
/// An attempt may always take so long: connecting is slow.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);
/// So much longer the answer of the other thread may take.
const HANDOVER: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// So late a waiter comes if nobody announces the release.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const TABLE: &str = include_str!("postgres/table.sql");

impl PostgresStore {
    /// A store in the server that the URL names: `postgres://user:password@host:port/database`, with `?sslmode=` `disable`, `prefer` (the
    /// default: TLS if the server has it) or `require` after it; or `postgres://user@%2Frun%2Fpostgresql/database` for the socket in a
    /// directory of this machine. With TLS the server's certificate is always checked.
    ///
    /// Does not connect: the first call does.
    ///
    /// # Errors
    ///
    /// If this is no such URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let address = Arc::new(Address::parse(url)?);
        let (sessions, listener) = (Sessions::new(Arc::clone(&address)), Listener::new(Arc::clone(&address)));
        let (sessions, listener) = (Arc::new(sessions), Arc::new(listener));
        Ok(Self { shared: Arc::new(Shared { address, sessions, listener, engine: Engine::default() }) })
    }

    /// Makes the table `perkey_fence` in the first schema of the user's `search_path`, unless there is one in any of its schemas. Several may
    /// do so at once.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or the user may not create tables.
    pub fn create_table(&self) -> Result<(), StoreError> {
        // The lock is for two who find that it is not there. Sent as one text, it is one transaction.
        let number = numbers::of_lock(&Name::new("", "perkey_fence"));
        let make = format!("DO $$ BEGIN IF to_regclass('perkey_fence') IS NULL THEN {TABLE}; END IF; END $$");
        let text = format!("SELECT pg_advisory_xact_lock({number}); {make}");
        self.ask(end(ATTEMPT), fault::of_unknown, move |session| async move { session.run(&text).await })
    }

    /// Has the session do something, and waits for the answer.
    fn ask<T: Send + 'static, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        until: Instant,
        late: fn() -> StoreError,
        request: impl FnOnce(Arc<Session>) -> F + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, sessions) = (Answer::new(), Arc::clone(&self.shared.sessions));
        let own = answer.clone();
        self.shared.engine.spawn(async move {
            let asked = match sessions.get(until).await {
                Ok(session) => request(session).await,
                Err(error) => Err(error),
            };
            own.give(asked);
        })?;
        answer.wait(until + HANDOVER).unwrap_or_else(|| Err(late()))
    }

    /// Takes the lock, or a permit, if one is free.
    fn attempt(&self, claim: &Claim, until: Instant) -> Result<Found, StoreError> {
        let (answer, sessions) = (Answer::new(), Arc::clone(&self.shared.sessions));
        let (own, claim) = (answer.clone(), claim.clone());
        self.shared.engine.spawn(async move {
            let session = match sessions.get(until).await {
                Ok(session) => session,
                Err(error) => {
                    own.give(Err(error));
                    return;
                }
            };
            let found = session.grant(&claim).await;
            let is_granted = matches!(found, Ok(Found::Free(_)));
            // Nobody waits for it any more.
            if !own.give(found) && is_granted {
                let _ = session.free(claim.owner(), Duration::ZERO).await;
            }
        })?;
        answer.wait(until + HANDOVER).unwrap_or_else(|| Err(fault::of_unknown()))
    }

    /// The session, and what it knows of a claim.
    fn find(&self, claim: &Claim) -> Option<(Arc<Session>, Entry)> {
        let session = self.shared.sessions.current()?;
        let entry = session.find(claim.owner());
        Some((session, entry))
    }
}

/// How long the next attempt may take.
fn attempt_within(patience: &Patience<'_>) -> Duration {
    let remaining = patience.remaining().filter(|_| patience.allows_waiting());
    remaining.map_or(ATTEMPT, |remaining| remaining.clamp(SHORTEST_ATTEMPT, ATTEMPT))
}

/// When a call that may take so long is over.
fn end(within: Duration) -> Instant {
    Instant::now() + within.min(ATTEMPT)
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leases: false, tokens: true, semaphores: true, lists_holders: true }
    }

    fn describe(&self) -> String {
        self.shared.address.shown().to_owned()
    }

    fn acquire(&self, claim: &Claim, _: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        let Shared { listener, engine, .. } = &*self.shared;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut waiting: Option<listener::Waiting<'_>> = None;
        loop {
            let kept_for = match self.attempt(claim, end(attempt_within(patience)))? {
                Found::Free(grant) => {
                    if let Some(waiting) = &waiting {
                        waiting.is_granted();
                    }
                    return Ok(Some(grant));
                }
                Found::Held(kept_for) => kept_for.unwrap_or(Duration::MAX),
            };
            if patience.allows_waiting() && waiting.is_none() {
                waiting = Some(listener.wait(engine, numbers::of_channel(claim), patience.waker()));
            }
            // A moment after the end, so that the next attempt finds it free.
            let end = kept_for.saturating_add(Duration::from_millis(1));
            if !patience.pause(backoff.pause().min(end)) {
                return Ok(None);
            }
        }
    }

    /// There is nothing to renew: it is held as long as the session lasts.
    fn renew(&self, claim: &Claim, ttl: Duration, _: Duration) -> Result<Renewal, StoreError> {
        let term = Term { asked: Instant::now(), granted: ttl };
        Ok(match self.find(claim) {
            Some((_, Entry::Held(_))) => Renewal::Renewed(term),
            _ => Renewal::NotOwner,
        })
    }

    fn release(&self, claim: &Claim, keep_for: Duration, within: Duration) -> Result<Released, StoreError> {
        let Some((session, Entry::Held(_) | Entry::Ending)) = self.find(claim) else { return Ok(Released::NotOwner) };
        let (answer, owner) = (Answer::new(), claim.owner());
        let own = answer.clone();
        self.shared.engine.spawn(async move {
            let freed = session.free(owner, keep_for).await;
            let is_kept = freed.is_err();
            own.give(freed);
            // The session would hold it for as long as it lasts.
            if is_kept {
                session.free_in_the_end(owner, keep_for).await;
            }
        })?;
        answer.wait(end(within)).unwrap_or_else(|| Err(fault::of_unknown()))
    }

    fn verify(&self, claim: &Claim, within: Duration) -> Result<bool, StoreError> {
        let Some((session, Entry::Held(hold))) = self.find(claim) else { return Ok(false) };
        let answer = Answer::new();
        let own = answer.clone();
        self.shared.engine.spawn(async move {
            own.give(session.holds(hold.number).await);
        })?;
        answer.wait(end(within)).unwrap_or_else(|| Err(fault::of_silence()))
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let (namespace, prefix) = (namespace.to_owned(), prefix.to_owned());
        self.ask(
            end(ATTEMPT),
            fault::of_silence,
            move |session| async move { session.holders(&namespace, &prefix).await },
        )
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("address", &self.shared.address).finish_non_exhaustive()
    }
}
