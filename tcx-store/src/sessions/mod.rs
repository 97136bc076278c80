//! Records of what processes have done with a module, in small files beside its rows. `tcx report` and `tcx stats` read them, and
//! eviction, if it depends on how often segments were used. No row depends on them.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod record;
mod recorder;
#[cfg(test)]
mod tests;
pub(crate) mod uses;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, Result};
use crate::storage::{FileOperations, Storage, System};
use crate::sys::bytes::Random;

pub use record::Session;
use record::decode;
pub(crate) use recorder::Recorder;

/// The folder of the records, in the module's folder.
pub(crate) const FOLDER: &str = "sessions";

/// The number of records that are kept, the newest.
pub(crate) const KEPT: usize = 1000;

/// The most bytes of a record.
const MOST_BYTES: usize = 16 << 10;

/// The name of a record: records sort in the order in which their sessions began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordName {
    pub(crate) started: u64,
    pub(crate) random: Random,
}

impl RecordName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (started, random) = name.strip_suffix(".txt")?.split_once('-')?;
        let is_number = started.len() == 20 && started.bytes().all(|byte| byte.is_ascii_digit());
        let started = is_number.then(|| started.parse().ok())??;
        Some(Self { started, random: Random::parse(random)? })
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{}.txt", self.started, self.random)
    }
}

/// The records of processes that used the module whose folder is `dir`: the newest 1,000 sessions, the oldest first. A process
/// writes one when it closes the module, and once a minute before that; one that only reads leaves no record.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.lookup(Keys::ints([1], 0))?;
/// drop(store);
/// let sessions = tcx_store::sessions(&dir.path().join("m_v1"))?;
/// assert_eq!((sessions[0].stats.hits, sessions[0].stats.misses), (1, 2));
/// assert!(sessions[0].is_closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if the folder cannot be listed. Other files and damaged records are left out.
pub fn sessions(dir: &Path) -> Result<Vec<Session>> {
    let dir = dir.join(FOLDER);
    let names = match names(&dir) {
        Ok(names) => names,
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("cannot list", dir, error)),
    };
    let newest = &names[names.len().saturating_sub(KEPT)..];
    Ok(newest.iter().filter_map(|name| decode(&read(&dir.join(name.to_string())).ok()?)).collect())
}

/// As [`sessions`](fn@sessions), of a module wherever its files are. Without records, and if they cannot be read, there are none.
pub(crate) fn recorded(storage: &dyn Storage) -> Vec<Session> {
    let Ok(folder) = storage.existing_folder(FOLDER) else { return Vec::new() };
    let listed = folder.list().unwrap_or_default();
    let mut names: Vec<_> = listed.iter().filter_map(|name| RecordName::parse(name)).collect();
    names.sort();
    let newest = &names[names.len().saturating_sub(KEPT)..];
    let read = |name: &RecordName| decode(&folder.open(&name.to_string()).ok()?.all(MOST_BYTES).ok()?);
    newest.iter().filter_map(read).collect()
}

/// Writes a record as a process does.
#[cfg(test)]
pub(crate) fn write(dir: &Path, session: &Session) {
    let name = RecordName { started: crate::sys::clock::millis(session.started), random: Random::new() };
    let folder = dir.join(FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name.to_string()), record::encode(session)).unwrap();
}

/// The names of the records, in order.
fn names(dir: &Path) -> io::Result<Vec<RecordName>> {
    // A link could lead out of the cache.
    if !System.metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut names: Vec<_> = System.list(dir)?.iter().filter_map(|name| RecordName::parse(name)).collect();
    names.sort();
    Ok(names)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// As much of a plain file as a record may have.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (file, mut bytes): (File, _) = (System.open(path)?, Vec::new());
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
