//! Reads wide rows from the disk with several threads, straight to where they are wanted.
//!
//! One thread that reads wide rows from a map has to make their pages, wait for them, verify and copy them, which takes longer than a
//! disk needs to read them. So several threads read such rows from the file that is mapped, verify what they have read, and copy it
//! to its destination.
//!
//! What is read here decides nothing. The lookup then confirms the rows as it confirms any others, and only need not verify and copy
//! again what it finds where it wants it. A row that does not verify, or whose file cannot be opened, is looked at in the map. A row
//! that cannot be read is missing: the page of the map that has it would end the process.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::read::destination::Destinations;
use crate::segment::{LARGEST_BLOCK, Segment};
use crate::storage::name::SegmentName;
use crate::storage::{ReadAt, Storage};
use crate::sys::helpers::{take, with_helpers};
use crate::sys::residency::make_pages;

/// A row of fewer bytes is announced: then the thread waits for little more than the disk.
pub(crate) const WIDE: usize = 16 << 10;

/// Threads that read for a lookup at the same time, the calling one included.
const THREADS: usize = 16;

/// Lookups of a store that read at the same time. The rows of others are announced, so the threads and open files of a process stay
/// few, however many of its threads look rows up.
const LOOKUPS: usize = 4;

/// Files that a lookup opens. Rows of further ones are announced.
const FILES: usize = 32;

/// So much of a row is read by one thread: a wider one is read by several. These are whole checksum blocks.
const PART: usize = LARGEST_BLOCK;

/// So much is read, verified and copied at a time: it stays in the processor's second-level cache.
const PIECE: usize = 64 << 10;

/// Parts that are announced before they are read. They are what the disk can read at the same time.
const AHEAD: usize = 32;

/// A row of a leaf that is not in memory.
#[derive(Debug)]
pub(crate) struct WideRow<'a> {
    pub(crate) position: usize,
    pub(crate) segment: &'a Segment,
    pub(crate) row: u32,
    pub(crate) leaf: usize,
    /// Its bytes in the file.
    pub(crate) range: Range<usize>,
    /// The bytes of its checksum blocks.
    pub(crate) blocks: Range<usize>,
}

/// What became of a row; of several parts, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It was verified, and copied to its destination if it has one.
    Read,
    /// It was not read, or its bytes are not those that were written.
    InDoubt,
    /// The file system could not read it.
    Unread,
}

/// Part of a row.
struct Part<'p> {
    /// The number of the row.
    number: usize,
    row: &'p WideRow<'p>,
    file: &'p dyn ReadAt,
    /// Whole checksum blocks.
    range: Range<usize>,
    /// The memory for the row's bytes in these blocks, if it has a destination.
    to: Option<&'p mut [MaybeUninit<u8>]>,
}

/// The number of a row, and where it is wanted: the number of the destination, and the position.
type Target = (usize, (usize, usize));

/// Lookups of a store that read now.
#[derive(Debug, Default)]
pub(crate) struct Readers(AtomicUsize);

struct Reading<'a>(&'a Readers);

impl Readers {
    fn begin(&self) -> Option<Reading<'_>> {
        let more = |count| (count < LOOKUPS).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Reading(self))
    }

    /// Reads rows, as far as it can. `destinations` knows afterwards which are there, and which cannot be read.
    pub(crate) fn read(
        &self,
        rows: &[WideRow<'_>],
        storage: &dyn Storage,
        destinations: &mut Destinations<'_, '_>,
    ) {
        let announce = |row: &WideRow<'_>| row.segment.map().announce(row.blocks.clone());
        let Some(_reading) = self.begin() else { return rows.iter().for_each(announce) };
        let files = open(rows, storage);
        let targets = targets(rows, destinations);
        let places: Vec<(usize, usize)> = targets.iter().map(|(_, place)| *place).collect();
        let lent = destinations.memory(&places);
        // Of any others, nothing may count as copied.
        let targets = &targets[..lent.len()];
        let mut memory: Vec<Option<&mut [MaybeUninit<u8>]>> = rows.iter().map(|_| None).collect();
        for ((number, _), own) in targets.iter().zip(lent) {
            memory[*number] = Some(own);
        }
        let (mut outcomes, mut parts) = (vec![Outcome::Read; rows.len()], Vec::with_capacity(rows.len()));
        for (number, (row, to)) in rows.iter().zip(memory).enumerate() {
            if let Some(Some(file)) = files.get(&row.segment.name()) {
                parts.extend(parts_of(number, row, &**file, to));
            } else {
                announce(row);
                outcomes[number] = Outcome::InDoubt;
            }
        }
        for (number, outcome) in read_parts(parts) {
            outcomes[number] = outcomes[number].max(outcome);
        }
        remember(rows, targets, &outcomes, destinations);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes what was read, and what could not be.
fn remember(
    rows: &[WideRow<'_>],
    targets: &[Target],
    outcomes: &[Outcome],
    destinations: &mut Destinations<'_, '_>,
) {
    let read = destinations.add_read();
    let stored = |number: usize| (rows[number].segment.name(), rows[number].row);
    for &(number, place) in targets {
        if outcomes[number] == Outcome::Read {
            read.filled.insert(place, stored(number));
        }
    }
    let unread = (0..rows.len()).filter(|&number| outcomes[number] == Outcome::Unread);
    read.unread.extend(unread.map(stored));
}

/// The files of the rows; `None` for one that is not to be read.
fn open(rows: &[WideRow<'_>], storage: &dyn Storage) -> HashMap<SegmentName, Option<Box<dyn ReadAt>>> {
    let mut files = HashMap::new();
    for WideRow { segment, .. } in rows {
        let name = segment.name();
        if files.len() < FILES && !files.contains_key(&name) {
            // The map has the bytes, whatever became of the file.
            let file = storage.beside(&name.to_string(), segment.map()).unwrap_or_else(|error| {
                tracing::debug!(segment = %name, "cannot open beside its map: {error}");
                None
            });
            files.insert(name, file);
        }
    }
    files
}

/// Where rows are wanted, in the order of the destinations and positions.
fn targets(rows: &[WideRow<'_>], destinations: &Destinations<'_, '_>) -> Vec<Target> {
    let leaves: Vec<(usize, usize)> = destinations.leaves().collect();
    let target = |(number, row): (usize, &WideRow<'_>)| {
        // Rows of another width than the destination's would be written over others.
        let destination = leaves.iter().position(|leaf| *leaf == (row.leaf, row.range.len()))?;
        Some((number, (destination, row.position)))
    };
    let mut targets: Vec<_> = rows.iter().enumerate().filter_map(target).collect();
    targets.sort_unstable_by_key(|(_, place)| *place);
    targets.dedup_by_key(|(_, place)| *place);
    targets
}

/// Cuts a row into parts.
fn parts_of<'p>(
    number: usize,
    row: &'p WideRow<'p>,
    file: &'p dyn ReadAt,
    mut to: Option<&'p mut [MaybeUninit<u8>]>,
) -> impl Iterator<Item = Part<'p>> {
    row.blocks.clone().step_by(PART).map(move |start| {
        let range = start..row.blocks.end.min(start + PART);
        let bytes = own(row, &range).len();
        let to = to.as_mut().map(|to| to.split_off_mut(..bytes).unwrap_or_default());
        Part { number, row, file, range, to }
    })
}

/// The bytes of a row in a range that it is in, or reaches into.
fn own(row: &WideRow<'_>, range: &Range<usize>) -> Range<usize> {
    row.range.start.max(range.start)..row.range.end.min(range.end)
}

/// Reads parts on several threads: what became of each, with the number of its row.
fn read_parts(parts: Vec<Part<'_>>) -> Vec<(usize, Outcome)> {
    let places: Vec<(&Segment, Range<usize>)> =
        parts.iter().map(|part| (part.row.segment, part.range.clone())).collect();
    let announced = AtomicUsize::new(0);
    let announce_until = |end: usize| {
        while announced.load(Ordering::Relaxed) < end.min(places.len()) {
            if let Some((segment, range)) = places.get(announced.fetch_add(1, Ordering::Relaxed)) {
                segment.map().announce(range.clone());
            }
        }
    };
    let helpers = parts.len().clamp(1, THREADS) - 1;
    let block = places.iter().map(|(segment, _)| segment.block()).max().unwrap_or_default();
    let (parts, outcomes) = (Mutex::new(parts.into_iter().enumerate()), Mutex::new(Vec::new()));
    with_helpers("tcx-read", helpers, || {
        let (mut buffer, mut own) = (vec![0; PIECE.max(block)], Vec::new());
        while let Some((at, part)) = take(&parts) {
            // The system makes the pages of some parts while others wait for the disk.
            announce_until(at + AHEAD);
            own.push((part.number, part.read(&mut buffer)));
        }
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Part<'_> {
    /// `buffer` has room for at least one checksum block.
    fn read(self, buffer: &mut [u8]) -> Outcome {
        let Self { row, file, range, mut to, .. } = self;
        let first = own(row, &range).start;
        // While the disk reads the row.
        if let Some(to) = &mut to {
            make_pages(to);
        }
        for start in range.clone().step_by(buffer.len()) {
            let piece = start..range.end.min(start + buffer.len());
            let bytes = &mut buffer[..piece.len()];
            if let Err(error) = file.read_at(bytes, start) {
                tracing::debug!(segment = %row.segment.name(), "cannot read: {error}");
                return Outcome::Unread;
            }
            if !row.segment.verify_read(start, bytes) {
                return Outcome::InDoubt;
            }
            let own = own(row, &piece);
            // Verified, and not before.
            if let Some(to) = &mut to {
                // A row that has not room would be found where it is not.
                let Some(to) = to.get_mut(own.start - first..own.end - first) else {
                    return Outcome::InDoubt;
                };
                to.write_copy_of_slice(&bytes[own.start - start..own.end - start]);
            }
        }
        Outcome::Read
    }
}
