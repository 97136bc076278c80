//! Recomputed rows take the place of others by a tombstone. It may be created only when nothing but their names is left to give.

use super::Oracle;
use crate::testing::simulation::drafts::Drafted;
use crate::testing::simulation::history::{Invalidation, Matcher, Outcome};

impl Oracle {
    /// The process has created this tombstone, which makes way for recomputed rows of these keys and views. Those that wait in its
    /// buffer may have killed others from now on; before, they have killed nothing. `drafts` is what the process has written and
    /// synced: if it dies now, the rows are lost, so it must not have to write them first.
    pub(in super::super) fn makes_way(
        &mut self,
        process: usize,
        tombstone: &str,
        named: &[(String, u32)],
        drafts: &[Drafted],
    ) {
        let number: u64 = tombstone["change-".len()..].parse().expect("the name of a change is its number");
        for (key, view) in named {
            // A segment that does not know the tombstone would be killed by it.
            let is_ready =
                |draft: &&Drafted| (&draft.key, draft.view) == (key, *view) && draft.base >= number;
            let mut ready = drafts.iter().filter(is_ready);
            let Some(session) = ready.find_map(|draft| self.replacing_session(process, draft)) else {
                self.violated(format!(
                    "unready: process {process} creates {tombstone}, which names {key}, view {view}, and has written no row \
                     that takes its place: {drafts:?}"
                ));
                continue;
            };
            let open = |own: &&mut Invalidation| own.session == Some(session) && own.outcome == Outcome::Open;
            for own in self.invalidations.iter_mut().filter(open) {
                let is_it = matches!(own.matcher, Matcher::Row(own, of) if (own, of) == (key, *view));
                own.is_to_come &= !is_it;
            }
        }
    }

    /// The session of the process in whose buffer this row waits to take the place of another.
    fn replacing_session(&self, process: usize, draft: &Drafted) -> Option<usize> {
        let row = self.rows.get(usize::try_from(draft.value).ok()?)?;
        let due = &self.invalidations[row.replaces?];
        let session = due.session.filter(|session| self.sessions[*session].process == process);
        session.filter(|_| due.outcome == Outcome::Open)
    }
}
