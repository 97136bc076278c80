//! Errors of callers.

use std::io::{self, ErrorKind};

/// A URL, name or setting that cannot be used.
pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what.into())
}
