//! Computes rows again that are in the cache already.

use std::sync::Arc;

use crate::changes::{ChangeNumbers, Tombstones};
use crate::schema::key::Keys;
use crate::sys::fork::Process;

/// Computes every row again, even if it is stored: rows that this recompute session has not computed are misses to it. The rows
/// that it computes replace stored ones.
///
/// Which rows it has computed is kept as the numbers of its tombstones, not as a list of keys: a row is its own if
/// the newest tombstone that names the row's key and view is. No two recompute sessions share a tombstone.
///
/// ```
/// use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// use tcx_store::{LookupOptions, RecomputeSession};
///
/// # let dir = tempfile::tempdir()?;
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([7], 0))?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[1])])?;
///
/// let session = RecomputeSession::new();
/// let recompute = LookupOptions { recompute: Some(&session), ..LookupOptions::default() };
/// let mut again = store.lookup_with(Keys::ints([7], 0), recompute)?;
/// assert_eq!(again.missing(), 1);
/// store.insert(&mut again, &[0], vec![Column::dense(&[2])])?;
/// store.flush()?;
/// assert_eq!(store.lookup(Keys::ints([7], 0))?.bytes(0, 0), [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct RecomputeSession {
    numbers: ChangeNumbers,
    process: Process,
    /// Whether it computes only rows that were found and rejected: what others have recomputed since is newer.
    rejects: bool,
}

impl RecomputeSession {
    /// One that has computed nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// One whose rows make way for those that were recomputed since they were looked up.
    pub(crate) fn of_rejections() -> Arc<Self> {
        Arc::new(Self { rejects: true, ..Self::default() })
    }

    /// Whether its rows make way for those that were recomputed since they were looked up.
    pub(crate) fn rejects(&self) -> bool {
        self.rejects
    }

    /// Whether the row of the key at `position` is this recompute session's own: the newest tombstone that names it is.
    pub(crate) fn has_computed(&self, tombstones: &Tombstones, keys: &Keys, position: usize) -> bool {
        self.owns(tombstones, tombstones.newest_for_row(keys, position))
    }

    /// Whether a row is its own, `newest` being the newest of these tombstones that names its key and view.
    pub(crate) fn owns(&self, tombstones: &Tombstones, newest: u64) -> bool {
        // A forked process has computed nothing that is kept, and must not wait for a lock of its parent.
        self.process.is_current() && self.numbers.contains(newest) && tombstones.are_own(newest)
    }

    /// A tombstone of this number names rows that this recompute session has computed.
    pub(crate) fn add(&self, number: u64) {
        self.numbers.add(number);
    }
}
