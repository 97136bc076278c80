//! Lookups of a simulated process to judge or to put rows, and the rejection of rows that were found.

use super::chance::Chance;
use super::lookups::{Request, Watch, look_up};
use super::operation::{HANDLES, KEYS, VIEWS};
use super::process::Process;
use super::schedule::fresh;

/// A lookup whose found rows may be rejected.
#[derive(Clone, Debug)]
pub(super) struct Judging {
    pub(super) keys: Vec<&'static str>,
    pub(super) view: u32,
    pub(super) replaces: Option<usize>,
    /// Values are put for the rows that are missing.
    pub(super) puts: bool,
    /// The stamps are those before the last change of each source.
    pub(super) is_old: bool,
    pub(super) fresh: bool,
}

impl Judging {
    pub(super) fn choose(chance: &mut Chance, process: &Process) -> Self {
        let mut keys = KEYS.to_vec();
        chance.shuffle(&mut keys);
        keys.truncate(1 + chance.below(4));
        let replaces = chance.permille(process.habits().recomputes).then(|| chance.below(HANDLES));
        let mut view = chance.below(VIEWS as usize) as u32;
        if chance.permille(500) {
            // A few rows with which much happens.
            (keys, view) = (KEYS[..2].to_vec(), 0);
        }
        let (puts, is_old) = (chance.permille(300), chance.permille(150));
        Self { keys, view, replaces, puts, is_old, fresh: chance.permille(500) }
    }

    /// The rows of a view as they are.
    pub(super) fn of_all_keys() -> Self {
        Self { keys: KEYS.to_vec(), view: 0, replaces: None, puts: false, is_old: false, fresh: true }
    }
}

pub(super) fn judge(process: &Process, judging: Judging) {
    let Judging { keys, view, replaces, puts, is_old, fresh: is_fresh } = judging;
    let stamps = process.stamps(&keys, is_old);
    look_up(process, Request { keys, view, replaces, stamps, puts, is_fresh, is_kept: true });
}

/// Rejects the found rows whose bit is set in `positions`.
pub(super) fn reject(process: &Process, pending: usize, positions: usize, is_fresh: bool) {
    let Some(mut own) = process.take(pending) else { return };
    let is_meant = |&position: &usize| positions >> position & 1 == 1 && !own.lookup.is_missing(position);
    let rejected: Vec<usize> = (0..own.keys.len()).filter(is_meant).collect();
    if rejected.is_empty() {
        return process.push(own);
    }
    let (number, by) = (own.session.number(), own.glance.recompute());
    let mut glance = process.world.oracle().lookup_begins(number, by, process.millis());
    let since = process.world.oracle().now();
    glance.ask_for(own.glance.stamps());
    let (watch, session) = (Watch::new(process, &own.session), own.session.clone());
    let mut reject = || session.store.reject(&mut own.lookup, &rejected);
    let is_current = match if is_fresh { fresh(reject) } else { reject() } {
        Ok(is_current) => is_current,
        Err(error) => return process.failed(&error),
    };
    process.see_misled(&session);
    process.world.note(|| format!("process {}: rejected {rejected:?}: {is_current}", process.number));
    if own.lookup.is_for_puts() {
        // It has looked for changes when it began, and does not again.
        own.replaced.extend(rejected.iter().map(|&position| own.keys[position]));
        return process.push(own);
    }
    if is_fresh && watch.is_sure(process, &session) {
        process.world.oracle().knows(&mut glance, since);
    }
    if is_current {
        let now = process.world.oracle().now();
        glance.is_as_of(&own.glance, now);
        own.glance = glance;
        own.replaced.extend(rejected.iter().map(|&position| own.keys[position]));
        // What it has found is as right as if it were found now.
        own.check(process);
    } else {
        own.glance = glance;
        own.judge_all(process);
    }
    watch.excuse(process, &session, &mut own.glance);
    process.push(own);
}
