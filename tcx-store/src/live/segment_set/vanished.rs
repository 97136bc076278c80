//! Segments whose files have gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{SegmentSet, State};
use crate::changes::KnownChanges;
use crate::segment::Segment;
use crate::storage::name::SegmentName;
use crate::sys::runtime;

/// A listing is this old at most, also that of a network file system.
const SHOWN_AFTER: Duration = Duration::from_mins(1);

/// Whether rows of a segment may be served, by these changes.
fn may_have_live_rows(segment: &Segment, changes: &KnownChanges) -> bool {
    changes.serves(segment.needs(), segment.dated()) && !segment.is_known_dead(changes.tombstones())
}

impl SegmentSet {
    /// A listing may lack a file that is there: only one that is known not to be in the folder has gone. Returns whether any has,
    /// and whether there is one that no other stands for.
    pub(super) fn close_vanished(
        &mut self,
        listed: &BTreeSet<SegmentName>,
        changes: &KnownChanges,
    ) -> (bool, bool) {
        self.not_found.retain(|_, since| runtime::now().duration_since(*since) < SHOWN_AFTER);
        let unlisted = |(name, state): (&SegmentName, &State)| {
            (matches!(state, State::Usable(_)) && !listed.contains(name)).then_some(*name)
        };
        let unlisted: Vec<SegmentName> = self.known.iter().filter_map(unlisted).collect();
        if unlisted.is_empty() {
            return (false, false);
        }
        let replaced = self.replaced(changes);
        let (mut any_gone, mut unreplaced) = (false, false);
        for name in self.gone(&unlisted) {
            any_gone = true;
            if replaced.contains(&name) {
                self.known.insert(name, State::Gone);
            } else {
                if self.find(name).is_some_and(|own| may_have_live_rows(&own, changes)) {
                    self.unexplained = Some(runtime::now());
                }
                // Also if this machine has a copy: a segment that others have evicted must not be served, nor come back by being joined.
                self.known.remove(&name);
                unreplaced = true;
            }
        }
        if unreplaced {
            // An older copy of the folder may have come into place, without this one and with what it stood for.
            self.known.retain(|_, state| !matches!(state, State::Gone));
        }
        (any_gone, unreplaced)
    }

    /// Whether there may be a segment that listings do not show yet, and that has the rows of those which are gone.
    pub(crate) fn may_have_unseen(&self, changes: &KnownChanges) -> bool {
        let is_recent = |since: &Instant| runtime::now().duration_since(*since) < SHOWN_AFTER;
        let mut not_found = self.not_found.iter().filter(|(_, since)| is_recent(since));
        self.unexplained.as_ref().is_some_and(is_recent)
            || not_found.any(|(name, _)| !self.is_explained(*name, changes))
    }

    /// Whether it is known why a segment is gone: others were joined from it, or a change has named it.
    fn is_explained(&self, name: SegmentName, changes: &KnownChanges) -> bool {
        let has_it = |own: &Arc<Segment>| own.lineage().any(|ancestor| ancestor == name.random);
        changes.tombstones().name_segment(name.random) || self.usable().iter().any(has_it)
    }
}
