//! Rows may die with files that are damaged. What a repair has made dead does not come back: see [`evicted`](super::evicted).

use std::collections::BTreeSet;

use super::Oracle;
use crate::testing::simulation::committed::Stored;
use crate::testing::simulation::history::{Matcher, Outcome};

impl Oracle {
    /// This segment is damaged.
    pub(in super::super) fn damaged_segment(&mut self, segment: &Stored) {
        let rows: BTreeSet<usize> = segment.rows.iter().flat_map(|row| self.left_out_for(row)).collect();
        self.invalidate(None, Matcher::Evicted(rows));
    }

    /// This change is damaged.
    pub(in super::super) fn damaged_change(&mut self, name: &str) {
        self.invalidate(None, Matcher::Damaged(name.to_owned()));
    }

    /// A repair has put another change in the place of this one: what is looked up from now on outlives it.
    pub(in super::super) fn repaired(&mut self, name: &str) {
        let now = self.now();
        for own in &mut self.invalidations {
            if matches!(&own.matcher, Matcher::Damaged(change) if change == name) {
                own.outcome = Outcome::Unknown(now);
            }
        }
    }
}
