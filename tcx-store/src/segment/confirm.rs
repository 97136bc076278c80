//! Confirms that a row is that of a key, in three steps for the slow path: each prefetches what the next one reads.

use std::ops::Range;

use super::Segment;
use super::layout::{BatchLayout, ColumnPlace};
use crate::sys::cache_line::prefetch;

impl Segment {
    /// First step: prefetches the offsets of a row's key, or the key itself where its place follows from the row.
    #[inline]
    pub(crate) fn prefetch_offsets(&self, row: usize) {
        // A row of a further batch whose header cannot be read is not prefetched; confirming it finds out why.
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
        // Rows of several views: each has its own beside the key.
        if self.view.is_none() {
            prefetch(&self.map, batch.view.values + row * batch.view.width);
        }
    }

    /// Second step: reads where the key is; `None` if that cannot be trusted. Prefetches the key, and the first line of each wanted
    /// leaf. `row` is one of the segment's.
    #[inline]
    pub(crate) fn prefetch_row(&self, row: usize, wanted: Option<&[usize]>) -> Option<Range<usize>> {
        let (batch, row) = self.locate(row)?;
        let key = batch.key.range(row, |range| self.in_map(range))?;
        prefetch(&self.map, key.start);
        // A short key may reach into a second line.
        prefetch(&self.map, key.end.saturating_sub(1));
        let announce = |leaf: &ColumnPlace| match leaf.offsets {
            None => prefetch(&self.map, leaf.values + row * leaf.width),
            // The row itself is where these offsets say, which are not read yet.
            Some(offsets) => prefetch(&self.map, offsets.get() + row * size_of::<i64>()),
        };
        match wanted {
            None => batch.leaves.iter().for_each(announce),
            Some(wanted) => wanted.iter().filter_map(|&leaf| batch.leaves.get(leaf)).for_each(announce),
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
        // `in_map` verifies before it returns bytes. A range in which no segment has a byte gives `None`, not `false`: such a row
        // is read in another way, or is damaged.
        Some(view == own && self.in_map(found)? == key)
    }

    /// Whether every leaf of the row that is wanted is served straight from the map, and as it was written; `row` is one of the segment's.
    #[inline]
    pub(crate) fn has_intact_leaves(&self, row: usize, wanted: Option<&[usize]>) -> bool {
        // The map of a compressed segment holds no rows, and a segment that is read piece by piece has no map.
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
            // Checksums prove what was written, not that a program wrote valid text: that is checked for every row.
            let good = bytes.is_some_and(|bytes| self.accepts(batch, leaf, row, bytes));
            good && self.validity_of(place, row).is_some()
        })
    }
}
