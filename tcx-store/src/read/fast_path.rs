//! Finds rows of segments that are mapped and not compressed: nearly all rows, nearly always. Keys that it cannot decide for
//! certain are left to the [slow path](super::slow_path).
//!
//! The bytes that a key leads to are far apart in memory: the line of the index, the offset of the row's key, the key, the row.
//! A few keys take each step together, and each step prefetches what the next one reads. Rows with a destination are copied
//! as soon as they are confirmed, so that the memory serves probes and copies at the same time.

use std::ops::Range;

use crate::changes::Tombstones;
use crate::index::{Candidate, Place, ProbeResult, Table};
use crate::live::snapshot::IndexedRun;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::schema::key::KeyHash;
use crate::segment::{MappedKey, MappedRows};
use crate::storage::name::SegmentName;

/// Keys that take a step together: enough for memory to answer before the next step, and few enough that what was prefetched
/// stays in the second-level cache while wide rows are copied.
const STEP: usize = 8;

/// The most lines after its own in which a key is probed here. Nearly all keys are in the first or second. Where hashes crowd,
/// the slow path goes on, and the other keys of a step do not wait.
const MOST_LINES: u8 = 8;

/// In [`FastPath::numbers`]: no key has led to the segment yet.
const UNSEEN: u32 = u32::MAX;
/// In [`FastPath::numbers`]: the segment's rows are left to the slow path. It and [`UNSEEN`] are the two greatest numbers, so
/// that one comparison distinguishes both from a number of [`FastPath::segments`].
const NOT_MAPPED: u32 = u32::MAX - 1;

/// One index run, and what is known of the segments whose rows it names.
pub(crate) struct FastPath<'a> {
    indexed: &'a IndexedRun,
    table: Table<'a>,
    tombstones: &'a Tombstones,
    /// By the segment's number in the run: its number in `segments`, [`UNSEEN`] or [`NOT_MAPPED`].
    numbers: Vec<u32>,
    segments: Vec<ProbedSegment<'a>>,
    /// Lines to probe, in order. A key whose line is full is appended again, for the next line.
    probes: Vec<PendingProbe>,
    /// Candidates, in order; each is confirmed or left to the slow path.
    unconfirmed: Vec<Unconfirmed>,
    /// The last confirmed rows, which are not copied yet.
    uncopied: Confirmed,
}

/// Rows that follow one another both in a segment and in the batch: one copy serves all of them.
#[derive(Clone, Copy, Default)]
struct Confirmed {
    position: usize,
    /// The number of the segment in [`FastPath::segments`].
    segment: u32,
    row: u32,
    rows: u32,
}

/// A line of the index that is to be probed for a key.
#[derive(Clone, Copy)]
struct PendingProbe {
    hash: KeyHash,
    place: Place,
    position: u32,
    /// How many lines were probed for the key before.
    before: u8,
}

/// A segment to which a key has led.
struct ProbedSegment<'a> {
    rows: MappedRows<'a>,
    name: SegmentName,
    /// Its number in the lookup.
    source: u32,
}

/// A row whose hash begins as that of the key; whether it is the key's row is not known yet.
#[derive(Clone, Copy)]
struct Unconfirmed {
    position: u32,
    /// The number of the segment in [`FastPath::segments`].
    segment: u32,
    row: u32,
    key: MappedKey,
}

/// The rows to find, and where to copy them.
pub(crate) struct Request<'l, 'a, 'd> {
    pub(crate) lookup: &'l mut Lookup,
    pub(crate) destinations: &'l mut Destinations<'a, 'd>,
}

impl<'a> FastPath<'a> {
    pub(crate) fn new(indexed: &'a IndexedRun, tombstones: &'a Tombstones) -> Self {
        let numbers = vec![UNSEEN; indexed.segments.len()];
        let (segments, probes, unconfirmed) = (Vec::new(), Vec::new(), Vec::new());
        let (table, uncopied) = (indexed.run.table(), Confirmed::default());
        Self { indexed, table, tombstones, numbers, segments, probes, unconfirmed, uncopied }
    }

    /// Finds missing rows and copies them to their destinations. Adds to `rest` the positions that it cannot decide; the others
    /// are found, or certainly not in this run.
    pub(crate) fn lookup(&mut self, request: &mut Request<'_, '_, '_>, rest: &mut Vec<usize>) {
        request.lookup.hash_keys(self.indexed.run.seed());
        let (table, lookup) = (self.table, &*request.lookup);
        // A recompute session needs the newest tombstone of each row, which this path never reads. Positions are kept in 32 bits.
        // Nor does it look for rows that could not be read.
        if lookup.recompute().is_some()
            || u32::try_from(lookup.len()).is_err()
            || request.destinations.read().is_some_and(|read| !read.unread.is_empty())
        {
            return rest.extend(lookup.all_missing_positions());
        }
        self.probes.reserve(lookup.missing() + STEP);
        self.probes.extend(lookup.all_missing_positions().map(|position| {
            let hash = lookup.hash(position);
            PendingProbe { hash, place: table.home(hash), position: position as u32, before: 0 }
        }));
        self.unconfirmed.reserve(self.probes.len());
        // Each round probes a step of keys, prefetches the rows of the step before, and confirms those of the one before that:
        // `confirmed <= found <= unconfirmed.len()` at every moment.
        let (mut probed, mut found, mut confirmed) = (0, 0, 0);
        self.prefetch(0..STEP);
        while probed < self.probes.len() || confirmed < self.unconfirmed.len() {
            // `probe` may append to `probes`: its length is read again in each round.
            let end = self.probes.len().min(probed + STEP);
            self.prefetch(end..end + STEP);
            let known = self.unconfirmed.len();
            self.probe(request, probed..end, rest);
            self.prefetch_rows(found..known);
            self.confirm(request, confirmed..found, rest);
            (probed, found, confirmed) = (end, known, found);
        }
        // `confirm` copies rows only when others follow that do not continue them.
        self.copy_confirmed(request);
    }

    #[inline]
    fn prefetch(&self, probes: Range<usize>) {
        let end = probes.end.min(self.probes.len());
        // `start` may lie behind the last probe: then there is nothing to prefetch.
        for probe in self.probes.get(probes.start..end).unwrap_or_default() {
            self.table.prefetch(probe.place);
        }
    }

    /// First step: probes lines of the index for candidates.
    #[inline]
    fn probe(&mut self, request: &mut Request<'_, '_, '_>, probes: Range<usize>, rest: &mut Vec<usize>) {
        for number in probes {
            let probe = self.probes[number];
            match self.table.probe(probe.hash, probe.place) {
                Ok(ProbeResult::Found(Candidate { segment, row, .. })) => {
                    match self.resolve(request, segment, row) {
                        Some(segment) => {
                            let key = MappedKey::default();
                            self.unconfirmed.push(Unconfirmed {
                                position: probe.position,
                                segment,
                                row,
                                key,
                            });
                        }
                        // The segment is not served, or not by this path; another candidate may follow in the run.
                        None => rest.push(probe.position as usize),
                    }
                }
                // Entries are sorted by their hashes: the run has no row of this key.
                Ok(ProbeResult::Absent) => {}
                Ok(ProbeResult::Beyond(place)) if probe.before < MOST_LINES => {
                    self.table.prefetch(place);
                    self.probes.push(PendingProbe { place, before: probe.before + 1, ..probe });
                }
                // The slow path reports a damaged run.
                Ok(ProbeResult::Beyond(_)) | Err(_) => rest.push(probe.position as usize),
            }
        }
    }

    /// The number in `segments` of the candidate's segment, if its rows are mapped. Prefetches the offset of the row's key.
    #[inline]
    fn resolve(&mut self, request: &mut Request<'_, '_, '_>, segment: u16, row: u32) -> Option<u32> {
        // The number comes from a file: the run may list no such segment.
        let mut number = *self.numbers.get(usize::from(segment))?;
        if number >= NOT_MAPPED {
            number = self.open_segment(request, usize::from(segment), number)?;
        }
        let rows = &self.segments[number as usize].rows;
        // So does the row: the segment may have no such one. Everything behind this check relies on `row` being one of its rows.
        if row as usize >= rows.len() {
            return None;
        }
        rows.prefetch_offsets(row as usize);
        Some(number)
    }

    /// Looks once per lookup at what all rows of a segment have in common.
    #[cold]
    fn open_segment(&mut self, request: &mut Request<'_, '_, '_>, number: usize, known: u32) -> Option<u32> {
        if known == NOT_MAPPED {
            return None;
        }
        // Stays so where one of the next lines returns.
        self.numbers[number] = NOT_MAPPED;
        let (lookup, segment) = (&mut *request.lookup, self.indexed.segments.get(number)?.as_ref()?);
        // Only tombstones that are newer than its base kill rows of a segment. If there are none, no row needs a probe of the
        // tombstones.
        if self.tombstones.may_kill(segment.base()) {
            return None;
        }
        let destinations = request.destinations.leaves();
        let rows = segment.mapped_rows(lookup.keys().view(), lookup.wanted(), destinations)?;
        self.numbers[number] = self.segments.len() as u32;
        self.segments.push(ProbedSegment { rows, name: segment.name(), source: lookup.add_source(segment) });
        Some(self.numbers[number])
    }

    /// Second step: reads where the key of each row is, and prefetches the key and the row.
    #[inline]
    fn prefetch_rows(&mut self, unconfirmed: Range<usize>) {
        for candidate in &mut self.unconfirmed[unconfirmed] {
            candidate.key =
                self.segments[candidate.segment as usize].rows.prefetch_row(candidate.row as usize);
        }
    }

    /// Third step: compares the keys, and copies confirmed rows.
    #[inline]
    fn confirm(
        &mut self,
        request: &mut Request<'_, '_, '_>,
        unconfirmed: Range<usize>,
        rest: &mut Vec<usize>,
    ) {
        for number in unconfirmed {
            let candidate = self.unconfirmed[number];
            let (found, position) = (&self.segments[candidate.segment as usize], candidate.position as usize);
            // Runs know 48 bits of a hash: another key may have the same ones. Bytes that were not verified yet are verified by
            // the slow path, too.
            if !found.rows.confirm(candidate.row as usize, candidate.key, request.lookup.keys().key(position))
            {
                rest.push(position);
                continue;
            }
            // Each position has one probe at a time, and leaves `probes` for good when it is a candidate: it is missing still.
            request.lookup.found_missing(position, found.source, candidate.row);
            let Confirmed { position: first, segment, row, rows } = self.uncopied;
            if position == first + rows as usize
                && candidate.row == row + rows
                && candidate.segment == segment
            {
                self.uncopied.rows += 1;
            } else {
                self.copy_confirmed(request);
                self.uncopied =
                    Confirmed { position, segment: candidate.segment, row: candidate.row, rows: 1 };
            }
        }
    }

    #[inline]
    fn copy_confirmed(&mut self, request: &mut Request<'_, '_, '_>) {
        // Without rows, as at first, the segment of number 0 may not be there.
        let Confirmed { position, segment, row, rows } = std::mem::take(&mut self.uncopied);
        if let Some(segment) = self.segments.get(segment as usize).filter(|_| rows > 0) {
            if request.destinations.read().is_some() {
                for number in 0..rows {
                    let (position, row) = (position + number as usize, row + number);
                    let leaves = segment.rows.copied(row as usize..row as usize + 1);
                    request.destinations.copy_unless_read(position, (segment.name, row), leaves);
                }
                return;
            }
            let rows = row as usize..(row + rows) as usize;
            request.destinations.copy(position, rows.len(), segment.rows.copied(rows));
        }
    }
}
