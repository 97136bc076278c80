//! Copying modules between a directory and a store.
//!
//! A module is a set of immutable files, so a copy adds what is missing and replaces nothing. Segments that a change commits are copied
//! before it, and all others after the changes: a segment must not be served where the tombstones are missing that kill some of its
//! rows, or where others have their numbers. The two sides have to be copies of one
//! module, of which at most one has got changes of its own since: otherwise the same number would mean two changes, and a segment that
//! knows one of them would be taken for one that knows the other.

mod changes;
mod confirm;
pub(crate) mod files;
mod local;
mod mirror;
mod pull;
mod push;
mod stage;

use std::io::{self, ErrorKind};
use std::path::Path;

pub use mirror::Mirror;
pub use pull::pull;
pub use push::push;

use crate::bucket::Bucket;

/// What was copied of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Files that were copied.
    pub files: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// Files that were there.
    pub present: u64,
    /// Files that were not copied, each with the reason. Their rows are missing in the copy.
    pub left_out: Vec<(String, String)>,
    /// Those of `left_out` that are intact, and not of this module: they are not served anywhere. Only for copies to a directory.
    pub foreign: Vec<String>,
}

/// The modules of a cache in a store, in the order of their names.
///
/// # Errors
///
/// Returns an error if the store cannot be reached.
pub fn modules(bucket: &Bucket) -> io::Result<Vec<String>> {
    let mut folders = bucket.folders("")?;
    folders.retain(|folder| tcx_store::module_of_folder(folder).is_some());
    Ok(folders)
}

/// So often the files are listed again because one has vanished that was listed: it was joined with others.
const LISTED_AT_MOST: usize = 5;

fn remove_if_any(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(local::failed("remove", path, &error)),
        _ => Ok(()),
    }
}

fn moving(module: &str) -> io::Error {
    let what = format!("cannot copy `{module}`: its files are joined and removed again and again; try again");
    io::Error::new(ErrorKind::ResourceBusy, what)
}
