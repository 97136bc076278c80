//! The error of every call: a message of its own, a kind to match on, and the cause behind it.

mod unloaded;

use std::error::Error as StdError;
use std::fmt;
use std::io;

pub use self::unloaded::LoadFailure;
use self::unloaded::Unloaded;

/// What went wrong, as far as a program can act on it: see [`Error::kind`].
///
/// ```
/// use tcx::{Cache, ErrorKind, Table};
///
/// /// The lengths were numbers once, and are text in this version of the program.
/// fn open_lengths(cache: &Cache) -> tcx::Result<Table<Vec<String>>> {
///     match cache.table("lengths_v1") {
///         // Rows of another type are in this folder: bump the id.
///         Err(error) if error.kind() == ErrorKind::Mismatch => cache.table("lengths_v2"),
///         opened => opened,
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let cache = Cache::open(dir.path())?;
/// let numbers = cache.table::<Vec<i64>>("lengths_v1")?;
/// numbers.put(&["a"], &vec![1])?;
/// numbers.flush()?;
/// open_lengths(&cache)?.put(&["a"], &vec!["one".to_owned()])?;
/// assert_eq!(numbers.get(&["a"])?, Some(vec![1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The folder of the module holds rows of another identity: other fields, weights, output or id types. Bump the id, as in
    /// `resnet50_v2`, or open another directory, or set [`OnMismatch::Separate`](crate::OnMismatch::Separate).
    Mismatch,
    /// The folder was removed and created again, or replaced by a copy, since it was opened. Open the module again.
    Replaced,
    /// Another process, a handle that recomputes rows or an invalidation by age invalidated or replaced values before they were written. Put them again
    /// if they are still right.
    Superseded,
    /// Other processes change the folder all the time, so that rows which replace others could not be written yet. They stay in the write
    /// buffer and are written later. Flush again.
    Contended,
    /// An output does not have the declared type, or contains a value that the module rejects, such as NaN, or that
    /// [`validate`](crate::TableBuilder::validate) rejects.
    InvalidOutput,
    /// A module broke a rule: it is random, depends on the batch, trains, changed its weights, or asks its own handle to compute.
    ModuleViolation,
    /// The ids or the inputs of a batch are malformed, or do not fit together.
    InvalidBatch,
    /// Weights cannot be loaded, frozen or saved.
    InvalidWeights,
    /// Two modules have the same id, or an id cannot name a folder.
    InvalidId,
    /// The path of the cache is not a directory, or cannot be resolved.
    InvalidPath,
    /// A setting is out of range, names a device that libtorch does not have, or this process has the module open with other
    /// settings.
    InvalidSettings,
    /// The [`Mode`](crate::Mode) of the handle does not allow the call. Open the module in another mode.
    WrongMode,
    /// The folder has reached its `max_bytes` and keeps nothing more.
    Full,
    /// Code of the caller failed: a loader, a `forward`, a closure of a table. Made by [`Error::loader`], or by `?`.
    Loader,
    /// libtorch failed, in the module or while its outputs were copied.
    Libtorch,
    /// Another tensor library than libtorch failed, or there is no memory for a tensor.
    TensorLibrary,
    /// The file system failed. Check the disk; the cache resumes by itself when writing works again.
    Io,
    /// A file is damaged. The message names the file; `tcx verify` reports the details.
    Corrupt,
    /// The cache was closed before.
    Closed,
    /// This process was forked from the one that opened the cache. Open the cache again in this process.
    Forked,
    /// No tokio runtime is running here, or it is shutting down. Only the asynchronous forms need one.
    NoRuntime,
}

/// An error of tcx. The message names the thing, what was expected, what was found, and what to do.
///
/// Programs match on the [`kind`](Self::kind): see the example of [`ErrorKind`].
///
/// The cause is the [`source`](StdError::source), not part of the message: `{error}` prints the message, `{error:#}` the
/// message and all causes, separated by colons. `{error:?}` prints the same, so that `unwrap` and an error of `main` are readable.
///
/// ```
/// use std::error::Error;
///
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("errors_v1")?;
/// let error = table.put(&["a", "b"], &vec![1]).unwrap_err();
/// assert_eq!(error.kind(), tcx::ErrorKind::InvalidOutput);
/// assert_eq!(error.module_id(), Some("errors_v1"));
/// assert_eq!(error.expected(), Some("one value per sample, 2 in all"));
/// assert_eq!(error.found(), Some("1"));
/// assert!(error.to_string().ends_with(error.remedy().expect("something can be done")));
/// // The error concerns the whole output, so it names no field, and it has no cause.
/// assert!(error.field().is_none() && error.source().is_none());
/// # Ok::<(), Box<dyn Error>>(())
/// ```
pub struct Error(Box<Inner>);

/// A result of tcx.
///
/// ```
/// fn lengths(texts: &[&str]) -> tcx::Result<Vec<i64>> {
///     texts.iter().map(|text| i64::try_from(text.len()).map_err(tcx::Error::loader)).collect()
/// }
/// assert_eq!(lengths(&["a cat"])?, [5]);
/// # Ok::<(), tcx::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

struct Inner {
    kind: ErrorKind,
    message: Message,
    module: Option<Box<str>>,
    field: Option<Box<str>>,
    expected: Option<Box<str>>,
    found: Option<Box<str>>,
    remedy: Option<Box<str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    unloaded: Option<Unloaded>,
}

/// The text, without the module, the remedy and the cause.
enum Message {
    Text(Box<str>),
    /// An error of the caller's own code, as long as it is not known which of its functions has returned it.
    Own,
    /// An error of the store: its message names the module, and its cause is the cause.
    Store(tcx_store::Error),
}

const _: () = assert!(size_of::<Error>() <= 8, "errors travel through every return value of a hit");

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Error>();
};

impl Error {
    /// Wraps any error of the caller's own, or a message, so that a loader can return it. `?` does so by itself with an
    /// [`io::Error`] and with a boxed error.
    ///
    /// ```
    /// fn load(path: &str) -> tcx::Result<String> {
    ///     let bytes = std::fs::read(path)?;
    ///     String::from_utf8(bytes).map_err(tcx::Error::loader)
    /// }
    /// let error = load("no such file").unwrap_err();
    /// assert_eq!(error.kind(), tcx::ErrorKind::Loader);
    /// assert!(format!("{error:#}").starts_with("loading the inputs failed: "));
    /// ```
    pub fn loader(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(ErrorKind::Loader, Message::Own).with_source(error)
    }

    /// What went wrong, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The id of the module that the error concerns.
    pub fn module_id(&self) -> Option<&str> {
        self.0.module.as_deref()
    }

    /// The path of the output field that the error concerns, such as `inner.tokens`.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// What was expected.
    pub fn expected(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// What was found in its place.
    pub fn found(&self) -> Option<&str> {
        self.0.found.as_deref()
    }

    /// What to do.
    pub fn remedy(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }
}

/// How the parts of tcx make errors.
impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        Self::of(kind, Message::Text(message.into()))
    }

    fn of(kind: ErrorKind, message: Message) -> Self {
        let (module, field, expected, found, remedy, source) = (None, None, None, None, None, None);
        Self(Box::new(Inner {
            kind,
            message,
            module,
            field,
            expected,
            found,
            remedy,
            source,
            unloaded: None,
        }))
    }

    /// The same error, of another kind.
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Says what failed, if this is an error of the caller's own code, and it is not known yet which of its functions has returned it:
    /// none that may offer the inputs of some samples.
    pub(crate) fn returned_by<T: Into<Box<str>>>(mut self, what: impl FnOnce() -> T) -> Self {
        let is_foreign = self.end_partial();
        if is_foreign || matches!(self.0.message, Message::Own) {
            self.0.message = Message::Text(what().into());
        }
        let remedy = "a `Partial` is for loaders: nothing is computed from what could be loaded here";
        if is_foreign { self.with_remedy(remedy) } else { self }
    }

    /// Names the module that the error concerns, unless it names one already. A loader that gets such an error from a call has no
    /// inputs of it.
    pub(crate) fn in_module(mut self, id: &str) -> Self {
        self.end_partial();
        self.0.module.get_or_insert_with(|| id.into());
        self
    }

    pub(crate) fn with_field(mut self, field: &str) -> Self {
        self.0.field = Some(field.into());
        self
    }

    pub(crate) fn with_expected(mut self, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Self {
        (self.0.expected, self.0.found) = (Some(expected.into()), Some(found.into()));
        self
    }

    pub(crate) fn with_remedy(mut self, remedy: impl Into<Box<str>>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// The cause. The message must not repeat it.
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// A part of an output is not as expected; the empty path is the output itself.
    pub(crate) fn output(field: &str, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Self {
        let what = if field.is_empty() { "output".to_owned() } else { format!("output field `{field}`") };
        let (expected, found) = (expected.into(), found.into());
        let message = format!("{what}: expected {expected}, found {found}");
        let error = Self::new(ErrorKind::InvalidOutput, message).with_expected(expected, found);
        if field.is_empty() { error } else { error.with_field(field) }
    }

    pub(crate) fn module(id: &str, message: impl Into<Box<str>>, remedy: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::ModuleViolation, message).in_module(id).with_remedy(remedy)
    }

    pub(crate) fn weights(what: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidWeights, format!("{what}: {message}"))
    }

    pub(crate) fn batch(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::InvalidBatch, message)
    }

    /// `what` belongs to the process that this one was forked from.
    pub(crate) fn forked(what: impl fmt::Display) -> Self {
        let message = format!(
            "{what} was opened before this process was forked, and its locks and background threads belong to the parent process"
        );
        Self::new(ErrorKind::Forked, message).with_remedy("open the cache again in this process")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, module, remedy, .. } = &*self.0;
        let text = match message {
            Message::Store(error) => &format!("{error}"),
            Message::Text(text) => &**text,
            Message::Own => "loading the inputs failed",
        };
        match module {
            Some(module) if !matches!(message, Message::Store(_)) => write!(f, "module `{module}`: {text}")?,
            _ => f.write_str(text)?,
        }
        if let Some(remedy) = remedy {
            write!(f, "; {remedy}")?;
        }
        let mut cause = if f.alternate() { self.source() } else { None };
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// The message and its causes: what `unwrap` and `main` print is read by people.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.0.source, &self.0.message) {
            (Some(source), _) => Some(&**source),
            (None, Message::Store(error)) => error.source(),
            // The causes of the others are among the failures.
            (None, Message::Text(_) | Message::Own) => self.first_failure(),
        }
    }
}

impl From<tcx_store::Error> for Error {
    fn from(error: tcx_store::Error) -> Self {
        let kind = match error.kind() {
            tcx_store::ErrorKind::Corrupt => ErrorKind::Corrupt,
            tcx_store::ErrorKind::Incompatible => ErrorKind::Mismatch,
            tcx_store::ErrorKind::Replaced => ErrorKind::Replaced,
            tcx_store::ErrorKind::Forked => ErrorKind::Forked,
            tcx_store::ErrorKind::SourceChanged => ErrorKind::ModuleViolation,
            tcx_store::ErrorKind::Superseded => ErrorKind::Superseded,
            tcx_store::ErrorKind::Contended => ErrorKind::Contended,
            tcx_store::ErrorKind::InvalidOptions => ErrorKind::InvalidSettings,
            tcx_store::ErrorKind::InvalidPath => ErrorKind::InvalidPath,
            tcx_store::ErrorKind::InvalidId => ErrorKind::InvalidId,
            tcx_store::ErrorKind::InvalidColumns => ErrorKind::InvalidOutput,
            tcx_store::ErrorKind::Invalid => ErrorKind::InvalidBatch,
            _ => ErrorKind::Io,
        };
        Self::of(kind, Message::Store(error))
    }
}

#[cfg(feature = "tch")]
impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Self {
        Self::new(ErrorKind::Libtorch, "libtorch failed").with_source(error)
    }
}

#[cfg(feature = "candle")]
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::new(ErrorKind::TensorLibrary, "candle failed").with_source(error)
    }
}

/// Of every call of `ort`; the builder that some of its errors return is dropped.
#[cfg(feature = "ort")]
impl<R> From<ort::Error<R>> for Error {
    fn from(error: ort::Error<R>) -> Self {
        Self::new(ErrorKind::TensorLibrary, "ONNX Runtime failed").with_source(error.message())
    }
}

/// An error of the caller's own, as [`Error::loader`] makes it: tcx names the file and the action in errors of its own.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::loader(error)
    }
}

/// An error of the caller's own, as [`Error::loader`] makes it.
impl From<Box<dyn StdError + Send + Sync>> for Error {
    fn from(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self::loader(error)
    }
}
