//! Why rows were missed. It is looked for after the fact, for missing rows only, and only where they may be more than absent.

use crate::index::Run;
use crate::live::snapshot::{IndexedRun, Snapshot, Unserved, UnservedCause};
use crate::read::lookup::Lookup;
use crate::stats::causes::Cause;

/// Notes the cause of every miss in the lookup.
pub(crate) fn note_causes(lookup: &mut Lookup, snapshot: &Snapshot) {
    note(lookup, snapshot, cause);
}

/// Notes for every miss in the lookup whether others may serve a row of the key, or this process may in a moment.
pub(crate) fn note_elsewhere(lookup: &mut Lookup, snapshot: &Snapshot) {
    note(lookup, snapshot, |lookup, snapshot, position| {
        let elsewhere = causes(lookup, snapshot, position).find(|cause| Lookup::is_elsewhere(*cause));
        let unknown = || if snapshot.is_unindexed { Cause::Unreadable } else { Cause::Absent };
        elsewhere.unwrap_or_else(unknown)
    });
}

fn note(lookup: &mut Lookup, snapshot: &Snapshot, cause: impl Fn(&Lookup, &Snapshot, usize) -> Cause) {
    let may_be_there = lookup.recompute().is_some()
        || snapshot.tombstones.newest() > 0
        || !snapshot.unserved.is_empty()
        || snapshot.is_unindexed;
    if lookup.missing() == 0 || !may_be_there {
        return;
    }
    // What was found under another stamp is known to be that.
    let missing: Vec<usize> =
        lookup.all_missing_positions().filter(|&position| !lookup.is_replaced(position)).collect();
    for position in missing {
        let cause = cause(lookup, snapshot, position);
        lookup.missed(position, cause);
    }
}

fn cause(lookup: &Lookup, snapshot: &Snapshot, position: usize) -> Cause {
    let cause = causes(lookup, snapshot, position).next().unwrap_or_default();
    // What became of a row before its segment went is not known, but that it was invalidated is.
    let is_doomed = || snapshot.tombstones.newest_read_for_row(lookup.keys(), position) > 0;
    if cause == Cause::Unreadable && is_doomed() { Cause::Invalidated } else { cause }
}

/// Why each row that may be the key's is not served.
fn causes<'a>(
    lookup: &'a Lookup,
    snapshot: &'a Snapshot,
    position: usize,
) -> impl Iterator<Item = Cause> + 'a {
    let served = snapshot.runs.iter().flat_map(move |indexed| of_served(lookup, snapshot, indexed, position));
    let unserved = snapshot.unserved.iter();
    served.chain(unserved.flat_map(move |unserved| of_unserved(lookup, snapshot, unserved, position)))
}

/// Rows of the key in segments that are served.
fn of_served<'a>(
    lookup: &'a Lookup,
    snapshot: &'a Snapshot,
    indexed: &'a IndexedRun,
    position: usize,
) -> impl Iterator<Item = Cause> + 'a {
    let keys = lookup.keys();
    candidates(&indexed.run, lookup, position).filter_map(move |(number, row)| {
        let segment = indexed.segments.get(number)?.as_ref().filter(|segment| row < segment.rows())?;
        let broken = if segment.failures() > 0 { Cause::Unreadable } else { Cause::Damaged };
        let own = segment.key(row);
        match own.map(|(key, view)| *key == *keys.key(position) && view == keys.view()) {
            None => Some(broken),
            Some(false) => None,
            Some(true) if snapshot.tombstones.hide_row(segment.base(), keys, position) => {
                Some(Cause::Unreadable)
            }
            Some(true) if snapshot.tombstones.kill_row(segment.base(), keys, position) => {
                Some(Cause::Invalidated)
            }
            Some(true) => Some(if lookup.recompute().is_some() { Cause::Recomputed } else { broken }),
        }
    })
}

/// 48 bits of the key's hash are in a segment that is not served, which is nearly always the key itself.
fn of_unserved<'a>(
    lookup: &'a Lookup,
    snapshot: &'a Snapshot,
    unserved: &'a Unserved,
    position: usize,
) -> impl Iterator<Item = Cause> + 'a {
    let causes = candidates(&unserved.run, lookup, position).filter_map(move |(number, _)| {
        if number == DAMAGED {
            return Some(Cause::Unreadable);
        }
        let UnservedCause { cause, base } = *unserved.causes.get(number)?;
        let newest = || snapshot.tombstones.newest_read_for_row(lookup.keys(), position);
        let is_dead = cause != Cause::Absent && base.is_some_and(|base| newest() > base);
        Some(if is_dead { Cause::Invalidated } else { cause })
    });
    causes.filter(|cause| *cause != Cause::Absent)
}

/// In place of the number of a segment: what a damaged run says of the key is not known.
const DAMAGED: usize = usize::MAX;

/// The segments, by their numbers in the run, and rows that may be the key's.
fn candidates<'a>(
    run: &'a Run,
    lookup: &Lookup,
    position: usize,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let (table, hash) = (run.table(), lookup.keys().hash(position, run.seed()));
    let mut place = Some(table.home(hash));
    std::iter::from_fn(move || {
        let Ok(found) = table.probe_from(hash, place.take()?) else { return Some((DAMAGED, 0)) };
        place = found.map(|found| found.next);
        found.map(|found| (usize::from(found.segment), found.row as usize))
    })
}
