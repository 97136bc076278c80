//! Change 0 of a folder: reading it, creating it, and noticing that it is another's.

use std::io;
use std::path::Path;

use crate::changes::{Compared, IdentityChange, Origin, map_change};
use crate::error::{Error, ErrorKind, Result};
use crate::schema::spec::Spec;
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

/// Change 0, once it has been read or created.
#[derive(Clone, Debug)]
pub(crate) struct KnownIdentity {
    pub(crate) instance: Random,
    nonce: Random,
    pub(crate) digest: String,
}

impl KnownIdentity {
    fn of(change: &IdentityChange) -> Self {
        Self { instance: change.instance, nonce: change.nonce, digest: change.digest() }
    }

    /// What a folder is known by.
    pub(crate) fn origin(&self) -> Origin {
        Origin { instance: self.instance, nonce: self.nonce }
    }

    /// Reads change 0.
    ///
    /// # Errors
    ///
    /// Returns an error if change 0 belongs to another identity, is damaged, or cannot be read.
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
    /// As [`read`](Self::read). Also returns an error if a write fails.
    pub(crate) fn create(storage: &dyn Storage, spec: &Spec) -> Result<Self> {
        let change = IdentityChange::new(spec);
        if create(storage, &change.encode())? { Ok(Self::of(&change)) } else { Self::read(storage, spec) }
    }
}

/// What a folder is that is not the same as before, as an error.
///
/// # Errors
///
/// Returns an error for every result except [`Same`](Compared::Same) and [`Repaired`](Compared::Repaired). A removed folder may
/// come back: a mount that is lost for a while looks the same.
pub(crate) fn refuse_other(storage: &dyn Storage, spec: &Spec, compared: &Compared) -> Result<()> {
    let (id, path) = (&spec.module_id, storage.path());
    match compared {
        Compared::Same | Compared::Repaired(_) => Ok(()),
        Compared::Removed => Err(removed(storage)),
        Compared::OtherOrigin => {
            // A damaged change 0 is not the work of another process.
            read(storage)?;
            Err(Error::of_kind(
                ErrorKind::Replaced,
                format!(
                    "the cache of `{id}` at {} was removed and created again by another process: open the module again",
                    path.display()
                ),
            ))
        }
        Compared::OtherChange(number) => {
            let name = FileName::Change(*number);
            Err(Error::of_kind(
                ErrorKind::Replaced,
                format!(
                    "the cache of `{id}` at {} is not the folder that was opened: {name} is missing or \
                 differs from the file read before, for example because an older copy replaced the folder; restore the folder if it is \
                 incomplete, then open the module again",
                    path.display()
                ),
            ))
        }
        Compared::Unread(number, error) => {
            let path = path.join(FileName::Change(*number).to_string());
            Err(Error::io("cannot read", path, io::Error::new(error.kind(), error.to_string())))
        }
    }
}

/// Change 0 of a folder, whatever its identity is; `None` if the folder has none.
///
/// # Errors
///
/// Returns an error if change 0 is damaged, or cannot be read.
pub(crate) fn read_if_any(storage: &dyn Storage) -> Result<Option<IdentityChange>> {
    match read(storage) {
        Err(error) if error.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

fn read(storage: &dyn Storage) -> Result<IdentityChange> {
    let name = FileName::Change(0);
    let path = storage.path().join(name.to_string());
    let map = map_change(storage, name).map_err(|e| Error::io("cannot read", &path, e))?;
    map.and_then(|map| IdentityChange::decode(&map)).map_err(|what| {
        let advice = "the module's rows cannot be interpreted: restore this file from a backup, or delete the module with `tcx rm`";
        Error::corrupt(path, format!("{what}; {advice}"))
    })
}

fn create(storage: &dyn Storage, bytes: &[u8]) -> Result<bool> {
    let name = FileName::Change(0).to_string();
    let failed = |e| Error::io("cannot create", storage.path().join(&name), e);
    // The only file that makes the folder: what others count on is in a folder with a change 0.
    storage.make().and_then(|()| storage.create_if_absent(&name, bytes)).map_err(failed)
}

fn removed(storage: &dyn Storage) -> Error {
    let advice =
        "the folder is empty or gone, and its rows may come back: restore it, or open the module again";
    Error::io("cannot write to", storage.path(), io::Error::new(io::ErrorKind::NotFound, advice))
}

/// The refusal of a cache that another module has left.
pub(crate) fn refused(module_id: &str, path: &Path, difference: &str) -> Error {
    let message = format!(
        "the cache of `{module_id}` at {} belongs to another module:{difference}\n  \
         bump the id, as in `{}`, to start a new cache, or open another directory, or set `OnMismatch::Separate` to keep a cache \
         for each identity",
        path.display(),
        crate::storage::name::bumped(module_id),
    );
    Error::of_kind(ErrorKind::Incompatible, message)
}
