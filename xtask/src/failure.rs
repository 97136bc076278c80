//! The error of this program: a message for the user.

use std::fmt;
use std::io;
use std::path::Path;

/// What failed, and the remedy.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// The result of everything here that can fail.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure that `message` describes.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names the file that an operation failed on.
pub(crate) trait OnPath<T> {
    /// Turns an I/O error into "cannot `action` `path`: …".
    fn on(self, action: &str, path: &Path) -> Result<T>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, action: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Failure::new(format!("cannot {action} {}: {error}", path.display())))
    }
}
