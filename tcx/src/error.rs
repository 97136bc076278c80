//! What can go wrong, in one small enum: it travels through every return value of a hit.

use std::error::Error as StdError;
use std::fmt;

use tch::TchError;

/// An error of tcx. The message names the thing, what was expected, what was found, and what to do.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("errors_v1")?;
/// let error = table.put(&["a", "b"], &vec![1]).unwrap_err();
/// assert_eq!(error.module_id(), Some("errors_v1"));
/// assert_eq!(error.expected(), Some("one value per sample, 2 in all"));
/// assert_eq!(error.found(), Some("1 values"));
/// assert!(error.remedy().is_some());
/// // A whole output has no field, a loader's error none of the parts.
/// assert_eq!(error.field(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused or failed; its [`kind`](tcx_store::Error::kind) says what to do.
    #[error(transparent)]
    Store(#[from] tcx_store::Error),
    /// libtorch failed, in the module or while its outputs were copied.
    #[error("{}{error}", InModule(module))]
    Tensor {
        /// What libtorch said.
        error: Box<TchError>,
        /// The id of the module.
        module: Option<Box<str>>,
    },
    /// The caller's loader failed; made by [`Error::loader`]. The message holds that of the loader's error.
    #[error("{}loading the inputs failed: {error}", InModule(module))]
    Loader {
        /// The caller's own error.
        error: Box<dyn StdError + Send + Sync>,
        /// The id of the module.
        module: Option<Box<str>>,
    },
    /// What `forward` returned, or what was read, is not what its output type declares.
    #[error("{0}")]
    Output(Box<Report>),
    /// A cached module broke a rule: it drew random numbers, tracked gradients, changed its weights.
    #[error("{0}")]
    Module(Box<Report>),
    /// Weights could not be frozen, loaded or saved.
    #[error("{0}")]
    Frozen(Box<Report>),
    /// The ids or the inputs of a batch do not fit together.
    #[error("{0}")]
    Batch(Box<Report>),
    /// The path of the cache cannot be one.
    #[error("{0}")]
    Directory(Box<Report>),
    /// The cache was closed before.
    #[error("{0}")]
    Closed(Box<Report>),
    /// The cache was opened by the process that this one was forked from, and the call needs locks or threads of that one.
    #[error("{0}")]
    Forked(Box<Report>),
    /// There is no tokio runtime, or it is shutting down; of the asynchronous forms.
    #[error("{0}")]
    Runtime(Box<Report>),
}

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
        Self::Loader { error: error.into(), module: None }
    }

    /// The id of the module that it is about.
    pub fn module_id(&self) -> Option<&str> {
        match self {
            Self::Tensor { module, .. } | Self::Loader { module, .. } => module.as_deref(),
            _ => self.report()?.module.as_deref(),
        }
    }

    /// The field of the output that it is about, by its path: `inner.tokens`.
    pub fn field(&self) -> Option<&str> {
        self.report()?.field.as_deref()
    }

    /// What was expected.
    pub fn expected(&self) -> Option<&str> {
        self.report()?.expected.as_deref()
    }

    /// What was found in its place.
    pub fn found(&self) -> Option<&str> {
        self.report()?.found.as_deref()
    }

    /// What to do.
    pub fn remedy(&self) -> Option<&str> {
        self.report()?.remedy.as_deref()
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Self::Store(_) | Self::Tensor { .. } | Self::Loader { .. } => None,
            Self::Output(report)
            | Self::Module(report)
            | Self::Frozen(report)
            | Self::Batch(report)
            | Self::Directory(report)
            | Self::Closed(report)
            | Self::Forked(report)
            | Self::Runtime(report) => Some(report),
        }
    }

    fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Self::Store(_) | Self::Tensor { .. } | Self::Loader { .. } => None,
            Self::Output(report)
            | Self::Module(report)
            | Self::Frozen(report)
            | Self::Batch(report)
            | Self::Directory(report)
            | Self::Closed(report)
            | Self::Forked(report)
            | Self::Runtime(report) => Some(report),
        }
    }

    fn with(mut self, fill: impl FnOnce(&mut Report)) -> Self {
        if let Some(report) = self.report_mut() {
            fill(report);
        }
        self
    }

    /// It is about this module, if it is not about another one.
    pub(crate) fn in_module(mut self, id: &str) -> Self {
        if let Self::Tensor { module, .. } | Self::Loader { module, .. } = &mut self {
            module.get_or_insert_with(|| id.into());
        }
        self.with(|report| {
            report.module.get_or_insert_with(|| id.into());
        })
    }

    pub(crate) fn with_field(self, field: &str) -> Self {
        self.with(|report| report.field = Some(field.into()))
    }

    pub(crate) fn with_expected(self, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Self {
        self.with(|report| {
            report.expected = Some(expected.into());
            report.found = Some(found.into());
        })
    }

    pub(crate) fn with_remedy(self, remedy: impl Into<Box<str>>) -> Self {
        self.with(|report| report.remedy = Some(remedy.into()))
    }

    /// A part of an output is not what it should be; the empty path is the output itself.
    pub(crate) fn output(field: &str, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Self {
        let what = if field.is_empty() { "output".to_owned() } else { format!("output field `{field}`") };
        let (expected, found) = (expected.into(), found.into());
        let message = format!("{what}: expected {expected}, found {found}");
        let error = Self::Output(Box::new(Report::new(message))).with_expected(expected, found);
        if field.is_empty() { error } else { error.with_field(field) }
    }

    pub(crate) fn module(id: &str, message: impl Into<Box<str>>, remedy: impl Into<Box<str>>) -> Self {
        Self::Module(Box::new(Report::new(message))).in_module(id).with_remedy(remedy)
    }

    pub(crate) fn frozen(what: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self::Frozen(Box::new(Report::new(format!("{what}: {message}"))))
    }

    pub(crate) fn batch(message: impl Into<Box<str>>) -> Self {
        Self::Batch(Box::new(Report::new(message)))
    }

    pub(crate) fn directory(message: impl Into<Box<str>>, remedy: &str) -> Self {
        Self::Directory(Box::new(Report::new(message))).with_remedy(remedy)
    }

    pub(crate) fn runtime(message: impl Into<Box<str>>, remedy: &str) -> Self {
        Self::Runtime(Box::new(Report::new(message))).with_remedy(remedy)
    }

    pub(crate) fn closed(message: impl Into<Box<str>>, remedy: &str) -> Self {
        Self::Closed(Box::new(Report::new(message))).with_remedy(remedy)
    }

    /// `what` belongs to the process that this one was forked from.
    pub(crate) fn forked(what: impl fmt::Display) -> Self {
        let message = format!(
            "{what} was opened before this process was forked, and its locks and background threads belong to the parent process"
        );
        Self::Forked(Box::new(Report::new(message))).with_remedy("open the cache again in this process")
    }
}

/// The beginning of a message about a module.
struct InModule<'a>(&'a Option<Box<str>>);

impl fmt::Display for InModule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |module| write!(f, "module `{module}`: "))
    }
}

/// The message of an [`Error`]; its parts are [`Error::module_id`], [`field`](Error::field),
/// [`expected`](Error::expected), [`found`](Error::found) and [`remedy`](Error::remedy).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("reports_v1")?;
/// let error = table.put(&["a", "b"], &vec![1]).unwrap_err();
/// let tcx::Error::Output(report) = &error else { unreachable!("the values are too few") };
/// assert!(report.to_string().starts_with("module `reports_v1`: "));
/// assert!(report.to_string().ends_with(error.remedy().expect("something can be done")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Report {
    module: Option<Box<str>>,
    field: Option<Box<str>>,
    expected: Option<Box<str>>,
    found: Option<Box<str>>,
    remedy: Option<Box<str>>,
    /// The whole, without the module and the remedy.
    message: Box<str>,
}

impl Report {
    fn new(message: impl Into<Box<str>>) -> Self {
        let message = message.into();
        Self { module: None, field: None, expected: None, found: None, remedy: None, message }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            write!(f, "module `{module}`: ")?;
        }
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        Self::Tensor { error: Box::new(error), module: None }
    }
}
