//! Which ids of a list are in the cache.

/// Which ids of a list are in the cache. Made by [`Cached::coverage`](crate::Cached::coverage).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("coverage_table_v1")?;
/// table.put(&["a", "b"], &vec![1, 2])?;
/// let coverage = table.coverage(&["a", "x", "b", "y"])?;
/// assert_eq!((coverage.found(), coverage.missing()), (2, &[1, 3][..]));
/// assert_eq!((coverage.fraction(), coverage.is_complete()), (0.5, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    asked: usize,
    missing: Vec<usize>,
}

impl Coverage {
    pub(crate) fn new(asked: usize, missing: Vec<usize>) -> Self {
        Self { asked, missing }
    }

    /// Whether every id is in the cache: nothing would be computed.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The positions of the ids that are not, in order; with every position of a repeated id.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// How many ids are in the cache, repeated ones counted each time.
    pub fn found(&self) -> usize {
        self.asked - self.missing.len()
    }

    /// The part of the ids that is in the cache, from 0 to 1; 1 for an empty list.
    pub fn fraction(&self) -> f64 {
        if self.asked == 0 { 1. } else { self.found() as f64 / self.asked as f64 }
    }
}
