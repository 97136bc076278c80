//! Invalidations by age kill every row that is old; never a young one that is in no segment with old ones.

use std::collections::BTreeSet;

use super::Oracle;
use crate::sys::clock;
use crate::testing::simulation::committed::{Age, Committed, Stored};
use crate::testing::simulation::history::{Invalidation, Matcher, Outcome, Row};
use crate::testing::simulation::schedule::Clock;

impl Oracle {
    /// The process has created this tombstone, while these segments were there.
    pub(in super::super) fn ages(&mut self, process: usize, age: Age, stored: &[Stored]) {
        let is_it = |own: &Invalidation| match own.matcher {
            Matcher::OlderThan(limit) => {
                own.change.is_none()
                    && age.before == clock::millis(Clock::wall(limit))
                    && own.session.is_some_and(|session| self.sessions[session].process == process)
            }
            _ => false,
        };
        if let Some(number) = self.invalidations.iter().position(is_it) {
            self.invalidations[number].change = Some(age.number);
            for segment in stored {
                self.stores(segment);
            }
        }
    }

    /// Whether any row has been invalidated by its age.
    pub(in super::super) fn has_aged(&self) -> bool {
        self.invalidations.iter().any(|own| own.change.is_some())
    }

    /// This segment is there. Its young rows may die with old ones of it.
    pub(in super::super) fn stores(&mut self, segment: &Stored) {
        let rows: BTreeSet<usize> = segment.rows.iter().flat_map(|row| self.left_out_for(row)).collect();
        for own in &mut self.invalidations {
            let (Matcher::OlderThan(limit), Some(change)) = (&own.matcher, own.change) else { continue };
            if segment.base < change && segment.born < clock::millis(Clock::wall(*limit)) {
                own.joined.extend(&rows);
            }
        }
    }

    /// A row of a segment, and those that are not in it because it is: others that were sealed with it, and copies that take the place of
    /// none.
    pub(super) fn left_out_for(&self, row: &Committed) -> Vec<usize> {
        let Some(own) = usize::try_from(row.value).ok().and_then(|number| self.rows.get(number)) else {
            return Vec::new();
        };
        let is_it = |other: &Row| {
            (other.key, other.view) == (own.key, own.view)
                && (other.replaces.is_none()
                    || (other.session, other.generation) == (own.session, own.generation))
        };
        (0..self.rows.len()).filter(|&other| is_it(&self.rows[other])).collect()
    }

    /// An invalidation by age has come to its end at this time of the folder; `is_sure` says that it has seen the folder as it is.
    pub(in super::super) fn aged(&mut self, invalidation: usize, is_sure: bool, millis: u64) {
        self.invalidations[invalidation].aged = Some(millis);
        if is_sure {
            self.invalidated(invalidation);
        } else {
            self.doubted(invalidation);
        }
    }

    /// An invalidation has come to its end, and may not have seen the folder as it is.
    pub(in super::super) fn doubted(&mut self, invalidation: usize) {
        self.invalidations[invalidation].outcome = Outcome::Unknown(self.time);
    }

    /// Whether the row may have expired before this invalidation by age looked for it. A lookup that had found the row keeps it, if nothing
    /// else has changed.
    pub(super) fn has_expired_before(&self, row: &Row, killer: &Invalidation) -> bool {
        let age = killer.aged.map(|at| at.saturating_sub(row.born));
        age.zip(self.time_to_live).is_some_and(|(age, time)| age > time)
    }
}
