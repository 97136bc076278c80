//! The samples that a loader has to load.

use crate::ids::{Id, StringIds};

/// The samples of a batch that are not in the cache, each once: the inputs to load, in this order.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("missing_v1")?;
/// table.put(&["b"], &vec![2])?;
/// table.get_or_compute(&["a", "b", "c", "a"], |missing| {
///     assert_eq!((missing.positions(), missing.len()), (&[0, 2][..], 2));
///     Ok(missing.ids().map(|id| id.len() as i64).collect())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Missing<'a, I> {
    ids: &'a [I],
    /// The position of the first of the ids.
    first: usize,
    positions: &'a [usize],
}

impl<I> Clone for Missing<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Missing<'_, I> {}

impl<'a, I> Missing<'a, I> {
    pub(crate) fn new(ids: &'a [I], positions: &'a [usize]) -> Self {
        Self::within(ids, 0, positions)
    }

    /// Of a part of a list that begins at position `first`. The positions are those in the list.
    pub(crate) fn within(ids: &'a [I], first: usize, positions: &'a [usize]) -> Self {
        Self { ids, first, positions }
    }

    /// Their positions in the batch.
    pub fn positions(&self) -> &'a [usize] {
        self.positions
    }

    /// Their ids.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &'a I> + use<'a, I> {
        let Self { ids, first, .. } = *self;
        self.positions.iter().map(move |&position| &ids[position - first])
    }

    /// Their number; at least one.
    #[expect(clippy::len_without_is_empty, reason = "a loader is only called when something is missing")]
    pub fn len(&self) -> usize {
        self.positions.len()
    }
}

impl<'a, I: Id<StringIds>> Missing<'a, I> {
    /// Their ids as `&str`, whatever type they have: one loader serves `String`, `&str` and `&String`.
    ///
    /// ```
    /// use tcx::{Id, Missing, StringIds};
    ///
    /// fn count(missing: Missing<'_, impl Id<StringIds>>) -> tcx::Result<Vec<i64>> {
    ///     Ok(missing.str_ids().map(|id| id.len() as i64).collect())
    /// }
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let lengths = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("str_ids_v1")?;
    /// let ids = ["a".to_owned(), "bb".to_owned()];
    /// assert_eq!(lengths.get_or_compute(&ids, count)?, [1, 2]);
    /// let some: Vec<&String> = ids.iter().rev().collect();
    /// assert_eq!(lengths.get_or_compute(&some, count)?, [2, 1]);
    /// assert_eq!(lengths.get_or_compute(&["ccc"], count)?, [3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn str_ids(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a, I> {
        self.ids().map(Id::id)
    }
}
