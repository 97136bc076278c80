//! Making rows of a module dead.

use std::time::SystemTime;

use crate::Result;
use crate::cached::Cached;
use crate::ids::{Id, KeyKind, PrefixKind};
use crate::module::extractor::CachedModule;

/// The ids of a module without their stamps.
pub(crate) type PlainIds<M> = <<M as CachedModule>::Key as KeyKind>::Plain;

/// Invalidated rows are misses in every process that shares the cache: in this one at once, in others when they next check the
/// directory. This includes rows that are not yet written, and rows that another process is computing now.
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "invalidate_v1")]
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
/// let ids = ["train/1", "train/2", "test/1"];
/// words.forward(&ids, &vec!["one".to_owned(), "two".to_owned(), "three".to_owned()])?;
/// words.invalidate(&["test/1"])?;
/// assert_eq!(words.coverage(&ids)?.missing(), [2]);
/// words.invalidate_where(|id| id.ends_with("/2"))?;
/// assert_eq!(words.coverage(&ids)?.missing(), [1, 2]);
/// words.invalidate_prefix("train/")?;
/// assert_eq!(words.coverage(&ids)?.missing(), [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Each of them returns an error if an id is malformed, if the mode of the handle changes nothing, if the cache is closed, or
/// if the invalidation cannot be written. In the last case it takes effect in this process, and tcx writes it as soon as
/// writing works.
impl<M: CachedModule> Cached<M> {
    /// Invalidates the rows of these ids, in all their views and whatever their stamps are: ids are given without stamps.
    ///
    /// # Errors
    ///
    /// As all of them.
    pub fn invalidate<I: Id<PlainIds<M>>>(&self, ids: &[I]) -> Result<()> {
        let keys = self.pack_as::<PlainIds<M>, I>(ids, 0)?;
        Ok(self.writable()?.invalidate(&keys)?)
    }

    /// Invalidates the rows of every id that begins with `prefix`. Ids are strings or bytes.
    ///
    /// # Errors
    ///
    /// As all of them. Also returns an error if the prefix is empty.
    pub fn invalidate_prefix(&self, prefix: &<M::Key as PrefixKind>::Prefix) -> Result<()>
    where
        M::Key: PrefixKind,
    {
        Ok(self.writable()?.invalidate_prefix(prefix.as_ref())?)
    }

    /// Invalidates the rows of those ids in the cache for which `is_doomed` returns `true`. It may be asked for an id several times.
    ///
    /// # Errors
    ///
    /// As all of them. Also returns an error if the directory cannot be listed or is gone, or if a file in it cannot be read.
    pub fn invalidate_where(
        &self,
        mut is_doomed: impl FnMut(<PlainIds<M> as KeyKind>::Ref<'_>) -> bool,
    ) -> Result<()> {
        // A key of another type cannot be there: the type is part of the identity.
        let is_doomed = |key: &[u8]| <PlainIds<M> as KeyKind>::unpack(key, None).is_some_and(&mut is_doomed);
        Ok(self.writable()?.invalidate_where(is_doomed)?)
    }

    /// Invalidates the rows that were computed before `time`, also those that another process has not written yet, or that wait on
    /// another machine to be sent. The age of a row is that of the oldest row in its file. Rows that wait to be written here are written
    /// first.
    ///
    /// # Errors
    ///
    /// As all of them, and as [`flush`](Self::flush). Also returns an error if the directory cannot be listed or is gone. If the invalidation cannot be written, it has no effect in this process either: call this again.
    pub fn invalidate_older_than(&self, time: SystemTime) -> Result<()> {
        Ok(self.writable()?.invalidate_older_than(time)?)
    }

    /// Invalidates every row of the module.
    ///
    /// # Errors
    ///
    /// As all of them.
    pub fn invalidate_all(&self) -> Result<()> {
        Ok(self.writable()?.invalidate_all()?)
    }
}
