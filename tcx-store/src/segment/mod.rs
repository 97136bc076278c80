//! A segment: one sealed, immutable Arrow IPC file, mapped, whose rows are served straight from the map.

mod body;
mod columns;
mod layout;
mod message;
mod metadata;
mod piece;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use arrow::datatypes::Schema;

pub(crate) use columns::arrow_schema;
pub(crate) use piece::{Piece, Rows, Source};
pub(crate) use writer::{SegmentHeader, WrittenSegment, write_segment};

use crate::bytes::{Random, u64_at};
use crate::changes::Tombstones;
use crate::checksum::{VerifiedBlocks, checksum};
use crate::mmap::Mapped;
use crate::name::SegmentName;
use crate::prefetch::prefetch;
use layout::{BatchLayout, Place};
use metadata::{Metadata, MetadataError};
use piece::Stored;

/// The most bytes of a segment, unless a single row has more.
pub(crate) const MAX_SEGMENT_BYTES: usize = 512 << 20;
/// The end of an Arrow IPC file: the footer's length and the magic.
const CLOSING: usize = 10;
/// The end-of-stream marker before the footer.
const END_OF_STREAM: usize = 8;
/// The most bytes that are verified and handed out as one slice: they stay in the processor's cache.
const SLICE: usize = 1 << 20;

/// Why a segment is not served.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// Its bytes are not what was written.
    Damaged(String),
    /// It belongs to another identity or instance, or to a version that this program does not know.
    Foreign(String),
}

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    name: SegmentName,
    map: Mapped,
    body: usize,
    blocks: VerifiedBlocks,
    base: u64,
    born: u64,
    inputs: Vec<SegmentName>,
    rows: usize,
    batch_rows: usize,
    view: Option<u32>,
    batches: Vec<BatchLayout>,
    damaged: AtomicBool,
    /// How many rows are dead, and the newest tombstone when they were counted.
    dead: Mutex<(u64, usize)>,
    sound_keys: OnceLock<bool>,
}

impl Segment {
    /// Reads the footer and the batches' headers; the rows are verified when they are first used.
    pub(crate) fn open(
        map: Mapped,
        name: SegmentName,
        schema: &Schema,
        identity: &str,
        instance: Random,
    ) -> Result<Self, SegmentError> {
        let tail = tail_start(&map).ok_or_else(|| damaged("it is no Arrow file"))?;
        if checksum(&map[tail..]) != name.tail {
            return Err(damaged("the checksum of its tail is wrong"));
        }
        let footer = &map[tail + END_OF_STREAM..map.len() - CLOSING];
        let footer =
            arrow_ipc::root_as_footer(footer).map_err(|error| damaged(format!("its footer: {error}")))?;
        let metadata = footer_metadata(&footer)?;
        if metadata.identity != identity || metadata.instance != instance {
            return Err(SegmentError::Foreign("it belongs to another identity".to_owned()));
        }
        if !layout::has_schema(&footer, schema) {
            return Err(damaged("its columns are not the module's"));
        }
        let checksums = VerifiedBlocks::new(metadata.checksums, tail);
        let blocks = checksums.ok_or_else(|| damaged("it has not one checksum a block"))?;
        let batches = read_batches(&map[..tail], &footer, &blocks, schema)?;
        let (rows, batch_rows, view) = (metadata.rows, metadata.batch_rows, metadata.view);
        check_rows(&batches, rows, batch_rows)
            .ok_or_else(|| damaged("its batches have not the rows it says"))?;
        let damaged = AtomicBool::new(false);
        Ok(Self {
            name,
            map,
            body: tail,
            blocks,
            base: metadata.base,
            born: metadata.born,
            inputs: metadata.inputs,
            rows,
            batch_rows,
            view,
            batches,
            damaged,
            dead: Mutex::default(),
            sound_keys: OnceLock::new(),
        })
    }

    pub(crate) fn name(&self) -> SegmentName {
        self.name
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// When its oldest row was computed, in milliseconds since 1970.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// The segments that this one stands for.
    pub(crate) fn inputs(&self) -> &[SegmentName] {
        &self.inputs
    }

    /// Whether every key is as it was written.
    pub(crate) fn has_sound_keys(&self) -> bool {
        *self.sound_keys.get_or_init(|| (0..self.rows).all(|row| self.key(row).is_some()))
    }

    /// Reads the whole file once more; whether every byte is as it was written.
    pub(crate) fn is_intact(&self) -> bool {
        self.blocks.verify_again(self.body()) && checksum(&self.map[self.body..]) == self.name.tail
    }

    /// How many rows are dead. Counted once for each state of the tombstones.
    pub(crate) fn dead_rows(&self, tombstones: &Tombstones) -> usize {
        if !tombstones.may_kill(self.base) {
            return 0;
        }
        let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if dead.0 != tombstones.newest() {
            let keys = (0..self.rows).filter_map(|row| self.key(row));
            *dead = (tombstones.newest(), keys.filter(|(key, _)| tombstones.kill(self.base, key)).count());
        }
        dead.1
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.map.len()
    }

    /// Whether this process has met a wrong checksum here.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Takes the segment out of service in this process; `true` the first time.
    pub(crate) fn mark_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    fn body(&self) -> &[u8] {
        &self.map[..self.body]
    }

    fn locate(&self, row: usize) -> Option<(&BatchLayout, usize)> {
        // One batch is the rule: no division on the hot path.
        let (batch, row) = if self.batches.len() == 1 {
            (self.batches.first()?, row)
        } else {
            (self.batches.get(row.checked_div(self.batch_rows)?)?, row % self.batch_rows)
        };
        (row < batch.rows).then_some((batch, row))
    }

    /// The verified bytes of a row of a column; `None` if a checksum or an offset is wrong.
    fn bytes_of(&self, place: &Place, row: usize) -> Option<&[u8]> {
        let range = self.range_of(place, row)?;
        self.blocks.verify(self.body(), range.start, range.end).then(|| &self.map[range])
    }

    fn range_of(&self, place: &Place, row: usize) -> Option<Range<usize>> {
        let Some(offsets) = place.offsets else {
            let start = place.values + row * place.width;
            return Some(start..start + place.width);
        };
        let at = offsets + row * size_of::<i64>();
        if !self.blocks.verify(self.body(), at, at + 2 * size_of::<i64>()) {
            return None;
        }
        let start = usize::try_from(u64_at(&self.map, at)?).ok()?;
        let end = usize::try_from(u64_at(&self.map, at + size_of::<i64>())?).ok()?;
        (start <= end && end <= place.len).then(|| place.values + start..place.values + end)
    }

    /// The key and view of a row; `None` if its bytes cannot be trusted.
    pub(crate) fn key(&self, row: usize) -> Option<(&[u8], u32)> {
        let (batch, row) = self.locate(row)?;
        let view = match self.view {
            Some(view) => view,
            None => u32::from_le_bytes(*self.bytes_of(&batch.view, row)?.first_chunk()?),
        };
        Some((self.bytes_of(&batch.key, row)?, view))
    }

    /// A row of a leaf; `None` if its bytes cannot be trusted.
    pub(crate) fn leaf(&self, leaf: usize, row: usize) -> Option<&[u8]> {
        let (batch, row) = self.locate(row)?;
        self.bytes_of(batch.leaves.get(leaf)?, row)
    }

    /// The verified bytes of the first of `rows`, and how many rows they are: as many as lie one after the other, if
    /// they are not too many bytes; a single row where rows differ in length. `None` if a byte cannot be trusted.
    fn slice(&self, column: Stored, rows: Range<usize>) -> Option<(&[u8], usize)> {
        let (batch, first) = self.locate(rows.start)?;
        let place = batch.place(column)?;
        if place.offsets.is_some() {
            let bytes = self.bytes_of(place, first)?;
            let good = column == Stored::Key || std::str::from_utf8(bytes).is_ok();
            return good.then_some((bytes, 1));
        }
        let count = rows.len().min(batch.rows - first).min(SLICE / place.width).max(1);
        let (start, len) = (place.values + first * place.width, count * place.width);
        let good = self.blocks.verify(self.body(), start, start + len);
        good.then(|| (&self.map[start..start + len], count))
    }

    /// The length of a row; `None` if its offsets cannot be trusted.
    fn row_len(&self, column: Stored, row: usize) -> Option<usize> {
        let (batch, row) = self.locate(row)?;
        self.range_of(batch.place(column)?, row).map(|range| range.len())
    }

    /// All rows of a dense leaf, one after the other, where they lie in one piece; *not verified*.
    pub(crate) fn dense(&self, leaf: usize) -> Option<&[u8]> {
        let [batch] = &self.batches[..] else { return None };
        let place = batch.leaves.get(leaf)?;
        self.map.get(place.values..place.values + place.len)
    }

    /// Tells the processor that `row` is wanted soon, first step: what says where its key is.
    pub(crate) fn prefetch_key(&self, row: usize) {
        let Some((batch, row)) = self.locate(row) else { return };
        let key = &batch.key;
        prefetch(
            &self.map,
            key.offsets.map_or(key.values + row * key.width, |offsets| offsets + row * size_of::<i64>()),
        );
        if self.view.is_none() {
            prefetch(&self.map, batch.view.values + row * batch.view.width);
        }
    }

    /// Second step: the key itself, and the first lines of the row's leaves.
    pub(crate) fn prefetch_row(&self, row: usize) {
        let Some((batch, row)) = self.locate(row) else { return };
        if let Some(start) =
            batch.key.offsets.and_then(|offsets| u64_at(&self.map, offsets + row * size_of::<i64>()))
        {
            prefetch(&self.map, batch.key.values.saturating_add(start as usize));
        }
        for leaf in batch.leaves.iter().filter(|leaf| leaf.offsets.is_none()) {
            prefetch(&self.map, leaf.values + row * leaf.width);
        }
    }
}

fn damaged(what: impl Into<String>) -> SegmentError {
    SegmentError::Damaged(what.into())
}

/// Where the tail begins, by the footer's length at the end of the file.
fn tail_start(file: &[u8]) -> Option<usize> {
    let closing = file.len().checked_sub(CLOSING)?;
    let len = u32::from_le_bytes(*file[closing..].first_chunk()?);
    (file[closing + 4..] == *b"ARROW1").then_some(())?;
    closing.checked_sub(usize::try_from(len).ok()?)?.checked_sub(END_OF_STREAM)
}

/// The layouts of the record batches; `body` is the file up to its tail.
fn read_batches(
    body: &[u8],
    footer: &arrow_ipc::Footer<'_>,
    blocks: &VerifiedBlocks,
    schema: &Schema,
) -> Result<Vec<BatchLayout>, SegmentError> {
    let read = |block| {
        let ranges = layout::block_ranges(block, body.len());
        let (start, end, stop) = ranges.ok_or_else(|| damaged("a record batch leaves the file"))?;
        if !blocks.verify(body, start, end) {
            return Err(damaged("the checksum of a record batch's header is wrong"));
        }
        layout::parse_batch(&body[start..end], end, stop, schema).map_err(damaged)
    };
    footer.recordBatches().into_iter().flatten().map(read).collect()
}

fn footer_metadata(footer: &arrow_ipc::Footer<'_>) -> Result<Metadata, SegmentError> {
    let pairs = footer.custom_metadata().into_iter().flatten();
    let entries: HashMap<&str, &str> = pairs.filter_map(|pair| Some((pair.key()?, pair.value()?))).collect();
    Metadata::parse(&entries).map_err(|error| match error {
        MetadataError::Version(what) => SegmentError::Foreign(what),
        MetadataError::Entry(name) => damaged(format!("its entry `{name}` is missing or malformed")),
    })
}

/// All batches but the last have `batch_rows` rows, together they have `rows`, and a row's number fits 32 bits.
fn check_rows(batches: &[BatchLayout], rows: usize, batch_rows: usize) -> Option<()> {
    let (last, full) = batches.split_last()?;
    let even = full.iter().all(|batch| batch.rows == batch_rows) && last.rows <= batch_rows;
    let sum = full.len().checked_mul(batch_rows)?.checked_add(last.rows)?;
    (even && sum == rows && u32::try_from(rows).is_ok_and(|rows| rows < u32::MAX)).then_some(())
}
