//! Where in the file the bytes of a row are that a lookup reads, in the order in which it can know them.

use std::ops::Range;

use super::Segment;
use super::layout::{BatchLayout, ColumnPlace};
use crate::sys::mmap::Mapped;

/// Bytes of an offset.
const OFFSET: usize = size_of::<i64>();
/// Bytes behind the header of a compressed record batch that hold its keys, nearly always.
const HEAD: usize = 16 << 10;

/// Bytes of a file that are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The row of the leaf of this number.
    Leaf(usize, Range<usize>),
    /// Offsets, keys, headers; everything of a compressed row.
    Rest(Range<usize>),
}

impl Needed {
    pub(super) fn range(self) -> Range<usize> {
        match self {
            Self::Leaf(_, range) | Self::Rest(range) => range,
        }
    }
}

impl Segment {
    /// The map of the file, if it is mapped.
    pub(crate) fn map(&self) -> &Mapped {
        &self.map
    }

    /// What is known to be needed of a row before anything of it was read: its fixed parts, and the offsets of the others. Of a
    /// compressed one, the header of its record batch, with the keys that follow.
    pub(crate) fn needed_at_first(&self, row: usize, wanted: Option<&[usize]>, add: &mut impl FnMut(Needed)) {
        if self.is_compressed() {
            let place = self.batches.locate(row).and_then(|(number, _)| self.batches.ranges(number));
            let head = |body: Range<usize>| body.start.saturating_add(HEAD).min(body.end);
            return place.into_iter().for_each(|(header, body)| add(Needed::Rest(header.start..head(body))));
        }
        let Some((batch, row)) = self.locate(row) else { return };
        let mut add_column = |leaf: Option<usize>, place: &ColumnPlace| {
            match (place.offsets, leaf) {
                (Some(offsets), _) => {
                    let start = offsets.get() + row * OFFSET;
                    add(Needed::Rest(start..start + 2 * OFFSET));
                }
                (None, leaf) => {
                    let start = place.values + row * place.width;
                    let range = start..start + place.width;
                    add(leaf.map_or_else(
                        || Needed::Rest(range.clone()),
                        |leaf| Needed::Leaf(leaf, range.clone()),
                    ));
                }
            }
            if let Some(validity) = place.validity {
                add(Needed::Rest(validity.get() + row / 8..validity.get() + row / 8 + 1));
            }
        };
        add_column(None, &batch.key);
        if self.view.is_none() {
            add_column(None, &batch.view);
        }
        wanted_leaves(batch, wanted).for_each(|(leaf, place)| add_column(Some(leaf), place));
    }

    /// Calls `add` for the range and, as far as it was not verified yet, for the rest of its blocks and their checksums.
    pub(crate) fn with_unverified(&self, range: Range<usize>, add: &mut impl FnMut(Range<usize>)) {
        let (range, table) = self.blocks.with_unverified(range);
        table.into_iter().chain([range]).for_each(add);
    }

    /// What is needed of a row besides, by the offsets that [`needed_at_first`](Self::needed_at_first) has named, which are read now.
    pub(crate) fn needed_by_offsets(
        &self,
        row: usize,
        wanted: Option<&[usize]>,
        add: &mut impl FnMut(Needed),
    ) {
        if self.is_compressed() {
            return self.needed_by_header(row, &mut |range| add(Needed::Rest(range)));
        }
        let Some((batch, row)) = self.locate(row) else { return };
        let range =
            |place: &ColumnPlace| place.offsets.and_then(|_| place.range(row, |range| self.verified(range)));
        if let Some(range) = range(&batch.key) {
            add(Needed::Rest(range));
        }
        for (leaf, place) in wanted_leaves(batch, wanted) {
            if let Some(range) = range(place) {
                add(Needed::Leaf(leaf, range));
            }
        }
    }

    /// What is needed of a compressed row, by the header of its record batch: the key, and the chunks that it is decompressed from.
    fn needed_by_header(&self, row: usize, add: &mut impl FnMut(Range<usize>)) {
        let (Some((keys, number)), Some((rows, _))) = (self.locate(row), self.packed_rows(row)) else {
            return;
        };
        if let Some(key) = keys.key.range(number, |range| self.verified(range)) {
            add(key);
        }
        let batch = self.packed_batch(rows.batch);
        let stored = batch.into_iter().flat_map(|batch| batch.stored(&rows.rows));
        stored.for_each(add);
    }
}

/// The leaves of a record batch that are wanted, with their numbers.
fn wanted_leaves<'a>(
    batch: &'a BatchLayout,
    wanted: Option<&'a [usize]>,
) -> impl Iterator<Item = (usize, &'a ColumnPlace)> {
    let all = wanted.is_none().then(|| batch.leaves.iter().enumerate());
    let some = wanted.into_iter().flatten().filter_map(|&leaf| Some((leaf, batch.leaves.get(leaf)?)));
    all.into_iter().flatten().chain(some)
}
