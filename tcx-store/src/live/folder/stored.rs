//! What is stored in the folder, whether this process serves it or not.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::Live;
use crate::changes::Compared;
use crate::changes::instance::refuse_other;
use crate::error::Result;
use crate::segment::Segment;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;

/// Segments whose rows are there.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Those that are served, also if they are too old for this process.
    pub(crate) served: Vec<Arc<Segment>>,
    /// Those that wait for a change, and those of which another process may serve other rows: this one has found them damaged, or they were
    /// cut short.
    pub(crate) others: Vec<Arc<Segment>>,
    /// One that cannot be read now, or is of another version.
    pub(crate) unread: Option<SegmentName>,
}

/// The joined segments that an eviction does not kill: their random bits.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) sure: Vec<Random>,
    /// Those that cannot be read, and that an earlier eviction may have killed.
    pub(crate) unread: Vec<Random>,
}

impl Kept {
    /// Of these the ones that others have as well.
    pub(crate) fn retain(&mut self, others: &Self) {
        for own in [&mut self.sure, &mut self.unread] {
            own.retain(|name| others.sure.contains(name) || others.unread.contains(name));
        }
    }
}

impl Live {
    pub(crate) fn stored(&mut self) -> Stored {
        let replaced = self.segments.replaced(&self.changes);
        let mut served: Vec<_> = self.segments.served(&self.changes, &replaced).into_values().collect();
        // A run of the simulation replays.
        served.sort_unstable_by_key(|segment| segment.name());
        let mut others = self.waiting();
        // No segment is known before the identity is.
        let (damaged, unread) =
            self.identity.as_ref().map(|identity| self.segments.damaged(identity)).unwrap_or_default();
        others.extend(damaged);
        others.extend(self.segments.cut(&self.changes));
        others.retain(|segment| !self.is_killed(segment));
        Stored { served, others, unread }
    }

    /// Whether all rows of a segment are dead, whatever their keys: the oldest was too old when rows were invalidated by their age, or it
    /// may bring evicted rows back.
    pub(crate) fn is_killed(&self, segment: &Segment) -> bool {
        self.changes.tombstones().kill_segment(segment.dated())
    }

    /// Whether an eviction that has begun may kill a segment.
    pub(crate) fn is_doubted(&self, segment: &Segment) -> bool {
        self.changes.tombstones().doubt_segment(segment.dated())
    }

    /// The segments that stand for others, may have rows as old as this time, in milliseconds since 1970, and stay when those in `goes` are
    /// removed; and whatever cannot be read here, which others may serve.
    pub(crate) fn kept(&self, until: u64, goes: &HashSet<SegmentName>) -> Kept {
        let (tombstones, mut kept) = (self.changes.tombstones(), Kept::default());
        for name in self.segments.names().filter(|name| !goes.contains(name)) {
            match self.segments.find(name).map(|segment| segment.dated()) {
                Some(own) if own.joined.is_none() || own.born > until || tombstones.kill_segment(own) => {}
                Some(_) => kept.sure.push(name.random),
                None if self.segments.is_gone(name) => {}
                None if tombstones.spare(name.random) => kept.sure.push(name.random),
                None => kept.unread.push(name.random),
            }
        }
        kept
    }

    /// The segments in the folder that an earlier eviction names as about to be removed.
    pub(crate) fn leaving(&self) -> BTreeSet<Random> {
        let tombstones = self.changes.tombstones();
        let names = self.segments.names().map(|name| name.random);
        names.filter(|name| tombstones.remove(*name, None)).collect()
    }

    /// Makes sure that the last listing has shown the folder: one that is gone, perhaps for a while, looks as if it were empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is known and was gone.
    pub(crate) fn check_listed(&self) -> Result<()> {
        let compared = if self.changes.are_out_of_sight() { Compared::Removed } else { Compared::Same };
        refuse_other(&*self.storage, &self.spec, &compared)
    }
}
