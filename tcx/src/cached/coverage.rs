//! How much of a list of ids is in the cache.

use crate::Result;
use crate::cached::Cached;
use crate::ids::Id;
use crate::module::extractor::CachedModule;

/// Ids looked up together: a list may be as long as a data set.
const TOGETHER: usize = 1 << 16;

/// Which ids of a list are in the cache. Made by [`Cached::coverage`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("coverage_table_v1")?;
/// table.put(&["a", "b"], &vec![1, 2])?;
/// let coverage = table.contains(&["a", "x", "b", "y"])?;
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

    pub(crate) fn of<M: CachedModule, I: Id<M::Key>>(
        cached: &Cached<M>,
        ids: &[I],
        view: u32,
    ) -> Result<Self> {
        let mut missing = Vec::new();
        for (part, ids) in ids.chunks(TOGETHER).enumerate() {
            let positions = cached.peek(ids, view)?;
            missing.extend(positions.into_iter().map(|position| part * TOGETHER + position));
        }
        Ok(Self { asked: ids.len(), missing })
    }

    /// Whether every id is in the cache: nothing would be computed.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The positions of the ids that are not, in order; a repeated id stands everywhere.
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

impl<M: CachedModule> Cached<M> {
    /// How much of a list of ids is in the cache. Computes nothing and counts neither hits nor misses.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "coverage_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let words = cache.module(Words {})?;
    /// words.forward(&["a", "b"], &vec!["one".to_owned(), "two".to_owned()])?;
    /// let coverage = words.coverage(&["a", "b", "c"])?;
    /// assert_eq!(coverage.missing(), [2]);
    /// assert!(!coverage.is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A malformed id, a closed cache, a folder that another module has taken.
    pub fn coverage<I: Id<M::Key>>(&self, ids: &[I]) -> Result<Coverage> {
        Coverage::of(self, ids, 0)
    }
}
