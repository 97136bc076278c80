//! Lookups of a simulated process, and the rows that it computes for those that are missing.

use super::operation::HANDLES;
use super::process::{Pending, Process, Session};
use crate::{Column, Keys, LookupOptions};

pub(super) fn lookup(process: &Process, keys: Vec<&'static str>, view: u32, replaces: Option<usize>) {
    let Some(session) = process.session() else { return };
    let number = session.number();
    let by = replaces.map(|handle| number * HANDLES + handle);
    let mut glance = process.world.oracle().lookup_begins(number, by, process.millis());
    let (unread, faulty) = (process.unread_changes(), process.faulty_listings());
    let ids = Keys::text(&keys, view).unwrap();
    let looked_up = match replaces {
        Some(handle) => session.store.lookup_with(
            ids,
            LookupOptions { recompute: Some(&session.recomputes[handle]), ..LookupOptions::default() },
        ),
        None => session.store.lookup(ids),
    };
    let lookup = match looked_up {
        Ok(lookup) => lookup,
        Err(error) => return process.failed(&error),
    };
    let mut pending = Pending { lookup, glance: glance.clone(), keys, session };
    process.see_misled(&pending.session);
    let found: Vec<Option<i64>> = (0..pending.keys.len()).map(|position| pending.value(position)).collect();
    for (key, found) in pending.keys.iter().zip(&found) {
        process.world.oracle().looked_up(&mut glance, key, view, *found);
    }
    process.world.note(|| format!("process {}: found {found:?}", process.number));
    process.set_found(found);
    if unread.0 || process.unread_changes() != unread {
        // It may commit the row that takes the place of a missing one: nothing that is computed outlives it.
        glance.unsettle();
    }
    if faulty.0 || process.faulty_listings() != faulty {
        glance.go_astray();
    }
    pending.glance = glance;
    if pending.lookup.missing() > 0 {
        process.push(pending);
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
    let mut positions = pending.lookup.distinct_missing_positions();
    positions.truncate(most);
    let view = pending.lookup.keys().view();
    let mut oracle = process.world.oracle();
    let rows: Vec<i64> = positions
        .iter()
        .map(|&at| oracle.computed(&pending.glance, pending.keys[at], view, process.millis()))
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

    /// What was found meanwhile is what the lookup asked for.
    fn check(&self, process: &Process) {
        for (position, key) in self.keys.iter().enumerate() {
            if let Some(value) = self.value(position) {
                let (mut glance, view) = (self.glance.clone(), self.lookup.keys().view());
                process.world.oracle().looked_up(&mut glance, key, view, Some(value));
            }
        }
    }
}
