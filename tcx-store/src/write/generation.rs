//! The two steps of sealing a generation of buffered rows: writing its segments, and publishing them, which makes them
//! durable and shows them to readers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::fate::{Fate, doomed, expire, recomputes, refuse, replaced, tried};
use crate::buffer::generation::Generation;
use crate::changes::instance::KnownIdentity;
use crate::changes::{Attempt, KnownChanges, Replacement, Tombstones};
use crate::computed::RowBatch;
use crate::computed::attestation::ask_sources;
use crate::engine::Core;
use crate::engine::publish::publish_segment;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::key::KeyHash;
use crate::segment::{
    MAX_SEGMENT_BYTES, Piece, Rows, SegmentHeader, Source, WrittenSegment, most_rows, write_segment,
};
use crate::storage::name::FileName;

/// Turns writing off; rows of a folder that refuses them are dropped.
pub(crate) fn give_up(core: &Core, error: &Error) {
    core.remember(error);
    if core.buffer.set_write_failure(Some(error.clone())).is_none() {
        core.counters.write_failures.add(1);
        tracing::error!("writing is off, rows are computed but not kept: {error:#}");
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

/// A segment that waits for its name, and the hashes of its rows.
pub(crate) struct Written {
    segment: WrittenSegment,
    hashes: Vec<KeyHash>,
}

/// Writes the rows of a frozen generation to files that have no names yet.
///
/// # Errors
///
/// What kept them from the disk; a folder that refuses them.
pub(crate) fn write(core: &Core, generation: &Arc<Generation>) -> Result<Vec<Written>> {
    core.check()?;
    let written = write_once(core, generation);
    // A file was taken away while it was written: it is written again, with what has become of the rows by now.
    if is_not_found(&written) { write_once(core, generation) } else { written }
}

/// Makes the segments of the oldest generation durable, shows them to readers, and lets go of the generation.
///
/// # Errors
///
/// What kept them from being durable: the rows are still in the buffer.
pub(crate) fn publish(core: &Core, oldest: &Arc<Generation>, written: Vec<Written>) -> Result<()> {
    let mut published = publish_once(core, written);
    if is_not_found(&published) {
        published = write(core, oldest).and_then(|written| publish_once(core, written));
    }
    published?;
    core.buffer.release_oldest();
    if core.buffer.set_write_failure(None).is_some() {
        tracing::info!(path = %core.storage.path().display(), "writing works again");
    }
    Ok(())
}

fn is_not_found<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(Error::is_not_found)
}

fn write_once(core: &Core, generation: &Arc<Generation>) -> Result<Vec<Written>> {
    let (identity, base, fates) = prepare(core, generation)?;
    let alive = generation.batches.iter().zip(&*fates).flat_map(|(batch, fate)| {
        let ranges = fate.alive(batch.rows());
        ranges.into_iter().map(move |range| (&**batch, range))
    });
    let written = segments(core, alive);
    let written = written.iter().map(|pieces| write_segment_of(core, &identity, base, pieces));
    written.collect::<io::Result<_>>().map_err(|e| failed(core, e))
}

fn publish_once(core: &Core, written: Vec<Written>) -> Result<()> {
    for Written { segment, hashes } in written {
        let (name, bytes, rows) = (segment.name, segment.bytes, hashes.len());
        publish_segment(core, segment, hashes)?;
        core.counters.rows_sealed.add(rows);
        core.counters.bytes_sealed.add(bytes as usize);
        tracing::debug!(segment = %name, rows, bytes, "sealed");
    }
    Ok(())
}

fn failed(core: &Core, error: io::Error) -> Error {
    Error::io("cannot write a segment in", core.storage.path(), error)
}

/// Reads new changes and writes those that the rows need; returns the base of the rows that are left.
fn prepare(core: &Core, generation: &Arc<Generation>) -> Result<(KnownIdentity, u64, Arc<Vec<Fate>>)> {
    // Before the lock is taken: to ask may take as long as to read all weights.
    ask_sources(&generation.batches);
    let mut live = core.live();
    // After it: a thread that seals an earlier generation may change them.
    let mut fates = core.buffer.fates(generation).as_deref().cloned().unwrap_or_default();
    let refused = refuse(&mut fates, &generation.batches);
    let died = expire(&mut fates, &generation.batches, core.retention.oldest_kept());
    let mut settling = Settling { generation, replacements: Vec::new(), died };
    let known = Known::new(generation, &fates, &live.changes);
    // A segment's base is the newest change known when it is sealed, so that none is missed.
    if live.refresh()? {
        core.install(&mut live);
    }
    let identity = live.ensure_identity()?;
    let failed = |e: io::Error| Error::io("cannot write a change in", core.storage.path(), e);
    live.changes.write_pending(&*core.storage).map_err(failed)?;
    can_decide(core, &live.changes, &fates)?;
    let mut settled = settling.replace(core, &mut live.changes, &mut fates).map_err(failed);
    // A change of another process may have come in between. As long as it cannot be read, it has killed nothing.
    if settled.is_ok()
        || can_decide(core, &live.changes, &fates).inspect_err(|e| settled = Err(e.clone())).is_ok()
    {
        settling.advance(&live.changes, &mut fates);
    }
    let base = live.changes.newest().unwrap_or(0);
    known.report_superseded(core, &generation.batches, &fates);
    let fates = Arc::new(fates);
    let Settling { replacements, mut died, .. } = settling;
    // Before the buffer settles: each row that is accepted is either in the buffer then, or finds them here.
    live.add_replacements(&replacements);
    died += core
        .install_with(&mut live, |show| core.buffer.settle(generation, fates.clone(), &replacements, show));
    for (rows, batch, why) in refused {
        died += rows;
        batch.lost(rows, why);
    }
    core.counters.rows_dropped.add(died);
    settled?;
    live.changes.make_durable(&*core.storage).map_err(failed)?;
    Ok((identity, base, fates))
}

/// How many rows of each batch were dead for all that this process knew before it looked for changes of others: its own callers
/// have killed them. Empty if no row was put.
struct Known(Vec<usize>);

impl Known {
    fn new(generation: &Generation, fates: &[Fate], changes: &KnownChanges) -> Self {
        if !generation.batches.iter().any(|batch| batch.is_put) {
            return Self(Vec::new());
        }
        let mut fates = fates.to_vec();
        generation.advance(&mut fates, changes.tombstones(), changes.newest().unwrap_or(0));
        Self(fates.iter().map(Fate::gone).collect())
    }

    /// Values that were put cannot be computed again: whoever put them learns that changes of other processes have killed some.
    fn report_superseded(&self, core: &Core, batches: &[Arc<RowBatch>], fates: &[Fate]) {
        for ((batch, fate), known) in batches.iter().zip(fates).zip(&self.0) {
            let rows = fate.gone().saturating_sub(*known);
            if batch.is_put && rows > 0 {
                let path = core.storage.path().display();
                let what = format!(
                    "another process has invalidated or replaced them in {path} before they were written; put them again if \
                     they are still right"
                );
                batch.lost(rows, &Error::of_kind(ErrorKind::Superseded, what));
            }
        }
    }
}

/// What becomes of the rows of a generation by the changes that there are when it is sealed.
struct Settling<'a> {
    generation: &'a Generation,
    replacements: Vec<Replacement>,
    died: usize,
}

impl Settling<'_> {
    /// Writes a tombstone for each recompute session, so that none takes the rows of another for its own.
    fn replace(&mut self, core: &Core, changes: &mut KnownChanges, fates: &mut [Fate]) -> io::Result<()> {
        let batches = &self.generation.batches;
        for recompute in recomputes(fates, batches) {
            let mut before = Tombstones::default();
            let attempt = Attempt::new();
            let created = changes.create(&*core.storage, &attempt, |tombstones, newest| {
                self.died += self.generation.advance(fates, tombstones, newest);
                before = tombstones.clone();
                doomed(fates, batches, &recompute)
            });
            if created.is_err() {
                // It may be written all the same: then the rows must outlive it.
                changes.tried(&attempt);
                tried(fates, batches, &recompute, &attempt);
            }
            if let Some(number) = created? {
                replaced(fates, batches, &recompute, number);
                self.replacements.push(Replacement { number, before });
            }
        }
        Ok(())
    }

    fn advance(&mut self, changes: &KnownChanges, fates: &mut [Fate]) {
        let newest = changes.newest().unwrap_or(0);
        self.died += self.generation.advance(fates, changes.tombstones(), newest);
    }
}

/// Rows that wait for a change which cannot be read just now are not given up: it may name none of them.
fn can_decide(core: &Core, changes: &KnownChanges, fates: &[Fate]) -> Result<()> {
    let oldest = fates.iter().map(|fate| fate.number).min().unwrap_or(u64::MAX);
    let Some(unread) = changes.unread_after(oldest) else { return Ok(()) };
    let path = core.storage.path().join(FileName::Change(unread).to_string());
    Err(Error::io("cannot flush: rows wait for the change", path, io::Error::other("it cannot be read")))
}

fn write_segment_of(
    core: &Core,
    identity: &KnownIdentity,
    base: u64,
    pieces: &[Piece<'_>],
) -> io::Result<Written> {
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
    Ok(Written { segment, hashes })
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
            current.push(Piece { source: Source::Batch(batch), rows: Rows::Range(start..start + taken) });
            (bytes, rows, start) = (bytes + taken * row_bytes, rows + taken, start + taken);
        }
    }
    segments.extend((!current.is_empty()).then_some(current));
    segments
}
