//! Where in the file the bytes of a row are that a lookup reads, in the order in which it can know them.

use std::ops::Range;

use super::Segment;
use super::layout::ColumnPlace;
use crate::sys::mmap::Mapped;

/// Bytes of an offset.
const OFFSET: usize = size_of::<i64>();

impl Segment {
    /// The map of the file, if it is mapped.
    pub(crate) fn map(&self) -> &Mapped {
        &self.map
    }

    /// What is known to be needed of a row before anything of it was read: its fixed parts, and the offsets of the others. Of a
    /// compressed one, all of its record batch. Bytes that were not verified yet are needed with the rest of their blocks.
    pub(crate) fn needed_at_first(
        &self,
        row: usize,
        wanted: Option<&[usize]>,
        add: &mut impl FnMut(Range<usize>),
    ) {
        let mut add = |range| self.with_unverified(range, add);
        if self.is_compressed() {
            let place = self.batches.locate(row).and_then(|(number, _)| self.batches.ranges(number));
            return place.into_iter().for_each(|(header, body)| add(header.start..body.end));
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
        let located = if self.is_compressed() { None } else { self.locate(row) };
        let Some((batch, row)) = located else { return };
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
}
