//! Sealing the write buffer: from buffered rows to durable segments that readers see.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::{Frozen, RowBatch};
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::fate::{Fate, advance, doomed, replaced};
use crate::instance::KnownIdentity;
use crate::publish::publish_segment;
use crate::segment::{MAX_SEGMENT_BYTES, Piece, Rows, SegmentHeader, Source, write_segment};

/// Arrow wants fewer than 2³¹ elements in a column of a record batch.
const SEGMENT_ELEMENTS: usize = i32::MAX as usize;

/// Seals everything that has been accepted. When this succeeds, it is durable.
///
/// # Errors
///
/// What kept it from the disk. The rows stay in the buffer, unless they can never be written.
pub(crate) fn seal_all(core: &Core) -> Result<()> {
    core.buffer.freeze();
    let mut is_again = false;
    while let Some(frozen) = core.buffer.oldest() {
        let sealed = core.check().and_then(|()| seal(core, &frozen));
        match sealed {
            Ok(()) => {
                core.buffer.release_oldest();
                is_again = false;
                if core.buffer.set_trouble(None).is_some() {
                    tracing::info!(path = %core.storage.path().display(), "writing works again");
                }
            }
            // A file was taken away while it was written: it is written again, with what has become of the rows by now.
            Err(error) if error.is_not_found() && !is_again => is_again = true,
            Err(error) => {
                give_up(core, &error);
                return Err(error);
            }
        }
    }
    core.check()
}

/// Turns writing off; rows of a folder that refuses them are dropped.
fn give_up(core: &Core, error: &Error) {
    core.remember(error);
    if core.buffer.set_trouble(Some(error.clone())).is_none() {
        tracing::error!("writing is off, rows are computed but not kept: {error}");
    }
    if error.kind() == ErrorKind::Io {
        return;
    }
    while let Some(Frozen { generation, .. }) = core.buffer.oldest() {
        core.counters.rows_dropped.add(generation.batches.iter().map(|batch| batch.rows()).sum());
        core.buffer.release_oldest();
    }
}

fn seal(core: &Core, frozen: &Frozen) -> Result<()> {
    let (identity, base, fates) = prepare(core, frozen)?;
    let alive = frozen.generation.batches.iter().zip(&*fates).flat_map(|(batch, fate)| {
        let ranges = fate.alive(batch.rows());
        ranges.into_iter().map(move |range| (&**batch, range))
    });
    for pieces in segments(core, alive) {
        let failed = |e: io::Error| Error::io("cannot write a segment in", core.storage.path(), e);
        seal_segment(core, &identity, base, &pieces).map_err(failed)?;
    }
    Ok(())
}

/// Reads new changes and writes those that the rows need; tells the base of the rows that are left.
fn prepare(core: &Core, frozen: &Frozen) -> Result<(KnownIdentity, u64, Arc<Vec<Fate>>)> {
    let batches = &frozen.generation.batches;
    let mut fates = Vec::clone(&frozen.fates);
    let mut live = core.live();
    // A segment's base is the newest change known when it is sealed, so that none is missed.
    if live.refresh()? {
        core.install(&mut live);
    }
    let identity = live.ensure_identity()?;
    let failed = |e: io::Error| Error::io("cannot write a change in", core.storage.path(), e);
    let mut died = 0;
    let changes = &mut live.changes;
    changes.write_pending(&*core.storage).map_err(failed)?;
    let created = changes.create(&*core.storage, |tombstones, newest| {
        died += advance(&mut fates, batches, tombstones, newest);
        doomed(&fates, batches)
    });
    if let Ok(Some(number)) = created {
        replaced(&mut fates, batches, number);
    }
    let base = changes.newest().unwrap_or(0);
    died += advance(&mut fates, batches, changes.tombstones(), base);
    core.counters.rows_dropped.add(died);
    let fates = Arc::new(fates);
    // Before readers see the tombstone, which would kill these rows otherwise.
    core.buffer.set_fates(fates.clone());
    core.install(&mut live);
    created.and_then(|_| live.changes.make_durable(&*core.storage)).map_err(failed)?;
    Ok((identity, base, fates))
}

fn seal_segment(core: &Core, identity: &KnownIdentity, base: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
    let header = SegmentHeader {
        schema: &core.schema,
        leaves: &core.leaves,
        key_type: core.spec.key_type,
        identity: &identity.digest,
        instance: identity.instance,
        base,
        born: pieces.iter().map(Piece::born).min().unwrap_or(0),
        inputs: &[],
    };
    let written = write_segment(&*core.storage, &header, pieces)?;
    let (name, bytes) = (written.name, written.bytes);
    let hashes = pieces.iter().map(Piece::hashes).collect::<io::Result<Vec<_>>>()?.concat();
    let rows = hashes.len();
    publish_segment(core, written, hashes)?;
    core.counters.rows_sealed.add(rows);
    core.counters.bytes_sealed.add(bytes as usize);
    tracing::debug!(segment = %name, rows, bytes, "sealed");
    Ok(())
}

/// The most rows in one segment.
pub(crate) fn most_rows(core: &Core) -> usize {
    let widest = core.leaves.iter().filter_map(|leaf| leaf.kind.elements()).max().unwrap_or(1);
    (SEGMENT_ELEMENTS / widest.max(1)).max(1)
}

/// Divides the rows into segments of at most 512 MiB.
fn segments<'a>(
    core: &Core,
    alive: impl Iterator<Item = (&'a RowBatch, Range<usize>)>,
) -> Vec<Vec<Piece<'a>>> {
    let most_rows = most_rows(core);
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
            current.push(Piece { source: Source::Batch(batch), rows: Rows::Range(start..start + taken) });
            (bytes, rows, start) = (bytes + taken * row_bytes, rows + taken, start + taken);
        }
    }
    segments.extend((!current.is_empty()).then_some(current));
    segments
}
