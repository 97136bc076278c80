//! Files that turned out to be damaged while they were used.

use std::sync::Arc;

use crate::index::Run;
use crate::segment::Segment;

/// What a probe found wrong.
#[derive(Debug, Default)]
pub(crate) struct DamagedFiles {
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// How many rows could not be read: the file system has failed.
    pub(crate) unread: usize,
}

impl DamagedFiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.segments.is_empty()
    }
}
