//! One row of each lookup stands for all of them where the uses of segments are counted: so counting costs a lookup one addition,
//! however many rows and segments it has.

use std::sync::Arc;

use super::{Lookup, Source};
use crate::segment::Segment;

/// The row that stands for the others.
#[derive(Debug, Default)]
pub(super) struct Sample {
    position: usize,
    /// The segment that it was read from, if it was copied from there: its source does not say.
    read: Option<Arc<Segment>>,
}

impl Lookup {
    /// Chooses the row. Lookups with different numbers choose different ones, as if at random.
    pub(crate) fn choose_sample(&mut self, number: u64) {
        // The finalizer of SplitMix64. The upper half of the product is below the number of rows; for none it is 0.
        let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.sample.position = ((u128::from(mixed ^ mixed >> 31) * self.len() as u128) >> 64) as usize;
    }

    /// The row at this position was copied from a segment.
    pub(crate) fn read_from(&mut self, position: usize, segment: &Arc<Segment>) {
        if position == self.sample.position {
            self.sample.read = Some(segment.clone());
        }
    }

    /// Counts the lookup as a use of the segment in which the row was found. All rows count, the missing too: so a segment is counted
    /// in the mean as often as rows of it were found, wherever the others were.
    pub(crate) fn count_uses(&self) {
        // A missing row has no source, and none of an empty lookup has an address.
        let Some(address) = self.rows.get(self.sample.position) else { return };
        let segment = match self.sources.get(address.source as usize) {
            Some(Source::Segment(segment)) => Some(segment),
            Some(Source::Loaded(_) | Source::Unpacked(_)) => self.sample.read.as_ref(),
            Some(Source::Batch(_)) | None => None,
        };
        if let Some(segment) = segment {
            segment.add_uses(self.len());
        }
    }
}
