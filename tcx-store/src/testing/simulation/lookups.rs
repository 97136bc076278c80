//! Lookups of a simulated process, and the rows that it computes for those that are missing.

use std::collections::{BTreeMap, BTreeSet};

use super::operation::HANDLES;
use super::oracle::{Glance, Kind};
use super::process::{Pending, Process, Session};
use super::schedule::fresh;
use crate::{Column, Keys, LookupOptions};

/// What is looked up, and how.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) keys: Vec<&'static str>,
    pub(super) view: u32,
    pub(super) replaces: Option<usize>,
    /// Only rows with these stamps are found.
    pub(super) stamps: Option<BTreeMap<&'static str, u64>>,
    /// Values are to be put for those that are missing.
    pub(super) puts: bool,
    /// Nothing is stale.
    pub(super) is_fresh: bool,
    /// It waits, though nothing is missing: rows may be rejected.
    pub(super) is_kept: bool,
}

pub(super) fn lookup(process: &Process, keys: Vec<&'static str>, view: u32, replaces: Option<usize>) {
    let stamps = process.stamps(&keys, false).filter(|_| !process.observes());
    look_up(process, Request { keys, view, replaces, stamps, ..Request::default() });
}

pub(super) fn look_up(process: &Process, request: Request) {
    let Some(session) = process.session() else { return };
    let Request { keys, view, replaces, stamps, puts, is_fresh, is_kept } = request;
    let number = session.number();
    let by = replaces.map(|handle| number * HANDLES + handle);
    let mut glance = process.world.oracle().lookup_begins(number, by, process.millis());
    let (since, looked) = process.world.oracle().since(process.millis(), process.look_lasts());
    let watch = Watch::new(process, &session);
    let mut ids = Keys::text(&keys, view).unwrap();
    if let Some(stamps) = &stamps {
        let stamps: Vec<u8> = keys.iter().flat_map(|key| stamps[key].to_le_bytes()).collect();
        ids = ids.with_stamps(Column::dense(&stamps)).unwrap();
    }
    glance.ask_for(stamps);
    let recompute = replaces.map(|handle| &session.recomputes[handle]);
    let ask = || {
        if puts {
            session.store.lookup_to_put(ids, recompute)
        } else {
            session.store.lookup_with(ids, LookupOptions { recompute, ..LookupOptions::default() })
        }
    };
    let lookup = match if is_fresh { fresh(ask) } else { ask() } {
        Ok(lookup) => lookup,
        Err(error) => return process.failed(&error),
    };
    let mut pending = Pending { lookup, glance, keys, session, replaced: BTreeSet::new() };
    process.see_misled(&pending.session);
    if is_fresh && watch.is_sure(process, &pending.session) {
        let oracle = process.world.oracle();
        if puts {
            oracle.lists(&mut pending.glance, since);
        }
        // Changes are looked for before rows are computed, unless another lookup has just done so.
        if puts || pending.lookup.missing() > 0 {
            oracle.knows(&mut pending.glance, if puts { since } else { looked });
        }
    }
    pending.judge_all(process);
    let session = pending.session.clone();
    watch.excuse(process, &session, &mut pending.glance);
    if is_kept || pending.lookup.missing() > 0 {
        process.push(pending);
    }
}

/// What could not be read or seen while rows were looked up.
pub(super) struct Watch {
    unread: (bool, usize),
    faulty: (bool, usize),
    failed_listings: u64,
}

impl Watch {
    pub(super) fn new(process: &Process, session: &Session) -> Self {
        let failed_listings = session.store.stats().failed_listings;
        Self { unread: process.unread_changes(), faulty: process.faulty_listings(), failed_listings }
    }

    /// Whether everything was seen as it is.
    pub(super) fn is_sure(&self, process: &Process, session: &Session) -> bool {
        let is_listed = session.store.stats().failed_listings == self.failed_listings;
        is_listed && !self.is_unread(process) && !session.store.is_inherited()
    }

    fn is_unread(&self, process: &Process) -> bool {
        self.unread.0 || process.unread_changes() != self.unread
    }

    /// What is not sure is not held against the lookup.
    pub(super) fn excuse(&self, process: &Process, session: &Session, glance: &mut Glance) {
        // A listing reads such a change again only once its doubt is over.
        let is_still_unread = || session.store.core.live().changes.unread_after(0).is_some();
        if self.is_unread(process) || !session.store.is_inherited() && is_still_unread() {
            // It may commit the row that takes the place of a missing one: nothing that is computed outlives it.
            glance.unsettle();
        }
        if self.faulty.0 || process.faulty_listings() != self.faulty {
            glance.go_astray();
        }
    }
}

pub(super) fn lookup_again(process: &Process, pending: usize) {
    let Some(mut pending) = process.take(pending) else { return };
    if let Err(error) = pending.session.store.lookup_again(&mut pending.lookup) {
        return process.failed(&error);
    }
    pending.check(process);
    process.push(pending);
}

pub(super) fn insert(process: &Process, pending: usize, most: usize, handle: usize) {
    let Some(mut pending) = process.take(pending) else { return };
    if process.has_stamps() && pending.lookup.keys().stamps().is_none() {
        // What is inserted has a stamp.
        return;
    }
    let mut positions = pending.lookup.distinct_missing_positions();
    positions.truncate(most);
    let view = pending.lookup.keys().view();
    if let Err(error) = pending.session.store.are_hidden(&mut pending.lookup, &positions) {
        return process.failed(&error);
    }
    // A tombstone is written for all of them, if it is for one.
    let is_replaced =
        |&at: &usize| pending.lookup.is_replaced(at) || pending.replaced.contains(pending.keys[at]);
    let rejects = positions.iter().any(is_replaced);
    let kind = Kind { rejects, put_by: pending.lookup.is_for_puts().then_some(handle) };
    let mut oracle = process.world.oracle();
    let rows: Vec<i64> = positions
        .iter()
        .map(|&at| oracle.computed(&pending.glance, pending.keys[at], view, process.millis(), kind))
        .collect();
    drop(oracle);
    let values: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
    let Session { store, losses, .. } = &*pending.session;
    let (before, columns) = (store.stats().rows_accepted, vec![Column::dense(&values)]);
    if let Err(error) = store.insert_for(&losses[handle], &mut pending.lookup, &positions, columns, None) {
        return process.failed(&error);
    }
    if store.stats().rows_accepted > before {
        process.world.oracle().accepted(&rows);
        process.world.note(|| format!("process {}: accepted {rows:?}", process.number));
    } else if !store.is_inherited() {
        process.world.oracle().lost_by(pending.session.number(), handle, rows.len());
        process.world.note(|| format!("process {}: handle {handle} loses {rows:?}", process.number));
    }
    pending.check(process);
    if pending.lookup.missing() > 0 {
        process.push(pending);
    }
}

impl Pending {
    fn value(&self, position: usize) -> Option<i64> {
        let missing = self.lookup.is_missing(position);
        (!missing).then(|| i64::from_le_bytes(self.lookup.bytes(0, position).try_into().unwrap()))
    }

    /// Judges what the lookup has found, and what it has missed.
    pub(super) fn judge_all(&mut self, process: &Process) {
        let found: Vec<Option<i64>> = (0..self.keys.len()).map(|position| self.value(position)).collect();
        let view = self.lookup.keys().view();
        for (&key, found) in self.keys.iter().zip(&found) {
            let mut oracle = process.world.oracle();
            oracle.looked_up(&mut self.glance, key, view, *found);
            if found.is_some() {
                self.replaced.remove(key);
            } else if oracle.is_outdated(&self.glance, key, view) {
                self.replaced.insert(key);
            }
        }
        process.world.note(|| format!("process {}: found {found:?}", process.number));
        process.set_found(found);
    }

    /// What was found meanwhile is what the lookup asked for.
    pub(super) fn check(&mut self, process: &Process) {
        for (position, key) in self.keys.iter().enumerate() {
            if let Some(value) = self.value(position) {
                self.replaced.remove(key);
                let (mut glance, view) = (self.glance.clone(), self.lookup.keys().view());
                process.world.oracle().looked_up(&mut glance, key, view, Some(value));
            }
        }
    }
}
