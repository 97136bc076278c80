//! Where in the file the bytes of a row are that a lookup reads, in the order in which it can know them.

use std::ops::Range;

use super::Segment;
use super::layout::ColumnPlace;
use crate::sys::mmap::Mapped;

/// Bytes of an offset.
const OFFSET: usize = size_of::<i64>();
/// Bytes behind the header of a compressed record batch that hold its keys, nearly always.
const HEAD: usize = 16 << 10;

impl Segment {
    /// The map of the file, if it is mapped.
    pub(crate) fn map(&self) -> &Mapped {
        &self.map
    }

    /// What is known to be needed of a row before anything of it was read: its fixed parts, and the offsets of the others. Of a
    /// compressed one, the header of its record batch, with the keys that follow. Bytes that were not verified yet are needed with
    /// the rest of their blocks.
    pub(crate) fn needed_at_first(
        &self,
        row: usize,
        wanted: Option<&[usize]>,
        add: &mut impl FnMut(Range<usize>),
    ) {
        let mut add = |range| self.with_unverified(range, add);
        if self.is_compressed() {
            let place = self.batches.locate(row).and_then(|(number, _)| self.batches.ranges(number));
            let head = |body: Range<usize>| body.start.saturating_add(HEAD).min(body.end);
            return place.into_iter().for_each(|(header, body)| add(header.start..head(body)));
        }
        let Some((batch, row)) = self.locate(row) else { return };
        let mut add_column = |place: &ColumnPlace| {
            let (start, width) = match place.offsets {
                Some(offsets) => (offsets.get() + row * OFFSET, 2 * OFFSET),
                None => (place.values + row * place.width, place.width),
            };
            add(start..start + width);
            if let Some(validity) = place.validity {
                add(validity.get() + row / 8..validity.get() + row / 8 + 1);
            }
        };
        add_column(&batch.key);
        if self.view.is_none() {
            add_column(&batch.view);
        }
        match wanted {
            None => batch.leaves.iter().for_each(add_column),
            Some(wanted) => wanted.iter().filter_map(|&leaf| batch.leaves.get(leaf)).for_each(add_column),
        }
    }

    fn with_unverified(&self, range: Range<usize>, add: &mut impl FnMut(Range<usize>)) {
        let (range, table) = self.blocks.with_unverified(range);
        table.into_iter().chain([range]).for_each(add);
    }

    /// What is needed of a row besides, by the offsets that [`needed_at_first`](Self::needed_at_first) has named, which are read now.
    pub(crate) fn needed_by_offsets(
        &self,
        row: usize,
        wanted: Option<&[usize]>,
        add: &mut impl FnMut(Range<usize>),
    ) {
        if self.is_compressed() {
            return self.needed_by_header(row, add);
        }
        let Some((batch, row)) = self.locate(row) else { return };
        let mut add_column = |place: &ColumnPlace| {
            let range = place.offsets.and_then(|_| place.range(row, |range| self.in_map(range)));
            if let Some(range) = range {
                self.with_unverified(range, add);
            }
        };
        add_column(&batch.key);
        match wanted {
            None => batch.leaves.iter().for_each(add_column),
            Some(wanted) => wanted.iter().filter_map(|&leaf| batch.leaves.get(leaf)).for_each(add_column),
        }
    }

    /// What is needed of a compressed row, by the header of its record batch: the key, and the chunks that it is decompressed from.
    fn needed_by_header(&self, row: usize, add: &mut impl FnMut(Range<usize>)) {
        let (Some((keys, number)), Some((rows, _))) = (self.locate(row), self.packed_rows(row)) else {
            return;
        };
        if let Some(key) = keys.key.range(number, |range| self.in_map(range)) {
            self.with_unverified(key, add);
        }
        let batch = self.packed_batch(rows.batch);
        let stored = batch.into_iter().flat_map(|batch| batch.stored(&rows.rows));
        stored.for_each(|range| self.with_unverified(range, add));
    }
}
