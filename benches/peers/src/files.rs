//! The files that a run writes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is opened before minutes are spent on what goes into it.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path).map_err(|error| named(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes()).map_err(|error| named(&self.path, &error))
    }
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
