//! Segments that are damaged, or look so for a while.

use std::time::Instant;

use super::{SegmentSet, State};
use crate::segment::{Segment, SegmentError};
use crate::storage::name::SegmentName;
use crate::storage::{COMPLETE_AFTER, may_be_sound};
use crate::sys::notice::{Trouble, notice};
use crate::sys::runtime;

impl SegmentSet {
    /// Takes a segment out of service. What it stood for lives again, where it is still there.
    pub(crate) fn drop_damaged(&mut self, segment: &Segment, what: &str) {
        if !segment.mark_damaged() {
            return;
        }
        self.note_damage(segment.name(), what);
        self.known.insert(segment.name(), State::Unusable(SegmentError::Damaged(what.to_owned())));
        for input in segment.inputs() {
            if self.is_gone(*input) {
                // Opened again, should a listing show it.
                self.known.remove(input);
            }
        }
    }

    /// A damaged segment is opened again after the next listing if it may be sound then. It is reported once.
    pub(super) fn note_damage(&mut self, name: SegmentName, what: &str) {
        self.storage.distrust(&name.to_string());
        let is_known = self.damaged.contains_key(&name);
        let since = self.damaged.entry(name).or_insert_with(runtime::now);
        // It was sound in between: what is damaged for good is not opened again.
        if runtime::now().duration_since(*since) >= COMPLETE_AFTER {
            *since = runtime::now();
        }
        let since = *since;
        if may_be_sound(&*self.storage, &name.to_string(), since) {
            self.incomplete.insert(name);
        }
        if is_known {
            return;
        }
        self.counters.damaged_segments.add(1);
        let path = self.storage.path().join(name.to_string());
        tracing::warn!(path = %path.display(), "damaged segment: {what}; its rows are computed again");
        let damaged = format_args!(
            "damaged segment {}: {what}; its rows are computed again; check the disk, and run `tcx verify --repair` to remove the file",
            path.display()
        );
        notice(Trouble::Damaged, damaged);
    }

    /// Whether a damaged segment may be sound at another look.
    pub(crate) fn is_in_doubt(&self, name: SegmentName) -> bool {
        self.incomplete.contains(&name)
    }

    /// Since when the segments look damaged that may be sound at another look: the time of the newest.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        self.incomplete.iter().filter_map(|name| self.damaged.get(name)).max().copied()
    }
}
