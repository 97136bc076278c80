//! The errors of a query.

use datafusion::error::DataFusionError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a query failed.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let database = tcx_sql::Database::open(dir.path())?;
/// let error = database.query("select * from clip_v1").map(|_| ()).unwrap_err();
/// assert_eq!(error.to_string(), "no table `clip_v1`; the cache has no modules");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query names a table that does not exist.
    #[error("no table `{name}`; {tables}")]
    NoTable {
        /// The name.
        name: String,
        /// The tables that exist.
        tables: String,
    },
    /// The statement is not a query; it could change something.
    #[error("{0} is rejected: SQL only reads a cache; use select, show tables, describe or explain")]
    NotAQuery(String),
    /// DataFusion rejects the query, or it failed while it ran.
    #[error("{0}")]
    Query(String),
    /// The cache cannot be read.
    #[error(transparent)]
    Cache(#[from] tcx_store::Error),
    /// The operating system reported an error.
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
