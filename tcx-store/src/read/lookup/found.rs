//! Noting where rows were found: in a segment, in the write buffer, among rows that were read or decompressed.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Address, FEW_ROWS, Lookup, Source};
use crate::buffer::generation::BufferedRow;
use crate::computed::RowBatch;
use crate::read::loaded::LoadedRows;
use crate::schema::key::TakeBits;
use crate::segment::Segment;
use crate::segment::memory_cache::CachedPart;

impl Lookup {
    /// A number under which rows of this segment are found from now on.
    pub(crate) fn add_source(&mut self, segment: &Arc<Segment>) -> u32 {
        self.sources.push(Source::Segment(segment.clone()));
        // A lookup has far fewer sources than 2^32 - 1, the number that means a miss.
        (self.sources.len() - 1) as u32
    }

    /// A row is found in the segment or batch of that number.
    #[inline]
    pub(crate) fn found(&mut self, position: usize, source: u32, row: u32) {
        // Outside the fast path nothing ensures that the row is missing: it is counted once, however often it is found.
        if self.is_missing(position) {
            self.found_missing(position, source, row);
        } else {
            self.rows[position] = Address { source, row };
        }
    }

    /// A missing row is found in the segment or batch of that number.
    #[inline]
    pub(crate) fn found_missing(&mut self, position: usize, source: u32, row: u32) {
        // Not checked for each row: the fast path has one candidate for each missing position.
        debug_assert!(self.is_missing(position), "row {position} was found before");
        self.missing -= 1;
        self.rows[position] = Address { source, row };
    }

    /// A row is found among rows that were decompressed together. It is copied if they are many: a lookup of few rows must not
    /// keep the many around them. `None` if there is no such row.
    pub(crate) fn found_unpacked(
        &mut self,
        position: usize,
        part: &Arc<CachedPart>,
        row: usize,
    ) -> Option<()> {
        // All values before the first is copied: a row that is not complete is not found.
        let unpacked = part.rows()?;
        let value = |leaf| unpacked.value(leaf, row);
        if unpacked.rows() > FEW_ROWS {
            let values: Option<Vec<(&[u8], bool)>> = (0..self.leaves.len()).map(value).collect();
            self.found_read(position, &values?);
            return Some(());
        }
        (0..self.leaves.len()).all(|leaf| value(leaf).is_some()).then_some(())?;
        let (source, rows) = self.unpacked();
        rows.push((part.clone(), row as u32));
        let row = (rows.len() - 1) as u32;
        self.found(position, source, row);
        Some(())
    }

    /// The rows that were decompressed, and the number of this source.
    fn unpacked(&mut self) -> (u32, &mut Vec<(Arc<CachedPart>, u32)>) {
        let is_unpacked = |source: &Source| matches!(source, Source::Unpacked(_));
        let source = self.sources.iter().position(is_unpacked).unwrap_or_else(|| {
            self.sources.push(Source::Unpacked(Vec::new()));
            self.sources.len() - 1
        });
        match &mut self.sources[source] {
            Source::Unpacked(rows) => (source as u32, rows),
            _ => unreachable!("the source was found by its kind"),
        }
    }

    /// A row is found that was read: the bytes of each leaf, and whether it has a value.
    pub(crate) fn found_read(&mut self, position: usize, leaves: &[(impl AsRef<[u8]>, bool)]) {
        let (source, loaded) = self.loaded();
        let row = loaded.push(leaves);
        self.found(position, source, row);
    }

    /// The copied rows, and the number of this source.
    fn loaded(&mut self) -> (u32, &mut LoadedRows) {
        let is_loaded = |source: &Source| matches!(source, Source::Loaded(_));
        let source = self.sources.iter().position(is_loaded).unwrap_or_else(|| {
            self.sources.push(Source::Loaded(LoadedRows::new(&self.leaves)));
            self.sources.len() - 1
        });
        match &mut self.sources[source] {
            Source::Loaded(rows) => (source as u32, rows),
            _ => unreachable!("the source was found by its kind"),
        }
    }

    /// A row is found in the write buffer.
    pub(crate) fn found_buffered(&mut self, position: usize, found: BufferedRow) {
        let same = |source: &Source| matches!(source, Source::Batch(own) if Arc::ptr_eq(own, &found.batch));
        // From the end: neighbouring rows are often of one batch.
        let source = self.sources.iter().rposition(same).unwrap_or_else(|| {
            self.sources.push(Source::Batch(found.batch));
            self.sources.len() - 1
        });
        // Before the row is found: it counts once.
        self.buffered += usize::from(self.is_missing(position));
        self.found(position, source as u32, found.row);
    }

    /// The missing rows that `batch` brings, those at `positions`, are found, at every position of a repeated key.
    pub(super) fn fill(&mut self, batch: &Arc<RowBatch>, positions: &[usize]) {
        // Rows that were found keep their address: what was served, or copied, does not change.
        let open: Vec<usize> = self.all_missing_positions().collect();
        self.sources.push(Source::Batch(batch.clone()));
        let source = (self.sources.len() - 1) as u32;
        if open == positions {
            // Every missing position has its own row, in the same order: no key has to be compared.
            for (row, position) in open.into_iter().enumerate() {
                self.found(position, source, row as u32);
            }
            return;
        }
        let rows = (0..batch.rows()).map(|row| (batch.keys.hashed(row), row as u32));
        let rows: HashMap<_, _, TakeBits> = rows.collect();
        for position in open {
            if let Some(&row) = rows.get(&self.keys.hashed(position)) {
                self.found(position, source, row);
            }
        }
    }
}
