//! Rows of segments that are on another machine: what a lookup needs of several rows is read together, so that it waits for the other
//! machine twice and not once for each block.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::Segment;
use super::needed::Needed;
use super::reader::{MANY, Reader};
use crate::segment::memory_cache::CachedPart;
use crate::storage::name::SegmentName;
use crate::storage::{Parts, Storage};

/// Blocks that were read ahead. Their segments have them as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct BlocksAhead(Vec<Arc<CachedPart>>);

/// Numbers of blocks, and whether the memory cache is to keep them.
type Numbers = BTreeMap<usize, bool>;

/// Blocks of far segments that are needed.
#[derive(Default)]
struct NeededBlocks<'a>(BTreeMap<SegmentName, (&'a Segment, Numbers)>);

/// What is to be read of a segment.
struct Missing<'a> {
    segment: &'a Segment,
    reader: &'a Reader,
    numbers: Numbers,
}

impl Segment {
    /// Whether its bytes are on another machine.
    #[inline]
    pub(crate) fn is_far(&self) -> bool {
        self.reader.as_ref().is_some_and(Reader::is_far)
    }
}

/// Reads what is needed of these rows of far segments, as far as it is not here: at first their keys, offsets and fixed parts, then what
/// the offsets lead to. What cannot be read is not here either when a row is confirmed.
pub(crate) fn read_ahead(
    storage: &dyn Storage,
    rows: &[(&Segment, usize)],
    wanted: Option<&[usize]>,
) -> BlocksAhead {
    let mut ahead = BlocksAhead::default();
    let mut needed = NeededBlocks::default();
    for &(segment, row) in rows {
        segment.needed_at_first(row, wanted, &mut |found| needed.add(segment, found));
    }
    needed.tidy();
    needed.read(storage, &mut ahead);
    // What the first round could not read stays unread: the rows are misses, and each of them would ask for it again.
    let mut needed = NeededBlocks::default();
    for &(segment, row) in rows {
        segment.needed_by_offsets(row, wanted, &mut |found| needed.add(segment, found));
    }
    needed.read(storage, &mut ahead);
    ahead
}

impl<'a> NeededBlocks<'a> {
    fn add(&mut self, segment: &'a Segment, needed: Needed) {
        let range = needed.range();
        let Some(numbers) = segment.blocks.numbers_of(&range) else { return };
        let (_, needed) = self.0.entry(segment.name()).or_insert_with(|| (segment, Numbers::new()));
        for number in numbers {
            *needed.entry(number).or_default() |= range.len() < MANY;
        }
    }

    /// A lookup begins: what could not be read by others is asked for again.
    fn tidy(&self) {
        self.0.values().filter_map(|(segment, _)| segment.reader.as_ref()).for_each(Reader::tidy);
    }

    fn read(self, storage: &dyn Storage, ahead: &mut BlocksAhead) {
        let missing = self.0.into_values().filter_map(|(segment, numbers)| {
            let reader = segment.reader.as_ref()?;
            let mut missing = Missing { segment, reader, numbers };
            missing.numbers.retain(|&number, _| {
                let held = reader.held(number);
                let is_missing = held.is_none() && !reader.is_damaged(number);
                ahead.0.extend(held);
                is_missing
            });
            Some(missing)
        });
        let mut missing: Vec<_> = missing.collect();
        // What arrives damaged is read a second time.
        for is_last in [false, true] {
            missing.retain(|missing| !missing.numbers.is_empty());
            if missing.is_empty() {
                return;
            }
            let parts: Vec<Parts> = missing.iter().map(Missing::parts).collect();
            let read = storage.read_parts(&parts);
            for ((missing, parts), read) in missing.iter_mut().zip(&parts).zip(read) {
                missing.take(parts, read, is_last, ahead);
            }
        }
    }
}

impl Missing<'_> {
    /// The blocks, those that follow each other as one part, and what verifies them of the table of checksums.
    fn parts(&self) -> Parts {
        let blocks = &self.segment.blocks;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for number in self.numbers.keys() {
            let Some(range) = blocks.range(*number) else { continue };
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        let mut tables: Vec<Range<usize>> = Vec::new();
        for number in self.numbers.keys() {
            let table = blocks.unread_table(*number..number + 1);
            tables.extend(table.filter(|table| tables.last() != Some(table)));
        }
        ranges.extend(tables);
        Parts { name: self.segment.name().to_string(), ranges }
    }

    /// Takes what was read. Those blocks are left that are to be read again.
    fn take(
        &mut self,
        parts: &Parts,
        read: Vec<io::Result<Vec<u8>>>,
        is_last: bool,
        ahead: &mut BlocksAhead,
    ) {
        let Self { segment, reader, numbers } = self;
        let mut pieces: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (range, read) in parts.ranges.iter().zip(read) {
            match read {
                Ok(bytes) if bytes.len() == range.len() => drop(pieces.insert(range.start, bytes)),
                Ok(_) => reader.note_failure(&io::ErrorKind::UnexpectedEof.into()),
                Err(error) => reader.note_failure(&error),
            }
        }
        let find = |range: Range<usize>| {
            let (start, piece) = pieces.range(..=range.start).next_back()?;
            piece.get(range.start - start..range.end - start)
        };
        numbers.retain(|&number, &mut keep| {
            let Some(block) = segment.blocks.range(number).and_then(find) else {
                reader.note_unread(number);
                return false;
            };
            let is_unread = Cell::new(false);
            let table = |range| {
                let table = find(range);
                is_unread.set(table.is_none());
                table.map(|table| Cow::Owned(table.to_vec()))
            };
            if segment.blocks.is_block(number, block, table) {
                ahead.0.extend(reader.add(number, block, keep));
                return false;
            }
            if is_last && is_unread.get() {
                reader.note_unread(number);
            } else if is_last {
                reader.note_damage(number);
            }
            !is_last
        });
    }
}
