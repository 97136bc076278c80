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
            let Some(session) = ready.find_map(|row| self.replacing_session(process, row)) else {
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

    /// The session of the process in whose buffer this row waits to take the place of another.
    fn replacing_session(&self, process: usize, row: &Committed) -> Option<usize> {
        let row = self.rows.get(usize::try_from(row.value).ok()?)?;
        let due = &self.invalidations[row.replaces?];
        let session = due.session.filter(|session| self.sessions[*session].process == process);
        session.filter(|_| due.outcome == Outcome::Open)
    }
}
