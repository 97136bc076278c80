//! The files of a folder besides the segments.

use std::path::Path;

use crate::engine::passed;
use crate::error::{Error, Result};
use crate::leases;
use crate::sessions;
use crate::storage::name::FileName;
use crate::storage::{DAMAGED, ReadOnlyStorage, Storage};

/// The folders beside the files.
const OWN_FOLDERS: [&str; 4] = [DAMAGED, sessions::FOLDER, passed::FOLDER, leases::files::FOLDER];

/// The files of a folder besides the segments.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, OtherFiles, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let others = OtherFiles::read(&dir.path().join("m_v1"))?;
/// assert_eq!((others.changes, others.temporary, others.unrecognised.len()), (1, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherFiles {
    /// Changes, change 0 too, and merged changes.
    pub changes: u64,
    /// Their bytes.
    pub change_bytes: u64,
    /// Index runs.
    pub runs: u64,
    /// Their bytes.
    pub run_bytes: u64,
    /// Files that are being written, or were when their process was killed.
    pub temporary: u64,
    /// Their bytes.
    pub temporary_bytes: u64,
    /// What is not tcx's and is left alone.
    pub unrecognised: Vec<String>,
}

impl OtherFiles {
    /// The files of the folder of a module, whatever its change 0 says.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed.
    pub fn read(dir: &Path) -> Result<Self> {
        let storage = ReadOnlyStorage::new(dir.to_owned());
        let names = storage.list().map_err(|e| Error::io("cannot list", dir, e))?;
        Ok(other_files(&storage, &names))
    }
}

pub(crate) fn other_files(storage: &dyn Storage, names: &[String]) -> OtherFiles {
    let mut files = OtherFiles::default();
    for name in names {
        // One that has vanished takes no room.
        let bytes = storage.info(name).map_or(0, |info| info.bytes);
        let (count, sum) = match FileName::parse(name) {
            Some(FileName::Segment(_)) => continue,
            Some(FileName::Change(_) | FileName::Merged(_)) => (&mut files.changes, &mut files.change_bytes),
            Some(FileName::Run(_)) => (&mut files.runs, &mut files.run_bytes),
            Some(FileName::Temporary(_)) => (&mut files.temporary, &mut files.temporary_bytes),
            None if OWN_FOLDERS.contains(&name.as_str()) => continue,
            None => {
                files.unrecognised.push(name.clone());
                continue;
            }
        };
        *count += 1;
        *sum += bytes;
    }
    files.unrecognised.sort();
    files
}
