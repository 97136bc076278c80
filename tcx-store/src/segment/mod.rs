//! A segment: one sealed, immutable Arrow IPC file. Where it is mapped and not compressed, its rows are served straight from
//! the map.

mod ancestors;
mod batches;
mod body;
mod check;
mod checksums;
mod codec;
mod columns;
mod confirm;
mod facts;
mod far;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod indirect;
mod layout;
mod limits;
mod lz4;
mod mapped_rows;
pub(crate) mod memory_cache;
mod message;
mod metadata;
mod needed;
mod open;
mod pack;
mod packed;
mod piece;
mod plain;
mod reader;
mod soundness;
#[cfg(test)]
mod tests;
mod unpacked;
mod uses;
mod verdict;
mod verify;
mod writer;

use std::borrow::Cow;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use arrow_schema::SchemaRef;

pub(crate) use ancestors::Ancestors;
pub(crate) use columns::arrow_schema;
pub(crate) use far::read_ahead;
#[cfg(test)]
pub(crate) use limits::tests::MOST_ROWS;
pub(crate) use limits::{MAX_SEGMENT_BYTES, most_rows};
pub(crate) use mapped_rows::{MappedKey, MappedRows};
pub(crate) use needed::Needed;
#[cfg(any(test, fuzzing))]
pub(crate) use pack::MOST_UNPACKED;
pub(crate) use piece::{Piece, PieceRows, PieceSource};
pub(crate) use plain::LARGEST_BLOCK;
#[cfg(test)]
pub(crate) use tests::forged::forged;
pub(crate) use verify::verify_segment;
pub(crate) use writer::{SegmentHeader, WrittenSegment, write_segment};

use crate::schema::key::MAX_KEY_BYTES;
use crate::schema::leaf::Leaf;
use crate::schema::presence::is_set;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::sys::mmap::Mapped;
use crate::sys::verified_blocks::VerifiedBlocks;
use batches::Batches;
use codec::Codec;
pub(crate) use indirect::PackedRows;
use layout::{BatchLayout, ColumnPlace};
use piece::Stored;
use reader::Reader;
pub(crate) use unpacked::Unpacked;
pub(crate) use verdict::Verdict;
/// The most bytes that are verified and handed out as one slice: they stay in the processor's cache.
const SLICE: usize = 1 << 20;
/// No page of memory is smaller.
const PAGE: usize = 4096;

/// The bytes of a leaf in a row, and whether it has a value.
pub(crate) type Value<'a> = (Cow<'a, [u8]>, bool);

/// Why a segment is not served.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// Its bytes are not what was written.
    Damaged(String),
    /// It belongs to another identity or instance.
    Foreign(String),
    /// It could not be read.
    Failed(io::Error),
    /// A version or a codec that this program does not know has written it.
    Unknown(String),
}

/// A segment. The fields that every lookup reads come first, in few lines of the processor's cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segment {
    map: Mapped,
    damaged: AtomicBool,
    /// Whether rows are served straight from the map: it is mapped, and not compressed.
    is_direct: bool,
    view: Option<u32>,
    base: u64,
    rows: usize,
    blocks: VerifiedBlocks,
    /// The first record batch, which is the only one of a segment that is not compressed.
    batch: BatchLayout,
    batches: Batches,
    /// Bytes of the record batches and of all before them.
    body: usize,
    /// Where the tail begins.
    tail: usize,
    name: SegmentName,
    schema: SchemaRef,
    leaves: Arc<[Leaf]>,
    codec: Option<Codec>,
    /// Rows that are decompressed together; `None` if those of a record batch are.
    chunk_rows: Option<usize>,
    /// Where the bytes come from if nothing is mapped.
    reader: Option<Reader>,
    /// Bytes of the rows when they are not compressed.
    unpacked: usize,
    born: u64,
    youngest: u64,
    /// The version of the format that it was written in.
    format: u32,
    /// The nonce of the change of the number `base`, without which the rows do not count.
    commit: Option<Random>,
    inputs: Vec<SegmentName>,
    ancestors: Ancestors,
    /// The state of the tombstones when the dead rows were counted last, and how many they were.
    dead: Mutex<(u64, usize)>,
    sound_keys: OnceLock<bool>,
    /// The record batch that was decompressed last for a caller that reads row after row.
    last_unpacked: Mutex<Option<(usize, Arc<Unpacked>)>>,
    /// Rows that were served since this was asked last. Lookups write it, so it is far from what they read.
    uses: AtomicU64,
}

impl Segment {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.reader.as_ref().map_or(self.map.len(), Reader::bytes)
    }

    /// The bytes that it would have if it were not compressed.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        self.unpacked
    }

    /// Whether rows are served straight from the map.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Whether this process has met a wrong checksum here.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Takes the segment out of service in this process; `true` the first time.
    pub(crate) fn mark_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    /// The batch of a row, and the row's number in it.
    #[inline]
    fn locate(&self, row: usize) -> Option<(&BatchLayout, usize)> {
        // Segments that are not compressed have one batch: no division for their rows.
        if row < self.batch.rows { Some((&self.batch, row)) } else { self.locate_further(row) }
    }

    fn locate_further(&self, row: usize) -> Option<(&BatchLayout, usize)> {
        let (number, row) = self.batches.locate(row)?;
        let read = |range| self.verified(range);
        let batch = self.batches.later(number, (&self.schema, &self.leaves), self.codec, read)?;
        Some((batch, row))
    }

    /// The verified bytes of a row of a column; `None` if a checksum or an offset is wrong, or the file cannot be read.
    #[inline]
    fn bytes_of(&self, place: &ColumnPlace, row: usize) -> Option<Cow<'_, [u8]>> {
        self.verified(self.range_of(place, row)?)
    }

    #[inline]
    fn verified(&self, range: Range<usize>) -> Option<Cow<'_, [u8]>> {
        verified(&self.map, self.reader.as_ref(), &self.blocks, range)
    }

    /// Where the bytes of a row are, which are not verified; `None` if the offsets that say so are wrong.
    #[inline]
    fn range_of(&self, place: &ColumnPlace, row: usize) -> Option<Range<usize>> {
        place.range(row, |range| self.verified(range))
    }

    /// The key and view of a row; `None` if its bytes cannot be trusted.
    pub(crate) fn key(&self, row: usize) -> Option<(Cow<'_, [u8]>, u32)> {
        let (batch, row) = self.locate(row)?;
        let view = match self.view {
            Some(view) => view,
            None => u32::from_le_bytes(*self.bytes_of(&batch.view, row)?.first_chunk()?),
        };
        // No program of ours writes a longer one, and no change can name it.
        let key = self.bytes_of(&batch.key, row)?;
        (key.len() <= MAX_KEY_BYTES).then_some((key, view))
    }

    /// As [`bytes_of`](Self::bytes_of), if it is mapped.
    #[inline]
    fn in_map_of(&self, place: &ColumnPlace, row: usize) -> Option<&[u8]> {
        self.in_map(place.range(row, |range| self.in_map(range))?)
    }

    /// As [`verified`](Self::verified), if it is mapped.
    #[inline]
    fn in_map(&self, range: Range<usize>) -> Option<&[u8]> {
        in_map(&self.map, &self.blocks, range)
    }

    /// A row of a leaf, if it is served straight from the map; `None` if its bytes cannot be trusted.
    pub(crate) fn leaf(&self, leaf: usize, row: usize) -> Option<&[u8]> {
        let (batch, row) = self.locate(row)?;
        self.in_map_of(batch.leaves.get(leaf)?, row)
    }

    /// Where the leaves of a row are.
    fn ranges(&self, row: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let located = if self.is_compressed() { None } else { self.locate(row) };
        located.into_iter().flat_map(move |(batch, row)| {
            batch.leaves.iter().filter_map(move |place| self.range_of(place, row))
        })
    }

    /// The bytes that the leaves of a row take, by their offsets alone. Of a compressed row, the average of the segment.
    pub(crate) fn row_bytes(&self, row: usize) -> usize {
        if self.is_compressed() {
            return self.bytes() / self.rows.max(1);
        }
        self.ranges(row).map(|range| range.len()).sum()
    }

    /// Advises the system that a row is needed soon.
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
        if self.is_compressed() {
            let (number, row) = self.batches.locate(row)?;
            return self.next_unpacked(number)?.value(leaf, row).map(|(_, present)| present);
        }
        let (batch, row) = self.locate(row)?;
        self.validity_of(batch.leaves.get(leaf)?, row)
    }

    fn validity_of(&self, place: &ColumnPlace, row: usize) -> Option<bool> {
        let Some(validity) = place.validity else { return Some(true) };
        let at = validity.get() + row / 8;
        self.verified(at..at + 1)?.first().map(|&byte| is_set(byte, row))
    }

    /// Whether the bytes in a row of a leaf are valid there.
    fn accepts(&self, batch: &BatchLayout, leaf: usize, row: usize, bytes: &[u8]) -> bool {
        let sizes = || self.bytes_of(batch.leaves.get(leaf + 1)?, row);
        batch.leaves[leaf].content.accepts(bytes, sizes)
    }

    /// The verified bytes of the first of `rows`, and how many rows they are: as many as lie one after the other, if
    /// they are not too many bytes; a single row where rows differ in length. `None` if a byte cannot be trusted.
    fn slice(&self, column: Stored, rows: Range<usize>) -> Option<(Cow<'_, [u8]>, usize)> {
        if self.is_packed(column) {
            let (number, first) = self.batches.locate(rows.start)?;
            let batch = self.next_unpacked(number)?;
            let count = rows.len().min(batch.rows() - first);
            return Some((batch.slice(column, first..first + count)?.to_vec().into(), count));
        }
        let (batch, first) = self.locate(rows.start)?;
        let place = batch.place(column)?;
        if place.offsets.is_some() {
            let bytes = self.bytes_of(place, first)?;
            let number = match column {
                Stored::Key => return Some((bytes, 1)),
                Stored::Leaf { number, .. } => number,
            };
            return self.accepts(batch, number, first, &bytes).then_some((bytes, 1));
        }
        let count = rows.len().min(batch.rows - first).min(SLICE / place.width).max(1);
        let (start, len) = (place.values + first * place.width, count * place.width);
        Some((self.verified(start..start + len)?, count))
    }

    /// The length of a row; `None` if its offsets cannot be trusted.
    fn row_len(&self, column: Stored, row: usize) -> Option<usize> {
        if self.is_packed(column) {
            let (number, row) = self.batches.locate(row)?;
            return self.next_unpacked(number)?.slice(column, row..row + 1).map(<[u8]>::len);
        }
        let (batch, row) = self.locate(row)?;
        self.range_of(batch.place(column)?, row).map(|range| range.len())
    }

    /// All rows of a dense leaf, one after the other, where they lie in one piece; *not verified*.
    pub(crate) fn dense(&self, leaf: usize) -> Option<&[u8]> {
        let place = self.batch.leaves.get(leaf).filter(|_| self.batches.is_one())?;
        self.map.get(place.values..place.values + place.len)
    }
}

/// Verified bytes of a range of the body: from the map, or where nothing is mapped from the file.
#[inline]
fn verified<'m>(
    map: &'m [u8],
    reader: Option<&Reader>,
    blocks: &VerifiedBlocks,
    range: Range<usize>,
) -> Option<Cow<'m, [u8]>> {
    match in_map(map, blocks, range.clone()) {
        Some(bytes) => Some(Cow::Borrowed(bytes)),
        None => read(reader, blocks, range).map(Cow::Owned),
    }
}

#[inline]
fn in_map<'m>(map: &'m [u8], blocks: &VerifiedBlocks, range: Range<usize>) -> Option<&'m [u8]> {
    // Verified before a byte is returned. In a segment that is not mapped, `map` is empty: no range lies in it.
    let good = blocks.verify(map, range.start, range.end);
    map.get(range).filter(|_| good)
}

#[cold]
fn read(reader: Option<&Reader>, blocks: &VerifiedBlocks, range: Range<usize>) -> Option<Vec<u8>> {
    reader?.read(range, blocks)
}
