//! Which folders are those of modules.

use std::path::Path;

use crate::error::{Error, Result};
use crate::storage::name::{FileName, module_of_folder};
use crate::storage::{ReadOnlyStorage, Storage};

/// The modules of a cache directory: the folders that hold files of tcx, in the order of their names. The folders of the
/// [identities](crate::OnMismatch::Separate) of a module follow that of the module.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// assert_eq!(tcx_store::modules(dir.path())?, ["m_v1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if the directory cannot be listed.
pub fn modules(cache: &Path) -> Result<Vec<String>> {
    let failed = |e| Error::io("cannot list", cache, e);
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(cache).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A link could lead out of the cache.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_folder && module_of_folder(&name).is_some() && holds_files_of_tcx(&entry.path()) {
            modules.push(name);
        }
    }
    modules.sort();
    Ok(modules)
}

/// Whether a directory is the folder of a module, which a cache must not be opened in. Looks for one file.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// assert!(tcx_store::is_module(&dir.path().join("m_v1")));
/// assert!(!tcx_store::is_module(dir.path()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_module(dir: &Path) -> bool {
    dir.join(FileName::Change(0).to_string()).symlink_metadata().is_ok()
}

fn holds_files_of_tcx(dir: &Path) -> bool {
    let names = ReadOnlyStorage::new(dir.to_owned()).list().unwrap_or_default();
    names.iter().any(|name| FileName::parse(name).is_some())
}
