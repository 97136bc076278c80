//! The condition under which computed rows may become durable: whatever they were computed from is unchanged.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::computed::RowBatch;
use crate::error::{Error, ErrorKind};
use crate::sys::notice::{Trouble, notice};

/// Asks the source of rows whether it is still what it was; the error says what changed and what to do.
type Ask = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A check that the writer makes before rows become durable: that the source of these rows has not changed since they were
/// computed.
///
/// The writer asks once for each segment, after the last of the segment's rows was computed. A refusal is final: buffered rows
/// of this source are dropped and no longer served, and later rows are refused.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use tcx_store::{Attestation, Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
///
/// let dir = tempfile::tempdir()?;
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
///
/// let weight = Arc::new(AtomicU64::new(1));
/// let watched = weight.clone();
/// let attestation = Attestation::new(move || match watched.load(Ordering::Relaxed) {
///     1 => Ok(()),
///     changed => Err(format!("the weight is {changed}, expected 1")),
/// });
/// let mut rows = store.lookup(Keys::ints([7], 0))?;
/// store.insert_attested(&mut rows, &[0], vec![Column::dense(&[10])], &attestation)?;
/// weight.store(2, Ordering::Relaxed);
/// assert!(format!("{:#}", store.flush().unwrap_err()).ends_with(": the weight is 2, expected 1"));
/// assert_eq!(store.lookup(Keys::ints([7], 0))?.missing(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Attestation {
    ask: Ask,
    refused: OnceLock<Error>,
}

impl Attestation {
    /// `ask` runs on the writer's thread. Where it panics, the answer is no.
    pub fn new(ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { ask: Box::new(ask), refused: OnceLock::new() })
    }

    /// The reason why rows of this source are refused, if they are.
    pub fn refused(&self) -> Option<&Error> {
        self.refused.get()
    }

    fn ask(&self) {
        // A panic says no: on the writer's thread it would keep the rows of all other sources from the disk.
        let answer = catch_unwind(AssertUnwindSafe(&self.ask));
        let answer = answer.unwrap_or_else(|panic| {
            Err(format!("the check that the source of the rows is unchanged panicked: {}", said(&*panic)))
        });
        if let Err(why) = answer {
            tracing::error!("rows are computed but not kept: {why}");
            notice(Trouble::Lost, format_args!("rows are computed but not kept: {why}"));
            // Another store may have asked at the same time: the first answer is kept.
            let _ = self.refused.set(Error::of_kind(ErrorKind::SourceChanged, why));
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl fmt::Debug for Attestation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attestation").field("refused", &self.refused).finish_non_exhaustive()
    }
}

/// Asks every source of these batches once. The batches must be closed to new rows: an answer says nothing of rows that are
/// computed after it.
pub(crate) fn ask_sources(batches: &[Arc<RowBatch>]) {
    let mut asked = HashSet::new();
    for attestation in batches.iter().filter_map(|batch| batch.attestation.as_ref()) {
        if asked.insert(Arc::as_ptr(attestation)) && attestation.refused().is_none() {
            attestation.ask();
        }
    }
}
