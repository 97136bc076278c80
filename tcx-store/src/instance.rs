//! Change 0 of a folder: reading it, creating it, and noticing that it is another's.

use std::io;
use std::path::Path;

use crate::bytes::Random;
use crate::changes::IdentityChange;
use crate::error::{Error, ErrorKind, Result};
use crate::name::FileName;
use crate::spec::Spec;
use crate::storage::Storage;

/// Change 0, once it has been read or created.
#[derive(Clone, Debug)]
pub(crate) struct KnownIdentity {
    pub(crate) instance: Random,
    pub(crate) digest: String,
}

impl KnownIdentity {
    fn of(change: &IdentityChange) -> Self {
        Self { instance: change.instance, digest: change.digest() }
    }

    /// Reads change 0.
    ///
    /// # Errors
    ///
    /// One of another identity, a damaged one, one that cannot be read.
    pub(crate) fn read(storage: &dyn Storage, spec: &Spec) -> Result<Self> {
        let change = read(storage)?;
        let difference = change.difference(spec);
        if difference.is_empty() {
            return Ok(Self::of(&change));
        }
        Err(refused(&spec.module_id, storage.path(), &difference))
    }

    /// Creates change 0, or reads that of another process that was faster.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); a write that fails.
    pub(crate) fn create(storage: &dyn Storage, spec: &Spec) -> Result<Self> {
        let change = IdentityChange::new(spec);
        if create(storage, &change.encode())? { Ok(Self::of(&change)) } else { Self::read(storage, spec) }
    }

    /// Makes sure that the folder is still the one it was: somebody may have removed it under us, and made another.
    /// `false` is one that was removed, and that may be made again as another: no change was known there (`newest` is the
    /// last), so that no number is given a second time.
    ///
    /// # Errors
    ///
    /// Another folder; one that cannot be read, or that was removed and must not be made again. It may come back: that of a
    /// mount that is lost for a while looks the same.
    pub(crate) fn check(&self, storage: &dyn Storage, spec: &Spec, newest: Option<u64>) -> Result<bool> {
        match read(storage) {
            Ok(found) if found.instance == self.instance => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() != ErrorKind::Io => return Err(error),
            Err(error) => {
                // A listing that fails as well says nothing: the mount may be lost for a while.
                // Nor do folders in it: that of the sessions, or of damaged segments, stays where somebody removes all files.
                let is_empty = |names: Vec<String>| names.iter().all(|name| FileName::parse(name).is_none());
                let is_removed = storage.list().is_ok_and(is_empty);
                if is_removed && newest <= Some(0) {
                    return Ok(false);
                }
                return Err(if is_removed { removed(storage) } else { error });
            }
        }
        let (id, path) = (&spec.module_id, storage.path().display());
        Err(Error::incompatible(format!(
            "the cache of `{id}` at {path} was removed and made again by another process: open the module again"
        )))
    }
}

fn removed(storage: &dyn Storage) -> Error {
    let advice = "the folder is empty or gone, and rows were invalidated in it: bring it back, or open the module again";
    Error::io("cannot write to", storage.path(), io::Error::new(io::ErrorKind::NotFound, advice))
}

fn read(storage: &dyn Storage) -> Result<IdentityChange> {
    let name = FileName::Change(0).to_string();
    let path = storage.path().join(&name);
    let map = storage.map(&name).map_err(|e| Error::io("cannot read", &path, e))?;
    IdentityChange::decode(&map).map_err(|what| {
        let advice = "the cache cannot be used: move the folder away, or restore the file";
        Error::corrupt(path, format!("{what}; {advice}"))
    })
}

fn create(storage: &dyn Storage, bytes: &[u8]) -> Result<bool> {
    let name = FileName::Change(0).to_string();
    let failed = |e| Error::io("cannot create", storage.path().join(&name), e);
    storage.create_if_absent(&name, bytes).map_err(failed)
}

/// The refusal of a cache that another module has left.
pub(crate) fn refused(module_id: &str, path: &Path, difference: &str) -> Error {
    Error::incompatible(format!(
        "the cache of `{module_id}` at {} belongs to another module:{difference}\n  \
         bump the id, as in `{}`, to start a new cache, or open another directory",
        path.display(),
        crate::name::bumped(module_id),
    ))
}
