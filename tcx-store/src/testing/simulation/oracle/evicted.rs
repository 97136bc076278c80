//! Rows whose segments were removed do not come back, whatever else has their files or was joined from them.

use std::collections::BTreeSet;

use super::Oracle;
use crate::testing::simulation::history::{Matcher, Outcome};

impl Oracle {
    /// The process has created a change that names every segment in the folder that has these rows as dead. One that was not reported
    /// durable may be written again by the process that computed it.
    pub(in super::super) fn evicted(&mut self, process: usize, values: &[i64], is_durable: bool) {
        let is_durable_row = |row: &usize| self.rows.get(*row).is_some_and(|row| row.acknowledged.is_some());
        let rows = values.iter().filter_map(|&value| usize::try_from(value).ok());
        let rows: BTreeSet<usize> = rows.filter(is_durable_row).collect();
        if rows.is_empty() {
            return;
        }
        let session = self.sessions.iter().rposition(|session| session.process == process);
        let eviction = self.invalidate(session, Matcher::Evicted(rows));
        if is_durable {
            // Not by way of `happened`: the process itself learns of it at the end of its operation.
            let (now, place) = (self.now(), self.places.current());
            let own = &mut self.invalidations[eviction];
            (own.outcome, own.place) = (Outcome::Happened(now), Some(place));
        }
    }
}
