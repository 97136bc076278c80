//! Warning of a file once, and not at every listing.

use std::collections::HashSet;
use std::io;

use crate::storage::Storage;

/// The files that could not be opened and were warned of.
#[derive(Debug, Default)]
pub(crate) struct Warned(HashSet<String>);

impl Warned {
    /// A file that cannot be opened now may be gone, which is no news, or readable at the next listing.
    pub(crate) fn warn(&mut self, storage: &dyn Storage, name: &str, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound && self.0.insert(name.to_owned()) {
            let path = storage.path().join(name);
            tracing::warn!(path = %path.display(), "cannot open it, tried again at every listing: {error}");
        }
    }
}
