//! Finds the rows that the fast path leaves, wherever they are: in compressed segments, in segments that are read piece by
//! piece, in segments that tombstones may concern, and behind candidates of another key. It takes the same steps as the fast
//! path, several keys at a time.

mod copy;
mod far;

use std::ops::Range;
use std::sync::Arc;

use crate::changes::Tombstones;
use crate::index::{Candidate, DamagedRun, Place, ProbeResult, Table};
use crate::live::damage::DamagedFiles;
use crate::live::snapshot::IndexedRun;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::segment::Segment;
use crate::segment::memory_cache::{CacheKey, CachedPart, MemoryCache};
use copy::packed_rows;
use far::FarRow;

/// Keys that take a step together: enough for memory to answer before the next step, and few enough that what was prefetched
/// stays in the first-level cache.
const STEP: usize = 8;
/// Keys whose steps follow each other without a pause: it bounds the memory of the candidates.
const TOGETHER: usize = 512;

/// In [`SlowPath::numbers`]: no key has led to the segment yet.
const UNSEEN: u32 = u32::MAX;
/// In [`ProbedSegment::source`]: no row of the segment was found yet.
const NO_SOURCE: u32 = u32::MAX;

/// A lookup of missing rows, in one index run after the other.
pub(super) struct SlowPath<'a, 'l, 'd, 'm> {
    pub(super) lookup: &'l mut Lookup,
    pub(super) destinations: &'l mut Destinations<'d, 'm>,
    tombstones: &'a Tombstones,
    memory_cache: &'a MemoryCache,
    /// The rows that were decompressed last: the next one is often among them.
    last: Option<(CacheKey, Arc<CachedPart>)>,
    /// What turned out to be damaged.
    pub(super) damaged: DamagedFiles,
    /// By the segment's number in the run: its number in `segments`, or [`UNSEEN`].
    numbers: Vec<u32>,
    segments: Vec<ProbedSegment<'a>>,
    /// Keys that have to be probed in further lines, and where; empty between runs.
    beyond: Vec<(usize, Place)>,
    /// Candidates, in order; empty between runs.
    unconfirmed: Vec<Unconfirmed>,
    /// Candidates in far segments, of all runs. They are read together, when the runs were probed.
    far: Vec<FarRow<'a>>,
}

/// A served segment to which a key has led.
struct ProbedSegment<'a> {
    segment: &'a Arc<Segment>,
    /// Its number in the lookup.
    source: u32,
}

/// A row of a served segment whose hash begins as that of the key; whether it is the key's row is not known yet.
struct Unconfirmed {
    position: usize,
    row: u32,
    /// The number of the segment in [`SlowPath::segments`].
    segment: u32,
    /// Where the probe for further candidates goes on.
    next: Place,
    /// Where the key of the row is in the segment, once that was read.
    key: Range<usize>,
    /// Of a compressed row: the rows that are decompressed with it, if the memory cache has them.
    part: Option<Arc<CachedPart>>,
}

/// A range in which no segment has a byte: the offsets of the key cannot be trusted, or were not read yet.
const NOWHERE: Range<usize> = usize::MAX..usize::MAX;

impl Unconfirmed {
    #[inline]
    fn new(position: usize, candidate: &Candidate, segment: u32) -> Self {
        Self { position, row: candidate.row, segment, next: candidate.next, key: NOWHERE, part: None }
    }
}

impl<'a, 'l, 'd, 'm> SlowPath<'a, 'l, 'd, 'm> {
    pub(super) fn new(
        lookup: &'l mut Lookup,
        destinations: &'l mut Destinations<'d, 'm>,
        tombstones: &'a Tombstones,
        memory_cache: &'a MemoryCache,
    ) -> Self {
        let (damaged, numbers, segments) = (DamagedFiles::default(), Vec::new(), Vec::new());
        let (beyond, unconfirmed, far) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            lookup,
            destinations,
            tombstones,
            memory_cache,
            last: None,
            damaged,
            numbers,
            segments,
            beyond,
            unconfirmed,
            far,
        }
    }

    /// Looks the keys at the positions `rest` up in a run.
    pub(super) fn lookup_rest(&mut self, indexed: &'a IndexedRun, rest: &[usize]) {
        self.begin(indexed);
        for positions in rest.chunks(TOGETHER) {
            self.lookup_together(indexed, positions);
        }
    }

    fn begin(&mut self, indexed: &IndexedRun) {
        self.lookup.hash_keys(indexed.run.seed());
        // Numbers of segments mean something in their own run only.
        self.segments.clear();
        self.numbers.clear();
        self.numbers.resize(indexed.segments.len(), UNSEEN);
    }

    /// Looks these keys up in three steps: their lines of the index, the offsets of their candidates' keys, the keys.
    fn lookup_together(&mut self, indexed: &'a IndexedRun, positions: &[usize]) {
        let table = indexed.run.table();
        // Each round probes a step of keys, prefetches the rows of the step before, and confirms those of the one before that.
        let (mut found, mut confirmed) = (0, 0);
        let mut unconfirmed = std::mem::take(&mut self.unconfirmed);
        let mut steps = positions.chunks(STEP).peekable();
        self.prefetch(&table, steps.peek().copied().unwrap_or_default());
        while let Some(step) = steps.next() {
            self.prefetch(&table, steps.peek().copied().unwrap_or_default());
            let known = unconfirmed.len();
            self.probe(indexed, &table, step, &mut unconfirmed);
            self.prefetch_rows(&mut unconfirmed[found..known]);
            self.confirm_all(indexed, &unconfirmed[confirmed..found]);
            (confirmed, found) = (found, known);
        }
        let mut beyond = std::mem::take(&mut self.beyond);
        for (position, place) in beyond.drain(..) {
            match self.probe_from(indexed, &table, position, place) {
                Ok(candidate) => unconfirmed.extend(candidate),
                Err(DamagedRun) => self.damaged.runs.push(indexed.run.clone()),
            }
        }
        // The candidates of the last two rounds, and those of `beyond`.
        self.prefetch_rows(&mut unconfirmed[found..]);
        self.confirm_all(indexed, &unconfirmed[confirmed..]);
        unconfirmed.clear();
        (self.unconfirmed, self.beyond) = (unconfirmed, beyond);
    }

    fn prefetch(&self, table: &Table<'_>, positions: &[usize]) {
        for &position in positions {
            table.prefetch(table.home(self.lookup.hash(position)));
        }
    }

    /// First step: probes the home line of each key.
    #[inline]
    fn probe(
        &mut self,
        indexed: &'a IndexedRun,
        table: &Table<'_>,
        positions: &[usize],
        unconfirmed: &mut Vec<Unconfirmed>,
    ) {
        for &position in positions {
            let hash = self.lookup.hash(position);
            match table.probe(hash, table.home(hash)) {
                // Entries are sorted by their hashes: the run has no row of this key.
                Ok(ProbeResult::Absent) => {}
                Ok(ProbeResult::Found(candidate)) => match self.resolve(indexed, &candidate) {
                    Some(segment) => unconfirmed.push(Unconfirmed::new(position, &candidate, segment)),
                    // A run may be older than its segments' replacement: a served copy of the row may follow.
                    None => self.beyond.push((position, candidate.next)),
                },
                Ok(ProbeResult::Beyond(place)) => {
                    table.prefetch(place);
                    self.beyond.push((position, place));
                }
                Err(DamagedRun) => self.damaged.runs.push(indexed.run.clone()),
            }
        }
    }

    /// The first candidate, from `place` on, whose segment is served.
    fn probe_from(
        &mut self,
        indexed: &'a IndexedRun,
        table: &Table<'_>,
        position: usize,
        mut place: Place,
    ) -> Result<Option<Unconfirmed>, DamagedRun> {
        let hash = self.lookup.hash(position);
        while let Some(candidate) = table.probe_from(hash, place)? {
            if let Some(segment) = self.resolve(indexed, &candidate) {
                return Ok(Some(Unconfirmed::new(position, &candidate, segment)));
            }
            // Behind the candidate: the loop ends at the end of the run.
            place = candidate.next;
        }
        Ok(None)
    }

    /// The number in `segments` of the candidate's segment, if it is served. Prefetches the offset of the row's key.
    #[inline]
    fn resolve(&mut self, indexed: &'a IndexedRun, candidate: &Candidate) -> Option<u32> {
        // Segment and row come from a file: the run may list no such segment, and the segment may have no such row.
        let mut number = *self.numbers.get(usize::from(candidate.segment))?;
        if number == UNSEEN {
            number = self.add_segment(indexed, candidate.segment)?;
        }
        let (segment, row) = (self.segments[number as usize].segment, candidate.row as usize);
        if row >= segment.rows() {
            return None;
        }
        if !segment.is_far() {
            segment.prefetch_offsets(row);
        }
        Some(number)
    }

    #[cold]
    fn add_segment(&mut self, indexed: &'a IndexedRun, number: u16) -> Option<u32> {
        // `None` in the run is a segment that is not served.
        let segment = indexed.segments.get(usize::from(number))?.as_ref()?;
        // The lookup keeps a segment alive from its first found row on, not before.
        self.segments.push(ProbedSegment { segment, source: NO_SOURCE });
        let added = (self.segments.len() - 1) as u32;
        self.numbers[usize::from(number)] = added;
        Some(added)
    }

    /// Second step: reads where the key of each row is, and prefetches the key and the row.
    #[inline]
    fn prefetch_rows(&self, unconfirmed: &mut [Unconfirmed]) {
        for candidate in &mut *unconfirmed {
            self.prefetch_row(candidate);
        }
        let packed = unconfirmed.iter_mut().filter_map(|candidate| {
            let segment = self.segments[candidate.segment as usize].segment;
            let (_, _, key) = packed_rows(segment, candidate.row as usize)?;
            Some((key, &mut candidate.part))
        });
        self.memory_cache.find_loaded(packed);
        for candidate in unconfirmed {
            let Some(rows) = candidate.part.as_ref().and_then(|part| part.rows()) else { continue };
            let segment = self.segments[candidate.segment as usize].segment;
            if let Some((_, row, _)) = packed_rows(segment, candidate.row as usize) {
                rows.prefetch(row);
            }
        }
    }

    #[inline]
    fn prefetch_row(&self, candidate: &mut Unconfirmed) {
        let segment = self.segments[candidate.segment as usize].segment;
        if segment.is_far() {
            return;
        }
        let key = segment.prefetch_row(candidate.row as usize, self.lookup.wanted());
        candidate.key = key.unwrap_or(NOWHERE);
    }

    /// Third step: confirms candidates, or others of the same hash.
    #[inline]
    fn confirm_all(&mut self, indexed: &'a IndexedRun, unconfirmed: &[Unconfirmed]) {
        for candidate in unconfirmed {
            if !self.confirm(indexed, candidate) {
                self.confirm_another(indexed, candidate.position, candidate.next);
            }
        }
    }

    /// Another row whose hash begins as the key's does; there is nearly never one.
    #[cold]
    fn confirm_another(&mut self, indexed: &'a IndexedRun, position: usize, mut next: Place) {
        let table = indexed.run.table();
        loop {
            match self.probe_from(indexed, &table, position, next) {
                Ok(Some(mut candidate)) => {
                    self.prefetch_row(&mut candidate);
                    if self.confirm(indexed, &candidate) {
                        return;
                    }
                    next = candidate.next;
                }
                Ok(None) => return,
                Err(DamagedRun) => return self.damaged.runs.push(indexed.run.clone()),
            }
        }
    }

    #[inline]
    fn found(&mut self, candidate: &Unconfirmed) {
        let probed = &mut self.segments[candidate.segment as usize];
        if probed.source == NO_SOURCE {
            probed.source = self.lookup.add_source(probed.segment);
        }
        self.lookup.found(candidate.position, probed.source, candidate.row);
        self.destinations.found(candidate.position, (probed.segment.name(), candidate.row));
    }

    /// Whether the candidate is the row: the same key and view, alive, and every wanted byte of it as it was written. A row of a far
    /// segment counts as the one until it was looked at.
    #[inline(never)]
    fn confirm(&mut self, indexed: &'a IndexedRun, candidate: &Unconfirmed) -> bool {
        let (segment, row) = (self.segments[candidate.segment as usize].segment, candidate.row as usize);
        if segment.is_far() {
            let (position, next) = (candidate.position, candidate.next);
            self.far.push(FarRow { indexed, segment, position, row, next });
            return true;
        }
        // Another thread may have found the damage since the snapshot was taken. The next one may have the row in another segment.
        if segment.is_damaged() {
            self.damaged.segments.push(segment.clone());
            return false;
        }
        let (position, keys) = (candidate.position, self.lookup.keys());
        let same = segment.confirm_key(row, candidate.key.clone(), keys.key(position), keys.view());
        // `None`, a key that cannot be read from the map, decides nothing: it is read in another way below.
        if same == Some(false) || same.is_some() && !self.is_alive(segment.base(), position) {
            return false;
        }
        // The wanted leaves are verified before the row counts as found: copying it later cannot fail.
        if let Some(part) = &candidate.part
            && same.is_some()
            && let Some((_, number, _)) = packed_rows(segment, row)
        {
            return self.copy_unpacked(position, segment, (part, number)).is_some();
        }
        // A page that could not be read would end the process.
        let stored = (segment.name(), candidate.row);
        if same.is_some() && self.destinations.read().is_some_and(|read| read.is_unread(stored)) {
            self.damaged.unread += 1;
            return false;
        }
        if same.is_none() || !segment.has_intact_leaves(row, self.lookup.wanted()) {
            return self.confirm_indirect(position, segment, row);
        }
        self.found(candidate);
        true
    }

    /// Whether the candidate is the row, where the map does not hold all of its bytes. Bytes of a mapped segment that the map
    /// does not hold as they were written are damaged.
    #[cold]
    fn confirm_indirect(&mut self, position: usize, segment: &Arc<Segment>, row: usize) -> bool {
        let failures = segment.failures();
        let found = if segment.is_direct() { None } else { self.copy_if_same(position, segment, row) };
        match found {
            Some(found) => return found,
            // The file system failed: nothing is known of the bytes, and the segment stays in service.
            None if segment.failures() > failures => self.damaged.unread += 1,
            None => self.damaged.segments.push(segment.clone()),
        }
        false
    }

    /// Whether a row of the key, in a segment of this base, is alive, and the session's own where one recomputes.
    #[inline]
    fn is_alive(&self, base: u64, position: usize) -> bool {
        let (keys, recompute) = (self.lookup.keys(), self.lookup.recompute());
        if recompute.is_none() && !self.tombstones.may_kill(base) {
            return true;
        }
        let newest = self.tombstones.newest_for_row(keys, position);
        // Rows that changes up to the base name were dropped before the segment was sealed: only newer tombstones kill its rows.
        newest <= base && recompute.is_none_or(|recompute| recompute.owns(self.tombstones, newest))
    }
}
