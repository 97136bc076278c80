//! The result of a command: exit codes, and errors with a remedy.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;
use tcx_store::ErrorKind;

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit code of a failure; stable, see `docs/cli.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Wrong arguments.
    Usage = 2,
    /// There is no such directory, module, id or file.
    NotFound = 3,
    /// A file is damaged.
    Damaged = 4,
    /// Modules, files or arguments do not match.
    Unfit = 5,
    /// A disk failure.
    Io = 6,
    /// The user has not confirmed.
    Unconfirmed = 7,
}

impl Code {
    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Damaged => "damaged",
            Self::Unfit => "unfit",
            Self::Io => "io",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// The verdict of a command that has done its work, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    Good = 0,
    /// Damage is left, ids are missing, something differs, or rows were left out.
    Bad = 1,
}

impl Verdict {
    pub(crate) fn good_if(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Bad }
    }
}

/// Why a command failed, and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { Code::NotFound } else { Code::Io };
        Self::new(code, format!("cannot {action} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tcx_store::Error> for Failure {
    fn from(error: tcx_store::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Corrupt => Code::Damaged,
            ErrorKind::Incompatible | ErrorKind::Replaced => Code::Unfit,
            ErrorKind::Io => Code::Io,
            _ => Code::Usage,
        };
        Self::new(code, format!("{error:#}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::Io, error.to_string())
    }
}

/// A module that a command could not read, beside those that it could.
#[derive(Debug, Serialize)]
pub(crate) struct Unreadable {
    pub(crate) module: String,
    pub(crate) error: String,
    #[serde(skip)]
    pub(crate) code: Code,
}

impl Unreadable {
    pub(crate) fn new(module: String, error: impl Into<Failure>) -> Self {
        let Failure { code, message } = error.into();
        Self { module, error: message, code }
    }
}
