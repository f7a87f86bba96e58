//! What a lock file says.
//!
//! Lines of text, so that a person can read it. Those that change have a fixed width and are written by one call, in place: a process
//! that is killed leaves the old record or the new one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::distributed::name::Name;
use crate::distributed::store::OwnerId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Name,
    /// The last that was given out.
    pub(super) token: u64,
    /// Who holds it, if the file is locked.
    pub(super) owner: Option<OwnerId>,
    /// Milliseconds since 1970, by this machine's clock, of when it began to be kept, and for how many.
    kept_since: u64,
    kept_for: u64,
}

const HEAD: &str = "perkey lock 1";

impl Record {
    pub(super) fn new(name: Name) -> Self {
        Self { name, token: 0, owner: None, kept_since: 0, kept_for: 0 }
    }

    /// Held by this owner.
    pub(super) fn granted(self, owner: OwnerId, token: u64) -> Self {
        Self { token, owner: Some(owner), kept_since: 0, kept_for: 0, ..self }
    }

    /// Held by nobody, and kept from now on.
    pub(super) fn kept(self, duration: Duration) -> Self {
        let kept_for = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self { owner: None, kept_since: now(), kept_for, ..self }
    }

    /// The token of the next grant.
    pub(super) fn next_token(&self) -> io::Result<u64> {
        let used_up =
            || io::Error::new(io::ErrorKind::InvalidData, "its tokens are used up, or were written by somebody else");
        self.token.checked_add(1).ok_or_else(used_up)
    }

    /// For how long it is still kept. A clock that was set back makes that longer, up to twice as long; one that was set back by more
    /// ends it: better that than for ever.
    pub(super) fn keeps_for(&self) -> Duration {
        let (now, Self { kept_since, kept_for, .. }) = (now(), self);
        let left = match now.checked_sub(*kept_since) {
            Some(passed) => kept_for.saturating_sub(passed),
            None if kept_since - now <= *kept_for => *kept_for,
            None => 0,
        };
        Duration::from_millis(left)
    }

    pub(super) fn is_kept(&self) -> bool {
        !self.keeps_for().is_zero()
    }

    /// Reads the record of a name, which is new if the file is.
    pub(super) fn read(file: &File, name: &Name) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::new(name.clone()));
        }
        let record = Self::read_any(file)?;
        if record.name != *name {
            let message = format!("it is the file of {}, whose hash is the same as that of {name}", record.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(record)
    }

    /// Reads whatever record it is.
    pub(super) fn read_any(mut file: &File) -> io::Result<Self> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        Self::parse(&text).ok_or_else(|| {
            let message = "it is not a lock file of perkey: move it away, if no process uses it";
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.splitn(6, '\n');
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        (field("perkey")? == "lock 1").then_some(())?;
        let token = field("token")?.parse().ok()?;
        let owner = OwnerId::parse(field("owner")?)?;
        let (kept_since, kept_for) = field("kept")?.split_once(" for ")?;
        let (kept_since, kept_for) = (kept_since.parse().ok()?, kept_for.parse().ok()?);
        let length: usize = field("namespace of bytes")?.parse().ok()?;
        let name = lines.next()?.strip_suffix('\n')?;
        let (namespace, key) = (name.get(..length)?, name.get(length..)?.strip_prefix('/')?);
        let owner = (owner != OwnerId::NOBODY).then_some(owner);
        Some(Self { name: Name::new(namespace, key), token, owner, kept_since, kept_for })
    }

    /// Writes it, and waits until it is on the disk.
    pub(super) fn write(&self, mut file: &File) -> io::Result<()> {
        let Self { name, token, owner, kept_since, kept_for } = self;
        let (owner, length) = (owner.unwrap_or(OwnerId::NOBODY), name.namespace().len());
        let text = format!(
            "{HEAD}\ntoken {token:020}\nowner {owner}\nkept {kept_since:020} for {kept_for:020}\n\
             namespace of bytes {length}\n{name}\n"
        );
        let is_new = file.metadata()?.len() == 0;
        file.seek(SeekFrom::Start(0))?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if written.is_err() && is_new {
            // Half a record (the disk is full) would be none.
            file.set_len(0)?;
        }
        written
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::random::random;

    fn file() -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("perkey-record-{:016x}", random()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        (path, file)
    }

    #[test]
    fn what_is_written_is_read() {
        let (path, file) = file();
        for name in [Name::new("perkey", "a"), Name::new("", ""), Name::new("a/b", "c\nd/é\n"), Name::new("\n", "/")] {
            file.set_len(0).unwrap();
            assert_eq!(Record::read(&file, &name).unwrap(), Record::new(name.clone()));
            let mut record = Record { token: 41, ..Record::new(name.clone()) };
            record.write(&file).unwrap();
            let length = file.metadata().unwrap().len();
            for next in [record.clone().granted(OwnerId::fresh(), u64::MAX), record.clone().kept(Duration::MAX)] {
                next.write(&file).unwrap();
                record = next;
                assert_eq!(Record::read(&file, &name).unwrap(), record);
            }
            assert_eq!(file.metadata().unwrap().len(), length, "it is written in place");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn another_file_is_left_alone() {
        let (path, mut file) = file();
        let name = Name::new("perkey", "a");
        Record::new(Name::new("perkey", "b")).write(&file).unwrap();
        let error = Record::read(&file, &name).unwrap_err();
        assert_eq!(error.to_string(), "it is the file of perkey/b, whose hash is the same as that of perkey/a");
        for text in ["perkey lock 2\ntoken 1\n", "hello", "perkey lock 1\ntoken x\n"] {
            file.set_len(0).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let error = Record::read(&file, &name).unwrap_err();
            assert_eq!(error.to_string(), "it is not a lock file of perkey: move it away, if no process uses it");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_clock_that_is_set_back_ends_it() {
        let record = Record::new(Name::new("perkey", "a")).kept(Duration::from_secs(60));
        assert!(record.is_kept() && record.keeps_for() <= Duration::from_secs(60));
        let later = Record { kept_since: record.kept_since + 1_000_000, ..record.clone() };
        assert!(!later.is_kept());
        let a_bit_later = Record { kept_since: record.kept_since + 30_000, ..record.clone() };
        assert_eq!(a_bit_later.keeps_for(), Duration::from_secs(60));
        let earlier = Record { kept_since: record.kept_since - 60_001, ..record };
        assert!(!earlier.is_kept());
    }
}
