//! Counting what the caller has computed.

use std::time::Instant;

use super::Store;
use crate::stats::Work;

impl Store {
    /// Counts rows that were missing and that the caller has computed since `start`, whether they are kept or not: the store knows
    /// what it is given, and not what that took.
    ///
    /// ```
    /// # use std::time::Instant;
    /// # use tcx_store::{ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let start = Instant::now();
    /// store.computed(2, start);
    /// let stats = store.stats();
    /// assert_eq!((stats.rows_computed, stats.compute_times.count), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn computed(&self, rows: usize, start: Instant) {
        if let Ok(core) = self.reader() {
            core.counters.rows_computed.add(rows);
            core.took(Work::Compute, start);
        }
    }
}
