//! Invalidations by age kill every row that is old; never a young one that is in no segment with old ones.

use super::Oracle;
use crate::sys::clock;
use crate::testing::simulation::committed::{Age, Stored};
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
            stored.iter().for_each(|segment| self.stores(segment));
        }
    }

    /// Whether any row has been invalidated by its age.
    pub(in super::super) fn has_aged(&self) -> bool {
        self.invalidations.iter().any(|own| own.change.is_some())
    }

    /// This segment is there. Its young rows may die with old ones of it.
    pub(in super::super) fn stores(&mut self, segment: &Stored) {
        for own in &mut self.invalidations {
            let (Matcher::OlderThan(limit), Some(change)) = (&own.matcher, own.change) else { continue };
            if segment.base < change && segment.born < clock::millis(Clock::wall(*limit)) {
                let rows = segment.rows.iter().filter_map(|row| usize::try_from(row.value).ok());
                own.joined.extend(rows);
            }
        }
    }

    /// An invalidation by age has come to its end at this time of the folder; `is_sure` says that it has seen the folder as it is.
    pub(in super::super) fn aged(&mut self, invalidation: usize, is_sure: bool, millis: u64) {
        self.invalidations[invalidation].aged = Some(millis);
        if is_sure {
            self.invalidated(invalidation);
        } else {
            self.invalidations[invalidation].outcome = Outcome::Unknown(self.time);
        }
    }

    /// Whether the row may have expired before this invalidation by age looked for it. A lookup that had found the row keeps it, if nothing
    /// else has changed.
    pub(super) fn has_expired_before(&self, row: &Row, killer: &Invalidation) -> bool {
        let age = killer.aged.map(|at| at.saturating_sub(row.born));
        age.zip(self.time_to_live).is_some_and(|(age, time)| age > time)
    }
}
