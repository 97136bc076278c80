//! Rows of a compressed record batch in memory.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::PAGE;
use super::layout::ColumnPlace;
use super::packed::{PackedBatch, ReadRange};
use super::piece::Stored;
use crate::schema::constraint::Constraint;
use crate::schema::presence::{Presence, is_set};
use crate::sys::bytes::u64_at;
use crate::sys::cache_line::prefetch;

/// Bytes of an offset.
const OFFSET: usize = size_of::<i64>();
/// The most pages of a leaf that are fetched ahead: those that follow are copied later.
const MOST_PAGES: usize = 4;

/// Rows that were decompressed. Every offset and text in them has been checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    rows: usize,
    bytes: Vec<u8>,
    leaves: Box<[ColumnPlace]>,
}

impl Unpacked {
    /// Decompresses these rows of a batch. `None` if they are not what a writer makes. No more memory is taken than the buffers of the
    /// batch have.
    pub(super) fn new<'m>(
        batch: &PackedBatch,
        rows: Range<usize>,
        stored: &impl ReadRange<'m>,
    ) -> Option<Self> {
        let fixed = batch.leaves.iter().filter(|place| place.offsets.is_none());
        let row_bytes = fixed.map(|place| place.width).try_fold(0_usize, usize::checked_add)?;
        // No place is 0.
        let mut bytes = Vec::with_capacity(row_bytes.checked_mul(rows.len())?.checked_add(1)?);
        bytes.push(0);
        let leaves = batch.leaves.iter().map(|place| unpack(batch, place, &rows, stored, &mut bytes));
        let unpacked = Self { leaves: leaves.collect::<Option<_>>()?, rows: rows.len(), bytes };
        unpacked.is_sound().then_some(unpacked)
    }

    fn is_sound(&self) -> bool {
        (0..self.leaves.len())
            .filter(|&leaf| self.leaves[leaf].may_be_unsound())
            .all(|leaf| (0..self.rows).all(|row| self.is_sound_row(leaf, row)))
    }

    fn is_sound_row(&self, leaf: usize, row: usize) -> bool {
        let sizes = || self.row(self.leaves.get(leaf + 1)?, row);
        let content = self.leaves[leaf].content;
        self.value(leaf, row).is_some_and(|(bytes, _)| content.accepts(bytes, sizes))
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The memory it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.leaves.len() * size_of::<ColumnPlace>()
    }

    /// The bytes of a row of a leaf, and whether it has a value; `None` if there is no such row or leaf.
    pub(crate) fn value(&self, leaf: usize, row: usize) -> Option<(&[u8], bool)> {
        let place = self.leaves.get(leaf)?;
        let present = match place.validity {
            Some(validity) => is_set(*self.bytes.get(validity.get() + row / 8)?, row),
            None => true,
        };
        Some((self.row(place, row)?, present))
    }

    /// Fetches the beginning of a row into the processor's cache, and that of each of its pages: the processor's own prefetcher does not
    /// leave a page.
    pub(crate) fn prefetch(&self, row: usize) {
        for place in &self.leaves {
            if let Some(offsets) = place.offsets {
                prefetch(&self.bytes, offsets.get() + row * OFFSET);
                continue;
            }
            let start = place.values + row * place.width;
            let pages = (start..start + place.width).step_by(PAGE).take(MOST_PAGES);
            pages.for_each(|at| prefetch(&self.bytes, at));
        }
    }

    /// The bytes of rows of a leaf, which lie one after the other.
    pub(super) fn slice(&self, column: Stored, rows: Range<usize>) -> Option<&[u8]> {
        let Stored::Leaf { number, .. } = column else { return None };
        let place = self.leaves.get(number)?;
        let last = self.range(place, rows.end.checked_sub(1)?)?;
        self.bytes.get(self.range(place, rows.start)?.start..last.end)
    }

    fn row(&self, place: &ColumnPlace, row: usize) -> Option<&[u8]> {
        self.bytes.get(self.range(place, row)?)
    }

    fn range(&self, place: &ColumnPlace, row: usize) -> Option<Range<usize>> {
        if row >= self.rows {
            return None;
        }
        place.range(row, |range| self.bytes.get(range))
    }
}

/// Appends these rows of a leaf, whose place in the batch this is; returns their place in `bytes`.
fn unpack<'m>(
    batch: &PackedBatch,
    place: &ColumnPlace,
    rows: &Range<usize>,
    stored: &impl ReadRange<'m>,
    bytes: &mut Vec<u8>,
) -> Option<ColumnPlace> {
    let validity = match place.validity {
        Some(buffer) => Some(unpack_validity(batch, buffer.get(), rows, stored, bytes)?),
        None => None,
    };
    let (offsets, values) = match place.offsets {
        None => (None, rows.start.checked_mul(place.width)?..rows.end.checked_mul(place.width)?),
        Some(buffer) => {
            let (at, elements) = unpack_offsets(batch, buffer.get(), rows, stored, bytes)?;
            let values = elements.start.checked_mul(place.width)?..elements.end.checked_mul(place.width)?;
            (Some(at), values)
        }
    };
    let start = bytes.len();
    batch.read(place.values, values, stored, bytes)?;
    Some(ColumnPlace { values: start, len: bytes.len() - start, offsets, validity, ..*place })
}

/// Appends the bits that say which of the rows have a value, the first row's first.
fn unpack_validity<'m>(
    batch: &PackedBatch,
    buffer: usize,
    rows: &Range<usize>,
    stored: &impl ReadRange<'m>,
    bytes: &mut Vec<u8>,
) -> Option<NonZeroUsize> {
    let (at, first) = (bytes.len(), rows.start / 8);
    batch.read(buffer, first..rows.end.div_ceil(8), stored, bytes)?;
    let presence: Presence = rows
        .clone()
        .map(|row| bytes.get(at + row / 8 - first).is_some_and(|byte| is_set(*byte, row)))
        .collect();
    bytes.truncate(at);
    bytes.extend_from_slice(presence.bits());
    NonZeroUsize::new(at)
}

/// Appends the offsets of the rows, counted from the first, and returns where they are, and what elements they lead to.
fn unpack_offsets<'m>(
    batch: &PackedBatch,
    buffer: usize,
    rows: &Range<usize>,
    stored: &impl ReadRange<'m>,
    bytes: &mut Vec<u8>,
) -> Option<(NonZeroUsize, Range<usize>)> {
    let at = bytes.len();
    let range = rows.start.checked_mul(OFFSET)?..rows.end.checked_add(1)?.checked_mul(OFFSET)?;
    batch.read(buffer, range, stored, bytes)?;
    let first = u64_at(bytes, at)?;
    let mut last = first;
    for offset in bytes[at..].as_chunks_mut::<OFFSET>().0 {
        last = u64::from_le_bytes(*offset);
        *offset = last.checked_sub(first)?.to_le_bytes();
    }
    Some((NonZeroUsize::new(at)?, usize::try_from(first).ok()?..usize::try_from(last).ok()?))
}

impl ColumnPlace {
    /// Whether a row may be no valid one: rows of one length that may be anything are as long as the column says.
    fn may_be_unsound(&self) -> bool {
        self.offsets.is_some() || self.content != Constraint::Any
    }
}
