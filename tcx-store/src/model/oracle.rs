//! What may and what must be served.
//!
//! Every computation makes a value of its own, so that a value tells which row it is. An operation has a beginning
//! and an end; what lies between may have happened at any time in between, and is never held against the engine.

use std::collections::BTreeSet;

use super::history::{Invalidation, Matcher, Outcome, Row};

/// What one opening of the store is sure to know.
#[derive(Debug)]
struct Session {
    identity: u8,
    /// Whatever was acknowledged before is visible: when the last fresh refresh that succeeded began.
    fresh_since: u64,
    /// The invalidations that rows must not survive here.
    honours: BTreeSet<usize>,
    /// The invalidations that have a number here, if they have any.
    settled: BTreeSet<usize>,
    /// Its folder was removed: what others do in the new one is none of its business.
    orphaned: bool,
    /// It has let go of segments without having seen what took their place.
    misled: bool,
    /// It was refused: its rows are dropped, though a lookup may be on its way.
    refused: bool,
}

/// What a lookup was sure to know when it began, and so what it may be blamed for.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    session: usize,
    /// The replacer that looks.
    replacer: Option<usize>,
    begun: u64,
    ended: u64,
    fresh_since: u64,
    honours: BTreeSet<usize>,
    settled: BTreeSet<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    time: u64,
    rows: Vec<Row>,
    invalidations: Vec<Invalidation>,
    sessions: Vec<Session>,
    /// Whose rows were acknowledged in this folder.
    owner: Option<u8>,
    /// Stores may be refused: there are two identities, or folders are removed.
    pub(super) may_refuse: bool,
    /// What a lookup does not find may be there all the same.
    pub(super) may_miss: bool,
    violation: Option<String>,
}

impl Oracle {
    /// The present, which is past when anything happens after it.
    pub(super) fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    pub(super) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(super) fn violated(&mut self, what: String) {
        // The first is the cause.
        self.violation.get_or_insert(what);
    }

    /// A store was opened: with a fresh listing begun at `fresh`, or with one that may have been stale.
    pub(super) fn opened(&mut self, identity: u8, fresh: Option<u64>) -> usize {
        let (honours, settled) = (BTreeSet::new(), BTreeSet::new());
        let (orphaned, misled, refused) = (false, false, false);
        self.sessions.push(Session { identity, fresh_since: 0, honours, settled, orphaned, misled, refused });
        let session = self.sessions.len() - 1;
        if let Some(since) = fresh {
            self.refreshed(session, since);
        }
        session
    }

    /// A refresh with true listings, begun at `since`, has succeeded.
    pub(super) fn refreshed(&mut self, session: usize, since: u64) {
        let own = &mut self.sessions[session];
        if own.orphaned {
            return;
        }
        own.fresh_since = own.fresh_since.max(since);
        own.misled = false;
        for (number, invalidation) in self.invalidations.iter().enumerate().filter(|(_, own)| !own.gone) {
            match invalidation.outcome {
                Outcome::Happened(at) if at < since => {
                    own.settled.insert(number);
                    own.honours.insert(number);
                }
                Outcome::Unknown(at) if at < since => drop(own.settled.insert(number)),
                _ => {}
            }
        }
    }

    /// Segments were let go of while a fault hid what took their place.
    pub(super) fn misled(&mut self, session: usize) {
        self.sessions[session].misled = true;
    }

    pub(super) fn lookup_begins(&mut self, session: usize, replacer: Option<usize>) -> Glance {
        let begun = self.now();
        let Session { fresh_since, honours, settled, .. } = &self.sessions[session];
        let (fresh_since, honours, settled) = (*fresh_since, honours.clone(), settled.clone());
        Glance { session, replacer, begun, ended: u64::MAX, fresh_since, honours, settled }
    }

    /// What the lookup has found for a key: a value, or nothing.
    pub(super) fn looked_up(&mut self, glance: &mut Glance, key: &str, view: u32, found: Option<i64>) {
        glance.ended = self.now();
        let wrong = match found {
            Some(value) => self.wrong(glance, key, view, value),
            None => self.lost(glance, key, view),
        };
        if let Some(what) = wrong {
            self.violated(format!("session {} looked up {key}, view {view}: {what}", glance.session));
        }
    }

    /// Why this row must not have been served.
    fn wrong(&self, glance: &Glance, key: &str, view: u32, value: i64) -> Option<String> {
        let Some(row) = usize::try_from(value).ok().and_then(|row| self.rows.get(row)) else {
            return Some(format!("wrong: nobody has computed {value}"));
        };
        let Session { identity, orphaned, .. } = self.sessions[glance.session];
        if (row.key, row.view, row.identity) != (key, view, identity) {
            return Some(format!("wrong: found row {value}, which is {row:?}"));
        }
        if !self.is_own(glance.replacer, row) {
            return Some(format!("wrong: a replacer found row {value}, which it has not computed: {row:?}"));
        }
        let honoured = glance.honours.iter().map(|&killer| &self.invalidations[killer]);
        let killer = honoured.into_iter().find(|killer| killer.kills(value as usize, row))?;
        if orphaned && killer.gone && row.session != glance.session {
            // What another process was about to write when the folder was removed came to the next one, with numbers of
            // its own.
            return None;
        }
        Some(format!("wrong: found row {value} that is dead: {row:?}, killed by {killer:?}"))
    }

    /// Whether a replacer may take the row for its own: it is, or it was computed after the replacer has had it replaced.
    fn is_own(&self, replacer: Option<usize>, row: &Row) -> bool {
        let after = |own: &Row| {
            let since = own.replaces.map(|number| self.invalidations[number].begun);
            let is_same = own.replacer == replacer && (own.key, own.view) == (row.key, row.view);
            is_same && since.is_some_and(|since| since < row.looked)
        };
        replacer.is_none() || row.replacer == replacer || self.rows.iter().any(after)
    }

    /// The row that must have been found.
    fn lost(&self, glance: &Glance, key: &str, view: u32) -> Option<String> {
        let Session { identity, refused, misled, .. } = self.sessions[glance.session];
        let lost = self.rows.iter().enumerate().filter(|_| !self.may_miss).find(|(number, row)| {
            let own = row.session == glance.session && row.accepted.is_some_and(|at| at < glance.begun);
            let visible = row.acknowledged.is_some_and(|at| at < glance.fresh_since)
                && !self.sessions[row.session].orphaned;
            !(row.gone || refused || misled)
                && (row.key, row.view, row.identity) == (key, view, identity)
                && (glance.replacer.is_none() || row.replacer == glance.replacer)
                && (own || visible)
                && !self.may_be_dead(*number, row)
        });
        lost.map(|(number, row)| format!("lost: row {number} is missing: {row:?}"))
    }

    fn may_be_dead(&self, number: usize, row: &Row) -> bool {
        let unsettled = self.invalidations.iter().enumerate().filter(|(own, _)| !row.settled.contains(own));
        unsettled.into_iter().any(|(_, invalidation)| invalidation.may_kill(number, row))
    }

    /// A row is computed for a key that was missing at this glance: its value.
    pub(super) fn computed(&mut self, glance: &Glance, key: &'static str, view: u32) -> i64 {
        self.rows.push(Row {
            key,
            view,
            identity: self.sessions[glance.session].identity,
            session: glance.session,
            replacer: glance.replacer,
            looked: glance.ended,
            settled: glance.settled.clone(),
            accepted: None,
            acknowledged: None,
            replaces: None,
            gone: false,
        });
        self.rows.len() as i64 - 1
    }

    /// The rows are in the write buffer.
    pub(super) fn accepted(&mut self, rows: &[i64]) {
        let now = self.now();
        for &row in rows {
            self.rows[row as usize].accepted = Some(now);
        }
    }

    /// A seal begins: the rows that it has to make durable. Those of replacers have their keys invalidated by it.
    pub(super) fn seal_begins(&mut self, session: usize) -> Vec<usize> {
        let waits =
            |row: &Row| row.session == session && row.accepted.is_some() && row.acknowledged.is_none();
        let rows: Vec<usize> = (0..self.rows.len()).filter(|&row| waits(&self.rows[row])).collect();
        let new = |row: &&usize| self.rows[**row].replacer.is_some() && self.rows[**row].replaces.is_none();
        let new: Vec<usize> = rows.iter().filter(new).copied().collect();
        for &row in &new {
            let Row { key, view, accepted, .. } = self.rows[row];
            let replaces = self.invalidate(Some(session), Matcher::Row(key, view));
            self.rows[row].replaces = Some(replaces);
            // Those that were recomputed later are newer.
            let same = |other: &&usize| self.rows[**other].accepted >= accepted;
            self.invalidations[replaces].spares = new.iter().filter(same).copied().collect();
        }
        rows
    }

    /// They have been reported durable.
    pub(super) fn acknowledged(&mut self, rows: &[usize], session: usize) {
        let now = self.now();
        if rows.is_empty() {
            return;
        }
        let Session { identity, orphaned, .. } = self.sessions[session];
        for &row in rows {
            self.rows[row].acknowledged = Some(now);
            match self.rows[row].replaces {
                // A row that has died before it was sealed takes nobody's place.
                Some(replaces) if self.may_be_dead(row, &self.rows[row]) => {
                    self.invalidations[replaces].outcome = Outcome::Unknown(now);
                }
                Some(replaces) => self.happened(replaces, now),
                None => {}
            }
        }
        if !orphaned && *self.owner.get_or_insert(identity) != identity {
            self.violated(format!("wrong: session {session} sealed rows of another identity"));
        }
    }

    /// An invalidation begins; `None` is a process outside of the simulation.
    pub(super) fn invalidate(&mut self, session: Option<usize>, matcher: Matcher) -> usize {
        let begun = self.now();
        let (outcome, spares, gone) = (Outcome::Open, BTreeSet::new(), false);
        self.invalidations.push(Invalidation { matcher, session, begun, outcome, spares, gone });
        self.invalidations.len() - 1
    }

    /// It was reported to have happened.
    pub(super) fn invalidated(&mut self, invalidation: usize) {
        let now = self.now();
        self.happened(invalidation, now);
    }

    fn happened(&mut self, invalidation: usize, now: u64) {
        let own = &mut self.invalidations[invalidation];
        own.outcome = Outcome::Happened(now);
        if let Some(session) = own.session {
            self.sessions[session].honours.insert(invalidation);
            self.sessions[session].settled.insert(invalidation);
        }
    }

    /// It has failed: the process that made it honours it all the same, and may write it later.
    pub(super) fn failed_to_invalidate(&mut self, invalidation: usize) {
        if let Some(session) = self.invalidations[invalidation].session {
            self.sessions[session].honours.insert(invalidation);
        }
    }

    /// The process of this session has died: what it was about to invalidate has happened by now, or never will.
    pub(super) fn died(&mut self, session: usize) {
        let now = self.now();
        let open = |own: &&mut Invalidation| own.session == Some(session) && own.outcome == Outcome::Open;
        self.invalidations.iter_mut().filter(open).for_each(|own| own.outcome = Outcome::Unknown(now));
    }

    /// Somebody has removed the folder: with it went what stood there, and what was invalidated there.
    pub(super) fn removed(&mut self) {
        self.may_refuse = true;
        self.owner = None;
        self.rows.iter_mut().for_each(|row| row.gone = true);
        self.sessions.iter_mut().for_each(|session| session.orphaned = true);
        self.invalidations.iter_mut().for_each(|invalidation| invalidation.gone = true);
    }

    /// A store was refused, when it was opened or later.
    pub(super) fn refused(&mut self, session: Option<usize>, error: &crate::Error) {
        if let Some(session) = session {
            self.sessions[session].refused = true;
        }
        if !self.may_refuse {
            self.violated(format!("refused: {error}"));
        }
    }
}
