//! Reading every byte of a folder, and repairing what is damaged.
//!
//! Damage is one process's judgement: nothing is moved or replaced before it has been found twice. What could not be read is not
//! damaged: it is reported and left in place.

mod check;
pub(crate) mod file;
mod lost;
mod repair;
mod segments;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::live::listing::Listing;
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, System};
use check::Check;
pub(crate) use repair::Repair;

/// Which kind of file is damaged: what it costs, and what repairing it does.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # use tcx_store::DamagedFile;
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # store.insert(&mut store.lookup(Keys::ints([7], 0))?, &[0], vec![Column::dense(&[7])])?;
/// # store.flush()?;
/// # drop(store);
/// # let module = dir.path().join("m_v1");
/// # let file = Inspection::open(&module)?.segments().next().expect("one segment").name.clone();
/// # std::fs::write(module.join(&file), "something else")?;
/// // A segment was overwritten.
/// let verified = tcx_store::verify(&module, &mut |_, _| {})?;
/// assert_eq!(verified.damage[0].kind, DamagedFile::Segment);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamagedFile {
    /// Its rows are computed again. Repairing moves it into the folder `damaged`.
    Segment,
    /// It is made again. Repairing removes it.
    Run,
    /// The changes themselves are read instead. Repairing removes it.
    Merged,
    /// All rows before it count as invalidated. Repairing puts a tombstone for just that in its place.
    Change,
    /// It is of a repair of changes that was interrupted before processes which had read them could notice it. Repairing ends that.
    UnfinishedRepair,
    /// It has the name of a change that was never made. Repairing moves it into the folder `damaged`.
    Stray,
}

/// A file that does not hold what was written, or does not fit the others.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # store.insert(&mut store.lookup(Keys::ints([7], 0))?, &[0], vec![Column::dense(&[7])])?;
/// # store.flush()?;
/// # drop(store);
/// let module = dir.path().join("m_v1");
/// let file = Inspection::open(&module)?.segments().next().expect("one segment").name.clone();
/// std::fs::write(module.join(&file), "something else")?;
/// let verified = tcx_store::verify(&module, &mut |_, _| {})?;
/// assert_eq!(verified.damage[0].file, file);
/// assert!(!verified.damage[0].what.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The name of the file.
    pub file: String,
    /// Which kind it is.
    pub kind: DamagedFile,
    /// What is wrong.
    pub what: String,
}

/// What was read.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # store.insert(&mut store.lookup(Keys::ints([7], 0))?, &[0], vec![Column::dense(&[7])])?;
/// # store.flush()?;
/// let verified = tcx_store::verify(&dir.path().join("m_v1"), &mut |_, _| {})?;
/// assert_eq!((verified.segments, verified.rows, verified.changes), (1, 1, 1));
/// assert!(verified.damage.is_empty() && verified.foreign.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Segments of this module.
    pub segments: u64,
    /// Rows in them.
    pub rows: u64,
    /// Changes, change 0 too, and merged changes.
    pub changes: u64,
    /// Index runs.
    pub runs: u64,
    /// Bytes of all these files.
    pub bytes: u64,
    /// What is wrong; nothing, if all is well.
    pub damage: Vec<Damage>,
    /// Files that could not be read, each with the reason. They may be as sound as any, and are left where they are.
    pub unreadable: Vec<(String, String)>,
    /// Files of another identity, another folder of this name, or another version of tcx, each with the reason: they
    /// are not served and no damage.
    pub foreign: Vec<(String, String)>,
}

/// Reads every file of the folder `dir` of a module: all checksums, the changes without gaps, the index against the keys.
/// `progress` gets, now and then, the bytes that were read and the bytes to read.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([7], 0))?;
/// # store.insert(&mut rows, &[0], vec![Column::dense(&[7])])?;
/// store.flush()?;
/// let verified = tcx_store::verify(&dir.path().join("m_v1"), &mut |_, _| {})?;
/// assert!(verified.damage.is_empty());
/// assert_eq!((verified.segments, verified.rows), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if the folder cannot be listed, or if change 0 cannot be read, is damaged or is missing: nothing can repair
/// it.
pub fn verify(dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    verify_all(&Inspection::open(dir)?, progress)
}

/// As [`verify`], of a folder that was looked at.
pub(crate) fn verify_all(
    inspection: &Inspection,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    let failed = |e| Error::io("cannot list", inspection.storage_path(), e);
    let names = inspection.storage.list().map_err(failed)?;
    let listing = Listing::of(&names);
    let sizes = names.iter().filter(|name| FileName::parse(name).is_some());
    let total = sizes.filter_map(|name| inspection.storage.info(name).ok()).map(|info| info.bytes).sum();
    let mut check = Check { inspection, verified: VerifyReport::default(), progress, total };
    check.segments();
    check.changes(&listing);
    check.runs(&listing);
    Ok(check.verified)
}

/// Verifies again, and repairs files that are still found to be damaged; returns what was done to each.
///
/// Processes that use the folder may go on: they meet fewer files, and no row is served that was not before. A segment that is moved away is
/// dead from then on, also if its file comes back.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # store.insert(&mut store.lookup(Keys::ints([7], 0))?, &[0], vec![Column::dense(&[7])])?;
/// # store.flush()?;
/// # drop(store);
/// # let module = dir.path().join("m_v1");
/// # let file = Inspection::open(&module)?.segments().next().expect("one segment").name.clone();
/// # std::fs::write(module.join(&file), "something else")?;
/// // A segment was overwritten.
/// let found = tcx_store::verify(&module, &mut |_, _| {})?.damage;
/// tcx_store::repair(&module, &found, &mut |_, _| {})?;
/// assert!(tcx_store::verify(&module, &mut |_, _| {})?.damage.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`verify`]. Also returns an error if a repair cannot be written; earlier repairs remain.
pub fn repair(dir: &Path, found: &[Damage], progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Repaired>> {
    let storage = LocalStorage::new(dir.to_owned(), System);
    Repair { storage: &storage, look: &|| Inspection::open(dir) }.run(found, progress)
}

/// What was repaired.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # store.insert(&mut store.lookup(Keys::ints([7], 0))?, &[0], vec![Column::dense(&[7])])?;
/// # store.flush()?;
/// # drop(store);
/// # let module = dir.path().join("m_v1");
/// # let file = Inspection::open(&module)?.segments().next().expect("one segment").name.clone();
/// # std::fs::write(module.join(&file), "something else")?;
/// # let found = tcx_store::verify(&module, &mut |_, _| {})?.damage;
/// let repaired = tcx_store::repair(&module, &found, &mut |_, _| {})?;
/// assert_eq!(repaired[0].damage.file, file);
/// assert_eq!(repaired[0].done, "moved into `damaged`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// What was wrong.
    pub damage: Damage,
    /// What was done about it, in words.
    pub done: String,
}
