//! The few operations on files that leases need. A folder of a file system has them, and so has an object store: a conditional write,
//! a plain write, a read, and a listing of a prefix.

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::storage::Storage;
use crate::sys::runtime::lock;

/// The folder of the leases, in the module's folder.
pub(crate) const FOLDER: &str = "leases";

/// The most bytes of a file that is read.
const MOST_BYTES: usize = 16 << 20;

/// Small files that workers share. Each operation may fail, answer late, or fail though it has happened; a listing and a read may
/// show what was there a while ago.
pub(crate) trait LeaseFiles {
    /// Creates the file unless it exists: then nothing changes and this is `false`. Of several callers, at most one creates it.
    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Writes the file, whatever it held.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The contents; `None` if there is no such file.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// The names of all files; none if there is no folder.
    fn list(&self) -> io::Result<Vec<String>>;

    /// How long ago a file was written, by the clock of the file system. It decides nothing but when files are removed.
    fn age(&self, name: &str) -> io::Result<Duration>;

    /// Removes a file. One that does not exist is no error.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The files in a folder of a storage. It is made when the first file is written, and again if it was removed.
#[derive(Debug)]
pub(crate) struct StoredLeases {
    module: Arc<dyn Storage>,
    folder: Mutex<Option<Arc<dyn Storage>>>,
}

impl StoredLeases {
    pub(crate) fn new(module: Arc<dyn Storage>) -> Self {
        Self { module, folder: Mutex::new(None) }
    }

    fn folder(&self, makes: bool) -> io::Result<Arc<dyn Storage>> {
        if let Some(folder) = &*lock(&self.folder) {
            return Ok(folder.clone());
        }
        let made = if makes { self.module.folder(FOLDER) } else { self.module.existing_folder(FOLDER) };
        let made: Arc<dyn Storage> = Arc::from(made?);
        *lock(&self.folder) = Some(made.clone());
        Ok(made)
    }

    /// Writes into the folder, which may have been removed since the last time.
    fn write<T>(&self, write: impl Fn(&dyn Storage) -> io::Result<T>) -> io::Result<T> {
        match self.folder(true).and_then(|folder| write(&*folder)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *lock(&self.folder) = None;
                write(&*self.folder(true)?)
            }
            other => other,
        }
    }
}

impl LeaseFiles for StoredLeases {
    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.write(|folder| folder.create_if_absent(name, bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(|folder| {
            let mut draft = folder.draft()?;
            draft.write_all(bytes)?;
            draft.publish(name, false)
        })
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let read = self.folder(false).and_then(|folder| folder.open(name)?.all(MOST_BYTES));
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        match self.folder(false) {
            Ok(folder) => folder.list(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn age(&self, name: &str) -> io::Result<Duration> {
        Ok(self.folder(false)?.info(name)?.age)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder(false)?.remove(name)
    }
}
