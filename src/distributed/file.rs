//! Lock files: for the processes of one machine.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use self::record::Record;
use super::error::StoreError;
use super::name::Name;
use super::patience::{Backoff, Patience};
use super::random::{part_of, random};
use super::store::{Capabilities, Claim, Grant, Holder, Kind, OwnerId, Released, Renewal, Store, Term};
use crate::sync::Mutex;

mod record;

/// Locks as files in a directory, for the processes of one machine: held by an open file, which the system closes when its process
/// ends, however it ends. So there are no leases here: [`ttl`](super::LeaseOptions::ttl) and
/// [`renew`](super::LeaseOptions::renew) do nothing, and [`Lease::remaining`](super::Lease::remaining) is `None` without a
/// [`max_hold`](super::LeaseOptions::max_hold).
///
/// **Promise**: correct on one machine and a local file system. Not over NFS or other network file systems, whose locks may be
/// lost or local to each machine. A child process does not inherit a lock (files are closed when another program is started), but a
/// `fork` without that shares it.
///
/// Each key has a file of its own, named by the key's [hash](Name::hash), and for a semaphore one for each permit. They are small, and
/// stay; do not delete one while a process may use it: the next would lock another file of the same name. (A store that meets
/// a deleted file notices, as long as it asks for the key only then.) Nor later, where tokens are checked: they begin anew. Waiting is by polling, up to 20 ms apart, in no order.
/// All who use a semaphore should have the same limit: one with a smaller limit does not look at the permits above it.
///
/// Files are made as the process makes files: where others than its user shall use them, its `umask` has to allow it. Each key that is
/// held keeps a file open. What a job keeps after it is done is measured by this machine's clock.
///
/// The token is written to the disk with each grant, so that it rises even if the machine loses its power: that is most of what a
/// grant costs.
///
/// # Examples
///
/// ```
/// use perkey::distributed::{DistributedLock, FileStore};
///
/// # let directory = std::env::temp_dir().join(format!("perkey-doc-{}", std::process::id()));
/// let jobs = DistributedLock::new(FileStore::open(&directory)?);
/// let lease = jobs.lock("nightly-report")?;
/// assert!(lease.is_held() && lease.remaining().is_none());
/// # drop(lease);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileStore {
    directory: PathBuf,
    /// What this store holds.
    held: Mutex<HashMap<OwnerId, Slot>>,
}

/// A file that is locked.
struct Slot {
    file: File,
    path: PathBuf,
    record: Record,
}

/// For so long an attempt looks at a file that others only look at: who lists holders locks a file that is free, for a moment. If
/// that one is stopped just then, the file counts as held.
const LOOKS_FOR: Duration = Duration::from_millis(200);
/// Who has the counter of a semaphore's tokens has it for one write.
const LONGEST_COUNT: Duration = Duration::from_secs(2);
const SHORTEST_POLL: Duration = Duration::from_micros(500);
const LONGEST_POLL: Duration = Duration::from_millis(20);

/// What an attempt found.
enum Found {
    Free(File),
    Held,
}

impl FileStore {
    /// Lock files in a directory, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made, or is none.
    pub fn open(directory: impl AsRef<Path>) -> io::Result<Self> {
        let directory = directory.as_ref();
        fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.canonicalize()?, held: Mutex::default() })
    }

    /// The file of a lock, or of one permit.
    fn path(&self, claim: &Claim, slot: u32) -> PathBuf {
        let hash = claim.name().hash();
        self.directory.join(match claim.kind() {
            Kind::Lock => format!("{hash:016x}.lock"),
            Kind::Permit { .. } => format!("{hash:016x}.{slot}.permit"),
        })
    }

    fn error(&self, doing: &str, path: &Path, error: io::Error) -> StoreError {
        let message = format!("cannot {doing} {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => StoreError::transient(message).caused_by(error),
            _ => StoreError::permanent(message).caused_by(error),
        }
    }

    /// Locks a file if it is free.
    fn try_lock(&self, path: &Path) -> Result<Found, StoreError> {
        let begin = Instant::now();
        while begin.elapsed() < LOOKS_FOR {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| self.error("open", path, error))?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Ok(Found::Free(file)),
                // It was deleted between the two.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.error("lock", path, error)),
            }
            match file.try_lock_shared() {
                // Only by those who look at it, as this one does now.
                Ok(()) => drop(file),
                Err(TryLockError::WouldBlock) => return Ok(Found::Held),
                Err(TryLockError::Error(error)) => return Err(self.error("lock", path, error)),
            }
            let pause = Duration::from_micros(50);
            thread::sleep(pause + part_of(pause));
        }
        Ok(Found::Held)
    }

    /// Waits until the names of new files are on the disk, as far as the system can be asked to.
    fn sync_directory(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }

    /// Takes the lock, or one of the permits, if one is free.
    fn attempt(&self, claim: &Claim) -> Result<Option<Grant>, StoreError> {
        let (name, limit) = (claim.name(), claim.limit());
        let begin = (random() % u64::from(limit)) as u32;
        for slot in (begin..limit).chain(0..begin) {
            let path = self.path(claim, slot);
            let Found::Free(file) = self.try_lock(&path)? else { continue };
            let record = Record::read(&file, name).map_err(|error| self.error("read", &path, error))?;
            if record.is_kept() {
                continue;
            }
            let token = match claim.kind() {
                Kind::Lock => record.next_token().map_err(|error| self.error("count in", &path, error))?,
                Kind::Permit { .. } => self.next_token(name)?,
            };
            let is_new = record.token == 0;
            let record = record.granted(claim.owner(), token);
            record.write(&file).map_err(|error| self.error("write", &path, error))?;
            if is_new {
                self.sync_directory().map_err(|error| self.error("write", &self.directory, error))?;
            }
            self.held.lock().insert(claim.owner(), Slot { file, path, record });
            return Ok(Some(Grant::of_session(Some(token))));
        }
        Ok(None)
    }

    /// The next token of a semaphore: its permits share a counter, in a file of its own that is locked for a moment.
    fn next_token(&self, name: &Name) -> Result<u64, StoreError> {
        let path = self.directory.join(format!("{:016x}.tokens", name.hash()));
        let begin = Instant::now();
        let file = loop {
            if let Found::Free(file) = self.try_lock(&path)? {
                break file;
            }
            if begin.elapsed() > LONGEST_COUNT {
                let message = format!("{} is locked by another process: was that stopped?", path.display());
                return Err(StoreError::transient(message));
            }
            thread::sleep(SHORTEST_POLL);
        };
        let count = || {
            let mut record = Record::read(&file, name)?;
            record.token = record.next_token()?;
            record.write(&file)?;
            if record.token == 1 {
                self.sync_directory()?;
            }
            Ok(record.token)
        };
        count().map_err(|error| self.error("count in", &path, error))
    }
}

impl Store for FileStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leases: false, tokens: true, semaphores: true, lists_holders: true }
    }

    fn describe(&self) -> String {
        format!("the lock files in {}", self.directory.display())
    }

    fn acquire(&self, claim: &Claim, _: Duration, patience: &Patience<'_>) -> Result<Option<Grant>, StoreError> {
        let mut backoff = Backoff::new(SHORTEST_POLL, LONGEST_POLL);
        loop {
            if let Some(grant) = self.attempt(claim)? {
                return Ok(Some(grant));
            }
            if !patience.pause(backoff.pause()) {
                return Ok(None);
            }
        }
    }

    /// There is nothing to renew: who has it has it.
    fn renew(&self, claim: &Claim, ttl: Duration, _: Duration) -> Result<Renewal, StoreError> {
        let term = Term { asked: Instant::now(), granted: ttl };
        let is_held = self.held.lock().contains_key(&claim.owner());
        Ok(if is_held { Renewal::Renewed(term) } else { Renewal::NotOwner })
    }

    fn release(&self, claim: &Claim, keep_for: Duration, _: Duration) -> Result<Released, StoreError> {
        let Some(Slot { file, path, record }) = self.held.lock().remove(&claim.owner()) else {
            return Ok(Released::NotOwner);
        };
        let record = record.kept(keep_for);
        // Closing the file gives it back, also where this fails. But a child process that is just being started has it open too, until
        // its program runs.
        let written = record.write(&file);
        let _ = file.unlock();
        drop(file);
        written.map(|()| Released::Freed).map_err(|error| self.error("write", &path, error))
    }

    fn verify(&self, claim: &Claim, _: Duration) -> Result<bool, StoreError> {
        let held = self.held.lock();
        Ok(held.get(&claim.owner()).is_some_and(|slot| is_at(&slot.file, &slot.path)))
    }

    fn holders(&self, namespace: &str, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let entries = fs::read_dir(&self.directory).map_err(|error| self.error("list", &self.directory, error))?;
        let mut holders = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| self.error("list", &self.directory, error))?.path();
            let is_ours = path.extension().is_some_and(|extension| extension == "lock" || extension == "permit");
            // To open a pipe would wait for its other end.
            if !is_ours || !path.is_file() {
                continue;
            }
            // Others may delete files; what cannot be read is not ours.
            let Ok(file) = File::open(&path) else { continue };
            let Ok(record) = Record::read_any(&file) else { continue };
            if record.name.namespace() != namespace || !record.name.key().starts_with(prefix) {
                continue;
            }
            // A record stays behind when its process is killed: only the lock says that it is held.
            let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
            let owner = record.owner.filter(|_| is_held).map(|owner| owner.to_string());
            if owner.is_some() || record.is_kept() {
                let remaining = record.is_kept().then(|| record.keeps_for());
                holders.push(Holder::new(record.name.key(), owner.unwrap_or_default(), Some(record.token), remaining));
            }
        }
        holders.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(holders)
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Whether a file is the one that has this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |one: &fs::Metadata, other: &fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(one, other)| same(&one, &other))
}

/// An open file cannot be deleted there.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}
