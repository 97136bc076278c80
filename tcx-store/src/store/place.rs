//! Where the folders of modules are: in a cache directory, in memory, or wherever another crate keeps them.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::changes::instance::read_if_any;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::pinned::{Pin, PinnedRows};
use crate::options::{Options, ReadMode};
use crate::schema::spec::Spec;
use crate::storage::name::module_of_folder;
use crate::storage::url::url_scheme;
use crate::storage::{LocalStorage, Storage, System};
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::open_stores::OpenStores;
use crate::sys::fork::PerProcess;

/// The open stores of directories.
pub(super) static OPEN: PerProcess<Mutex<OpenStores>> = PerProcess::new();

/// Where folders are.
pub(crate) enum Place<'a> {
    /// The path is absolute, and its existing part is canonical.
    Directory(PathBuf),
    Memory(&'a Memory),
    Other(&'a dyn Folders),
}

/// Folders whose files another crate keeps.
pub trait Folders {
    /// By what this process knows a folder: two stores of one name are the same.
    fn key(&self, name: &str) -> PathBuf;

    /// The files of a folder, which need not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be reached by any means.
    fn storage(&self, name: &str) -> io::Result<Arc<dyn Storage>>;
}

impl Store {
    /// As [`open`](Self::open), in folders of another crate.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_in_folders(folders: &dyn Folders, spec: Spec, options: &Options) -> Result<Arc<Self>> {
        Self::open_at(&Place::Other(folders), spec, options)
    }
}

impl Spec {
    /// That of an existing module in folders of another crate; `None` if there is no such module.
    ///
    /// # Errors
    ///
    /// Returns an error if change 0 is damaged, or cannot be read.
    #[doc(hidden)]
    pub fn read_in_folders(folders: &dyn Folders, name: &str) -> Result<Option<Self>> {
        let failed = |error| Error::io("cannot open", folders.key(name), error);
        let storage = folders.storage(name).map_err(failed)?;
        let Some(identity) = read_if_any(&*storage)? else { return Ok(None) };
        identity.spec().map(Some).map_err(|what| Error::corrupt(storage.path(), what))
    }
}

impl PinnedRows {
    /// As [`open`](Self::open), or as [`open_pinned`](Self::open_pinned) with a pin, in folders of another crate.
    ///
    /// # Errors
    ///
    /// As these two, and if the folder names no module.
    #[doc(hidden)]
    pub fn open_in_folders(folders: &dyn Folders, name: &str, pin: Option<&Pin>) -> Result<Self> {
        // Another name could lead elsewhere.
        if module_of_folder(name).is_none() {
            return Err(Error::of_kind(ErrorKind::InvalidId, format!("there is no module `{name}`")));
        }
        let failed = |error| Error::io("cannot open", folders.key(name), error);
        let storage = folders.storage(name).map_err(failed)?;
        if read_if_any(&*storage)?.is_none() {
            let path = storage.path().display();
            return Err(Error::of_kind(ErrorKind::Replaced, format!("there is no module at {path}")));
        }
        Self::in_storage(storage, pin)
    }
}

impl Place<'_> {
    /// A cache directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is empty or a URL, or if it is relative and the current directory is gone.
    pub(crate) fn directory(cache: &Path) -> Result<Self> {
        if let Some(scheme) = url_scheme(cache) {
            let what = format!("cannot open a cache at a URL ({scheme}://…) as a directory");
            let advice = "object stores are opened by `tcx-remote`, or with the feature `remote` of `tcx-cache`; put `./` before the path of a directory of this name";
            return Err(Error::of_kind(ErrorKind::InvalidPath, format!("{what}: {advice}")));
        }
        resolve(cache).map(Self::Directory)
    }

    pub(crate) fn open_stores(&self) -> &PerProcess<Mutex<OpenStores>> {
        match self {
            Self::Directory(_) | Self::Other(_) => &OPEN,
            Self::Memory(memory) => memory.open_stores(),
        }
    }

    /// The path of a folder, by which this process knows it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        match self {
            Self::Directory(cache) => cache.join(name),
            Self::Memory(memory) => memory.path().join(name),
            Self::Other(folders) => folders.key(name),
        }
    }

    /// The files of a folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is a link, which could lead out of the cache.
    pub(crate) fn storage(&self, name: &str, mode: ReadMode) -> Result<Arc<dyn Storage>> {
        let dir = match self {
            Self::Directory(_) => self.folder(name),
            Self::Memory(memory) => return Ok(memory.storage(name)),
            Self::Other(folders) => {
                let failed = |error| Error::io("cannot open", self.folder(name), error);
                return folders.storage(name).map_err(failed);
            }
        };
        if dir.is_symlink() {
            let message = format!(
                "cannot open the module: {} is a symbolic link, expected a directory; remove the link",
                dir.display()
            );
            return Err(Error::of_kind(ErrorKind::InvalidPath, message));
        }
        Ok(Arc::new(LocalStorage::new(dir, System).reading(mode)))
    }
}

/// A path with one component more. What does not exist is no symbolic link, so `..` leads back to where it came from.
fn without_parents(mut path: PathBuf, component: Component<'_>) -> PathBuf {
    match component {
        Component::ParentDir => _ = path.pop(),
        component => path.push(component),
    }
    path
}

/// The path with its existing part made canonical, so that one folder has one name in this process.
fn resolve(path: &Path) -> Result<PathBuf> {
    let failed = |e| Error::io("cannot resolve", path, e);
    let absolute = std::path::absolute(path).map_err(failed)?;
    for existing in absolute.ancestors() {
        if let Ok(canonical) = existing.canonicalize() {
            let rest = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
            return Ok(rest.components().fold(canonical, without_parents));
        }
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::spec;

    #[test]
    fn a_url_is_refused_as_a_directory_and_none_is_made() {
        for url in ["s3://key:hunter2@bucket/prefix", "gs:/bucket"] {
            let refused = Store::open(Path::new(url), spec(), &Options::default()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidPath);
            let refused = refused.to_string();
            assert!(refused.contains("the feature `remote`") && !refused.contains("hunter2"), "{refused}");
        }
        assert!(!Path::new("s3:").exists() && !Path::new("gs:").exists());
    }
}
