//! What a reader sees at one moment: the segments it serves and the index runs that lead to their rows.

use std::sync::Arc;

use crate::changes::Tombstones;
use crate::index::Run;
use crate::segment::Segment;

/// An immutable view; readers share it without a lock.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The largest first; runs that were just made again stand last.
    pub(crate) runs: Vec<IndexedRun>,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The newest change known; 0 as long as there is none.
    pub(crate) known: u64,
    /// When the first of the segments is to be let go of for its age, in milliseconds since 1970.
    pub(crate) expires: Option<u64>,
    /// What kills rows of these segments and of the write buffer.
    pub(crate) tombstones: Arc<Tombstones>,
}

/// A run and the served segments that its numbers mean.
#[derive(Debug)]
pub(crate) struct IndexedRun {
    pub(crate) run: Arc<Run>,
    pub(crate) segments: Vec<Option<Arc<Segment>>>,
}
