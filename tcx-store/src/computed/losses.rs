//! Who learns of computed rows that are not kept.

use std::sync::{Arc, Mutex, OnceLock};

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
    /// Who learns of the rows instead, once they are handed over.
    heir: OnceLock<Arc<Losses>>,
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

    /// Those of one call of this user, which learns of them itself until they are [handed over](Self::hand_over). They are within
    /// the same losses.
    #[must_use]
    pub fn for_call(&self) -> Arc<Self> {
        Arc::new(Self { outer: self.outer.clone(), ..Self::default() })
    }

    /// The call whose losses these are is over (see [`for_call`](Self::for_call)): the user that called learns of what was not taken,
    /// and of what is lost from now on.
    ///
    /// ```
    /// # let program = std::sync::Arc::new(tcx_store::Losses::new());
    /// # let handle = tcx_store::Losses::new().within(&program);
    /// let call = handle.for_call();
    /// // ... rows are inserted for `call`, and flushed
    /// let lost = call.take();
    /// call.hand_over(&handle);
    /// lost?;
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    pub fn hand_over(&self, user: &Arc<Self>) {
        // Under the lock: what is lost meanwhile is added either before, and moved, or to those of the user.
        let mut lost = lock(&self.lost);
        let _ = self.heir.set(user.clone());
        if let Some((rows, why)) = lost.take() {
            user.add_here(rows, &why);
        }
    }

    /// Rows are lost, for this reason.
    pub(crate) fn add(&self, rows: usize, why: &Error) {
        self.add_here(rows, why);
        self.outer.iter().for_each(|outer| outer.add(rows, why));
    }

    fn add_here(&self, rows: usize, why: &Error) {
        let mut lost = lock(&self.lost);
        if let Some(heir) = self.heir.get() {
            return heir.add_here(rows, why);
        }
        let before = lost.take().map_or(0, |(rows, _)| rows);
        *lost = Some((before + rows, why.clone()));
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
