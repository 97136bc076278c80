//! Ending a session before the store is dropped.

use super::Store;

impl Store {
    /// Records what was done up to now as a [session](crate::Session) that is over. A store that is dropped does so by itself; for those whose
    /// handles outlive their use.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
    /// store.flush()?;
    /// store.end_session();
    /// assert_eq!(tcx_store::sessions(&dir.path().join("m_v1"))?[0].stats.misses, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_session(&self) {
        // The session of an inherited store is the parent's.
        if let Ok(Some(writer)) = self.writer_if_any() {
            writer.end_session();
        }
    }
}
