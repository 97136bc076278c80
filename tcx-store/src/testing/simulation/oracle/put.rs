//! Values that were put cannot be computed again: who put them learns of each that another process has invalidated or replaced before
//! it was durable.

use super::{Oracle, Session};
use crate::testing::simulation::history::{Invalidation, Outcome, Row};

/// What has become of the values that a handle has put since its losses were reported last.
#[derive(Debug, Default)]
pub(super) struct Puts {
    /// How many are certainly lost.
    pub(super) lost: usize,
    /// How many may be.
    pub(super) doubtful: usize,
    /// The values that were sealed at once by a seal that has seen the folder as it is, with the time when that began: those that
    /// are not lost are alive.
    fresh: Vec<(usize, u64)>,
}

impl Oracle {
    /// The next seal of the session sees the folder as it is.
    pub(in super::super) fn seals_freshly(&mut self, session: usize, is_fresh: bool) {
        let now = self.now();
        self.sessions[session].seals_freshly = is_fresh.then_some(now);
    }

    /// A value that this handle has put is reported durable.
    pub(super) fn put_is_sealed(&mut self, number: usize, session: usize, handle: usize) {
        let row = &self.rows[number];
        let doubtful = self.may_be_dead(number, row);
        // Of several rows of a key only the newest is missed.
        let same = |(other, own): (usize, &Row)| {
            other != number
                && (own.key, own.view, own.session) == (row.key, row.view, row.session)
                && own.accepted.is_some()
                && own.generation == row.generation
        };
        let is_first = |since: &u64| row.sealing > Some(*since) && row.place.is_some();
        let fresh = self.fresh_seal(session).filter(is_first);
        let fresh = fresh.filter(|_| !self.rows.iter().enumerate().any(same));
        let kills =
            |own: &Invalidation, since| self.is_of_another(own, session, since) && own.kills(number, row);
        let is_lost = |since| {
            let mut killers = self.may_be_killed_by(number, row);
            self.time_to_live.is_none()
                && killers.all(|own| own.session != Some(session))
                && self.invalidations.iter().any(|own| kills(own, since))
        };
        let lost = fresh.is_some_and(is_lost);
        let puts = self.puts.entry((session, handle)).or_default();
        puts.doubtful += usize::from(doubtful);
        puts.lost += usize::from(lost);
        puts.fresh.extend(fresh.map(|since| (number, since)));
    }

    /// When the seal of the session began, if it has seen the folder as it is.
    fn fresh_seal(&self, session: usize) -> Option<u64> {
        let Session { seals_freshly, fresh_since, .. } = self.sessions[session];
        seals_freshly.filter(|_| fresh_since > 0 && !self.places.switched_since(fresh_since))
    }

    /// Whether a process other than this one had made the invalidation by then, in this folder.
    fn is_of_another(&self, own: &Invalidation, session: usize, since: u64) -> bool {
        own.session.is_some_and(|by| by != session)
            && own.place == Some(self.places.current())
            && matches!(own.outcome, Outcome::Happened(at) if at < since)
    }

    /// None of these values is lost: they have outlived what others had done before the seal.
    pub(super) fn have_survived(&mut self, puts: &Puts) {
        for &(number, since) in &puts.fresh {
            let session = self.rows[number].session;
            let survived = self.invalidations.iter().enumerate();
            let survived = survived.filter(|(_, own)| self.is_of_another(own, session, since));
            let survived: Vec<usize> = survived.map(|(own, _)| own).collect();
            self.rows[number].settled.extend(survived);
        }
    }
}
