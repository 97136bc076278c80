//! Loading rows into memory before a lookup needs them.

use crate::Result;
use crate::cached::Cached;
use crate::cached::view::View;
use crate::ids::Id;
use crate::module::extractor::CachedModule;

impl<M: CachedModule> Cached<M> {
    /// Loads the rows of these ids into memory, so that a later lookup does not wait for the disk. Call it on another thread
    /// with the ids of the next batch. It computes nothing, counts neither hits nor misses, and returns the number of stored
    /// rows.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "prefetch_v1", key = i64)]
    /// # struct Doubles {}
    /// # impl Extractor for Doubles {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| 2 * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// # let doubles = cache.module(Doubles {})?;
    /// # let ids: Vec<i64> = (0..100).collect();
    /// # doubles.forward(&ids, &ids)?;
    /// let batches: Vec<&[i64]> = ids.chunks(10).collect();
    /// for (number, batch) in batches.iter().enumerate() {
    ///     std::thread::scope(|scope| {
    ///         scope.spawn(|| batches.get(number + 1).map(|next| doubles.prefetch(next)));
    ///         doubles.fetch(batch, |_| unreachable!("all are there")) // and a step of training
    ///     })?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, if the cache is closed, or if the folder now belongs to another module. Disk
    /// failures are not returned as errors: such rows are misses.
    pub fn prefetch<I: Id<M::Key>>(&self, ids: &[I]) -> Result<usize> {
        self.prefetch_view(ids, 0)
    }

    fn prefetch_view<I: Id<M::Key>>(&self, ids: &[I], view: u32) -> Result<usize> {
        let keys = self.pack(ids, view)?;
        Ok(self.rows().store().map_or(Ok(0), |store| store.prefetch(keys))?)
    }
}

impl<M: CachedModule> View<'_, M> {
    /// As [`Cached::prefetch`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::prefetch`].
    pub fn prefetch<I: Id<M::Key>>(&self, ids: &[I]) -> Result<usize> {
        self.cached().prefetch_view(ids, self.number())
    }
}
