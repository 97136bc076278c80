//! What can be wrong with a question.

use datafusion::error::DataFusionError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a question has no answer.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let database = tcx_sql::Database::open(dir.path())?;
/// let error = database.query("select * from clip_v1").map(|_| ()).unwrap_err();
/// assert_eq!(error.to_string(), "no table `clip_v1`: the cache holds no modules");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The question names a table that is not there.
    #[error("no table `{name}`: {there}")]
    NoTable {
        /// The name.
        name: String,
        /// Which tables there are.
        there: String,
    },
    /// The statement is not a query: it would change something.
    #[error("{0} is refused: a cache is only read here; ask with select, show tables, describe or explain")]
    NoQuestion(String),
    /// DataFusion cannot follow it, or has failed on the way.
    #[error("{0}")]
    Query(String),
    /// The cache cannot be read.
    #[error(transparent)]
    Cache(#[from] tcx_store::Error),
    /// The system has failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(error) => match error.downcast::<tcx_store::Error>() {
                Ok(error) => Self::Cache(*error),
                Err(error) => Self::Query(in_one_line(&format!("{error:#}"))),
            },
            DataFusionError::Context(_, error) | DataFusionError::Diagnostic(_, error) => (*error).into(),
            DataFusionError::IoError(error) => Self::Io(error),
            other => Self::Query(in_one_line(&other.strip_backtrace())),
        }
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
