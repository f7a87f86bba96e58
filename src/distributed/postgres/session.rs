//! The session that holds what this store was granted.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::time::{sleep, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use crate::distributed::error::StoreError;
use crate::distributed::lost::Lost;
use crate::distributed::random::random;
use crate::distributed::store::{Claim, Grant, Holder, Kind, OwnerId, Released};
use crate::sync::{AtomicU64, Mutex, Ordering};

use super::address::Address;
use super::book::{Book, Entry};
use super::wire::Wire;
use super::{fault, numbers};

/// How often the server is asked whether the session is still there.
const BEAT: Duration = Duration::from_secs(2);
/// The answer may take twice so long. Then the session counts as gone, while the server keeps its locks for a while yet.
const HALF_ANSWER: Duration = Duration::from_secs(3);
/// So many places are asked for in one request.
const PLACES: usize = 1000;

const GREET: &str = include_str!("greet.sql");
const LOCK_GRANT: &str = include_str!("lock_grant.sql");
const PERMIT_GRANT: &str = include_str!("permit_grant.sql");
const KEEP: &str = include_str!("keep.sql");
const FREE: &str = include_str!("free.sql");
const VERIFY: &str = include_str!("verify.sql");
const HOLDERS: &str = include_str!("holders.sql");
const MARK: &str = "SELECT current_setting('perkey.session', true), set_config('perkey.session', $1, false)";
const MARKED: &str = "SELECT current_setting('perkey.session', true)";
const UNLOCK: &str = "SELECT count(*) FROM unnest($1::bigint[]) AS number WHERE pg_advisory_unlock(number)";

/// What an attempt found.
pub(super) enum Found {
    Free(Grant),
    /// For so long, if that is known.
    Held(Option<Duration>),
}

/// The session of a store, and the next one when that has ended.
pub(super) struct Sessions {
    address: Arc<Address>,
    current: Mutex<Option<Arc<Session>>>,
    connecting: AsyncMutex<()>,
}

impl Sessions {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self { address, current: Mutex::new(None), connecting: AsyncMutex::new(()) }
    }

    /// The session, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        self.current.lock().clone().filter(|session| !session.is_over())
    }

    /// The session; makes one if there is none.
    pub(super) async fn get(&self, until: Instant) -> Result<Arc<Session>, StoreError> {
        let connect = async {
            let _one_at_a_time = self.connecting.lock().await;
            if let Some(session) = self.current() {
                return Ok(session);
            }
            let session = Session::connect(&self.address).await?;
            *self.current.lock() = Some(Arc::clone(&session));
            Ok(session)
        };
        match self.current() {
            Some(session) => Ok(session),
            None => timeout_at(until.into(), connect).await.unwrap_or_else(|_| Err(fault::of_late_connection())),
        }
    }
}

pub(super) struct Session {
    wire: Wire,
    /// A setting of the session in the server: where it is another, so is the session.
    mark: String,
    book: Mutex<Book>,
    /// Of its threads that want a permit one after the other asks, so that none is refused what another only asks for.
    permits: AsyncMutex<()>,
    /// So many requests were answered.
    answered: AtomicU64,
    lock_grant: OnceCell<Statement>,
    permit_grant: OnceCell<Statement>,
    free: OnceCell<Statement>,
}

impl Session {
    async fn connect(address: &Address) -> Result<Arc<Self>, StoreError> {
        let (wire, task) = Wire::connect(address, |_| ()).await?;
        let mark = format!("{:016x}{:016x}", random(), random());
        let marked = wire.client().query_typed_one(MARK, &[(&mark, Type::TEXT)]).await.map_err(fault::of_request)?;
        // Somebody else has this session too.
        if text(&marked, 0)?.is_some_and(|mark| !mark.is_empty()) {
            return Err(fault::of_pooler());
        }
        check_other(address, &mark).await?;
        // Not before: of a pooler others would get a session that is set up for this.
        wire.client().batch_execute(GREET).await.map_err(fault::of_request)?;
        let session = Arc::new(Self {
            wire,
            mark,
            book: Mutex::default(),
            permits: AsyncMutex::new(()),
            answered: AtomicU64::new(0),
            lock_grant: OnceCell::new(),
            permit_grant: OnceCell::new(),
            free: OnceCell::new(),
        });
        let of_task = Arc::downgrade(&session);
        tokio::spawn(async move {
            let _ = task.await;
            if let Some(session) = of_task.upgrade() {
                session.end();
            }
        });
        tokio::spawn(beat(Arc::downgrade(&session)));
        Ok(session)
    }

    pub(super) fn is_over(&self) -> bool {
        self.book.lock().is_over()
    }

    /// The session is gone, or is given up. Who held something is told, on a thread of its own: what they have called then may take its time.
    fn end(&self) {
        let lost = self.book.lock().close();
        self.wire.cut();
        if lost.is_empty() {
            return;
        }
        let lost = Arc::new(lost);
        let own = Arc::clone(&lost);
        let tell = move || own.iter().for_each(Lost::set);
        if thread::Builder::new().name("perkey-postgres-lost".to_owned()).spawn(tell).is_err() {
            lost.iter().for_each(Lost::set);
        }
    }

    /// Ends the session if another one of the server answers.
    fn check_own(&self, row: &Row) -> Result<(), StoreError> {
        if get(row, 0)? {
            return Ok(());
        }
        self.end();
        Err(fault::of_pooler())
    }

    /// Takes the lock, or a permit, if one is free.
    pub(super) async fn grant(&self, claim: &Claim) -> Result<Found, StoreError> {
        match claim.kind() {
            Kind::Lock => self.grant_lock(claim).await,
            Kind::Permit { .. } => self.grant_permit(claim).await,
        }
    }

    async fn grant_lock(&self, claim: &Claim) -> Result<Found, StoreError> {
        let number = numbers::of_lock(claim.name());
        let asked = self.book.lock().reserve([number]);
        if asked.is_empty() {
            return Ok(Found::Held(None));
        }
        let (namespace, key) = (claim.name().namespace().as_bytes(), claim.name().key().as_bytes());
        let owner = claim.owner().to_string();
        let parameters: [&(dyn ToSql + Sync); 5] = [&number, &namespace, &key, &owner, &self.mark];
        self.ask(claim, &asked, &self.lock_grant, LOCK_GRANT, &parameters).await
    }

    async fn grant_permit(&self, claim: &Claim) -> Result<Found, StoreError> {
        let _one_at_a_time = self.permits.lock().await;
        let (name, limit) = (claim.name(), claim.limit());
        // Else all would ask for the first places first.
        let begin = (random() % u64::from(limit)) as u32;
        let mut places = (begin..limit).chain(0..begin).map(|place| numbers::of_place(name, place)).peekable();
        let (namespace, key) = (name.namespace().as_bytes(), name.key().as_bytes());
        let (counter, owner) = (numbers::of_counter(name), claim.owner().to_string());
        while places.peek().is_some() {
            let asked = self.book.lock().reserve(places.by_ref().take(PLACES));
            if asked.is_empty() {
                continue;
            }
            let parameters: [&(dyn ToSql + Sync); 6] = [&asked, &counter, &namespace, &key, &owner, &self.mark];
            let found = self.ask(claim, &asked, &self.permit_grant, PERMIT_GRANT, &parameters).await?;
            if matches!(found, Found::Free(_)) {
                return Ok(found);
            }
        }
        Ok(Found::Held(None))
    }

    /// Asks for one of these numbers, and notes what came of it.
    async fn ask(
        &self,
        claim: &Claim,
        asked: &[i64],
        statement: &OnceCell<Statement>,
        text: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Found, StoreError> {
        let reply = self.reply(statement, text, parameters).await;
        let read = reply.and_then(|row| {
            self.check_own(&row)?;
            let (locked, token): (Option<i64>, Option<i64>) = (get(&row, 1)?, get(&row, 2)?);
            Ok((locked, locked.zip(token), get::<Option<i64>>(&row, 3)?))
        });
        let granted = read.as_ref().ok().and_then(|(_, granted, _)| *granted);
        let has_more = match &read {
            // A lock stays where the statement that took it fails; and one that is kept for others was taken in vain.
            Err(_) => !self.is_over(),
            Ok((locked, granted, _)) => locked.is_some() && granted.is_none(),
        };
        if has_more {
            self.unlock(asked).await;
        }
        let is_held = self.book.lock().conclude(asked, granted.map(|(number, _)| (claim, number)));
        let (_, granted, kept_for) = read?;
        match granted {
            Some((_, token)) if is_held => Ok(Found::Free(Grant::of_session(u64::try_from(token).ok()))),
            Some(_) => Err(fault::of_end("just after it was granted this")),
            None => Ok(Found::Held(kept_for.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis))),
        }
    }

    async fn reply(
        &self,
        statement: &OnceCell<Statement>,
        text: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, StoreError> {
        let client = self.wire.client();
        let statement = statement.get_or_try_init(|| client.prepare(text)).await.map_err(fault::of_request)?;
        let reply = client.query_one(statement, parameters).await;
        self.answered.fetch_add(1, Ordering::Relaxed);
        reply.map_err(fault::of_request)
    }

    /// Gives numbers back that may be locked and are in no hold. If even that fails, the session is given up.
    async fn unlock(&self, numbers: &[i64]) {
        if self.wire.client().query_typed_one(UNLOCK, &[(&numbers, Type::INT8_ARRAY)]).await.is_err() {
            self.end();
        }
    }

    /// Gives back what an owner holds.
    pub(super) async fn free(&self, owner: OwnerId, keep_for: Duration) -> Result<Released, StoreError> {
        let hold = match self.book.lock().begin_end(owner) {
            Entry::Held(hold) => hold,
            Entry::Ending => return Err(StoreError::transient("the server is being asked for that already")),
            Entry::None => return Ok(Released::NotOwner),
        };
        // First: who gets the lock next has to see it. If it fails, the lock stays as it is: that keeps it too.
        if !keep_for.is_zero()
            && let Err(error) = self.keep(hold.number, owner, keep_for).await
        {
            self.book.lock().end(owner, false);
            return Err(error);
        }
        let channel = numbers::channel(hold.channel);
        let freed = self.reply(&self.free, FREE, &[&hold.number, &self.mark, &channel]).await;
        let freed = freed.and_then(|row| {
            self.check_own(&row)?;
            get(&row, 1)
        });
        let freed = match freed {
            // What fails at its end may have freed it before: then only nobody was told.
            Err(error) if !self.is_over() && self.holds(hold.number).await.is_ok_and(|held| !held) => {
                if self.is_over() { Err(error) } else { Ok(true) }
            }
            freed => freed,
        };
        self.book.lock().end(owner, freed.is_ok());
        let was_held = freed?;
        Ok(if was_held { Released::Freed } else { Released::NotOwner })
    }

    /// As [`free`](Self::free), again and again until it is done, or there is nothing left to keep.
    pub(super) async fn free_in_the_end(&self, owner: OwnerId, keep_for: Duration) {
        let begin = Instant::now();
        while !self.is_over() {
            sleep(BEAT).await;
            let left = keep_for.saturating_sub(begin.elapsed());
            if self.free(owner, left).await.is_ok() {
                return;
            }
        }
    }

    async fn keep(&self, number: i64, owner: OwnerId, keep_for: Duration) -> Result<(), StoreError> {
        let (owner, ms) =
            (owner.to_string(), i64::try_from(keep_for.as_millis()).unwrap_or(LONGEST_KEPT).min(LONGEST_KEPT));
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&number, Type::INT8), (&owner, Type::TEXT), (&ms, Type::INT8)];
        self.wire.client().query_typed(KEEP, &parameters).await.map(drop).map_err(fault::of_request)
    }

    /// What is known of an owner without asking the server.
    pub(super) fn find(&self, owner: OwnerId) -> Entry {
        self.book.lock().find(owner)
    }

    /// Whether the server says that the session holds a number.
    pub(super) async fn holds(&self, number: i64) -> Result<bool, StoreError> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&number, Type::INT8), (&self.mark, Type::TEXT)];
        let row = self.wire.client().query_typed_one(VERIFY, &parameters).await;
        let held = row.map_err(fault::of_request).and_then(|row| {
            self.check_own(&row)?;
            get(&row, 1)
        });
        // What it held is gone with it.
        if self.is_over() { Ok(false) } else { held }
    }

    pub(super) async fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let (namespace, prefix) = (namespace.as_bytes(), prefix.as_bytes());
        let length = i32::try_from(prefix.len()).unwrap_or(i32::MAX);
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&namespace, Type::BYTEA), (&prefix, Type::BYTEA), (&length, Type::INT4)];
        let rows = self.wire.client().query_typed(HOLDERS, &parameters).await.map_err(fault::of_request)?;
        rows.iter().map(holder).collect()
    }

    /// Runs a text of several statements.
    pub(super) async fn run(&self, text: &str) -> Result<(), StoreError> {
        self.wire.client().batch_execute(text).await.map_err(fault::of_request)
    }

    /// Whether the session is there, and still the same.
    async fn answers(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        let mut row = pin!(self.wire.client().query_typed_one(MARKED, &[]));
        // Twice: if this process was stopped meanwhile, the first half is over before the answer, which has come, is looked at.
        for _ in 0..2 {
            if let Ok(row) = timeout(HALF_ANSWER, &mut row).await {
                let mark = row.map_err(fault::of_request).and_then(|row| text(&row, 0));
                return mark.is_ok_and(|mark| mark.as_ref() == Some(&self.mark));
            }
        }
        // Others were asked before, and wait for a table that somebody else has locked.
        self.answered.load(Ordering::Relaxed) != answered
    }
}

/// A hundred years, in milliseconds: more, and the server cannot reckon with it.
const LONGEST_KEPT: i64 = 100 * 366 * 24 * 60 * 60 * 1000;

/// Looks whether the session is there, for as long as it is.
async fn beat(session: Weak<Session>) {
    loop {
        sleep(BEAT).await;
        match session.upgrade() {
            Some(session) if !session.is_over() => {
                if !session.answers().await {
                    session.end();
                }
            }
            _ => return,
        }
    }
}

/// Connects once more: that has to come to another session. A pooler that changes sessions gives the one that was used last.
async fn check_other(address: &Address, mark: &str) -> Result<(), StoreError> {
    let (other, _) = Wire::connect(address, |_| ()).await?;
    let row = other.client().query_typed_one(MARKED, &[]).await.map_err(fault::of_request)?;
    if text(&row, 0)?.as_deref() != Some(mark) {
        return Ok(());
    }
    // The session stays, for others.
    let _ = other.client().query_typed_one(MARK, &[(&"", Type::TEXT)]).await;
    Err(fault::of_pooler())
}

fn holder(row: &Row) -> Result<Holder, StoreError> {
    let (key, owner): (Vec<u8>, Option<String>) = (get(row, 0)?, get(row, 1)?);
    let (token, kept_for): (i64, Option<i64>) = (get(row, 2)?, get(row, 3)?);
    let kept_for = kept_for.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    let key = String::from_utf8_lossy(&key).into_owned();
    Ok(Holder::new(key, owner.unwrap_or_default(), u64::try_from(token).ok(), kept_for))
}

fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(fault::of_request)
}

fn text(row: &Row, column: usize) -> Result<Option<String>, StoreError> {
    get(row, column)
}
