//! The part of a list of ids that is in the cache of a module.

use crate::Result;
use crate::cache::coverage::Coverage;
use crate::cached::Cached;
use crate::ids::Id;
use crate::module::extractor::CachedModule;

/// The number of ids that are looked up together: a list may be as long as a data set.
const TOGETHER: usize = 1 << 16;

impl<M: CachedModule> Cached<M> {
    /// Reports which of these ids are in the cache. It computes nothing, and counts neither hits nor misses. Print the result to
    /// see which ids are missing.
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
    /// Returns an error if an id is malformed, if the cache is closed, or if the folder now belongs to another module.
    pub fn coverage<I: Id<M::Key>>(&self, ids: &[I]) -> Result<Coverage> {
        self.coverage_view(ids, 0)
    }

    pub(crate) fn coverage_view<I: Id<M::Key>>(&self, ids: &[I], view: u32) -> Result<Coverage> {
        Coverage::of(self.rows(), view, ids.chunks(TOGETHER).map(|ids| self.pack(ids, view)))
    }
}
