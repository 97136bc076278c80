//! What may and what must be served.
//!
//! Every computation makes a value of its own, so that a value tells which row it is. An operation has a beginning
//! and an end; what lies between may have happened at any time in between, and is never held against the engine.

mod aged;
mod damaged;
mod evicted;
mod put;
mod renewed;
mod replaced;
mod sealed;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Invalidation, Matcher, Outcome, Row};
use super::places::{Place, Places};
use put::Puts;
pub(super) use renewed::Kind;

/// What one opening of the store is sure to know.
#[derive(Debug)]
struct Session {
    process: usize,
    identity: u8,
    /// Whatever was acknowledged before is visible: when the last fresh refresh that succeeded began.
    fresh_since: u64,
    /// The invalidations that rows must not survive here.
    honours: BTreeSet<usize>,
    /// The invalidations that have a number here, if they have any.
    settled: BTreeSet<usize>,
    /// It has let go of segments without having seen what took their place.
    misled: bool,
    /// It was refused: its rows are dropped, though a lookup may be on its way.
    refused: bool,
    /// How many seals it has begun.
    seals: usize,
    /// The seal under way sees the folder as it is: when it began.
    seals_freshly: Option<u64>,
}

/// What a lookup was sure to know when it began, and so what it may be blamed for.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    session: usize,
    /// The recompute session that looks.
    recompute: Option<usize>,
    begun: u64,
    ended: u64,
    fresh_since: u64,
    /// The time of the folder by then, in milliseconds.
    at: u64,
    /// The folder that was in place when it began.
    place: Place,
    honours: BTreeSet<usize>,
    settled: BTreeSet<usize>,
    /// It may have known a tombstone without the replacement that it commits.
    is_astray: bool,
    /// It has counted the rows that were recomputed by this time at the earliest.
    counted: u64,
    /// The stamps that it asks for, by key; unless it takes rows of any.
    stamps: Option<BTreeMap<&'static str, u64>>,
}

impl Glance {
    /// The lookup is sure of the number of no invalidation.
    pub(super) fn unsettle(&mut self) {
        self.settled.clear();
    }

    /// Listings were late or incomplete: the lookup may have known a tombstone without the replacement that it commits.
    pub(super) fn go_astray(&mut self) {
        self.is_astray = true;
    }
}

/// The number of the recompute session to which the rows belong that take the place of rejected ones. It looks nothing up.
fn rejections_of(session: usize) -> usize {
    usize::MAX - session
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    time: u64,
    /// Moments, with the time of the folder in milliseconds.
    times: Vec<(u64, u64)>,
    rows: Vec<Row>,
    invalidations: Vec<Invalidation>,
    sessions: Vec<Session>,
    places: Places,
    /// How many rows a handle of a session has lost since it was told last.
    losses: BTreeMap<(usize, usize), usize>,
    /// What a handle of a session has put since.
    puts: BTreeMap<(usize, usize), Puts>,
    /// Stores may be refused: there are two identities, or another folder came into place.
    pub(super) may_refuse: bool,
    /// Files come to the folder that is in place, whichever was when their process made them.
    pub(super) may_stray: bool,
    /// What a lookup does not find may be there all the same.
    pub(super) may_miss: bool,
    /// The keys whose rows may have been cut away from their segments: they are missing, and were not invalidated.
    pub(super) trimmed: Vec<&'static str>,
    /// Rows of this age, in milliseconds, must not be served. Younger ones may be gone with them.
    pub(super) time_to_live: Option<u64>,
    violation: Option<String>,
}

impl Oracle {
    /// The present, which is past when anything happens after it.
    pub(super) fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// The present, at this time of the folder in milliseconds, and the last moment that is known to be so much earlier.
    pub(super) fn since(&mut self, millis: u64, earlier: u64) -> (u64, u64) {
        let now = self.now();
        self.times.push((millis, now));
        let is_earlier = |(at, _): &&(u64, u64)| at + earlier <= millis;
        let last = self.times.iter().rev().find(is_earlier);
        (now, last.map_or(0, |(_, moment)| *moment))
    }

    pub(super) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(super) fn violated(&mut self, what: String) {
        // The first is the cause.
        self.violation.get_or_insert(what);
    }

    /// A store was opened: with a fresh listing begun at `fresh`, or with one that may have been stale.
    pub(super) fn opened(&mut self, process: usize, identity: u8, fresh: Option<u64>) -> usize {
        let (honours, settled) = (BTreeSet::new(), BTreeSet::new());
        let (misled, refused, fresh_since, seals, seals_freshly) = (false, false, 0, 0, None);
        let new = Session {
            process,
            identity,
            fresh_since,
            honours,
            settled,
            misled,
            refused,
            seals,
            seals_freshly,
        };
        self.sessions.push(new);
        let session = self.sessions.len() - 1;
        if let Some(since) = fresh {
            self.refreshed(session, since);
        }
        session
    }

    /// A refresh with true listings, begun at `since`, has succeeded.
    pub(super) fn refreshed(&mut self, session: usize, since: u64) {
        if self.places.switched_since(since) {
            return;
        }
        let own = &mut self.sessions[session];
        own.fresh_since = own.fresh_since.max(since);
        own.misled = false;
        for (number, invalidation) in self.invalidations.iter().enumerate() {
            match invalidation.outcome {
                Outcome::Happened(at)
                    if at < since && invalidation.place.is_some_and(|place| self.places.hold(place, at)) =>
                {
                    own.settled.insert(number);
                    own.honours.insert(number);
                }
                // In another folder it may have happened all the same.
                Outcome::Unknown(at) if at < since && !self.places.switched_since(invalidation.begun) => {
                    own.settled.insert(number);
                }
                _ => {}
            }
        }
    }

    /// Segments were let go of while a fault hid what took their place.
    pub(super) fn misled(&mut self, session: usize) {
        self.sessions[session].misled = true;
    }

    pub(super) fn lookup_begins(&mut self, session: usize, recompute: Option<usize>, at: u64) -> Glance {
        let begun = self.now();
        let Session { fresh_since, honours, settled, .. } = &self.sessions[session];
        let (fresh_since, honours, mut settled) = (*fresh_since, honours.clone(), settled.clone());
        if self.places.switched_since(fresh_since) {
            // They may have their numbers in another folder.
            settled.clear();
        }
        let place = self.places.current();
        let (ended, is_astray, counted, stamps) = (u64::MAX, false, begun, None);
        Glance {
            session,
            recompute,
            begun,
            ended,
            fresh_since,
            at,
            place,
            honours,
            settled,
            is_astray,
            counted,
            stamps,
        }
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

    /// A row is computed for a key that was missing at this glance: its value.
    pub(super) fn computed(
        &mut self,
        glance: &Glance,
        key: &'static str,
        view: u32,
        born: u64,
        kind: Kind,
    ) -> i64 {
        let rejects = (kind.rejects && glance.recompute.is_none()).then_some((glance.counted, glance.ended));
        let rejections = || rejects.is_some().then(|| rejections_of(glance.session));
        self.rows.push(Row {
            key,
            view,
            identity: self.sessions[glance.session].identity,
            session: glance.session,
            born,
            recompute: glance.recompute.or_else(rejections),
            looked_from: glance.begun,
            looked: glance.ended,
            looked_in: glance.place,
            settled: glance.settled.clone(),
            is_astray: glance.is_astray || self.sessions[glance.session].misled,
            accepted: None,
            generation: None,
            sealing: None,
            acknowledged: None,
            place: None,
            replaces: None,
            stamp: glance.stamp(key),
            rejects,
            put_by: kind.put_by,
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

    /// Rows of a handle are not in the write buffer: writing is off.
    pub(super) fn lost_by(&mut self, session: usize, handle: usize, rows: usize) {
        if rows > 0 {
            *self.losses.entry((session, handle)).or_default() += rows;
        }
    }

    /// A flush of the handle has succeeded but for these losses.
    pub(super) fn reported(&mut self, session: usize, handle: usize, reported: Option<&str>) {
        let lost = self.losses.remove(&(session, handle)).unwrap_or(0);
        let puts = self.puts.remove(&(session, handle)).unwrap_or_default();
        let count = reported.map_or(Some(0), |reported| reported.split(" computed row").next()?.parse().ok());
        let is_right = count.is_some_and(|count| (lost + puts.lost..=lost + puts.doubtful).contains(&count));
        if !is_right {
            let reported = reported.unwrap_or("nothing");
            self.violated(format!(
                "unreported: handle {handle} has lost {lost} rows, and of those it put {} to {}, and was told {reported}",
                puts.lost, puts.doubtful
            ));
        }
        if count == Some(lost) {
            self.have_survived(&puts);
        }
    }

    /// An invalidation begins; `None` is a process outside of the simulation.
    pub(super) fn invalidate(&mut self, session: Option<usize>, matcher: Matcher) -> usize {
        let begun = self.now();
        let (outcome, spares, is_to_come, place) = (Outcome::Open, BTreeSet::new(), false, None);
        let (replaced_by, replaced_at, aged) = (None, None, None);
        let (change, joined) = (None, BTreeSet::new());
        self.invalidations.push(Invalidation {
            matcher,
            session,
            begun,
            outcome,
            spares,
            replaced_by,
            replaced_at,
            is_to_come,
            change,
            joined,
            place,
            aged,
        });
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
        own.is_to_come = false;
        own.place = (!self.places.switched_since(own.begun)).then(|| self.places.current());
        if let Some(session) = own.session {
            self.sessions[session].honours.insert(invalidation);
            self.sessions[session].settled.insert(invalidation);
        }
    }

    /// It has failed: the process that made it honours it all the same, and may write it later. What is looked up from now on
    /// outlives it.
    pub(super) fn failed_to_invalidate(&mut self, invalidation: usize) {
        if let Some(session) = self.invalidations[invalidation].session {
            self.sessions[session].honours.insert(invalidation);
            self.sessions[session].settled.insert(invalidation);
        }
    }

    /// The process of this session has died: what it was about to invalidate has happened by now, or never will.
    pub(super) fn died(&mut self, session: usize) {
        let now = self.now();
        let open = |own: &&mut Invalidation| own.session == Some(session) && own.outcome == Outcome::Open;
        self.invalidations.iter_mut().filter(open).for_each(|own| own.outcome = Outcome::Unknown(now));
    }

    /// Another folder comes into place, or none.
    pub(super) fn switch(&mut self, switch: impl FnOnce(&mut Places, u64)) {
        self.may_refuse = true;
        let now = self.now();
        switch(&mut self.places, now);
    }

    /// The module was made in the folder that is in place.
    pub(super) fn made(&mut self) {
        let now = self.now();
        self.places.make(now);
    }

    /// A user has copied the folder.
    pub(super) fn backed_up(&mut self, now: u64) {
        self.places.back_up(now);
    }

    /// A store was refused, when it was opened or later.
    pub(super) fn refused(&mut self, session: Option<usize>, error: &crate::Error) {
        if let Some(session) = session {
            self.sessions[session].refused = true;
        }
        if !self.may_refuse {
            self.violated(format!("refused: {error:#}"));
        }
    }
}
