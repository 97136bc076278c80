//! What can go wrong in the store, and what the caller should do about it.

use std::error::Error as StdError;
use std::fmt;
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
    /// The file system failed: check the disk; the store resumes by itself when writing works again.
    Io,
    /// A file is damaged: the store skips it, and the message names it.
    Corrupt,
    /// The directory belongs to another identity, schema or key type: bump the id.
    Incompatible,
    /// Another process removed, created again or restored the directory since it was opened: open it again.
    Replaced,
    /// This process was forked from the one that opened the store: open it again in this process.
    Forked,
    /// What the rows were computed from has changed, as an [`Attestation`](crate::Attestation) found out: compute them again.
    SourceChanged,
    /// Another process, a handle that recomputes rows or an invalidation by age has invalidated or replaced values before they were written: put them again
    /// if they are still right.
    Superseded,
    /// Other processes change the folder all the time, so that rows which replace others could not be written yet: they stay in the write
    /// buffer, and are written later. Flush again.
    Contended,
    /// The store is open with other options, or to read only: open it with the same options, or to write.
    InvalidOptions,
    /// The directory of the module is a link: remove the link.
    InvalidPath,
    /// The id of the module cannot name a directory: give it another id.
    InvalidId,
    /// The columns of a spec cannot be stored: rename, split or leave out a field.
    InvalidColumns,
    /// The caller broke another rule of the interface: fix the call.
    Invalid,
}

/// An error of the store. The message names the thing, what was expected and what was found.
///
/// The cause is the [`source`](StdError::source) and not part of the message: `{error}` prints the message, `{error:#}` the
/// message and all causes, separated by colons.
///
/// ```
/// use tcx_store::{ErrorKind, check_module_id};
///
/// let error = check_module_id("a/b").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidId);
/// assert!(error.to_string().contains("a/b"));
///
/// let error = tcx_store::modules("no such folder".as_ref()).unwrap_err();
/// assert_eq!(error.to_string(), "cannot list no such folder");
/// assert!(format!("{error:#}").starts_with("cannot list no such folder: "));
/// ```
#[derive(Clone, Debug)]
pub struct Error(Arc<Repr>);

#[derive(Debug, thiserror::Error)]
enum Repr {
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Corrupt { path: PathBuf, what: String },
    #[error("{1}")]
    Message(ErrorKind, String),
    #[error("{} not kept", computed(*rows))]
    Dropped { rows: usize, source: Error },
}

fn computed(rows: usize) -> String {
    if rows == 1 { "1 computed row was".to_owned() } else { format!("{rows} computed rows were") }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = if f.alternate() { self.source() } else { None };
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
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

/// Whether there was no room on the disk, or none that the user may take.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl Error {
    /// Whether there was no room to write.
    pub(crate) fn is_full(&self) -> bool {
        matches!(&*self.0, Repr::Io { source, .. } if is_full(source))
    }

    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Repr::Io { .. } => ErrorKind::Io,
            Repr::Corrupt { .. } => ErrorKind::Corrupt,
            Repr::Message(kind, _) => *kind,
            Repr::Dropped { source, .. } => source.kind(),
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

    /// An error without a cause or a file.
    pub(crate) fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Repr::Message(kind, message.into())))
    }

    /// This error has kept `rows` rows from the disk.
    pub(crate) fn dropped(self, rows: usize) -> Self {
        Self(Arc::new(Repr::Dropped { rows, source: self }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::of_kind(ErrorKind::Invalid, message)
    }
}

const _: () = assert!(size_of::<Error>() <= 16, "errors travel through every return value of the hot path");
