//! The uses of segments, counted by one row of each lookup.

use std::sync::{Arc, MutexGuard};

use crate::engine::Core;
use crate::live::uses::UseCounts;
use crate::segment::Segment;
use crate::storage::name::SegmentName;
use crate::sys::runtime::lock;

impl Core {
    /// The uses of segments, with those that lookups have counted until now.
    pub(crate) fn uses(&self, now: u64) -> MutexGuard<'_, UseCounts> {
        let mut uses = lock(&self.uses);
        uses.settle(&self.snapshot().segments, now);
        uses
    }

    /// This process has written a segment that takes the place of these.
    pub(crate) fn hand_on_uses(&self, inputs: &[Arc<Segment>], to: SegmentName, now: u64) {
        let mut uses = lock(&self.uses);
        // They have left the snapshot. What lookups that began before it add to them from now on is lost.
        uses.take(inputs, now);
        let names: Vec<SegmentName> = inputs.iter().map(|input| input.name()).collect();
        uses.hand_on(&names, to, now);
    }
}
