//! Compaction: segments become one, without the rows that are dead and the copies of a key. The inputs stay until they
//! are [collected](collect).

mod choose;
mod collect;
mod evict;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use choose::Effort;
pub(crate) use collect::{Collected, Grace, collect};
pub(crate) use evict::{Excess, Removal, announce_leaving, announce_removal, evict, kill_leaving};

use crate::changes::instance::KnownIdentity;
use crate::changes::{Tombstones, now_millis};
use crate::engine::Core;
use crate::engine::publish::{forget_index, index_segment, publish_indexed};
use crate::error::{Error, ErrorKind, Result};
use crate::live::damage::DamagedFiles;
use crate::live::retention::AgeGroup;
use crate::schema::key::{KeyHash, KeyHashes, KeySeed};
use crate::segment::{
    Piece, PieceRows, PieceSource, Segment, Verdict, WrittenSegment, most_rows, write_segment,
};
use crate::sessions::uses::learn_uses;
use crate::stats::Work;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use choose::{Candidate, Largest, choose};

/// What is joined, and at which number.
struct Compaction {
    inputs: Vec<Arc<Segment>>,
    identity: KnownIdentity,
    base: u64,
    tombstones: Arc<Tombstones>,
}

/// Joins segments once, if any are worth it; returns whether it did. Damaged segments are added to `left_out` and not joined: one that may
/// be sound at another look is served again after the next listing, and would be chosen without end.
///
/// # Errors
///
/// Returns an error if a write fails; nothing has changed then.
pub(crate) fn compact(core: &Core, effort: Effort, left_out: &mut BTreeSet<SegmentName>) -> Result<bool> {
    core.check()?;
    let Some(compaction) = plan(core, effort, left_out)? else { return Ok(false) };
    let span =
        tracing::debug_span!("compaction", module = core.spec.module_id, inputs = compaction.inputs.len());
    let joined = span.in_scope(|| join(core, &compaction));
    if joined.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
        let damaged = drop_damaged(core, &compaction.inputs);
        if !damaged.is_empty() {
            left_out.extend(damaged);
            // The others are chosen again.
            return Ok(true);
        }
    }
    joined.map_err(|e| Error::io("cannot compact segments in", core.storage.path(), e))
}

fn plan(core: &Core, effort: Effort, left_out: &BTreeSet<SegmentName>) -> Result<Option<Compaction>> {
    let is_dear = effort != Effort::Thorough && core.storage.list_every().is_some();
    // A listing that is dear is made if there is something to join without it.
    if is_dear && plan_with(core, effort, left_out, false)?.is_none() || !core.may_compact(effort) {
        return Ok(None);
    }
    plan_with(core, effort, left_out, true)
}

/// What to join, of what is known, or of what a listing shows.
fn plan_with(
    core: &Core,
    effort: Effort,
    left_out: &BTreeSet<SegmentName>,
    lists: bool,
) -> Result<Option<Compaction>> {
    let (served, identity, base, tombstones) = {
        let mut live = core.live();
        if lists && live.refresh()? {
            core.install(&mut live);
        }
        let Some((mut served, identity)) = live.compactable() else { return Ok(None) };
        let oldest_kept = core.retention.oldest_kept();
        served.retain(|segment| segment.born() >= oldest_kept && !left_out.contains(&segment.name()));
        let tombstones = live.changes.tombstones();
        served.retain(|segment| tombstones.let_join(segment.name().random, segment.dated(), None));
        if effort != Effort::Thorough {
            // Only a caller who asks for it waits until all of their rows have come from another machine.
            served.retain(|segment| !segment.is_far());
        }
        let base = live.changes.newest().unwrap_or(0);
        (served, identity, base, live.changes.tombstones().clone())
    };
    let counts = effort != Effort::Small;
    let candidate = |segment: Arc<Segment>| {
        let dead = if counts { segment.dead_rows(&tombstones) } else { 0 };
        Candidate { segment, dead }
    };
    let candidates: Vec<_> = served.iter().cloned().map(candidate).collect();
    // One whose rows are all dead is not joined: it only has to be removed.
    let candidates = candidates.into_iter().filter(|own| own.dead < own.segment.rows());
    let (mut groups, now): (BTreeMap<AgeGroup, Vec<Candidate>>, _) = (BTreeMap::new(), now_millis());
    for candidate in candidates {
        groups.entry(core.retention.age_group(&candidate.segment, &served, now)).or_default().push(candidate);
    }
    let largest = Largest { rows: most_rows(&core.leaves), bytes: core.retention.largest_segment() };
    let chosen = groups.values().find_map(|group| choose(group, effort, largest));
    Ok(chosen.map(|chosen| {
        let mut inputs: Vec<_> = chosen.into_iter().map(|candidate| candidate.segment).collect();
        // Of several copies of a row the first that comes is kept: that of the newest segment.
        inputs.sort_by_key(|input| Reverse((input.base(), input.born())));
        Compaction { inputs, identity, base, tombstones }
    }))
}

/// Writes the new segment; `false` if another process was faster.
fn join(core: &Core, compaction: &Compaction) -> io::Result<bool> {
    let Compaction { inputs, identity, base, tombstones } = compaction;
    let start = Instant::now();
    let (rows, hashes) = live_rows(compaction)?;
    if hashes.hashes.is_empty() || core.gives_up() {
        return Ok(false);
    }
    let pieces = inputs.iter().zip(&rows).filter(|(_, rows)| !rows.is_empty());
    let pieces: Vec<_> = pieces
        .map(|(input, rows)| Piece { source: PieceSource::Segment(input), rows: PieceRows::Selected(rows) })
        .collect();
    let header = core.joined_header(identity, *base, inputs, hashes.hashes.len());
    let written = write_segment(&*core.storage, &header, &pieces)?;
    let name = written.name;
    if core.gives_up() || !publish_replacing(core, written, hashes, (identity.instance, tombstones), inputs)?
    {
        return Ok(false);
    }
    hand_on_uses(core, inputs, name);
    core.took(Work::Compaction, start);
    tracing::debug!(segment = %name, inputs = inputs.len(), "compacted");
    Ok(true)
}

/// The new segment counts as used as often as those that it replaces were. Other processes have recorded these alone, so what they
/// recorded is taken over, where eviction of this process depends on it.
pub(crate) fn hand_on_uses(core: &Core, inputs: &[Arc<Segment>], name: SegmentName) {
    let now = now_millis();
    if core.retention.evicts_by_uses() {
        learn_uses(core, now);
    }
    core.hand_on_uses(inputs, name, now);
}

/// The rows of each input that are alive, each key once, and their hashes.
fn live_rows(compaction: &Compaction) -> io::Result<(Vec<Vec<u32>>, KeyHashes)> {
    let (inputs, seed) = (&compaction.inputs, KeySeed::of_instance(compaction.identity.instance));
    let mut first_rows: HashMap<KeyHash, (usize, usize)> = HashMap::new();
    let mut hashes = Vec::new();
    let mut rows = vec![Vec::new(); inputs.len()];
    for (number, input) in inputs.iter().enumerate() {
        for row in 0..input.rows() {
            let (key, view) = input.key(row).ok_or_else(|| damaged(input, "a key cannot be read"))?;
            if compaction.tombstones.kill(input.base(), &key, view) {
                continue;
            }
            let hash = seed.hash(&key, view);
            match first_rows.entry(hash) {
                Entry::Vacant(vacant) => drop(vacant.insert((number, row))),
                Entry::Occupied(first) => {
                    let (first, at) = *first.get();
                    if inputs[first].key(at) == Some((key, view)) {
                        continue;
                    }
                }
            }
            rows[number].push(row as u32);
            hashes.push(hash);
        }
    }
    Ok((rows, KeyHashes { seed, hashes }))
}

fn damaged(segment: &Segment, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("segment {}: {what}", segment.name()))
}

/// Gives a segment that replaces these its name; `false` if one of them is not served any more.
///
/// What takes time is done before the last look. Another process may remove an input after it, invalidate old rows or put values for
/// missing ones, and not see the rows that come back with the segment.
///
/// # Errors
///
/// Returns an error if the folder cannot be read or written, or is another one.
pub(crate) fn publish_replacing(
    core: &Core,
    mut written: WrittenSegment,
    hashes: KeyHashes,
    (instance, tombstones): (Random, &Tombstones),
    inputs: &[Arc<Segment>],
) -> io::Result<bool> {
    written.sync()?;
    verify_still(tombstones, inputs)?;
    let may_replace = || may_replace(core, instance, inputs, written.name);
    if !may_replace()? {
        return Ok(false);
    }
    let run = index_segment(core, &written, hashes);
    let may_replace = may_replace();
    if !matches!(may_replace, Ok(true)) {
        forget_index(core, run);
        return may_replace;
    }
    publish_indexed(core, written, run).map_err(io::Error::other).map(|()| true)
}

/// Verifies what the rows of a new segment were copied from, and what decided which of them are alive. The checksums of the new segment are
/// those of what was copied, and the inputs, which would show the damage, are removed.
///
/// # Errors
///
/// Returns an error of the kind `InvalidData` if any of it is not as it was written any more.
pub(crate) fn verify_still(tombstones: &Tombstones, inputs: &[Arc<Segment>]) -> io::Result<()> {
    tombstones.verify_still()?;
    match inputs.iter().find(|input| !input.is_intact_still()) {
        None => Ok(()),
        Some(input) => Err(damaged(input, "it is not as it was written any more")),
    }
}

/// Whether every input is still served, in the same folder, and no other process is about to remove it.
fn may_replace(
    core: &Core,
    instance: Random,
    inputs: &[Arc<Segment>],
    replacement: SegmentName,
) -> io::Result<bool> {
    let mut live = core.live();
    live.changes.make_durable(&*core.storage)?;
    let refreshed = live.refresh();
    core.install(&mut live);
    match refreshed {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Io => return Err(io::Error::other(error)),
        Err(error) => {
            core.remember(&error);
            return Ok(false);
        }
    }
    let Some((served, identity)) = live.compactable() else { return Ok(false) };
    let tombstones = live.changes.tombstones();
    let stays = |input: &Arc<Segment>| {
        served.iter().any(|segment| Arc::ptr_eq(segment, input))
            && tombstones.let_join(input.name().random, input.dated(), Some(replacement.random))
    };
    if identity.instance != instance || !inputs.iter().all(stays) {
        return Ok(false);
    }
    live.check_instance().map_err(io::Error::other)?;
    Ok(true)
}

/// Takes the damaged ones out of service, as a lookup of such a row would; their names.
fn drop_damaged(core: &Core, inputs: &[Arc<Segment>]) -> Vec<SegmentName> {
    let is_damaged = |input: &&Arc<Segment>| matches!(input.judge_all(), Verdict::Damaged(_));
    let segments: Vec<_> = inputs.iter().filter(is_damaged).cloned().collect();
    let names = segments.iter().map(|segment| segment.name()).collect();
    core.drop_damaged(&DamagedFiles { segments, ..DamagedFiles::default() });
    names
}
