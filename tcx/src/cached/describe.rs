//! What is known of the rows of a module, without reading their values.

use tcx_store::RowFacts;

use crate::Result;
use crate::cached::Cached;
use crate::cached::invalidate::PlainIds;
use crate::cached::view::View;
use crate::ids::Id;
use crate::module::extractor::CachedModule;

impl<M: CachedModule> Cached<M> {
    /// What is known of the rows of these ids: when and by which process each was computed, its segment, its stamp and its bytes. `None`
    /// if there is no row. It reads no values, so it does not notice a damaged one, and it computes and counts nothing. Ids are passed
    /// without stamps.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "described_v1")]
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
    /// words.forward(&["a"], &vec!["one".to_owned()])?;
    /// words.flush()?;
    /// let facts = words.describe(&["a", "b"])?;
    /// let row = facts[0].as_ref().expect("it is stored");
    /// assert_eq!((row.bytes, row.processes[0].process), (8, std::process::id()));
    /// println!("{:?} ago, on {:?}, in {:?}", row.age(), row.processes[0].host, row.segment);
    /// assert!(facts[1].is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, if the handle has mode [`Off`](crate::Mode::Off), if the cache is closed, or if the folder
    /// cannot be listed or now belongs to another module.
    pub fn describe<I: Id<PlainIds<M>>>(&self, ids: &[I]) -> Result<Vec<Option<RowFacts>>> {
        self.describe_view(ids, 0)
    }

    fn describe_view<I: Id<PlainIds<M>>>(&self, ids: &[I], view: u32) -> Result<Vec<Option<RowFacts>>> {
        let keys = self.pack_as::<PlainIds<M>, I>(ids, view)?;
        Ok(self.rows().readable(M::ID)?.describe(&keys)?)
    }
}

impl<M: CachedModule> View<'_, M> {
    /// As [`Cached::describe`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::describe`].
    pub fn describe<I: Id<PlainIds<M>>>(&self, ids: &[I]) -> Result<Vec<Option<RowFacts>>> {
        self.cached().describe_view(ids, self.number())
    }
}
