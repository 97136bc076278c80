//! Sealing the write buffer: from buffered rows to durable segments that readers see.

use std::io;

use crate::buffer::{Generation, RowBatch};
use crate::bytes::Random;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{build_run, write_merged};
use crate::key::KeyHash;
use crate::live::{KnownIdentity, publish_run};
use crate::name::FileName;
use crate::probe::Trouble;
use crate::segment::{Piece, SegmentHeader, write_segment};

/// The most bytes of rows in one segment.
const SEGMENT_BYTES: usize = 512 << 20;
/// Arrow wants fewer than 2³¹ elements in a column of a record batch.
const SEGMENT_ELEMENTS: usize = i32::MAX as usize;

/// Seals everything that has been accepted. When this succeeds, it is durable.
///
/// # Errors
///
/// What kept it from the disk. The rows stay in the buffer, unless they can never be written.
pub(crate) fn seal_all(core: &Core) -> Result<()> {
    core.buffer.freeze();
    while let Some(generation) = core.buffer.oldest() {
        let sealed = core.check().and_then(|()| seal(core, &generation));
        match sealed {
            Ok(()) => {
                core.buffer.release_oldest();
                if core.buffer.set_trouble(None).is_some() {
                    tracing::info!(path = %core.storage.path().display(), "writing works again");
                }
            }
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
    while let Some(generation) = core.buffer.oldest() {
        core.counters.rows_dropped.add(generation.batches.iter().map(|batch| batch.rows()).sum());
        core.buffer.release_oldest();
    }
}

fn seal(core: &Core, generation: &Generation) -> Result<()> {
    let (identity, base, floor) = {
        let mut live = core.live();
        // A segment's base is the newest change known when it is sealed, so that none is missed.
        if live.refresh()? {
            core.install(&mut live);
        }
        let identity = live.ensure_identity()?;
        let (known, floor) = live.known();
        (identity, known, floor)
    };
    let (dead, alive): (Vec<_>, Vec<_>) =
        generation.batches.iter().map(|batch| &**batch).partition(|batch| batch.known < floor);
    for pieces in segments(core, &alive) {
        let failed = |e: io::Error| Error::io("cannot write a segment in", core.storage.path(), e);
        seal_segment(core, &identity, base, &pieces).map_err(failed)?;
    }
    core.counters.rows_dropped.add(dead.iter().map(|batch| batch.rows()).sum());
    Ok(())
}

fn seal_segment(core: &Core, identity: &KnownIdentity, base: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
    let header = SegmentHeader {
        schema: &core.schema,
        leaves: &core.leaves,
        key_type: core.spec.key_type,
        identity: &identity.digest,
        instance: identity.instance,
        base,
        born: pieces.iter().map(|piece| piece.batch.born).min().unwrap_or(0),
    };
    let written = write_segment(&*core.storage, &header, pieces)?;
    let (name, bytes) = (written.name, written.bytes);
    let hashes: Vec<KeyHash> = pieces.iter().flat_map(Piece::hashes).collect();
    let rows = hashes.len();
    // The run first, so that whoever sees the segment finds it indexed. It can be made again: without it, the
    // segment is written all the same.
    let run = Random::new();
    if let Err(error) = publish_run(&*core.storage, run, &build_run(&[(name, hashes)])) {
        tracing::debug!(segment = %name, "cannot write its index run: {error}");
    }
    if let Err(error) = written.publish() {
        // Best effort: a run that stays knows a segment that nobody will find.
        let _ = core.storage.remove(&FileName::Run(run).to_string());
        return Err(error);
    }
    let mut live = core.live();
    live.add(name, run)?;
    core.install(&mut live);
    core.counters.rows_sealed.add(rows);
    core.counters.bytes_sealed.add(bytes as usize);
    tracing::debug!(segment = %name, rows, bytes, "sealed");
    Ok(())
}

/// Merges index runs until none is due; into one, if there is not too much in them, when the writer `ends`. A merge that fails costs speed and nothing else.
pub(crate) fn merge_runs(core: &Core, ends: bool) {
    loop {
        let Some(runs) = core.live().mergeable(ends) else { return };
        // Without the lock: readers go on with the runs they have, which stay mapped.
        let damaged: Vec<_> = runs.iter().filter(|run| !run.is_intact()).cloned().collect();
        if !damaged.is_empty() {
            core.drop_damaged(&Trouble { runs: damaged, segments: Vec::new() });
            continue;
        }
        let merged = Random::new();
        let published = core.storage.draft().and_then(|mut draft| {
            write_merged(&mut draft, &runs)?;
            draft.publish(&FileName::Run(merged).to_string(), false)
        });
        if let Err(error) = published {
            tracing::warn!(path = %core.storage.path().display(), "cannot merge index runs: {error}");
            return;
        }
        let mut live = core.live();
        let replaced = live.replace_runs(merged);
        core.install(&mut live);
        drop(live);
        if replaced.is_empty() {
            return;
        }
        for name in &replaced {
            // A run that stays is opened again by others, and found to add nothing.
            let _ = core.storage.remove(&FileName::Run(*name).to_string());
        }
        if replaced == [merged] {
            // It could not be opened, or another process was faster: the same merge would give the same.
            return;
        }
    }
}

impl Piece<'_> {
    fn hashes(&self) -> impl Iterator<Item = KeyHash> + '_ {
        (self.start..self.start + self.rows).map(|row| self.batch.keys.hash(row))
    }
}

/// Divides the rows into segments of at most 512 MiB.
fn segments<'a>(core: &Core, batches: &[&'a RowBatch]) -> Vec<Vec<Piece<'a>>> {
    let widest = core.leaves.iter().filter_map(|leaf| leaf.kind.elements()).max().unwrap_or(1);
    let most_rows = (SEGMENT_ELEMENTS / widest.max(1)).max(1);
    let (mut segments, mut current) = (Vec::new(), Vec::<Piece<'a>>::new());
    let (mut bytes, mut rows) = (0, 0);
    for batch in batches {
        let row_bytes = batch.bytes().div_ceil(batch.rows().max(1)).max(1);
        let mut start = 0;
        while start < batch.rows() {
            let room = (SEGMENT_BYTES.saturating_sub(bytes) / row_bytes).min(most_rows - rows);
            if room == 0 && !current.is_empty() {
                segments.push(std::mem::take(&mut current));
                (bytes, rows) = (0, 0);
                continue;
            }
            let taken = room.max(1).min(batch.rows() - start);
            current.push(Piece { batch, start, rows: taken });
            (bytes, rows, start) = (bytes + taken * row_bytes, rows + taken, start + taken);
        }
    }
    segments.extend((!current.is_empty()).then_some(current));
    segments
}
