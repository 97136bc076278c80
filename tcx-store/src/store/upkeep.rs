//! Keeping a folder small, on demand.

use std::time::Duration;

use crate::error::Result;
use crate::store::Store;
use crate::upkeep::compaction::Effort;

/// The writer does by itself what keeps the number of files small; here is what makes the folder as small as can be.
impl Store {
    /// Joins segments of about the same age into as few as their rows fit in, without the rows that are dead. What they replace stays
    /// until it is [collected](Self::collect). A segment is as old as its oldest row: rows of different age stay apart, so that no
    /// process with a [`time_to_live`](crate::Options::time_to_live) loses the younger ones long before their time.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// for key in ["a", "b", "c"] {
    ///     let mut rows = store.lookup(Keys::text([key], 0)?)?;
    ///     store.insert(&mut rows, &[0], vec![Column::dense(&[1])])?;
    ///     store.flush()?;
    /// }
    /// store.compact()?;
    /// assert_eq!(store.stats().segments, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store is read-only, or if a write fails. A failed write loses nothing and does not affect
    /// readers.
    pub fn compact(&self) -> Result<()> {
        self.writer()?;
        self.core.compact(Effort::Thorough).map(drop)
    }

    /// Removes files that are no longer needed and are older than `age`: segments that were joined into others, or
    /// whose rows are all dead, and what killed processes have left. Returns their number.
    ///
    /// An age of zero is safe; it costs readers in other processes that have not noticed yet a listing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// for key in 0..3 {
    ///     let mut rows = store.lookup(Keys::ints([key], 0))?;
    ///     store.insert(&mut rows, &[0], vec![Column::dense(&[key as u8])])?;
    ///     store.flush()?;
    /// }
    /// store.compact()?;
    /// assert_eq!(store.stats().segments, 1);
    /// assert!(store.collect(Duration::ZERO)? >= 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store is read-only, or if the folder cannot be listed or synced.
    pub fn collect(&self, age: Duration) -> Result<usize> {
        self.writer()?;
        let removed = self.core.collect_everywhere(age)?.removed;
        // There may be room again.
        self.core.note_room()?;
        Ok(removed)
    }

    /// Makes the index as small as its rows need: rewrites index runs with entries of segments that are gone, and removes those
    /// that add nothing. [`Inspection::trimmed_index_bytes`](crate::Inspection::trimmed_index_bytes) says what will be left.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is read-only, if the folder cannot be listed or is not the one that was opened, if a write
    /// fails, or if other processes remove the smaller index again and again. Lookups find every row in any case.
    pub fn trim_index(&self) -> Result<()> {
        self.writer()?;
        self.core.trim_index(0)
    }

    /// Removes the oldest rows, segment by segment, until the segments that go have at least `bytes` bytes together, and no segment more. The
    /// changes that say so take a few hundred bytes of that room.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is read-only, or if the folder cannot be listed or is not the one that was opened.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        self.writer()?;
        self.refresh()?;
        self.core.make_room(bytes)
    }
}
