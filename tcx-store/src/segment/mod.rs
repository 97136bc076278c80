//! A segment: one sealed, immutable Arrow IPC file, mapped, whose rows are served straight from the map.

mod body;
mod columns;
mod confirm;
#[cfg(test)]
mod forged_tests;
mod layout;
mod message;
mod metadata;
mod piece;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::hint::black_box;
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
use crate::presence::is_set;
use crate::schema::Leaf;
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
/// No page of memory is smaller.
const PAGE: usize = 4096;

/// Why a segment is not served.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// Its bytes are not what was written.
    Damaged(String),
    /// It belongs to another identity or instance, or to a version that this program does not know.
    Foreign(String),
}

/// A mapped segment. What every lookup reads stands first, in few lines of the processor's cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segment {
    map: Mapped,
    damaged: AtomicBool,
    view: Option<u32>,
    base: u64,
    rows: usize,
    blocks: VerifiedBlocks,
    /// The first record batch, which nearly always is the only one.
    batch: BatchLayout,
    more_batches: Vec<BatchLayout>,
    batch_rows: usize,
    body: usize,
    name: SegmentName,
    born: u64,
    inputs: Vec<SegmentName>,
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
        leaves: &[Leaf],
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
        let batches = read_batches(&map[..tail], &footer, &blocks, schema, leaves)?;
        let (rows, batch_rows, view) = (metadata.rows, metadata.batch_rows, metadata.view);
        let (batch, more_batches) = check_rows(batches, rows, batch_rows)
            .ok_or_else(|| damaged("its batches have not the rows it says"))?;
        Ok(Self {
            map,
            damaged: AtomicBool::new(false),
            view,
            base: metadata.base,
            rows,
            blocks,
            batch,
            more_batches,
            batch_rows,
            body: tail,
            name,
            born: metadata.born,
            inputs: metadata.inputs,
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

    #[inline]
    fn locate(&self, row: usize) -> Option<(&BatchLayout, usize)> {
        // No division on the hot path.
        if row < self.batch.rows { Some((&self.batch, row)) } else { self.locate_further(row) }
    }

    fn locate_further(&self, row: usize) -> Option<(&BatchLayout, usize)> {
        let (number, row) = (row.checked_div(self.batch_rows)?, row.checked_rem(self.batch_rows)?);
        let batch = self.more_batches.get(number.checked_sub(1)?)?;
        (row < batch.rows).then_some((batch, row))
    }

    /// The verified bytes of a row of a column; `None` if a checksum or an offset is wrong.
    #[inline]
    fn bytes_of(&self, place: &Place, row: usize) -> Option<&[u8]> {
        self.verified(self.range_of(place, row)?)
    }

    #[inline]
    fn verified(&self, range: Range<usize>) -> Option<&[u8]> {
        let map = &*self.map;
        let good = self.blocks.verify(map, range.start, range.end);
        map.get(range).filter(|_| good)
    }

    /// Where the bytes of a row are, which are not verified; `None` if the offsets that say so are wrong.
    #[inline]
    fn range_of(&self, place: &Place, row: usize) -> Option<Range<usize>> {
        let Some(offsets) = place.offsets else {
            let start = place.values + row * place.width;
            return Some(start..start + place.width);
        };
        let at = offsets.get() + row * size_of::<i64>();
        let both = self.verified(at..at + 2 * size_of::<i64>())?;
        let position = |at| usize::try_from(u64_at(both, at)?).ok()?.checked_mul(place.width);
        let (start, end) = (position(0)?, position(size_of::<i64>())?);
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

    /// Where the leaves of a row are.
    fn ranges(&self, row: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let located = self.locate(row);
        located.into_iter().flat_map(move |(batch, row)| {
            batch.leaves.iter().filter_map(move |place| self.range_of(place, row))
        })
    }

    /// Tells the system that a row is wanted soon.
    pub(crate) fn announce(&self, row: usize) {
        self.ranges(row).for_each(|range| self.map.announce(range));
    }

    /// Waits until a row is in memory.
    pub(crate) fn touch(&self, row: usize) {
        for range in self.ranges(row) {
            let bytes = self.map.get(range).unwrap_or_default();
            bytes.iter().step_by(PAGE).chain(bytes.last()).for_each(|byte| {
                black_box(*byte);
            });
        }
    }

    /// Whether a row of a leaf has a value; `None` if the byte that says so cannot be trusted.
    pub(crate) fn is_present(&self, leaf: usize, row: usize) -> Option<bool> {
        let (batch, row) = self.locate(row)?;
        self.validity_of(batch.leaves.get(leaf)?, row)
    }

    fn validity_of(&self, place: &Place, row: usize) -> Option<bool> {
        let Some(validity) = place.validity else { return Some(true) };
        let at = validity.get() + row / 8;
        self.verified(at..at + 1)?.first().map(|&byte| is_set(byte, row))
    }

    /// Whether bytes, which stand in a row of a leaf, may stand there.
    fn accepts(&self, batch: &BatchLayout, leaf: usize, row: usize, bytes: &[u8]) -> bool {
        let sizes = || self.bytes_of(batch.leaves.get(leaf + 1)?, row);
        batch.leaves[leaf].content.accepts(bytes, sizes)
    }

    /// The verified bytes of the first of `rows`, and how many rows they are: as many as lie one after the other, if
    /// they are not too many bytes; a single row where rows differ in length. `None` if a byte cannot be trusted.
    fn slice(&self, column: Stored, rows: Range<usize>) -> Option<(&[u8], usize)> {
        let (batch, first) = self.locate(rows.start)?;
        let place = batch.place(column)?;
        if place.offsets.is_some() {
            let bytes = self.bytes_of(place, first)?;
            let number = match column {
                Stored::Key => return Some((bytes, 1)),
                Stored::Leaf { number, .. } => number,
            };
            return self.accepts(batch, number, first, bytes).then_some((bytes, 1));
        }
        let count = rows.len().min(batch.rows - first).min(SLICE / place.width).max(1);
        let (start, len) = (place.values + first * place.width, count * place.width);
        let good = self.blocks.verify(&self.map, start, start + len);
        good.then(|| (&self.map[start..start + len], count))
    }

    /// The length of a row; `None` if its offsets cannot be trusted.
    fn row_len(&self, column: Stored, row: usize) -> Option<usize> {
        let (batch, row) = self.locate(row)?;
        self.range_of(batch.place(column)?, row).map(|range| range.len())
    }

    /// All rows of a dense leaf, one after the other, where they lie in one piece; *not verified*.
    pub(crate) fn dense(&self, leaf: usize) -> Option<&[u8]> {
        let place = self.batch.leaves.get(leaf).filter(|_| self.more_batches.is_empty())?;
        self.map.get(place.values..place.values + place.len)
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
    leaves: &[Leaf],
) -> Result<Vec<BatchLayout>, SegmentError> {
    let read = |block| {
        let ranges = layout::block_ranges(block, body.len());
        let (start, end, stop) = ranges.ok_or_else(|| damaged("a record batch leaves the file"))?;
        if !blocks.verify(body, start, end) {
            return Err(damaged("the checksum of a record batch's header is wrong"));
        }
        layout::parse_batch(&body[start..end], end, stop, schema, leaves).map_err(damaged)
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

/// The first batch and the others, if all but the last have `batch_rows` rows, together they have `rows`, and a row's
/// number fits 32 bits.
fn check_rows(
    batches: Vec<BatchLayout>,
    rows: usize,
    batch_rows: usize,
) -> Option<(BatchLayout, Vec<BatchLayout>)> {
    let (last, full) = batches.split_last()?;
    let even = full.iter().all(|batch| batch.rows == batch_rows) && last.rows <= batch_rows;
    let sum = full.len().checked_mul(batch_rows)?.checked_add(last.rows)?;
    let fits = even && sum == rows && u32::try_from(rows).is_ok_and(|rows| rows < u32::MAX);
    let mut batches = batches.into_iter();
    Some((batches.next().filter(|_| fits)?, batches.collect()))
}
