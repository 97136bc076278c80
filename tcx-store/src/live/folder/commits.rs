//! Segments that a change commits: they have their names before it exists, and count only if it is theirs.

use std::sync::Arc;

use super::Live;
use crate::segment::Segment;
use crate::storage::name::SegmentName;

impl Live {
    /// Whether the change that would commit a segment was never made, as far as is known.
    pub(super) fn is_uncommitted(&self, segment: &Segment) -> bool {
        let needs = segment.needs();
        let is_to_come = self.changes.newest().is_none_or(|newest| newest < needs.base);
        needs.commit.is_some() && is_to_come || self.changes.committed(needs) == Some(false)
    }

    /// The segments that can be read, without those that may still be committed. Another process is about to create the change that
    /// makes way for their rows: removed before it, they would leave neither the old rows nor the new ones.
    pub(crate) fn decided(&self) -> Vec<Arc<Segment>> {
        let mut decided = self.segments.usable();
        decided.retain(|segment| self.changes.committed(segment.needs()).is_some());
        decided
    }

    /// The segments that nothing can commit any more.
    pub(crate) fn void(&self) -> Vec<Arc<Segment>> {
        let mut void = self.segments.usable();
        void.retain(|segment| self.changes.is_void(&*self.storage, segment.needs()));
        void
    }

    /// Lets go of a segment of this process that is not committed, and of its name.
    pub(crate) fn take_back(&mut self, name: SegmentName) {
        self.segments.forget(&[name]);
        // One that stays is void once the number is given to a change.
        let _ = self.storage.remove(&name.to_string());
    }
}
