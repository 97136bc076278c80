//! Rows that take the place of rejected ones and of those with another stamp, and which rows a lookup by stamps finds.

use std::collections::BTreeMap;

use super::{Glance, Oracle};
use crate::testing::simulation::history::{Invalidation, Outcome, Row};

/// What a row is computed for beside the lookup that missed it.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Kind {
    /// It is inserted with others of which one takes the place of a row that was found.
    pub(in super::super) rejects: bool,
    /// The handle that puts it.
    pub(in super::super) put_by: Option<usize>,
}

impl Glance {
    /// The lookup finds rows with these stamps only.
    pub(in super::super) fn ask_for(&mut self, stamps: Option<BTreeMap<&'static str, u64>>) {
        self.stamps = stamps;
    }

    pub(in super::super) fn stamps(&self) -> Option<BTreeMap<&'static str, u64>> {
        self.stamps.clone()
    }

    pub(in super::super) fn recompute(&self) -> Option<usize> {
        self.recompute
    }

    pub(super) fn stamp(&self, key: &str) -> Option<u64> {
        self.stamps.as_ref()?.get(key).copied()
    }

    /// Whether the row has the stamp that the lookup asks for, if it asks for one.
    pub(super) fn asks_for(&self, row: &Row) -> bool {
        self.stamps.is_none() || self.stamp(row.key) == row.stamp
    }

    /// Whether a row of the same process is found instead of an older one: it is sealed with it or still in the write buffer, which it
    /// may leave as soon as its seal has begun.
    fn finds_instead(&self, newer: &Row, older: &Row) -> bool {
        let is_here = self.session == newer.session && newer.sealing.is_none();
        older.session == newer.session
            && newer.is_newer_than(older) == Some(true)
            && (older.generation == newer.generation || is_here)
    }

    /// Nothing has changed since that lookup, up to now: this one has found the same, and counted what was recomputed until now.
    pub(in super::super) fn is_as_of(&mut self, before: &Self, now: u64) {
        (self.counted, self.ended) = (now, now);
        (self.begun, self.at) = (before.begun, before.at);
        self.is_astray |= before.is_astray;
    }
}

impl Oracle {
    /// The lookup has looked for changes, with true listings, after this time: what is found is dead by none that had returned by then, and
    /// what is computed outlives them.
    pub(in super::super) fn knows(&self, glance: &mut Glance, since: u64) {
        let known_since = self.sessions[glance.session].fresh_since;
        // The process knows this folder for the one that it has opened.
        if self.places.switched_since(known_since) || known_since == 0 {
            return;
        }
        for (number, own) in self.invalidations.iter().enumerate() {
            let is_here = |at| own.place.is_some_and(|place| self.places.hold(place, at));
            if matches!(own.outcome, Outcome::Happened(at) if at < since && is_here(at)) {
                glance.settled.insert(number);
                glance.honours.insert(number);
            }
        }
    }

    /// The lookup has listed the folder as it is after this time: it finds what was acknowledged by then.
    pub(in super::super) fn lists(&self, glance: &mut Glance, since: u64) {
        if !self.places.switched_since(since) {
            glance.fresh_since = glance.fresh_since.max(since);
        }
    }

    /// Whether this miss is certain to be due to the stamp: a row of another one must be found.
    pub(in super::super) fn is_outdated(&self, glance: &Glance, key: &str, view: u32) -> bool {
        let is_wanted = |row: &Row| !glance.asks_for(row);
        self.must_find(glance, key, view, &is_wanted, &|_| false).is_some()
    }

    /// Whether a lookup by stamps may find a row with another stamp instead of this one: of rows that do not know each other, any is found.
    pub(super) fn may_find_another_stamp(&self, glance: &Glance, row: &Row) -> bool {
        let is_other = |(number, other): (usize, &Row)| {
            (other.key, other.view, other.identity) == (row.key, row.view, row.identity)
                && other.stamp != row.stamp
                && other.accepted.is_some()
                && !glance.finds_instead(row, other)
                && !glance
                    .honours
                    .iter()
                    .any(|&killer| self.kills(&self.invalidations[killer], number, other))
        };
        glance.stamps.is_some() && self.rows.iter().enumerate().any(is_other)
    }

    /// Whether the row is dead for a process that knows this invalidation.
    pub(super) fn kills(&self, killer: &Invalidation, number: usize, row: &Row) -> bool {
        killer.kills(number, row) && !self.outlives(row, killer) && !self.has_expired_before(row, killer)
    }

    /// Whether this is a tombstone of the row's process for a row that is older than this one, which outlives it.
    pub(super) fn outlives(&self, row: &Row, killer: &Invalidation) -> bool {
        let Some(by) = killer.replaced_by.map(|by| &self.rows[by]) else { return false };
        if by.session != row.session || row.recompute.is_none() || row.is_newer_than(by) != Some(true) {
            return false;
        }
        // The tombstone has one number for all its rows: that of the last.
        let is_later = |own: &Row| {
            (own.session, own.recompute, own.generation) == (by.session, by.recompute, by.generation)
                && row.is_newer_than(own) != Some(true)
        };
        row.rejects.is_none() || by.rejects.is_some() || !self.rows.iter().any(is_later)
    }
}
