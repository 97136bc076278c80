//! A tombstone that names rows in their views commits those that take their place: it may be created only when these are durable.

use super::Oracle;
use crate::testing::simulation::committed::Committed;
use crate::testing::simulation::history::{Invalidation, Matcher, Outcome};

impl Oracle {
    /// The process has created this tombstone, which names these keys and views. From now on the rows that take their place are found,
    /// and every row is dead that was looked up before; until now, they have killed nothing. `committed` are the rows that the tombstone
    /// makes count.
    pub(in super::super) fn replaces(
        &mut self,
        process: usize,
        tombstone: &str,
        named: &[(String, u32)],
        committed: &[Committed],
    ) {
        let now = self.now();
        let number: u64 = tombstone["change-".len()..].parse().expect("the name of a change is its number");
        for (key, view) in named {
            let is_ready = |row: &&Committed| (&row.key, row.view, row.base) == (key, *view, number);
            let mut ready = committed.iter().filter(is_ready);
            let session = ready.find_map(|row| self.replacing_session(process, row));
            let session = session.or_else(|| self.straying_session(process, key, *view));
            let Some(session) = session.or_else(|| self.deprived_session(process, key, *view)) else {
                self.violated(format!(
                    "unready: process {process} creates {tombstone}, which names {key}, view {view}, and commits no durable row \
                     that takes its place: {committed:?}"
                ));
                continue;
            };
            let open = |own: &&mut Invalidation| own.session == Some(session) && own.outcome == Outcome::Open;
            for own in self.invalidations.iter_mut().filter(open) {
                if matches!(own.matcher, Matcher::Row(own, of) if (own, of) == (key, *view)) {
                    (own.is_to_come, own.begun) = (false, now);
                }
            }
        }
    }

    /// The session of the process that has sealed the row in another folder than the one that is in place now, where files come to the one
    /// that is in place: then the tombstone comes there as well, and commits nothing.
    fn straying_session(&self, process: usize, key: &str, view: u32) -> Option<usize> {
        let is_it = |own: &&Invalidation| {
            matches!(own.matcher, Matcher::Row(row, of) if (row, of) == (key, view))
                && own.outcome == Outcome::Open
                && self.places.switched_since(own.begun)
                && own.session.is_some_and(|session| self.sessions[session].process == process)
        };
        self.invalidations.iter().filter(|_| self.may_stray).find(is_it).and_then(|own| own.session)
    }

    /// The session of the process that has sealed the row in a segment that is damaged, or was taken away by a repair: the tombstone commits
    /// nothing then.
    fn deprived_session(&self, process: usize, key: &str, view: u32) -> Option<usize> {
        let is_damaged = |row: usize| {
            // No process has made it: that is the damage of a segment.
            let mut damaged = self.invalidations.iter().filter(|own| own.session.is_none());
            damaged.any(|own| matches!(&own.matcher, Matcher::Evicted(rows) if rows.contains(&row)))
        };
        let is_it = |own: &&Invalidation| {
            matches!(own.matcher, Matcher::Row(row, of) if (row, of) == (key, view))
                && own.outcome == Outcome::Open
                && own.session.is_some_and(|session| self.sessions[session].process == process)
                && own.replaced_by.is_some_and(is_damaged)
        };
        self.invalidations.iter().find(is_it).and_then(|own| own.session)
    }

    /// The session of the process in whose buffer this row waits to take the place of another.
    fn replacing_session(&self, process: usize, row: &Committed) -> Option<usize> {
        let row = self.rows.get(usize::try_from(row.value).ok()?)?;
        let due = &self.invalidations[row.replaces?];
        let session = due.session.filter(|session| self.sessions[*session].process == process);
        session.filter(|_| due.outcome == Outcome::Open)
    }
}
