//! What is stored in the folder, whether this process serves it or not.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::Live;
use crate::changes::instance::refuse_other;
use crate::changes::{Compared, Dated};
use crate::error::{Error, Result};
use crate::live::segment_set::Damaged;
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
    /// Those that no process can open any more. One that has opened them before they were damaged serves their rows.
    pub(crate) lost: Vec<SegmentName>,
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

impl Live {
    pub(crate) fn stored(&mut self) -> Stored {
        let replaced = self.segments.replaced(&self.changes);
        let mut served: Vec<_> = self.segments.served(&self.changes, &replaced).into_values().collect();
        // A run of the simulation replays.
        served.sort_unstable_by_key(|segment| segment.name());
        let mut others = self.waiting();
        // No segment is known before the identity is.
        let damaged = self.identity.as_ref().map(|identity| self.segments.damaged(identity));
        let Damaged { open, mut lost, unread } = damaged.unwrap_or_default();
        others.extend(open);
        others.extend(self.segments.cut(&self.changes));
        others.retain(|segment| !self.is_killed(segment));
        lost.retain(|name| !self.changes.tombstones().name_segment(name.random));
        Stored { served, others, lost, unread }
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
    /// removed, as far as they are to; and whatever cannot be read here, which others may serve.
    pub(crate) fn kept(
        &self,
        until: u64,
        goes: &HashSet<SegmentName>,
        is_to_stay: impl Fn(Dated<'_>) -> bool,
    ) -> Kept {
        let (tombstones, mut kept) = (self.changes.tombstones(), Kept::default());
        for name in self.segments.names().filter(|name| !goes.contains(name)) {
            match self.segments.find(name).as_deref().map(Segment::dated) {
                Some(own) if !own.lineage.is_joined() || own.born > until || tombstones.kill_segment(own) => {
                }
                Some(own) if !is_to_stay(own) => {}
                // A change that cannot be read may be an earlier eviction.
                Some(own) if self.changes.is_unread_after(own.base) => kept.unread.push(name.random),
                Some(_) => kept.sure.push(name.random),
                None if self.segments.is_gone(name) => {}
                None if tombstones.spare(name.random) && !self.changes.is_unread_after(0) => {
                    kept.sure.push(name.random);
                }
                None => kept.unread.push(name.random),
            }
        }
        kept
    }

    /// The random bits of these names, and of those of all segments that these were joined from. Not of others that are there: their rows stay,
    /// whatever has been joined from them.
    pub(crate) fn lineage(&self, names: &HashSet<SegmentName>) -> HashSet<Random> {
        let mut lineage: HashSet<Random> = names.iter().map(|name| name.random).collect();
        for segment in names.iter().filter_map(|name| self.segments.find(*name)) {
            lineage.extend(segment.lineage());
        }
        for name in self.segments.names() {
            if !names.contains(&name) && !self.segments.is_gone(name) {
                lineage.remove(&name.random);
            }
        }
        lineage
    }

    /// What the joined segments were joined from whose oldest row was computed before this time, in milliseconds since 1970.
    pub(crate) fn joined_before(&self, limit: u64) -> Vec<Random> {
        // None counts on a later change than the one that is about to be made: its number has not been given before.
        let old = |own: &Arc<Segment>| own.born() < limit && !own.inputs().is_empty() && !self.is_killed(own);
        let old: HashSet<_> =
            self.segments.usable().into_iter().filter(old).map(|segment| segment.name()).collect();
        self.lineage(&old).into_iter().collect()
    }

    /// Makes sure that listings have shown what took the place of segments that are gone.
    ///
    /// # Errors
    ///
    /// Returns an error if that may not be so.
    pub(crate) fn check_complete(&self) -> Result<()> {
        if !self.segments.may_have_unseen(&self.changes) {
            return Ok(());
        }
        let what =
            "segments have vanished, and no listing shows yet what took their place; try again in a minute";
        Err(Error::io("cannot remove rows from", self.storage.path(), io::Error::other(what)))
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
