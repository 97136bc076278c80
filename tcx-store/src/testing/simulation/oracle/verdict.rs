//! What a lookup is blamed for: a row that it must not have found, or one that it must have found.

use std::collections::BTreeSet;

use super::{Glance, Oracle, Session};
use crate::testing::simulation::history::{Invalidation, Matcher, Outcome, Row};

impl Oracle {
    /// Why this row must not have been served.
    pub(super) fn wrong(&self, glance: &Glance, key: &str, view: u32, value: i64) -> Option<String> {
        let Some(row) = usize::try_from(value).ok().and_then(|row| self.rows.get(row)) else {
            return Some(format!("wrong: {value} was never computed"));
        };
        let Session { identity, .. } = self.sessions[glance.session];
        if (row.key, row.view, row.identity) != (key, view, identity) {
            return Some(format!("wrong: found row {value}, which is {row:?}"));
        }
        if !glance.asks_for(row) {
            return Some(format!(
                "wrong: found row {value} of another stamp than {:?}: {row:?}",
                glance.stamp(key)
            ));
        }
        if !self.is_own(glance.recompute, row) {
            return Some(format!("wrong: a recompute found row {value}, which it has not computed: {row:?}"));
        }
        if self.time_to_live.is_some_and(|time| glance.at.saturating_sub(row.born) > time) {
            return Some(format!("wrong: found row {value} that has expired by {}: {row:?}", glance.at));
        }
        let newer = self.newer(glance, value as usize, row).filter(|_| !self.may_miss);
        if let Some(newer) = newer {
            return Some(format!("stale: found row {value}, and {newer:?} is newer than {row:?}"));
        }
        if let Some(displaced) = self.displaced(glance, value as usize, row) {
            return Some(format!("wrong: found row {value}, {row:?}, which has displaced {displaced:?}"));
        }
        let honoured = glance.honours.iter().map(|&killer| &self.invalidations[killer]);
        let is_killer = |own: &&Invalidation| self.kills(own, value as usize, row);
        let killer = honoured.into_iter().find(is_killer)?;
        let is_astray = row.place.is_none() && self.places.switched_since(row.looked);
        if is_astray && row.session != glance.session {
            // What another process was about to write when the folder went came to the next one, with numbers of its own.
            return None;
        }
        if self.is_taken_for_known(killer, row) {
            return None;
        }
        Some(format!("wrong: found row {value} that is dead: {row:?}, killed by {killer:?}"))
    }

    /// Whether the row's process takes this change for one that it knew when it looked the row up, in another folder: both are of a version
    /// to come, whose nonce it cannot read, and by nothing but its number it would know such a change.
    fn is_taken_for_known(&self, killer: &Invalidation, row: &Row) -> bool {
        let is_of_a_version_to_come = |own: &Invalidation| own.session.is_none();
        // It is not in the folder that is in place now, or the killer would have another number.
        let was_known = |own: &Invalidation| {
            let Outcome::Happened(at) = own.outcome else { return false };
            let is_here = own.place.is_some_and(|place| self.places.hold(place, at));
            is_of_a_version_to_come(own)
                && own.place == Some(row.looked_in)
                && own.begun < row.looked
                && !is_here
        };
        is_of_a_version_to_come(killer)
            && killer.place.is_some_and(|place| place != row.looked_in)
            && self.invalidations.iter().any(was_known)
    }

    /// Whether a recompute session may take the row for its own: it is, or it was computed after the recompute session has had it replaced.
    fn is_own(&self, recompute: Option<usize>, row: &Row) -> bool {
        let after = |own: &Row| {
            let since = own.replaces.map(|number| self.invalidations[number].begun);
            let is_same = own.recompute == recompute && (own.key, own.view) == (row.key, row.view);
            is_same && since.is_some_and(|since| since < row.looked)
        };
        let is_plain = row.recompute.is_none();
        recompute.is_none() || row.recompute == recompute || is_plain && self.rows.iter().any(after)
    }

    /// The row that must have been found instead of this one, or none: of those that a session seals together, the newest lives, and none
    /// comes back if that dies by its age.
    fn newer(&self, glance: &Glance, number: usize, row: &Row) -> Option<&Row> {
        let newer = |(other, own): &(usize, &Row)| {
            (own.key, own.view, own.session) == (row.key, row.view, row.session)
                && own.is_newer_than(row) == Some(true)
                && own.accepted.is_some_and(|at| at < glance.begun)
                && self.is_own(glance.recompute, own)
                // What was looked up in another folder may know less of the changes of this one than it seems.
                && own.looked_in == row.looked_in
                && (own.generation == row.generation && !self.may_be_dead(*other, own)
                    || self.has_made_way(row, *other, own))
        };
        let is_seen = glance.session == row.session || row.acknowledged.is_some();
        // A row that was not accepted is found in the lookup that computed it, and nowhere else.
        let is_certain = row.accepted.is_some() && row.looked_in == self.places.current();
        let mut rows = self.rows.iter().enumerate().filter(|(other, _)| *other != number);
        rows.find(|row| is_seen && is_certain && newer(row)).map(|(_, row)| row)
    }

    /// Whether the row was looked up before that one was accepted, which nothing but its age may have killed, and was not sealed before it.
    fn has_made_way(&self, row: &Row, number: usize, newer: &Row) -> bool {
        let last = usize::MAX;
        let mut killers = self.may_be_killed_by(number, newer).peekable();
        killers.peek().is_some()
            && killers.all(|killer| matches!(killer.matcher, Matcher::OlderThan(_)))
            && newer.accepted.is_some_and(|at| row.looked < at)
            && newer.generation.unwrap_or(last) <= row.generation.unwrap_or(last)
    }

    /// The replacement that must have been found instead of this row, which takes the place of none itself. If the row was looked up
    /// before the replacement was committed, it dies by its tombstone. If it was looked up later, the replacement was looked for in vain,
    /// which proves nothing where it could not be read: the row must not outlive the tombstone then.
    fn displaced(&self, glance: &Glance, number: usize, row: &Row) -> Option<&Row> {
        let here = Some(self.places.current());
        // The process that computes a row has it, whether it is kept or not.
        let is_computed_for_it = row.session == glance.session && row.looked > glance.begun;
        let is_excused = glance.recompute.is_some()
            || row.recompute.is_some()
            || is_computed_for_it
            || row.is_astray
            || Some(row.looked_in) != here
            || self.trimmed.contains(&row.key);
        let displaced = |(other, own): &(usize, &Row)| {
            let is_known = |replaces: usize| {
                let outcome = self.invalidations[replaces].outcome;
                matches!(outcome, Outcome::Happened(_)) && glance.honours.contains(&replaces)
            };
            *other != number
                && (own.key, own.view, own.identity) == (row.key, row.view, row.identity)
                && own.place == here
                && own.replaces.is_some_and(is_known)
                && !self.may_be_dead(*other, own)
        };
        let mut rows = self.rows.iter().enumerate().filter(|_| !is_excused);
        rows.find(displaced).map(|(_, row)| row)
    }

    /// The row that must have been found.
    pub(super) fn lost(&self, glance: &Glance, key: &str, view: u32) -> Option<String> {
        let is_wanted = |row: &Row| glance.asks_for(row);
        let may_miss = |row: &Row| self.may_find_another_stamp(glance, row);
        let (number, row) = self.must_find(glance, key, view, &is_wanted, &may_miss)?;
        Some(format!("lost: row {number} is missing: {row:?}"))
    }

    /// A row that must be found by this lookup, or one in its place, if it is wanted and the lookup may not miss it for another reason.
    pub(super) fn must_find(
        &self,
        glance: &Glance,
        key: &str,
        view: u32,
        is_wanted: &dyn Fn(&Row) -> bool,
        may_miss: &dyn Fn(&Row) -> bool,
    ) -> Option<(usize, &Row)> {
        let Session { identity, refused, misled, .. } = self.sessions[glance.session];
        let places = &self.places;
        if self.may_miss || self.trimmed.contains(&key) || refused || misled {
            return None;
        }
        self.rows.iter().enumerate().find(|(number, row)| {
            // A row that leaves the buffer while the folder is another is found again after a refresh.
            let is_kept = row.looked_in == places.current()
                && !row.sealing.is_some_and(|since| places.switched_since(since));
            let own = row.session == glance.session && row.accepted.is_some_and(|at| at < glance.begun);
            let visible = row.acknowledged.is_some_and(|at| {
                at < glance.fresh_since && row.place.is_some_and(|place| places.hold(place, at))
            });
            (row.key, row.view, row.identity) == (key, view, identity)
                && is_wanted(row)
                && (glance.recompute.is_none() || row.recompute == glance.recompute)
                && !self.is_superseded(row)
                && !self.may_have_made_way(row)
                && (own && is_kept || visible && !places.switched_since(glance.fresh_since))
                && !self.may_be_gone(glance, *number, is_wanted, &mut BTreeSet::new())
                && !may_miss(row)
        })
    }

    /// Whether the row may have been looked up before another one of the process was accepted that may have died by its age. If that one is the newer,
    /// the row does not come back.
    fn may_have_made_way(&self, row: &Row) -> bool {
        let by_age = |number, own| {
            self.may_be_killed_by(number, own).any(|killer| matches!(killer.matcher, Matcher::OlderThan(_)))
        };
        let mut rows = self.rows.iter().enumerate();
        rows.any(|(number, own)| {
            (own.key, own.view, own.session) == (row.key, row.view, row.session)
                && own.is_newer_than(row) != Some(false)
                && own.accepted.is_some_and(|at| row.looked_from < at)
                && by_age(number, own)
        })
    }

    /// Whether another handle of the process has recomputed the row since: only that one finds a row of its own.
    fn is_superseded(&self, row: &Row) -> bool {
        let newer = |own: &Row| {
            own.recompute.is_some() && own.recompute != row.recompute && row.is_newer_than(own) != Some(true)
        };
        row.recompute.is_some()
            && self
                .rows
                .iter()
                .any(|own| (own.key, own.view, own.session) == (row.key, row.view, row.session) && newer(own))
    }

    /// Whether neither the row need be there nor one that has taken its place: at no moment are both missing.
    fn may_be_gone(
        &self,
        glance: &Glance,
        number: usize,
        is_wanted: &dyn Fn(&Row) -> bool,
        seen: &mut BTreeSet<usize>,
    ) -> bool {
        if !seen.insert(number) {
            return false;
        }
        let row = &self.rows[number];
        self.may_be_killed_by(number, row).any(|own| {
            // A faulty listing may show the tombstone alone, and a session that recomputes looks for its own rows.
            let is_seen = own.begun < glance.fresh_since
                && glance.recompute.is_none()
                && !self.places.switched_since(own.begun);
            match own.replaced_by {
                Some(by)
                    if is_seen && self.rows[by].identity == row.identity && is_wanted(&self.rows[by]) =>
                {
                    self.may_be_gone(glance, by, is_wanted, seen)
                }
                _ => true,
            }
        })
    }

    pub(super) fn may_be_dead(&self, number: usize, row: &Row) -> bool {
        self.may_be_killed_by(number, row).next().is_some()
    }

    pub(super) fn may_be_killed_by<'a>(
        &'a self,
        number: usize,
        row: &'a Row,
    ) -> impl Iterator<Item = &'a Invalidation> {
        let unsettled = self.invalidations.iter().enumerate().filter(|(own, _)| !row.settled.contains(own));
        let killers = unsettled.map(|(_, own)| own);
        killers.filter(move |own| own.may_kill(number, row) && !self.outlives(row, own))
    }
}
