//! What can go wrong, in one small enum: it travels through every return value of a hit.

use std::error::Error as StdError;

use tch::TchError;

/// An error of tcx. The message names the thing, what was expected and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused or failed; its [`kind`](tcx_store::Error::kind) says what to do.
    #[error(transparent)]
    Store(#[from] tcx_store::Error),
    /// libtorch failed, in the module or while its outputs were copied.
    #[error(transparent)]
    Tensor(Box<TchError>),
    /// The caller's loader failed; made by [`Error::loader`]. The message holds that of the loader's error.
    #[error("loading the inputs failed: {0}")]
    Loader(Box<dyn StdError + Send + Sync>),
    /// What `forward` returned is not what its output type declares.
    #[error("{part}: expected {expected}, found {found}")]
    Output {
        /// Which part of the output: its field's path.
        part: Box<str>,
        /// What the declaration says.
        expected: Box<str>,
        /// What `forward` returned.
        found: Box<str>,
    },
    /// A cached module broke a rule: it drew random numbers, tracked gradients, changed its weights.
    #[error("module `{id}`: {message}")]
    Module {
        /// The module's id.
        id: Box<str>,
        /// Which rule, and what to do.
        message: Box<str>,
    },
    /// Weights could not be frozen, loaded or saved.
    #[error("{what}: {message}")]
    Frozen {
        /// The file or the weight.
        what: Box<str>,
        /// What was expected, what was found, what to do.
        message: Box<str>,
    },
    /// The ids or the inputs of a batch do not fit together.
    #[error("{0}")]
    Batch(Box<str>),
    /// The path of the cache cannot be one.
    #[error("{0}")]
    Directory(Box<str>),
    /// The cache was closed before.
    #[error("{0}")]
    Closed(Box<str>),
}

/// A result of tcx.
pub type Result<T, E = Error> = std::result::Result<T, E>;

const _: () = assert!(size_of::<Error>() <= 64, "errors travel through every return value of a hit");

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Error>();
};

impl Error {
    /// Wraps any error of the caller's own, so that a loader can use `?` on it.
    ///
    /// ```
    /// fn load(path: &str) -> tcx::Result<Vec<u8>> {
    ///     std::fs::read(path).map_err(tcx::Error::loader)
    /// }
    /// let error = load("no such file").unwrap_err();
    /// assert!(error.to_string().starts_with("loading the inputs failed: "));
    /// ```
    pub fn loader(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Loader(error.into())
    }

    pub(crate) fn output(
        part: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        Self::Output { part: part.into(), expected: expected.into(), found: found.into() }
    }

    pub(crate) fn frozen(what: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        Self::Frozen { what: what.into(), message: message.into() }
    }

    pub(crate) fn batch(message: impl Into<Box<str>>) -> Self {
        Self::Batch(message.into())
    }
}

impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        Self::Tensor(Box::new(error))
    }
}
