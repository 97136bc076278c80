//! Copies rows that have to be decompressed or read: once their bytes are known to be right, and not before.

use std::sync::Arc;

use super::SlowPath;
use crate::segment::memory_cache::{CacheKey, CachedPart, Part};
use crate::segment::{PackedRows, Segment};

impl SlowPath<'_, '_, '_, '_> {
    /// Copies the row if it is that of the key; `None` if a byte of it is damaged or cannot be read.
    pub(super) fn copy_if_same(
        &mut self,
        position: usize,
        segment: &Arc<Segment>,
        row: usize,
    ) -> Option<bool> {
        let keys = self.lookup.keys();
        let (key, view) = segment.key(row)?;
        let same = view == keys.view() && *key == *keys.key(position);
        if !same || !self.is_alive(segment.base(), position) {
            return Some(false);
        }
        self.copy(position, segment, row).map(|()| true)
    }

    /// Copies a row that has to be decompressed or read.
    fn copy(&mut self, position: usize, segment: &Arc<Segment>, row: usize) -> Option<()> {
        if !segment.is_compressed() {
            let leaves = segment.read_leaves(row, self.lookup.wanted())?;
            self.lookup.found_read(position, &leaves);
            self.lookup.read_from(position, segment);
            return Some(());
        }
        let (rows, number, key) = packed_rows(segment, row)?;
        let part = self.decompressed(key, segment, &rows)?;
        self.copy_unpacked(position, segment, (&part, number))
    }

    /// Copies the row of this number among rows that were decompressed together.
    pub(super) fn copy_unpacked(
        &mut self,
        position: usize,
        segment: &Arc<Segment>,
        (part, number): (&Arc<CachedPart>, usize),
    ) -> Option<()> {
        let unpacked = part.rows()?;
        self.lookup.found_unpacked(position, part, number)?;
        self.lookup.read_from(position, segment);
        // Not before it is found: memory of a missing row does not count as copied.
        self.destinations.copy_row(position, |leaf| unpacked.value(leaf, number).map(|(bytes, _)| bytes));
        Some(())
    }

    pub(super) fn decompressed(
        &mut self,
        key: CacheKey,
        segment: &Segment,
        rows: &PackedRows,
    ) -> Option<Arc<CachedPart>> {
        match &self.last {
            Some((last, part)) if *last == key => Some(part.clone()),
            _ => {
                let unpack = || segment.unpack(rows.clone()).map(CachedPart::Rows);
                let part = self.memory_cache.get(key, unpack)?;
                self.last = Some((key, part.clone()));
                Some(part)
            }
        }
    }
}

/// The rows that are decompressed with a row of a compressed segment, its number among them, and their key in the memory cache.
#[inline]
pub(super) fn packed_rows(segment: &Segment, row: usize) -> Option<(PackedRows, usize, CacheKey)> {
    let (rows, number) = segment.packed_rows(row).filter(|_| segment.is_compressed())?;
    // By the first of them.
    let key = CacheKey { segment: segment.name(), part: Part::Rows(row - number) };
    Some((rows, number, key))
}
