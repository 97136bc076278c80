//! Rows of a mapped segment for the fast path: what all rows of the segment have in common is checked once per lookup, so that
//! each row costs only its own reads.

use std::ops::Range;

use super::Segment;
use super::layout::ColumnPlace;
use crate::schema::constraint::Constraint;
use crate::schema::key::same_bytes;
use crate::sys::cache_line::{LINE, prefetch};
use crate::sys::verified_blocks::VerifiedBlocks;

/// The most bytes of a row that is prefetched. While a wider row is copied, the processor's own prefetcher follows the copy, and
/// is faster than one instruction per line.
const NARROW: usize = 4 * LINE;

/// A segment with one record batch, whose rows have one view, and whose wanted leaves have a fixed width, no nulls and no bytes
/// that would be invalid. `Some` and `true` are definitive; otherwise the caller falls back to the slow path.
#[derive(Debug)]
pub(crate) struct MappedRows<'a> {
    map: &'a [u8],
    rows: usize,
    /// `None` if every byte that this serves was verified before: then rows need no look at the bits of their blocks. Bytes of
    /// a sealed file do not change, so the answer stays right as long as the map lives.
    blocks: Option<&'a VerifiedBlocks>,
    keys: Keys<'a>,
    /// Where the keys begin in the map, and how many bytes they are: fewer than 2³², so that a key's range fits in 32 bits.
    keys_at: usize,
    keys_len: usize,
    /// Apart from the others, since nearly every output has one leaf: no pointer is followed for it.
    first: MappedLeaf,
    others: Vec<MappedLeaf>,
    /// The leaves that are copied when a row is found.
    copied: Vec<MappedLeaf>,
}

#[derive(Debug)]
enum Keys<'a> {
    /// The bytes of each.
    Fixed(usize),
    /// Where each begins, and where the last one ends: one offset more than there are rows. The number is the place of these
    /// offsets in the map, by which their checksums are found.
    Varying(&'a [[u8; OFFSET]], usize),
}

/// Where a key is among the keys of a segment. The empty range is no key: every key has a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MappedKey {
    start: u32,
    end: u32,
}

/// Bytes of an offset.
const OFFSET: usize = size_of::<u64>();

/// The rows of a leaf, one after the other. The layout of the segment was checked when it was opened: every row of a leaf ends
/// within the file. The default is a leaf without bytes, for a lookup of no leaves.
#[derive(Clone, Copy, Debug, Default)]
struct MappedLeaf {
    at: usize,
    width: usize,
}

impl Segment {
    /// The fast path to the wanted leaves of this view's rows, if there is one; some of them, with these numbers of bytes, are
    /// to be copied.
    pub(crate) fn mapped_rows(
        &self,
        view: u32,
        wanted: Option<&[usize]>,
        copied: impl Iterator<Item = (usize, usize)>,
    ) -> Option<MappedRows<'_>> {
        // With one batch, the number of a row is its place in every column.
        let is_served = self.is_direct && self.batches.is_one() && self.view == Some(view);
        if !is_served || self.is_damaged() || u32::try_from(self.batch.key.len).is_err() {
            return None;
        }
        let (map, ColumnPlace { values, len, offsets, width, .. }) = (&*self.map, self.batch.key);
        let keys = match offsets {
            // Integers.
            None => Keys::Fixed(width),
            Some(at) if width == 1 => {
                // One slice of exactly the segment's offsets: a row below `rows` has its two in it.
                let offsets = map.get(at.get()..)?.as_chunks().0;
                Keys::Varying(offsets.get(..=self.batch.rows)?, at.get())
            }
            Some(_) => return None,
        };
        let own = &self.batch.leaves;
        let (first, others) = match wanted {
            None => mapped_leaves(own.iter().map(Some))?,
            Some(wanted) => mapped_leaves(wanted.iter().map(|&leaf| own.get(leaf)))?,
        };
        // A destination whose rows have another width than the stored ones would be filled with bytes of other rows.
        let copied =
            copied.map(|(leaf, width)| MappedLeaf::of(own.get(leaf)?).filter(|leaf| leaf.width == width));
        let copied = copied.collect::<Option<_>>()?;
        let (rows, keys_at, keys_len) = (self.batch.rows, values, len);
        let mut mapped =
            MappedRows { map, rows, blocks: None, keys, keys_at, keys_len, first, others, copied };
        mapped.blocks = Some(&self.blocks).filter(|blocks| !mapped.was_verified(blocks));
        Some(mapped)
    }
}

/// The first leaf and the others, which nearly no output has.
fn mapped_leaves<'p>(
    mut places: impl Iterator<Item = Option<&'p ColumnPlace>>,
) -> Option<(MappedLeaf, Vec<MappedLeaf>)> {
    let first = places.next().map_or(Some(MappedLeaf::default()), |place| MappedLeaf::of(place?))?;
    Some((first, places.map(|place| MappedLeaf::of(place?)).collect::<Option<_>>()?))
}

impl MappedLeaf {
    /// A leaf of which each row has a value, at a place that follows from its number, and any bytes are one.
    fn of(place: &ColumnPlace) -> Option<Self> {
        // Text may be invalid, an absent row has bytes that are no value, and rows of differing length have offsets: all of that is
        // the slow path's.
        let is_mapped =
            place.offsets.is_none() && place.validity.is_none() && place.content == Constraint::Any;
        is_mapped.then_some(Self { at: place.values, width: place.width })
    }

    #[inline]
    fn range(self, row: usize) -> Range<usize> {
        let start = self.at + row * self.width;
        start..start + self.width
    }

    #[inline]
    fn prefetch(self, map: &[u8], row: usize) {
        if self.width > NARROW {
            return;
        }
        let Range { start, end } = self.range(row);
        // From the line in which the row begins: the map begins at a page, so offsets are aligned as addresses are.
        let mut line = start & !(LINE - 1);
        while line < end {
            prefetch(map, line);
            line += LINE;
        }
    }
}

impl MappedRows<'_> {
    /// Whether every byte that can be served was verified.
    fn was_verified(&self, blocks: &VerifiedBlocks) -> bool {
        let offsets = match self.keys {
            Keys::Fixed(_) => 0..0,
            Keys::Varying(offsets, at) => at..at + offsets.as_flattened().len(),
        };
        let leaves = self.leaves().map(|leaf| leaf.at..leaf.range(self.rows).start);
        let mut ranges = [offsets, self.keys_at..self.keys_at + self.keys_len].into_iter().chain(leaves);
        ranges.all(|range| blocks.were_all_verified(range.start, range.end))
    }

    fn leaves(&self) -> impl Iterator<Item = &MappedLeaf> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// First step: prefetches the offsets of a row's key, or the key itself where its place follows from the row. `row` is below
    /// [`len`](Self::len).
    #[inline]
    pub(crate) fn prefetch_offsets(&self, row: usize) {
        match self.keys {
            Keys::Fixed(width) => prefetch(self.map, self.keys_at + row * width),
            Keys::Varying(offsets, _) => {
                // The two offsets may be in two lines.
                prefetch(offsets.as_flattened(), row * OFFSET);
                prefetch(offsets.as_flattened(), (row + 1) * OFFSET);
            }
        }
    }

    /// Second step: reads where the key of a row is, and prefetches the key and the row's leaves. The empty key where that cannot
    /// be trusted.
    #[inline]
    pub(crate) fn prefetch_row(&self, row: usize) -> MappedKey {
        let Some(key) = self.key_range(row) else { return MappedKey::default() };
        prefetch(self.map, self.keys_at + key.start as usize);
        // A short key may reach into a second line. `key_range` gives no empty range: the subtraction cannot wrap.
        prefetch(self.map, self.keys_at + (key.end - 1) as usize);
        // Before the key is confirmed: nearly every candidate is the row, and the copy waits for these bytes.
        self.first.prefetch(self.map, row);
        self.others.iter().for_each(|leaf| leaf.prefetch(self.map, row));
        key
    }

    /// `None` if the offsets were not verified yet, or cannot be right.
    #[inline]
    fn key_range(&self, row: usize) -> Option<MappedKey> {
        let (start, end) = match self.keys {
            Keys::Fixed(width) => ((row * width) as u64, ((row + 1) * width) as u64),
            Keys::Varying(offsets, at) => {
                let &[start, end] = offsets.get(row..)?.first_chunk()?;
                // Before the values are used: an offset with a wrong checksum may point anywhere.
                let at = at + row * OFFSET;
                self.is_verified(at..at + 2 * OFFSET).then_some(())?;
                (u64::from_le_bytes(start), u64::from_le_bytes(end))
            }
        };
        let is_key = start < end && end <= self.keys_len as u64;
        // `keys_len` fits in 32 bits, and so do both.
        is_key.then_some(MappedKey { start: start as u32, end: end as u32 })
    }

    /// Third step: whether this is the row of a key, which [`prefetch_row`](Self::prefetch_row) has found, and its leaves are as
    /// they were written; `false` if it is another's, or its bytes were not verified yet.
    #[inline]
    pub(crate) fn confirm(&self, row: usize, found: MappedKey, key: &[u8]) -> bool {
        // The empty range of no key equals no key: none is empty. Comparing before verifying is safe: equal bytes count only if
        // their blocks were verified, and different ones only send the key to the slow path.
        let found = self.keys_at + found.start as usize..self.keys_at + found.end as usize;
        self.map.get(found.clone()).is_some_and(|found| same_bytes(found, key))
            && self.blocks.is_none_or(|blocks| {
                // The second is for rows of many blocks, and for those that reach into another word.
                let were_verified = |Range { start, end }: Range<usize>| {
                    blocks.were_verified(start, end) || blocks.were_all_verified(start, end)
                };
                were_verified(found) && self.leaves().all(|leaf| were_verified(leaf.range(row)))
            })
    }

    /// The bytes that are copied of confirmed rows, which follow one another in the segment: one slice for each destination.
    #[inline]
    pub(crate) fn copied(&self, rows: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.copied
            .iter()
            .map(move |leaf| &self.map[leaf.range(rows.start).start..leaf.range(rows.end).start])
    }

    #[inline]
    fn is_verified(&self, range: Range<usize>) -> bool {
        self.blocks.is_none_or(|blocks| blocks.were_verified(range.start, range.end))
    }
}
