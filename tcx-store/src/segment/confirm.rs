//! Confirming that a row is the one asked for, in steps: between two of them the processor loads what the next one
//! reads.

use std::ops::Range;

use super::Segment;
use crate::prefetch::prefetch;

impl Segment {
    /// Tells the processor that `row` is wanted soon, first step: what says where its key is.
    #[inline]
    pub(crate) fn prefetch_key(&self, row: usize) {
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
    /// line of each of the row's leaves. `row` is one of the segment's.
    #[inline]
    pub(crate) fn find_key(&self, row: usize) -> Option<Range<usize>> {
        let (batch, row) = self.locate(row)?;
        let key = self.range_of(&batch.key, row)?;
        prefetch(&self.map, key.start);
        // A short key may reach into a second line.
        prefetch(&self.map, key.end.saturating_sub(1));
        for leaf in &batch.leaves {
            // Where a text begins would have to be read first.
            if leaf.offsets.is_none() {
                prefetch(&self.map, leaf.values + row * leaf.width);
            }
        }
        Some(key)
    }

    /// Third step: whether this is the row of a key, which [`find_key`](Self::find_key) has found, and of a view; `None` if
    /// its bytes cannot be trusted.
    #[inline]
    pub(crate) fn has_key(&self, row: usize, found: Range<usize>, key: &[u8], view: u32) -> Option<bool> {
        let own = match self.view {
            Some(view) => view,
            None => self.key(row)?.1,
        };
        Some(view == own && self.verified(found)? == key)
    }

    /// Whether every leaf of the row is as it was written; `row` is one of the segment's.
    #[inline]
    pub(crate) fn has_intact_leaves(&self, row: usize) -> bool {
        let Some((batch, row)) = self.locate(row) else { return false };
        batch.leaves.iter().all(|leaf| match (leaf.offsets, self.bytes_of(leaf, row)) {
            (None, bytes) => bytes.is_some(),
            (Some(_), bytes) => bytes.is_some_and(|bytes| std::str::from_utf8(bytes).is_ok()),
        })
    }
}
