//! Rows that are sealed, and reported durable.

use super::{Oracle, Session};
use crate::testing::simulation::history::{Matcher, Outcome, Row};

impl Oracle {
    /// A seal begins: the rows that it has to make durable. Those of recompute sessions have their keys invalidated by it, once
    /// the process [replaces](Self::replaces) others by them.
    pub(in super::super) fn seal_begins(&mut self, session: usize) -> Vec<usize> {
        let waits =
            |row: &Row| row.session == session && row.accepted.is_some() && row.acknowledged.is_none();
        let rows: Vec<usize> = (0..self.rows.len()).filter(|&row| waits(&self.rows[row])).collect();
        self.sessions[session].seals += 1;
        let generation = Some(self.sessions[session].seals);
        let now = self.now();
        for &row in &rows {
            let row = &mut self.rows[row];
            row.generation = row.generation.or(generation);
            row.sealing = row.sealing.or(Some(now));
        }
        let new = |row: &&usize| self.rows[**row].recompute.is_some() && self.rows[**row].replaces.is_none();
        let new: Vec<usize> = rows.iter().filter(new).copied().collect();
        for &row in &new {
            // One that failed to be sealed before is in a generation of its own: the newer may kill it.
            let Row { key, view, .. } = self.rows[row];
            let replaces = self.invalidate(Some(session), Matcher::Row(key, view));
            self.rows[row].replaces = Some(replaces);
            let spared = |other: &&usize| {
                let other = &self.rows[**other];
                let is_newer = || other.is_newer_than(&self.rows[row]) == Some(true);
                other.generation == generation && (other.replaces == Some(replaces) || is_newer())
            };
            self.invalidations[replaces].spares = rows.iter().filter(spared).copied().collect();
            self.invalidations[replaces].is_to_come = true;
            self.invalidations[replaces].replaced_by = Some(row);
            self.invalidations[replaces].replaced_at = self.rows[row].accepted;
        }
        rows
    }

    /// They have been reported durable.
    pub(in super::super) fn acknowledged(&mut self, rows: &[usize], session: usize) {
        let now = self.now();
        if rows.is_empty() {
            return;
        }
        let Session { identity, .. } = self.sessions[session];
        let (here, mut is_certain) = (self.places.current(), false);
        for &row in rows {
            let own = &mut self.rows[row];
            own.acknowledged = Some(now);
            // An earlier seal may have written it to the folder that was in place by then.
            let is_same = own.sealing.is_some_and(|since| !self.places.switched_since(since));
            own.place = (is_same && own.looked_in == here).then_some(here);
            is_certain |= own.place.is_some();
            if let Some(handle) = own.put_by {
                self.put_is_sealed(row, session, handle);
            }
            let own = &self.rows[row];
            let is_astray = own.looked_in != here;
            match self.rows[row].replaces {
                // A row that has died or expired before it was sealed replaces nothing. One that was looked up in another folder knew
                // no change of this one, whatever it is sure to have known there: any of them may have killed it.
                Some(replaces)
                    if is_astray || self.time_to_live.is_some() || self.may_be_dead(row, &self.rows[row]) =>
                {
                    self.invalidations[replaces].outcome = Outcome::Unknown(now);
                }
                Some(replaces) => self.happened(replaces, now),
                None => {}
            }
        }
        if is_certain && self.places.owner(identity, now) != identity {
            self.violated(format!("wrong: session {session} sealed rows of another identity"));
        }
    }

    /// Rows that were durable on a machine are in the folder now, if they were not before.
    pub(in super::super) fn arrived(&mut self, rows: &[usize], session: usize) {
        let is_new = |row: &&usize| self.rows[**row].acknowledged.is_none();
        let new: Vec<usize> = rows.iter().filter(is_new).copied().collect();
        self.acknowledged(&new, session);
    }
}
