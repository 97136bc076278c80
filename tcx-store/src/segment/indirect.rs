//! Rows that are not served straight from the map: they are compressed, or have to be read.

use std::borrow::Cow;
use std::sync::Arc;

use super::layout::BatchLayout;
use super::piece::Stored;
use super::{Segment, Unpacked, Value};
use crate::sys::runtime::lock;

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

    /// The record batch of a row, and the row's number in it.
    pub(crate) fn batch_of(&self, row: usize) -> Option<(usize, usize)> {
        self.batches.locate(row)
    }

    /// Decompresses a record batch; `None` if a byte of it cannot be trusted.
    pub(crate) fn unpack(&self, number: usize) -> Option<Unpacked> {
        let (header, body) = self.batches.ranges(number)?;
        let columns = (&*self.schema, &*self.leaves);
        Unpacked::new(&self.verified(header)?, &self.verified(body)?, columns, self.codec?)
    }

    /// The first row of the first record batch that cannot be decompressed.
    pub(crate) fn first_batch_in_doubt(&self) -> Option<usize> {
        self.batches.first_rows().find(|(number, _)| self.unpack(*number).is_none()).map(|(_, row)| row)
    }

    /// As [`unpack`](Self::unpack), for a caller that reads row after row: the batch is kept until the next is wanted.
    pub(super) fn next_unpacked(&self, number: usize) -> Option<Arc<Unpacked>> {
        let mut last = lock(&self.last_unpacked);
        match &*last {
            Some((own, unpacked)) if *own == number => Some(unpacked.clone()),
            _ => {
                let unpacked = Arc::new(self.unpack(number)?);
                *last = Some((number, unpacked.clone()));
                Some(unpacked)
            }
        }
    }
}
