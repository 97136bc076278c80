//! Invalidations by age kill every row that is old, and with it those of its key; never a young row whose key has no other that lives.

use super::Oracle;
use crate::testing::simulation::committed::Committed;
use crate::testing::simulation::history::{Invalidation, Matcher, Outcome, Row};

impl Oracle {
    /// The latest time of an invalidation by age that a thread of the process is about to make.
    pub(in super::super) fn age_limit(&self, process: usize) -> Option<u64> {
        let limits = self.invalidations.iter().filter_map(|own| match own.matcher {
            Matcher::OlderThan(limit) if self.is_under_way(process, own) => Some(limit),
            _ => None,
        });
        limits.max()
    }

    /// The process has created a tombstone that names these keys, while it invalidates by age; `old` are the rows that were stored by then
    /// and are old enough. A key whose rows have all been replaced or invalidated keeps what took their place: to lose that is a loss.
    pub(in super::super) fn ages(&mut self, process: usize, keys: &[String], old: &[Committed]) {
        let is_right = |row: &&Committed| {
            usize::try_from(row.value)
                .ok()
                .and_then(|number| self.rows.get(number).map(|own| (number, own)))
                .is_some_and(|(number, own)| {
                    !self
                        .invalidations
                        .iter()
                        .any(|killer| self.has_killed(killer) && self.kills(killer, number, own))
                })
        };
        let alive = old.iter().filter(is_right);
        let doomed: Vec<&'static str> = alive
            .filter(|row| keys.contains(&row.key))
            .filter_map(|row| self.rows.get(row.value as usize).map(|own| own.key))
            .collect();
        let is_it = |own: &Invalidation| {
            matches!(own.matcher, Matcher::OlderThan(_)) && self.is_under_way(process, own)
        };
        let Some(session) = self.invalidations.iter().find(|own| is_it(own)).and_then(|own| own.session)
        else {
            return;
        };
        let killed = self.invalidate(Some(session), Matcher::Keys(doomed));
        // It may not be durable yet, and its process may not learn that it was made.
        self.invalidations[killed].outcome = Outcome::Unknown(self.invalidations[killed].begun);
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

    fn is_under_way(&self, process: usize, own: &Invalidation) -> bool {
        own.outcome == Outcome::Open
            && own.session.is_some_and(|session| self.sessions[session].process == process)
    }

    /// Whether its tombstone is in the folder, as certainly as the process that makes the next change knows it.
    fn has_killed(&self, own: &Invalidation) -> bool {
        let is_made = match own.matcher {
            Matcher::Row(..) => !own.is_to_come,
            _ => matches!(own.outcome, Outcome::Happened(_)),
        };
        // One of a version to come may have nothing to do with the row.
        is_made && own.session.is_some() && !self.places.switched_since(own.begun)
    }
}
