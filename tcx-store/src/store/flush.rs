//! Waiting until what was accepted is durable.

use std::time::Instant;

use super::Store;
use crate::computed::losses::Losses;
use crate::error::Result;
use crate::stats::Work;

impl Store {
    /// Waits until every row accepted so far is durable: it survives kill -9 and power loss.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be written; they stay in the buffer, and the store tries again. Also returns an error if
    /// rows that were [inserted](Self::insert) since the last flush are lost. Such rows were not accepted because writing was
    /// off, or their [attestation](crate::Attestation) was refused.
    pub fn flush(&self) -> Result<()> {
        self.flush_for(&self.losses)
    }

    /// As [`flush`](Self::flush), for one of several users of the store: the rows that are gone are those of `losses`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_for(&self, losses: &Losses) -> Result<()> {
        self.flush_to(true)?;
        losses.take()
    }

    /// As [`flush`](Self::flush), for a store whose files are on another machine: rows that survive kill -9 and power loss of this machine
    /// are enough. They are sent as soon as the other one can be reached. For other stores it does the same as `flush`.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Memory, Options, Spec, Store};
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open_in_memory(&Memory::new(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    /// store.flush_local()?;
    /// assert_eq!(store.stats().rows_sealed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_local(&self) -> Result<()> {
        self.flush_local_for(&self.losses)
    }

    /// As [`flush_for`](Self::flush_for), when the process ends: rows that are durable on this machine, and wait for a store that cannot
    /// be reached, are sent by the next process.
    ///
    /// # Errors
    ///
    /// As [`flush_for`](Self::flush_for).
    pub fn flush_at_exit_for(&self, losses: &Losses) -> Result<()> {
        match self.flush_for(losses) {
            Err(_) if self.core.storage.is_away() => self.flush_local_for(losses),
            flushed => flushed,
        }
    }

    /// As [`flush_local`](Self::flush_local), for one of several users of the store: the rows that are gone are those of `losses`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_local_for(&self, losses: &Losses) -> Result<()> {
        self.flush_to(false)?;
        losses.take()
    }

    fn flush_to(&self, there: bool) -> Result<()> {
        let _span = tracing::debug_span!("flush", module = self.core.spec.module_id).entered();
        let Some(writer) = self.writer_if_any()? else { return Ok(()) };
        let start = Instant::now();
        let flushed = writer.flush(there);
        self.core.took(Work::Flush, start);
        flushed
    }
}
