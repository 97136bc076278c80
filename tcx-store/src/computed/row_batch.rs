//! The rows that one computed batch brought.

use std::sync::Arc;

use crate::changes::{Seen, now_millis};
use crate::computed::attestation::Attestation;
use crate::computed::losses::Losses;
use crate::computed::recompute::RecomputeSession;
use crate::error::{Error, Result};
use crate::schema::column::Column;
use crate::schema::key::Keys;
use crate::schema::leaf::Leaf;

/// The rows that one computed batch brought.
#[derive(Debug)]
pub(crate) struct RowBatch {
    pub(crate) keys: Keys,
    pub(crate) columns: Vec<Column>,
    /// What was known of the changes when the rows were looked up.
    pub(crate) seen: Seen,
    /// Milliseconds since 1970.
    pub(crate) born: u64,
    /// The session that recomputed the rows: they replace the stored ones.
    pub(crate) recompute: Option<Arc<RecomputeSession>>,
    /// Asked before the rows become durable.
    pub(crate) attestation: Option<Arc<Attestation>>,
    /// The user that inserted the rows learns here that they are lost.
    pub(crate) losses: Option<Arc<Losses>>,
    /// Whether rows that a change of another process kills are lost: they were given, and cannot be computed again.
    pub(crate) is_put: bool,
}

impl RowBatch {
    /// # Errors
    ///
    /// Returns an error unless there is one column for each of `leaves`, of its type and with one row for each key.
    pub(crate) fn new(
        keys: Keys,
        columns: Vec<Column>,
        leaves: &[Leaf],
        seen: Seen,
        recompute: Option<Arc<RecomputeSession>>,
    ) -> Result<Self> {
        if columns.len() != leaves.len() {
            let (expected, found) = (leaves.len(), columns.len());
            return Err(Error::invalid(format!("expected {expected} columns, found {found}")));
        }
        for (number, (column, leaf)) in columns.iter().zip(leaves).enumerate() {
            if !column.fits(leaf, keys.len(), columns.get(number + 1)) {
                let (name, kind, rows, bytes) = (&leaf.name, leaf.described(), keys.len(), column.bytes());
                let message = format!(
                    "column `{name}`: expected {rows} rows of {kind}, found {bytes} bytes in another form"
                );
                return Err(Error::invalid(message));
            }
        }
        let (attestation, losses, is_put) = (None, None, false);
        Ok(Self { keys, columns, seen, born: now_millis(), recompute, attestation, losses, is_put })
    }

    pub(crate) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Why the rows are dropped, if their source has changed since they were computed.
    pub(crate) fn refused(&self) -> Option<&Error> {
        self.attestation.as_ref()?.refused()
    }

    /// This number of the rows is lost, for this reason.
    pub(crate) fn lost(&self, rows: usize, why: &Error) {
        self.losses.iter().filter(|_| rows > 0).for_each(|losses| losses.add(rows, why));
    }

    /// The memory the rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.heap_bytes() + self.columns.iter().map(Column::heap_bytes).sum::<usize>()
    }
}
