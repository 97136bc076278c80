//! What can go wrong in the store, and what the caller should do about it.

use std::path::PathBuf;
use std::sync::Arc;

/// What the caller should do about an [`Error`].
///
/// ```
/// use tcx_store::{ErrorKind, Keys};
///
/// let error = Keys::text([""], 0).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file system failed: look at the disk; the store goes on by itself once writing works again.
    Io,
    /// A file does not hold what it should: the store skips it; this names it.
    Corrupt,
    /// The directory belongs to another identity, schema or key type: bump the id.
    Incompatible,
    /// The caller broke a rule of the interface: fix the call.
    Invalid,
}

/// An error of the store. The message names the thing, what was expected and what was found.
///
/// ```
/// use tcx_store::{ErrorKind, check_module_id};
///
/// let error = check_module_id("a/b").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(error.to_string().contains("a/b"));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Arc<Repr>);

#[derive(Debug, thiserror::Error)]
enum Repr {
    #[error("{action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Corrupt { path: PathBuf, what: String },
    #[error("{0}")]
    Incompatible(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{rows} computed rows were not kept: {cause}")]
    Dropped { rows: usize, cause: Error },
}

/// A result of the store.
///
/// ```
/// fn keys() -> tcx_store::Result<tcx_store::Keys> {
///     tcx_store::Keys::text(["cat.jpg"], 0)
/// }
/// assert_eq!(keys()?.len(), 1);
/// # Ok::<(), tcx_store::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Repr::Io { .. } => ErrorKind::Io,
            Repr::Corrupt { .. } => ErrorKind::Corrupt,
            Repr::Incompatible(_) => ErrorKind::Incompatible,
            Repr::Invalid(_) => ErrorKind::Invalid,
            Repr::Dropped { cause, .. } => cause.kind(),
        }
    }

    /// Whether a file was not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(&*self.0, Repr::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self(Arc::new(Repr::Io { action, path: path.into(), source }))
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self(Arc::new(Repr::Corrupt { path: path.into(), what: what.into() }))
    }

    pub(crate) fn incompatible(message: impl Into<String>) -> Self {
        Self(Arc::new(Repr::Incompatible(message.into())))
    }

    /// This error has kept so many rows from the disk.
    pub(crate) fn dropped(self, rows: usize) -> Self {
        Self(Arc::new(Repr::Dropped { rows, cause: self }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self(Arc::new(Repr::Invalid(message.into())))
    }
}

const _: () = assert!(size_of::<Error>() <= 16, "errors travel through every return value of the hot path");
