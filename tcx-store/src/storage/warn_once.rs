//! Warning of a file once, and not at every listing; and of what fails in the background once, and not whenever it is tried.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use crate::storage::Storage;
use crate::storage::url::url_scheme;
use crate::sys::notice::{Trouble, notice};
use crate::sys::runtime::lock;

/// The files that could not be opened and were warned of.
#[derive(Debug, Default)]
pub(crate) struct Warned(HashSet<String>);

impl Warned {
    /// A file that cannot be opened now may be gone, which is no news, or readable at the next listing.
    pub(crate) fn warn(&mut self, storage: &dyn Storage, name: &str, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound && self.0.insert(name.to_owned()) {
            let path = storage.path().join(name);
            tracing::warn!(path = %path.display(), "cannot open file: {error}; retrying at every listing");
            let failed = format_args!(
                "cannot open {}: {error}; its rows are computed again until it opens; check its permissions and the disk",
                path.display()
            );
            notice(Trouble::Failing, failed);
        }
    }
}

/// What is done in the background, and has failed the last time.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<HashMap<&'static str, String>>);

impl Failing {
    /// A failure is warned of unless the same was the last time: it is tried again and again.
    pub(crate) fn note<T, E: Display>(
        &self,
        action: &'static str,
        folder: &Path,
        done: Result<T, E>,
    ) -> Option<T> {
        let mut failing = lock(&self.0);
        let error = match done {
            Ok(done) => {
                failing.remove(action);
                return Some(done);
            }
            Err(error) => format!("{error:#}"),
        };
        if failing.get(action) != Some(&error) {
            tracing::warn!(path = %folder.display(), "cannot {action}: {error}; retrying");
            let what = if url_scheme(folder).is_some_and(|scheme| scheme != "memory") {
                "the network and the credentials"
            } else {
                "permissions and the disk"
            };
            let failed =
                format_args!("cannot {action} in {}: {error}; retrying; check {what}", folder.display());
            notice(Trouble::Failing, failed);
            failing.insert(action, error);
        }
        None
    }
}
