//! A wait that could never end, and what is told about it.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::thread::ThreadId;
use std::time::Instant;

use crate::mode::MAX_READERS;
use crate::status::Called;

/// What a table is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: Option<Cow<'static, str>>,
    /// The public type.
    pub(crate) table_type: &'static str,
    pub(crate) key_type: &'static str,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, table_type, key_type } = self;
        match name {
            Some(name) => write!(f, "{table_type} {name:?}")?,
            None => write!(f, "{table_type} without a name")?,
        }
        write!(f, ", key type {key_type}")
    }
}

/// A wait that could never end.
///
/// Either the calling thread would wait for itself, which is always found; or, with
/// [`Options::detect_deadlocks`](crate::Options::detect_deadlocks), threads would wait for each other, and [`threads`](Self::threads) are
/// these. The `Display` names the fault, the tables, the types of their keys, the threads, and the places of the calls.
///
/// # Examples
///
/// ```
/// use perkey::{AcquireError, KeyedLock, Options, Wait};
///
/// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
/// let _held = locks.lock(&42);
/// let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) else {
///     panic!("this thread holds the key");
/// };
/// assert_eq!(deadlock.table(), Some("accounts"));
/// assert!(deadlock.to_string().starts_with("this thread already holds the key"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock(Box<Report>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    cause: Cause,
    /// What was asked for.
    about: About,
    location: &'static Location<'static>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// What this thread has already.
    OwnHold(&'static str),
    Ring(Vec<DeadlockedThread>),
}

/// A thread that waits in a [`Deadlock`].
///
/// # Examples
///
/// ```
/// use perkey::Deadlock;
///
/// fn count(deadlock: &Deadlock) {
///     for thread in deadlock.threads() {
///         println!("{:?} waits for {} and holds {} keys of the ring", thread.name, thread.waits_for, thread.holds.len());
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockedThread {
    /// The thread.
    pub id: ThreadId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What it waits for.
    pub waits_for: DeadlockedRequest,
    /// What it holds that others of these threads, or it itself, wait for. Empty for one that is only in front of another: in the
    /// queue of a key, or among those who wait for every key and those whom they keep out.
    pub holds: Vec<DeadlockedRequest>,
}

/// What a [`DeadlockedThread`] waits for, or holds.
///
/// # Examples
///
/// ```
/// use perkey::DeadlockedRequest;
///
/// fn since(request: &DeadlockedRequest) {
///     println!("{} for {:?}, at {}", request.table.as_deref().unwrap_or("?"), request.since.elapsed(), request.location);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockedRequest {
    /// The table's name, if [`Options::name`](crate::Options::name) gave it one.
    pub table: Option<Cow<'static, str>>,
    /// The table's type: `"KeyedLock"`.
    pub table_type: &'static str,
    /// The type of the table's keys, as [`std::any::type_name`] gives it.
    pub key_type: &'static str,
    /// Which key: the keys of one [`Deadlock`] are numbered from 1 on, because a key itself need not be printable. `None` for every
    /// key, and for a request that a lock over every key keeps out: its key is not looked up before it is let in, so it may be one
    /// that has a number elsewhere in the report.
    pub key: Option<usize>,
    /// Whether it is for every key.
    pub every_key: bool,
    /// How many permits: 1 for a lock, and to read; to write, all that there are.
    pub permits: usize,
    /// Since when it waits, or holds.
    pub since: Instant,
    /// Where the call was made.
    pub location: &'static Location<'static>,
}

impl Deadlock {
    #[cold]
    fn over_own(holds: &'static str, about: &About, location: &'static Location<'static>) -> Self {
        Self(Box::new(Report { cause: Cause::OwnHold(holds), about: about.clone(), location }))
    }

    /// A request for a key that this thread holds.
    pub(crate) fn reentry(about: &About, location: &'static Location<'static>) -> Self {
        Self::over_own("the key", about, location)
    }

    /// A request for all keys of a thread that holds some.
    pub(crate) fn over_own_hold(about: &About, location: &'static Location<'static>) -> Self {
        Self::over_own("one of all the keys it asks for", about, location)
    }

    /// A request for a key of a thread that holds all.
    pub(crate) fn under_own_hold(about: &About, location: &'static Location<'static>) -> Self {
        Self::over_own("every key", about, location)
    }

    /// The threads of a ring, first the one that closed it.
    pub(crate) fn of_ring(threads: Vec<DeadlockedThread>, about: &About, location: &'static Location<'static>) -> Self {
        Self(Box::new(Report { cause: Cause::Ring(threads), about: about.clone(), location }))
    }

    /// The name of the table that was asked, if [`Options::name`](crate::Options::name) gave it one.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     assert_eq!(deadlock.table(), Some("accounts"));
    /// }
    /// ```
    pub fn table(&self) -> Option<&str> {
        self.0.about.name.as_deref()
    }

    /// The type of that table's keys, as [`std::any::type_name`] gives it.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     assert_eq!(deadlock.key_type(), "u32");
    /// }
    /// ```
    pub fn key_type(&self) -> &'static str {
        self.0.about.key_type
    }

    /// Where the call was made that would have waited for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedLock, Options, Wait};
    ///
    /// let locks = KeyedLock::<u32>::with_options(Options::new().name("accounts"));
    /// let _held = locks.lock(&42);
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = locks.lock_with(&42, Wait::forever()) {
    ///     println!("asked for again at {}", deadlock.location());
    /// }
    /// ```
    pub fn location(&self) -> &'static Location<'static> {
        self.0.location
    }

    /// The threads that wait for each other, first the one whose request was refused. Empty if that thread would only have
    /// waited for a hold of its own, as is found without
    /// [`Options::detect_deadlocks`](crate::Options::detect_deadlocks).
    ///
    /// # Examples
    ///
    /// ```
    /// use perkey::{AcquireError, KeyedSemaphore, Options, Wait};
    ///
    /// let hosts = KeyedSemaphore::<String, 2>::with_options(Options::new().detect_deadlocks(true));
    /// let _permits = hosts.acquire_many("a.example", 2, Wait::now())?;
    /// // Both permits are this thread's own.
    /// if let Err(AcquireError::WouldDeadlock(deadlock)) = hosts.acquire_with("a.example", Wait::forever()) {
    ///     assert_eq!(deadlock.threads()[0].id, std::thread::current().id());
    ///     assert_eq!(deadlock.threads()[0].holds[0].permits, 2);
    /// }
    /// # Ok::<(), AcquireError>(())
    /// ```
    pub fn threads(&self) -> &[DeadlockedThread] {
        match &self.0.cause {
            Cause::OwnHold(_) => &[],
            Cause::Ring(threads) => threads,
        }
    }
}

impl fmt::Display for DeadlockedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, table_type, key_type, key, every_key, permits, since: _, location } = self;
        let reads_or_writes = *table_type == "KeyedRwLock";
        match key {
            Some(number) => write!(f, "key {number}")?,
            None if *every_key => f.write_str("every key")?,
            None => f.write_str("a key")?,
        }
        match *permits {
            1 if reads_or_writes => f.write_str(" to read")?,
            permits if reads_or_writes && permits == MAX_READERS as usize => f.write_str(" to write")?,
            1 => {}
            permits => write!(f, " ({permits} permits)")?,
        }
        let (name, table_type, key_type) = (table.clone(), *table_type, *key_type);
        write!(f, " of {}, at {location}", About { name, table_type, key_type })
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { cause, about, location } = &*self.0;
        let threads = match cause {
            Cause::OwnHold(holds) => {
                return write!(
                    f,
                    "this thread already holds {holds} and would wait for itself for ever: {about}, asked for at {location}"
                );
            }
            Cause::Ring(threads) => threads,
        };
        match threads.len() {
            1 => f.write_str("this thread would wait for what it holds itself, for ever")?,
            count => write!(f, "{count} threads would wait for each other for ever")?,
        }
        write!(f, ": {about}, asked for at {location}")?;
        for DeadlockedThread { id, name, waits_for, holds } in threads {
            write!(f, "\n  {} waits for {waits_for}", Called(name.as_deref(), *id))?;
            holds.iter().try_for_each(|hold| write!(f, "\n    and holds {hold}"))?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}
