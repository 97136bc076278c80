//! Rows that are not served straight from the map: they are compressed, or have to be read.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::layout::BatchLayout;
use super::packed::PackedBatch;
use super::piece::Stored;
use super::{Segment, Unpacked, Value};
use crate::sys::runtime::lock;

/// Rows of a record batch that are decompressed together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedRows {
    pub(super) batch: usize,
    pub(super) rows: Range<usize>,
}

impl Segment {
    /// The leaves of a row that are wanted, of a segment that is not compressed; nothing stands for the others. `None` if a byte
    /// cannot be trusted or read.
    pub(crate) fn read_leaves(&self, row: usize, wanted: Option<&[usize]>) -> Option<Vec<Value<'_>>> {
        let (batch, row) = self.locate(row)?;
        let leaf = |number| {
            if wanted.is_some_and(|wanted| !wanted.contains(&number)) {
                return Some((Cow::Borrowed(&[][..]), false));
            }
            self.read_leaf(batch, row, number)
        };
        (0..batch.leaves.len()).map(leaf).collect()
    }

    fn read_leaf(&self, batch: &BatchLayout, row: usize, number: usize) -> Option<Value<'_>> {
        let place = batch.leaves.get(number)?;
        let bytes = self.bytes_of(place, row)?;
        let present = self.validity_of(place, row)?;
        self.accepts(batch, number, row, &bytes).then_some((bytes, present))
    }

    /// Every leaf of a row, for a caller that reads row after row; `None` if a byte cannot be trusted or read.
    pub(crate) fn read_row(&self, row: usize) -> Option<Vec<Value<'_>>> {
        self.read_row_of(row, &(0..self.leaves.len()).collect::<Vec<_>>())
    }

    /// As [`read_row`](Self::read_row), these leaves in this order: the others are neither read nor verified.
    pub(crate) fn read_row_of(&self, row: usize, leaves: &[usize]) -> Option<Vec<Value<'_>>> {
        if leaves.is_empty() {
            return Some(Vec::new());
        }
        if self.is_compressed() {
            let (number, row) = self.batches.locate(row)?;
            let batch = self.next_unpacked(number)?;
            let leaf = |leaf: &usize| {
                batch.value(*leaf, row).map(|(bytes, present)| (bytes.to_vec().into(), present))
            };
            return leaves.iter().map(leaf).collect();
        }
        let (batch, row) = self.locate(row)?;
        leaves.iter().map(|leaf| self.read_leaf(batch, row, *leaf)).collect()
    }

    /// Whether the rows are compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.codec.is_some()
    }

    pub(super) fn is_packed(&self, column: Stored) -> bool {
        column != Stored::Key && self.is_compressed()
    }

    /// The rows that are decompressed with a row, and its number among them.
    pub(crate) fn packed_rows(&self, row: usize) -> Option<(PackedRows, usize)> {
        let (batch, row) = self.batches.locate(row)?;
        let rows = self.batches.rows_of(batch);
        let number = row % self.chunk_rows.unwrap_or(rows);
        let start = row - number;
        let end = rows.min(start.saturating_add(self.chunk_rows.unwrap_or(rows)));
        Some((PackedRows { batch, rows: start..end }, number))
    }

    /// Decompresses rows; `None` if a byte of them cannot be trusted.
    pub(crate) fn unpack(&self, rows: PackedRows) -> Option<Unpacked> {
        Unpacked::new(self.packed_batch(rows.batch)?, rows.rows, &|range| self.verified(range))
    }

    /// Where the compressed buffers of a record batch are.
    pub(super) fn packed_batch(&self, number: usize) -> Option<&PackedBatch> {
        let (columns, codec) = ((&*self.schema, &*self.leaves), (self.codec?, self.chunk_rows.is_some()));
        self.batches.packed(number, columns, codec, |range| self.verified(range))
    }

    fn unpack_batch(&self, number: usize) -> Option<Unpacked> {
        self.unpack(PackedRows { batch: number, rows: 0..self.batches.rows_of(number) })
    }

    /// The first row of the first record batch that cannot be decompressed, or has other rows for the readers that know no chunks.
    pub(crate) fn first_batch_in_doubt(&self) -> Option<usize> {
        let is_sound = |number| {
            let unpacked = self.unpack_batch(number)?;
            let for_others =
                if self.chunk_rows.is_some() { Some(self.unpack_for_others(number)?) } else { None };
            for_others.is_none_or(|others| others == unpacked).then_some(())
        };
        self.batches.first_rows().find(|(number, _)| is_sound(*number).is_none()).map(|(_, row)| row)
    }

    /// A record batch as a reader decompresses it that knows no chunks.
    fn unpack_for_others(&self, number: usize) -> Option<Unpacked> {
        let (columns, read) = ((&*self.schema, &*self.leaves), |range| self.verified(range));
        let packed = self.batches.read_packed(number, columns, (self.codec?, false), read)?;
        Unpacked::new(&packed, 0..packed.rows, &read)
    }

    /// All rows of a record batch, for a caller that reads row after row: they are kept until others are wanted.
    pub(super) fn next_unpacked(&self, number: usize) -> Option<Arc<Unpacked>> {
        let mut last = lock(&self.last_unpacked);
        match &*last {
            Some((own, unpacked)) if *own == number => Some(unpacked.clone()),
            _ => {
                let unpacked = Arc::new(self.unpack_batch(number)?);
                *last = Some((number, unpacked.clone()));
                Some(unpacked)
            }
        }
    }
}
