//! Why rows were missed. It is looked for after the fact, for missing rows only, and only where they may be more than absent.

use crate::index::Run;
use crate::live::snapshot::{IndexedRun, Snapshot, Unserved};
use crate::read::lookup::Lookup;
use crate::stats::causes::Cause;

/// Notes the cause of every miss in the lookup.
pub(crate) fn note_causes(lookup: &mut Lookup, snapshot: &Snapshot) {
    let may_be_there =
        lookup.recompute().is_some() || snapshot.tombstones.newest() > 0 || !snapshot.unserved.is_empty();
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
    let served = snapshot.runs.iter().flat_map(|indexed| of_served(lookup, snapshot, indexed, position));
    let unserved = snapshot.unserved.iter().flat_map(|unserved| of_unserved(lookup, unserved, position));
    let mut causes = served.chain(unserved);
    if lookup.is_for_puts() {
        // A row that others may serve comes before any that is dead for all.
        return causes.max_by_key(|cause| Lookup::is_elsewhere(*cause)).unwrap_or_default();
    }
    let cause = causes.next().unwrap_or_default();
    // What became of a row before its segment went is not known, but that it was invalidated is.
    let is_doomed = || snapshot.tombstones.newest_read_for_row(lookup.keys(), position) > 0;
    if cause == Cause::Unreadable && is_doomed() { Cause::Invalidated } else { cause }
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
    lookup: &Lookup,
    unserved: &'a Unserved,
    position: usize,
) -> impl Iterator<Item = Cause> + 'a {
    let causes = candidates(&unserved.run, lookup, position);
    causes
        .filter_map(|(number, _)| unserved.causes.get(number).copied())
        .filter(|cause| *cause != Cause::Absent)
}

/// The segments, by their numbers in the run, and rows that may be the key's.
fn candidates<'a>(
    run: &'a Run,
    lookup: &Lookup,
    position: usize,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let (table, hash) = (run.table(), lookup.keys().hash(position));
    let mut place = Some(table.home(hash));
    std::iter::from_fn(move || {
        // A damaged run tells nothing.
        let found = table.probe_from(hash, place?).unwrap_or_default();
        place = found.map(|found| found.next);
        found.map(|found| (usize::from(found.segment), found.row as usize))
    })
}
