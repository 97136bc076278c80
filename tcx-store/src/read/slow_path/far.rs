//! Candidates in segments on other machines: they are looked at last, and what several of them need is read at the same time.

use std::sync::Arc;

use super::SlowPath;
use crate::index::Place;
use crate::live::snapshot::IndexedRun;
use crate::segment::{Segment, read_ahead};
use crate::storage::Storage;

/// Rows of far segments that are read together, and about how many bytes these may have: they are all in memory until they are copied.
const MOST_TOGETHER: usize = 4096;
const MOST_BYTES: usize = 128 << 20;

/// A candidate in a far segment.
pub(super) struct FarRow<'a> {
    pub(super) indexed: &'a IndexedRun,
    pub(super) segment: &'a Arc<Segment>,
    pub(super) position: usize,
    pub(super) row: usize,
    /// Where the probe for further candidates goes on.
    pub(super) next: Place,
}

impl FarRow<'_> {
    /// About how many bytes are read for it.
    fn bytes(&self) -> usize {
        self.segment.bytes() / self.segment.rows().max(1) + 2 * self.segment.block()
    }
}

impl<'a> SlowPath<'a, '_, '_, '_> {
    /// Looks at the candidates in far segments, after all runs were probed: what several of them need is read at the same time.
    pub(in crate::read) fn lookup_far(&mut self, storage: &dyn Storage) {
        while !self.far.is_empty() {
            let mut far = std::mem::take(&mut self.far);
            // Another run may have had the row.
            far.retain(|candidate| self.lookup.is_missing(candidate.position));
            let (mut together, mut bytes) = (0, 0_usize);
            while together < far.len().min(MOST_TOGETHER) && bytes < MOST_BYTES {
                bytes = bytes.saturating_add(far[together].bytes());
                together += 1;
            }
            let later = far.split_off(together);
            self.confirm_far(storage, &far);
            self.far.extend(later);
        }
    }

    fn confirm_far(&mut self, storage: &dyn Storage, far: &[FarRow<'a>]) {
        let is_alive = |own: &&FarRow<'_>| self.is_alive(own.segment.base(), own.position);
        let rows: Vec<(&Segment, usize)> =
            far.iter().filter(is_alive).map(|own| (&**own.segment, own.row)).collect();
        let ahead = read_ahead(storage, &rows, self.lookup.wanted());
        let mut begun: Option<&IndexedRun> = None;
        for &FarRow { indexed, segment, position, row, next } in far {
            if !self.lookup.is_missing(position) {
                // Of two runs.
                continue;
            }
            if segment.is_damaged() {
                self.damaged.segments.push(segment.clone());
            } else if self.is_alive(segment.base(), position) && self.confirm_indirect(position, segment, row)
            {
                continue;
            }
            if !begun.is_some_and(|begun| std::ptr::eq(begun, indexed)) {
                self.begin(indexed);
                begun = Some(indexed);
            }
            self.confirm_another(indexed, position, next);
        }
        drop(ahead);
    }
}
