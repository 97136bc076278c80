//! The two steps of sealing a generation of buffered rows: writing its segments, and publishing them, which makes them
//! durable and shows them to readers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::generation::Generation;
use crate::changes::instance::KnownIdentity;
use crate::changes::{Needs, Tombstones};
use crate::computed::RowBatch;
use crate::computed::attestation::ask_sources;
use crate::engine::Core;
use crate::engine::publish::publish_segment;
use crate::error::{Error, ErrorKind, Result};
use crate::live::folder::Live;
use crate::schema::key::{KeyHashes, KeySeed};
use crate::segment::{Piece, PieceRows, PieceSource, WrittenSegment, most_rows, write_segment};
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::sys::notice::{Trouble, notice};
use crate::write::decide::Decided;
use crate::write::plan::{Plan, Rows};
use crate::write::replace::replace;

/// Other processes have made changes during every attempt: nothing has failed, and no row is lost.
fn contended(core: &Core) -> Error {
    let path = core.storage.path().display();
    let what = format!(
        "cannot replace rows in {path} yet: other processes change the folder again and again; the rows stay in the write buffer and are \
         written as soon as there is a pause"
    );
    Error::of_kind(ErrorKind::Contended, what)
}

/// Turns writing off; rows of a folder that refuses them are dropped. Contention is no reason, nor are files that may have been misread.
pub(crate) fn give_up(core: &Core, error: &Error) {
    let is_looked_at_again = || error.kind() == ErrorKind::Io && core.another_look_in().is_some();
    if error.kind() == ErrorKind::Contended || is_looked_at_again() {
        return;
    }
    core.remember(error);
    if core.buffer.set_write_failure(Some(error.clone())).is_none() {
        core.counters.write_failures.add(1);
        tracing::error!("writing is off, rows are computed but not kept: {error:#}");
        let path = core.storage.path().display();
        notice(
            Trouble::WritingOff,
            format_args!(
                "writing to {path} is off, rows are computed but not kept: {error:#}; `flush` reports this error, and tcx tries again"
            ),
        );
    }
    if error.kind() == ErrorKind::Io || core.may_be_misread(error) {
        return;
    }
    while let Some(generation) = core.buffer.oldest_after(None) {
        let fates = core.buffer.fates(&generation).unwrap_or_default();
        for (batch, fate) in generation.batches.iter().zip(&*fates) {
            let rows = fate.unsealed(batch.rows()).iter().map(Range::len).sum();
            core.counters.rows_dropped.add(rows);
            batch.lost(rows, error);
        }
        core.buffer.release_oldest();
    }
}

/// The segments of a generation, which wait for their names.
pub(crate) struct Written {
    plan: Plan,
    /// Those of the rows that replace others, in the order of the plan.
    replacing: Vec<Vec<WrittenRows>>,
    others: Others,
}

/// The segments of the rows that replace none. They are kept while other processes make changes that do not concern them: a generation of
/// many such rows would not be written before the next change comes.
struct Others {
    rows: Rows,
    instance: Random,
    /// The newest change that they know.
    base: u64,
    segments: Vec<WrittenRows>,
}

impl Others {
    /// Whether they can be published instead of these rows, although there may be newer changes by now.
    fn are(&self, rows: &Rows, instance: Random, generation: &Generation, tombstones: &Tombstones) -> bool {
        let is_killed = |(batch, ranges): (&Arc<RowBatch>, &Vec<Range<usize>>)| {
            let mut rows = ranges.iter().cloned().flatten();
            rows.any(|row| {
                tombstones.kill_by_age(self.base, batch.born)
                    || tombstones.kill_row(self.base, &batch.keys, row)
            })
        };
        self.rows == *rows && self.instance == instance && !generation.batches.iter().zip(rows).any(is_killed)
    }
}

/// A segment that waits for its name, and the hashes of its rows.
pub(super) struct WrittenRows {
    pub(super) segment: WrittenSegment,
    pub(super) hashes: KeyHashes,
}

/// So often a generation is written because other processes made changes while it was written.
const PLANNED_AT_MOST: usize = 8;

/// Writes the rows of a frozen generation to files that have no names yet.
///
/// # Errors
///
/// Returns an error if the rows cannot be written, or if the folder refuses them.
pub(crate) fn write(core: &Core, generation: &Arc<Generation>) -> Result<Written> {
    core.check()?;
    write_again(core, generation, None)
}

fn write_again(core: &Core, generation: &Arc<Generation>, kept: Option<Others>) -> Result<Written> {
    let written = write_once(core, generation, kept);
    // A file was taken away while it was written: it is written again, with what has become of the rows by now.
    if is_not_found(&written) { write_once(core, generation, None) } else { written }
}

/// Makes the segments of the oldest generation durable, shows them to readers, and lets go of the generation.
///
/// # Errors
///
/// Returns an error if the rows cannot be made durable; they stay in the buffer.
pub(crate) fn publish(core: &Core, oldest: &Arc<Generation>, written: Written) -> Result<()> {
    let again =
        |kept| write_again(core, oldest, kept).and_then(|written| publish_once(core, oldest, written));
    let mut published = publish_once(core, oldest, written);
    let mut has_vanished = false;
    for _ in 1..PLANNED_AT_MOST {
        published = match published {
            Ok(Some(others)) => again(Some(others)),
            // A file was taken away while it was written.
            Err(error) if !has_vanished && error.is_not_found() => {
                has_vanished = true;
                again(None)
            }
            done => {
                published = done;
                break;
            }
        };
    }
    if published?.is_some() {
        return Err(contended(core));
    }
    core.buffer.release_oldest();
    if core.buffer.set_write_failure(None).is_some() {
        tracing::info!(path = %core.storage.path().display(), "writing works again");
    }
    Ok(())
}

fn is_not_found<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(Error::is_not_found)
}

pub(super) fn failed(core: &Core, error: io::Error) -> Error {
    Error::io("cannot write a segment in", core.storage.path(), error)
}

fn write_once(core: &Core, generation: &Arc<Generation>, kept: Option<Others>) -> Result<Written> {
    // Before the lock is taken: to ask may take as long as to read all weights.
    ask_sources(&generation.batches);
    let mut live = core.live();
    let decided = Decided::new(core, &mut live, generation)?;
    let (plan, identity) = (Plan::new(&decided, &live.changes), decided.identity.clone());
    decided.settle(core, &mut live);
    make_durable(core, &mut live)?;
    let tombstones = live.changes.tombstones().clone();
    drop(live);
    let write = |rows, needs| write_rows(core, generation, rows, &identity, needs);
    let mut replacing = Vec::new();
    for own in &plan.replacing {
        let mut segments = write(&own.rows, own.needs())?;
        for rows in &mut segments {
            rows.segment.sync().map_err(|e| failed(core, e))?;
        }
        replacing.push(segments);
    }
    let instance = identity.instance;
    let kept = kept.filter(|kept| kept.are(&plan.others, instance, generation, &tombstones));
    let others = if let Some(kept) = kept {
        kept
    } else {
        let segments = write(&plan.others, plan.needs())?;
        Others { rows: plan.others.clone(), instance, base: plan.needs().base, segments }
    };
    Ok(Written { plan, replacing, others })
}

fn write_rows(
    core: &Core,
    generation: &Generation,
    rows: &Rows,
    identity: &KnownIdentity,
    needs: Needs,
) -> Result<Vec<WrittenRows>> {
    let rows = generation.batches.iter().zip(rows);
    let rows = rows.flat_map(|(batch, ranges)| ranges.iter().map(move |range| (&**batch, range.clone())));
    let segments = segments(core, rows);
    let written = segments.iter().map(|pieces| write_segment_of(core, identity, needs, pieces));
    written.collect::<io::Result<_>>().map_err(|e| failed(core, e))
}

/// If other processes have made changes since the generation was written, what is left of it has to be written again; then the segments of
/// the rows that replace none are returned.
fn publish_once(core: &Core, generation: &Arc<Generation>, written: Written) -> Result<Option<Others>> {
    let Written { plan, replacing, others } = written;
    // Rows of the generation before may have died by their age since this one was written: what had made way for them is dead, too.
    let is_right = match core.buffer.fates(generation) {
        Some(fates) if replacing.is_empty() => plan.holds_for_others(&fates, &generation.batches),
        _ => true,
    };
    if !is_right || !replacing.is_empty() && !replace(core, generation, &plan, replacing)? {
        return Ok(Some(others));
    }
    for WrittenRows { segment, hashes } in others.segments {
        let sealed = (segment.name, segment.bytes, hashes.hashes.len());
        publish_segment(core, segment, hashes)?;
        count_sealed(core, sealed);
    }
    Ok(None)
}

pub(super) fn count_sealed(core: &Core, (name, bytes, rows): (SegmentName, u64, usize)) {
    core.counters.rows_sealed.add(rows);
    core.counters.bytes_sealed.add(bytes as usize);
    tracing::debug!(segment = %name, rows, bytes, "sealed");
}

pub(super) fn make_durable(core: &Core, live: &mut Live) -> Result<()> {
    let failed = |e| Error::io("cannot write a change in", core.storage.path(), e);
    live.changes.make_durable(&*core.storage).map_err(failed)
}

fn write_segment_of(
    core: &Core,
    identity: &KnownIdentity,
    needs: Needs,
    pieces: &[Piece<'_>],
) -> io::Result<WrittenRows> {
    let born = pieces.iter().map(Piece::born).min().unwrap_or(0);
    let header = core.segment_header(identity, needs, born);
    let segment = write_segment(&*core.storage, &header, pieces)?;
    let seed = KeySeed::of_instance(identity.instance);
    let hashes = pieces.iter().map(|piece| piece.hashes(seed)).collect::<io::Result<Vec<_>>>()?.concat();
    Ok(WrittenRows { segment, hashes: KeyHashes { seed, hashes } })
}

/// Divides the rows into segments of at most 512 MiB, or a small part of a limit that is kept by evicting segments.
fn segments<'a>(
    core: &Core,
    alive: impl Iterator<Item = (&'a RowBatch, Range<usize>)>,
) -> Vec<Vec<Piece<'a>>> {
    let (most_rows, most_bytes) = (most_rows(&core.leaves), core.retention.largest_segment());
    let (mut segments, mut current) = (Vec::new(), Vec::<Piece<'a>>::new());
    let (mut bytes, mut rows) = (0, 0);
    for (batch, Range { mut start, end }) in alive {
        let row_bytes = batch.bytes().div_ceil(batch.rows().max(1)).max(1);
        while start < end {
            let room = (most_bytes.saturating_sub(bytes) / row_bytes).min(most_rows - rows);
            if room == 0 && !current.is_empty() {
                segments.push(std::mem::take(&mut current));
                (bytes, rows) = (0, 0);
                continue;
            }
            let taken = room.max(1).min(end - start);
            current.push(Piece {
                source: PieceSource::Batch(batch),
                rows: PieceRows::Range(start..start + taken),
            });
            (bytes, rows, start) = (bytes + taken * row_bytes, rows + taken, start + taken);
        }
    }
    segments.extend((!current.is_empty()).then_some(current));
    segments
}
