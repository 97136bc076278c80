//! How often the rows of a segment were served.

use std::sync::atomic::Ordering;

use super::Segment;

impl Segment {
    /// About this number of its rows was served.
    pub(crate) fn add_uses(&self, rows: usize) {
        self.uses.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// The uses that were added since this was asked last.
    pub(crate) fn take_uses(&self) -> u64 {
        // Most segments of a large cache were not used since: their lines stay with the processors that have them.
        if self.uses.load(Ordering::Relaxed) == 0 { 0 } else { self.uses.swap(0, Ordering::Relaxed) }
    }
}
