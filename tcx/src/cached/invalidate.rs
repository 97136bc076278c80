//! Making rows of a module dead.

use std::time::SystemTime;

use crate::Result;
use crate::cached::Cached;
use crate::ids::{Id, KeyKind, PrefixKind};
use crate::module::extractor::CachedModule;

/// The ids of a module without their stamps.
pub(crate) type PlainIds<M> = <<M as CachedModule>::Key as KeyKind>::Plain;

/// Invalidated rows are misses from then on, in every process that shares the cache: here at once, elsewhere at the next look
/// at the directory. Rows that are computed but not written yet are meant too, and so are those that another process is
/// computing at this moment.
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
/// Of each of them: a malformed id, a handle whose mode changes nothing, a closed cache, and what kept it from the disk: then it
/// holds in this process all the same, and is written as soon as that works.
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

    /// Invalidates the rows of every id that begins with `prefix`; of strings and bytes.
    ///
    /// # Errors
    ///
    /// As all of them; an empty prefix.
    pub fn invalidate_prefix(&self, prefix: &<M::Key as PrefixKind>::Prefix) -> Result<()>
    where
        M::Key: PrefixKind,
    {
        Ok(self.writable()?.invalidate_prefix(prefix.as_ref())?)
    }

    /// Invalidates the rows of the ids that `is_doomed` says, among those that are in the cache now.
    ///
    /// # Errors
    ///
    /// As all of them; a directory that cannot be listed.
    pub fn invalidate_where(
        &self,
        mut is_doomed: impl FnMut(<PlainIds<M> as KeyKind>::Ref<'_>) -> bool,
    ) -> Result<()> {
        // A key of another type cannot be there: the type is part of the identity.
        let is_doomed = |key: &[u8]| <PlainIds<M> as KeyKind>::unpack(key, None).is_some_and(&mut is_doomed);
        Ok(self.writable()?.invalidate_where(is_doomed)?)
    }

    /// Invalidates the rows that were computed before `time`. A row is taken to be as old as the oldest that is stored in the
    /// same file.
    ///
    /// # Errors
    ///
    /// As all of them; a directory that cannot be listed.
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
