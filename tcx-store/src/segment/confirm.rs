//! Confirming that a row is the one asked for, in steps: between two of them the processor loads what the next one
//! reads.

use std::ops::Range;

use super::Segment;
use super::layout::{BatchLayout, Place};
use crate::sys::cache_line::prefetch;

impl Segment {
    /// Tells the processor that `row` is wanted soon, first step: what says where its key is.
    #[inline]
    pub(crate) fn prefetch_offsets(&self, row: usize) {
        let Some((batch, row)) = self.locate(row) else { return };
        let key = &batch.key;
        match key.offsets {
            Some(offsets) => {
                let at = offsets.get() + row * size_of::<i64>();
                prefetch(&self.map, at);
                prefetch(&self.map, at + size_of::<i64>());
            }
            None => prefetch(&self.map, key.values + row * key.width),
        }
        if self.view.is_none() {
            prefetch(&self.map, batch.view.values + row * batch.view.width);
        }
    }

    /// Second step: where the key is; `None` if that cannot be trusted. Tells the processor that it is wanted, and the first
    /// line of each of the row's leaves that are. `row` is one of the segment's.
    #[inline]
    pub(crate) fn prefetch_row(&self, row: usize, wanted: Option<&[usize]>) -> Option<Range<usize>> {
        let (batch, row) = self.locate(row)?;
        let key = batch.key.range(row, |range| self.in_map(range))?;
        prefetch(&self.map, key.start);
        // A short key may reach into a second line.
        prefetch(&self.map, key.end.saturating_sub(1));
        let tell = |leaf: &Place| match leaf.offsets {
            None => prefetch(&self.map, leaf.values + row * leaf.width),
            // Where a row begins that differs in length would have to be read first.
            Some(offsets) => prefetch(&self.map, offsets.get() + row * size_of::<i64>()),
        };
        match wanted {
            None => batch.leaves.iter().for_each(tell),
            Some(wanted) => wanted.iter().filter_map(|&leaf| batch.leaves.get(leaf)).for_each(tell),
        }
        Some(key)
    }

    /// Third step: whether this is the row of a key, which [`prefetch_row`](Self::prefetch_row) has found, and of a view; `None` if
    /// its bytes cannot be trusted, or are in no map.
    #[inline]
    pub(crate) fn confirm_key(&self, row: usize, found: Range<usize>, key: &[u8], view: u32) -> Option<bool> {
        let own = match self.view {
            Some(view) => view,
            None => self.key(row)?.1,
        };
        Some(view == own && self.in_map(found)? == key)
    }

    /// Whether every leaf of the row that is wanted is served straight from the map, and as it was written; `row` is one of the segment's.
    #[inline]
    pub(crate) fn has_intact_leaves(&self, row: usize, wanted: Option<&[usize]>) -> bool {
        let Some((batch, row)) = self.locate(row).filter(|_| self.is_direct) else { return false };
        match wanted {
            None => (0..batch.leaves.len()).all(|leaf| self.is_intact_leaf(batch, leaf, row)),
            Some(wanted) => wanted.iter().all(|&leaf| self.is_intact_leaf(batch, leaf, row)),
        }
    }

    #[inline]
    fn is_intact_leaf(&self, batch: &BatchLayout, leaf: usize, row: usize) -> bool {
        batch.leaves.get(leaf).is_some_and(|place| {
            let bytes = self.in_map_of(place, row);
            let good = bytes.is_some_and(|bytes| self.accepts(batch, leaf, row, bytes));
            good && self.validity_of(place, row).is_some()
        })
    }
}
