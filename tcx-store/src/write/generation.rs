//! The two steps of sealing a generation of buffered rows: writing its segments, and publishing them, which makes them
//! durable and shows them to readers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::generation::Generation;
use crate::changes::instance::KnownIdentity;
use crate::computed::RowBatch;
use crate::computed::attestation::ask_sources;
use crate::engine::Core;
use crate::engine::publish::{add_segment, forget_index, index_segment, publish_segment};
use crate::error::{Error, ErrorKind, Result};
use crate::live::folder::Live;
use crate::schema::key::KeyHash;
use crate::segment::{
    MAX_SEGMENT_BYTES, Piece, PieceRows, PieceSource, SegmentHeader, WrittenSegment, most_rows, write_segment,
};
use crate::storage::name::SegmentName;
use crate::sys::notice::{Trouble, notice};
use crate::write::decide::{Decided, Plan};

/// Turns writing off; rows of a folder that refuses them are dropped.
pub(crate) fn give_up(core: &Core, error: &Error) {
    core.remember(error);
    if core.buffer.set_write_failure(Some(error.clone())).is_none() {
        core.counters.write_failures.add(1);
        tracing::error!("writing is off, rows are computed but not kept: {error:#}");
        let path = core.storage.path().display();
        notice(
            Trouble::WritingOff,
            format_args!(
                "writing to {path} is off, rows are computed but not kept: {error:#}; `flush` returns this error, and tcx tries again"
            ),
        );
    }
    if error.kind() == ErrorKind::Io {
        return;
    }
    while let Some(generation) = core.buffer.oldest_after(None) {
        let fates = core.buffer.fates(&generation).unwrap_or_default();
        for (batch, fate) in generation.batches.iter().zip(&*fates) {
            let rows = fate.alive(batch.rows()).iter().map(Range::len).sum();
            core.counters.rows_dropped.add(rows);
            batch.lost(rows, error);
        }
        core.buffer.release_oldest();
    }
}

/// The segments of a generation, which wait for their names.
pub(crate) struct Written {
    segments: Vec<WrittenRows>,
    /// What has to be so still when tombstones make way for the rows, where they have to.
    plan: Option<Plan>,
}

/// A segment that waits for its name, and the hashes of its rows.
struct WrittenRows {
    segment: WrittenSegment,
    hashes: Vec<KeyHash>,
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
    let written = write_once(core, generation);
    // A file was taken away while it was written: it is written again, with what has become of the rows by now.
    if is_not_found(&written) { write_once(core, generation) } else { written }
}

/// Makes the segments of the oldest generation durable, shows them to readers, and lets go of the generation.
///
/// # Errors
///
/// Returns an error if the rows cannot be made durable; they stay in the buffer.
pub(crate) fn publish(core: &Core, oldest: &Arc<Generation>, written: Written) -> Result<()> {
    let write_again = || write(core, oldest).and_then(|written| publish_once(core, oldest, written));
    let mut published = publish_once(core, oldest, written);
    if is_not_found(&published) {
        published = write_again();
    }
    for _ in 1..PLANNED_AT_MOST {
        if !matches!(published, Ok(false)) {
            break;
        }
        published = write_again();
    }
    if !published? {
        let error = io::Error::other("other processes wrote changes during every attempt");
        return Err(Error::io("cannot replace rows in", core.storage.path(), error));
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

fn failed(core: &Core, error: io::Error) -> Error {
    Error::io("cannot write a segment in", core.storage.path(), error)
}

fn write_once(core: &Core, generation: &Arc<Generation>) -> Result<Written> {
    // Before the lock is taken: to ask may take as long as to read all weights.
    ask_sources(&generation.batches);
    let mut live = core.live();
    let decided = Decided::new(core, &mut live, generation)?;
    if generation.replaces() {
        let (plan, identity) = (Plan::new(&decided, &live.changes), decided.identity.clone());
        decided.settle(core, &mut live);
        drop(live);
        let alive = generation.batches.iter().zip(plan.alive.iter().cloned());
        let mut segments = write_rows(core, alive, &identity, plan.base)?;
        for rows in &mut segments {
            rows.segment.sync().map_err(|e| failed(core, e))?;
        }
        return Ok(Written { segments, plan: Some(plan) });
    }
    let (identity, base) = (decided.identity.clone(), live.changes.newest().unwrap_or(0));
    let fates = decided.settle(core, &mut live);
    make_durable(core, &mut live)?;
    drop(live);
    let alive = generation.batches.iter().zip(&*fates).map(|(batch, fate)| (batch, fate.alive(batch.rows())));
    Ok(Written { segments: write_rows(core, alive, &identity, base)?, plan: None })
}

fn write_rows<'a>(
    core: &Core,
    alive: impl Iterator<Item = (&'a Arc<RowBatch>, Vec<Range<usize>>)>,
    identity: &KnownIdentity,
    base: u64,
) -> Result<Vec<WrittenRows>> {
    let alive = alive.flat_map(|(batch, ranges)| ranges.into_iter().map(move |range| (&**batch, range)));
    let segments = segments(core, alive);
    let written = segments.iter().map(|pieces| write_segment_of(core, identity, base, pieces));
    written.collect::<io::Result<_>>().map_err(|e| failed(core, e))
}

/// `false` if other processes have made changes since the generation was written: it has to be written again.
fn publish_once(core: &Core, generation: &Arc<Generation>, written: Written) -> Result<bool> {
    if let Some(plan) = written.plan {
        return replace(core, generation, &plan, written.segments);
    }
    for WrittenRows { segment, hashes } in written.segments {
        let sealed = (segment.name, segment.bytes, hashes.len());
        publish_segment(core, segment, hashes)?;
        count_sealed(core, sealed);
    }
    Ok(true)
}

fn count_sealed(core: &Core, (name, bytes, rows): (SegmentName, u64, usize)) {
    core.counters.rows_sealed.add(rows);
    core.counters.bytes_sealed.add(bytes as usize);
    tracing::debug!(segment = %name, rows, bytes, "sealed");
}

/// Creates the tombstones that make way for recomputed rows, and at once names the segments of these rows, which are durable but
/// for their names. Between the two neither the old rows nor the new ones are there for a process that opens the folder, so
/// nothing is written then. `false` if what was planned does not hold any more.
fn replace(
    core: &Core,
    generation: &Arc<Generation>,
    plan: &Plan,
    written: Vec<WrittenRows>,
) -> Result<bool> {
    let mut indexed = Vec::new();
    for WrittenRows { segment, hashes } in written {
        let rows = hashes.len();
        indexed.push((index_segment(core, &segment, hashes), segment, rows));
    }
    let mut live = core.live();
    let made = make_way(core, &mut live, generation, plan);
    if !matches!(made, Ok(true)) {
        for (run, ..) in indexed {
            forget_index(core, run);
        }
        return made;
    }
    let mut named = Ok(());
    for (run, segment, rows) in indexed {
        let sealed = (segment.name, segment.bytes, rows);
        let published = named.and_then(|()| segment.publish());
        let published = published.inspect_err(|_| forget_index(core, run));
        named = published
            .and_then(|()| add_segment(&mut live, sealed.0, run))
            .inspect(|()| count_sealed(core, sealed));
    }
    core.install(&mut live);
    named.map_err(|e| failed(core, e))?;
    // Others find the segments only if the folder was the same all the time.
    live.check_instance().inspect_err(|error| core.remember(error))?;
    Ok(true)
}

/// Creates the tombstones that were planned; `false` if that is not possible any more.
fn make_way(core: &Core, live: &mut Live, generation: &Arc<Generation>, plan: &Plan) -> Result<bool> {
    let mut decided = Decided::new(core, live, generation)?;
    if Plan::new(&decided, &live.changes) != *plan {
        decided.settle(core, live);
        return Ok(false);
    }
    live.check_instance().inspect_err(|error| core.remember(error))?;
    let replaced = decided.replace(core, &mut live.changes, plan);
    decided.settle(core, live);
    let replaced = replaced?;
    make_durable(core, live)?;
    Ok(replaced)
}

fn make_durable(core: &Core, live: &mut Live) -> Result<()> {
    let failed = |e| Error::io("cannot write a change in", core.storage.path(), e);
    live.changes.make_durable(&*core.storage).map_err(failed)
}

fn write_segment_of(
    core: &Core,
    identity: &KnownIdentity,
    base: u64,
    pieces: &[Piece<'_>],
) -> io::Result<WrittenRows> {
    let header = SegmentHeader {
        schema: &core.schema,
        leaves: &core.leaves,
        key_type: core.spec.key_type,
        identity: &identity.digest,
        instance: identity.instance,
        base,
        born: pieces.iter().map(Piece::born).min().unwrap_or(0),
        inputs: &[],
        compression: core.compression,
    };
    let segment = write_segment(&*core.storage, &header, pieces)?;
    let hashes = pieces.iter().map(Piece::hashes).collect::<io::Result<Vec<_>>>()?.concat();
    Ok(WrittenRows { segment, hashes })
}

/// Divides the rows into segments of at most 512 MiB.
fn segments<'a>(
    core: &Core,
    alive: impl Iterator<Item = (&'a RowBatch, Range<usize>)>,
) -> Vec<Vec<Piece<'a>>> {
    let most_rows = most_rows(&core.leaves);
    let (mut segments, mut current) = (Vec::new(), Vec::<Piece<'a>>::new());
    let (mut bytes, mut rows) = (0, 0);
    for (batch, Range { mut start, end }) in alive {
        let row_bytes = batch.bytes().div_ceil(batch.rows().max(1)).max(1);
        while start < end {
            let room = (MAX_SEGMENT_BYTES.saturating_sub(bytes) / row_bytes).min(most_rows - rows);
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
