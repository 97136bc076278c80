//! Who learns of computed rows that are not kept.

use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::sys::runtime::lock;

/// The rows that one user of a store has inserted and that were lost: dropped because writing was off, because their
/// source had changed, or because the folder was refused. Several users of one store each have their own, so that each
/// learns of its own losses exactly once, whichever user flushes first.
///
/// ```
/// use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Losses, Options, Spec, Store};
///
/// # let dir = tempfile::tempdir()?;
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
///
/// let program = std::sync::Arc::new(Losses::new());
/// let handle = Losses::new().within(&program); // the program answers for what its handles have lost
/// let mut rows = store.lookup(Keys::ints([7], 0))?;
/// store.insert_for(&handle, &mut rows, &[0], vec![Column::dense(&[10])], None)?;
/// store.flush_for(&handle)?;
/// program.take()?; // it has lost nothing either
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Losses {
    /// How many rows, and why the last of them were lost.
    lost: Mutex<Option<(usize, Error)>>,
    outer: Option<Arc<Losses>>,
}

impl Losses {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, which are losses of `outer` too.
    #[must_use]
    pub fn within(self, outer: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { outer: Some(outer.clone()), ..self })
    }

    /// Rows are lost, for this reason.
    pub(crate) fn add(&self, rows: usize, why: &Error) {
        let mut lost = lock(&self.lost);
        let before = lost.take().map_or(0, |(rows, _)| rows);
        *lost = Some((before + rows, why.clone()));
        drop(lost);
        self.outer.iter().for_each(|outer| outer.add(rows, why));
    }

    /// # Errors
    ///
    /// Returns an error that counts the rows lost since the last call and gives the reason.
    pub fn take(&self) -> Result<()> {
        lock(&self.lost).take().map_or(Ok(()), |(rows, why)| Err(why.dropped(rows)))
    }

    /// As [`take`](Self::take); the next call returns the same.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub fn check(&self) -> Result<()> {
        lock(&self.lost).clone().map_or(Ok(()), |(rows, why)| Err(why.dropped(rows)))
    }
}
