//! Invalidations of what is in segments whose keys are damaged for good: any of them may be meant.

use std::collections::HashSet;

use crate::changes::contended;
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::upkeep::compaction::{Removal, announce_leaving, kill_leaving};

/// Segments of which it was announced that they are about to be dead.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    names: HashSet<SegmentName>,
    /// The number of the change that says so.
    announced: Option<u64>,
}

impl Unreadable {
    /// Whether all of these were announced.
    pub(super) fn is_all(&self, found: &[SegmentName]) -> bool {
        found.iter().all(|name| self.names.contains(name))
    }
}

impl Core {
    /// Says that these are about to be dead: no process that knows it joins them.
    pub(super) fn announce_unreadable(
        &self,
        unreadable: &mut Unreadable,
        found: Vec<SegmentName>,
    ) -> Result<()> {
        for name in found.iter().filter(|name| !unreadable.names.contains(name)) {
            let path = self.storage.path().join(name.to_string());
            tracing::warn!(path = %path.display(), "its keys are damaged, and any may be meant: all its rows are invalidated");
        }
        unreadable.names.extend(found);
        self.are_ready_to_kill()?;
        let removal = self.removal(unreadable, None);
        unreadable.announced = Some(announce_leaving(self, &removal).map_err(|e| self.not_killed(e))?);
        Ok(())
    }

    /// Makes the announced segments dead, and whatever another process has joined from them that was not `known` when keys were visited since.
    /// Returns `false` if they have to be announced again, and keys be visited again.
    pub(super) fn kill_unreadable(&self, unreadable: &Unreadable, known: HashSet<Random>) -> Result<bool> {
        let Some(announced) = unreadable.announced else { return Ok(true) };
        self.are_ready_to_kill()?;
        let removal = self.removal(unreadable, Some(known));
        kill_leaving(self, &removal, announced).map_err(|e| self.not_killed(e))
    }

    fn removal(&self, unreadable: &Unreadable, known: Option<HashSet<Random>>) -> Removal {
        let goes = unreadable.names.clone();
        let lineage = self.live().lineage(&goes);
        // When they were born is not known.
        Removal { until: u64::MAX, goes, lineage, rewritten: None, known }
    }

    fn are_ready_to_kill(&self) -> Result<()> {
        self.check()?;
        self.ready_to_kill(&mut self.live())?
    }

    fn not_killed(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Contended { self.not_written(contended()) } else { error }
    }
}
