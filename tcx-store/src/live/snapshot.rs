//! What a reader sees at one moment: the segments it serves and the index runs that lead to their rows.

use std::sync::Arc;

use crate::changes::{ReplacementPlace, Seen, Tombstones, now_millis};
use crate::index::Run;
use crate::segment::Segment;
use crate::stats::causes::Cause;

/// An immutable view; readers share it without a lock.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The largest first; runs that were just rebuilt come last.
    pub(crate) runs: Vec<IndexedRun>,
    /// Runs that lead to rows which are not served.
    pub(crate) unserved: Vec<Unserved>,
    /// Whether there are rows that are not served and to which no run leads.
    pub(crate) is_unindexed: bool,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The newest change known; 0 before the first.
    pub(crate) known: u64,
    /// The newest change that rows outlive which are computed now; it is not the newest that is known where a replacement of missing rows
    /// may be there, and was not found.
    pub(crate) outlived: u64,
    /// Whether a change cannot be read now, or is not complete yet: until it can be read, it hides every row before it.
    pub(crate) is_unread: bool,
    /// Whether the rows of a segment cannot be found now: it was listed and could not be opened, has no index, or
    /// counts on a change that was not found.
    pub(crate) is_partial: bool,
    /// When the first of the segments is to be let go of for its age, in milliseconds since 1970.
    pub(crate) expires: Option<u64>,
    /// What kills rows of these segments and of the write buffer.
    pub(crate) tombstones: Arc<Tombstones>,
    /// The last place among the tombstones of recomputed rows.
    pub(crate) replaced: Arc<ReplacementPlace>,
}

impl Snapshot {
    /// What a lookup knows of the changes that is made now.
    pub(crate) fn seen(&self) -> Seen {
        Seen::new(self.outlived, self.known, &self.tombstones, self.replaced.clone(), self.is_unread)
    }

    /// Whether the time to live of a segment is over.
    pub(crate) fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires < now_millis())
    }
}

/// A run and the served segments that its numbers mean.
#[derive(Debug)]
pub(crate) struct IndexedRun {
    pub(crate) run: Arc<Run>,
    pub(crate) segments: Vec<Option<Arc<Segment>>>,
}

/// A run, and by the segment's number in it why rows of that segment are not served; those that are, or that others hold too,
/// are [absent](Cause::Absent).
#[derive(Debug)]
pub(crate) struct Unserved {
    pub(crate) run: Arc<Run>,
    pub(crate) causes: Vec<UnservedCause>,
}

/// Why rows of a segment are not served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnservedCause {
    pub(crate) cause: Cause,
    /// The newest change that the rows know, if the segment could be opened.
    pub(crate) base: Option<u64>,
}
