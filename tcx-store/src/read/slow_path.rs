//! Finding the rows of a batch in the index: those that the short way leaves, in steps as there, and whatever they are.

use std::ops::Range;
use std::sync::Arc;

use crate::changes::Tombstones;
use crate::index::{Candidate, DamagedRun, Look, Place, Table};
use crate::live::damage::Trouble;
use crate::live::snapshot::{IndexedRun, Snapshot};
use crate::read::destination::Destinations;
use crate::read::fast_path::{Asked, Express};
use crate::read::lookup::Lookup;
use crate::segment::Segment;
use crate::segment::page_cache::{HotKey, HotTier, Kept, Part};

/// Keys that take a step together, while what the next step of those before them reads is on its way: enough for memory to
/// answer, and few enough that what it brings stays in the first-level cache.
const STEP: usize = 8;
/// Keys whose steps follow each other without a pause.
const TOGETHER: usize = 512;

/// Finds what it can of the missing rows of `lookup`.
pub(crate) fn probe(
    lookup: &mut Lookup,
    destinations: &mut Destinations<'_, '_>,
    snapshot: &Snapshot,
    hot: &HotTier,
) -> Trouble {
    let mut rest = Vec::new();
    let (mut beyond, mut hits) = (Vec::new(), Vec::new());
    let (trouble, numbers, met) = (Trouble::default(), Vec::new(), Vec::new());
    let mut probe =
        Probe { lookup, tombstones: &snapshot.tombstones, hot, last: None, trouble, numbers, met };
    for run in &snapshot.runs {
        if probe.lookup.missing() == 0 {
            break;
        }
        rest.clear();
        let mut asked = Asked { lookup: &mut *probe.lookup, destinations: &mut *destinations };
        Express::new(run, &snapshot.tombstones).find(&mut asked, &mut rest);
        probe.met.clear();
        probe.numbers.clear();
        probe.numbers.resize(run.segments.len(), NOT_MET);
        for keys in rest.chunks(TOGETHER) {
            probe.find(run, keys, &mut beyond, &mut hits);
        }
    }
    probe.trouble
}

struct Probe<'a> {
    lookup: &'a mut Lookup,
    tombstones: &'a Tombstones,
    hot: &'a HotTier,
    /// The record batch that was decompressed last.
    last: Option<(HotKey, Arc<Kept>)>,
    trouble: Trouble,
    /// By the segment's number in the run: its number among those that were met.
    numbers: Vec<u32>,
    met: Vec<Met<'a>>,
}

/// A segment that no key has led to yet.
const NOT_MET: u32 = u32::MAX;
/// A segment in which nothing was found yet.
const NO_SOURCE: u32 = u32::MAX;

/// A served segment that a key has led to.
struct Met<'a> {
    segment: &'a Arc<Segment>,
    /// Its number in the lookup.
    source: u32,
}

/// A candidate whose segment is served.
struct Hit {
    position: usize,
    row: u32,
    /// The number of its segment among those that were met.
    met: u32,
    /// Where the search for others goes on.
    next: Place,
    /// Where its key is in the segment, once that was looked for.
    key: Range<usize>,
}

/// Where no key is, since what says where it is cannot be trusted.
const NOWHERE: Range<usize> = usize::MAX..usize::MAX;

impl Hit {
    #[inline]
    fn new(position: usize, candidate: &Candidate, met: u32) -> Self {
        Self { position, row: candidate.row, met, next: candidate.next, key: NOWHERE }
    }
}

impl<'a> Probe<'a> {
    /// Finds these keys in the run, in three steps: their lines, where the keys of the rows are, and the keys.
    fn find(
        &mut self,
        indexed: &'a IndexedRun,
        positions: &[usize],
        beyond: &mut Vec<(usize, Place)>,
        hits: &mut Vec<Hit>,
    ) {
        let table = indexed.run.table();
        let (mut found, mut confirmed) = (0, 0);
        let mut steps = positions.chunks(STEP).peekable();
        self.prefetch(&table, steps.peek().copied().unwrap_or_default());
        while let Some(step) = steps.next() {
            self.prefetch(&table, steps.peek().copied().unwrap_or_default());
            let known = hits.len();
            self.look(indexed, &table, step, beyond, hits);
            self.find_keys(&mut hits[found..known]);
            self.confirm_all(indexed, &hits[confirmed..found]);
            (confirmed, found) = (found, known);
        }
        for (position, place) in beyond.drain(..) {
            match self.search(indexed, &table, position, place) {
                Ok(hit) => hits.extend(hit),
                Err(DamagedRun) => self.trouble.runs.push(indexed.run.clone()),
            }
        }
        self.find_keys(&mut hits[found..]);
        self.confirm_all(indexed, &hits[confirmed..]);
        hits.clear();
    }

    fn prefetch(&self, table: &Table<'_>, positions: &[usize]) {
        for &position in positions {
            table.prefetch(table.home(self.lookup.keys().hash(position)));
        }
    }

    /// First step: the keys that the run knows.
    #[inline]
    fn look(
        &mut self,
        indexed: &'a IndexedRun,
        table: &Table<'_>,
        positions: &[usize],
        beyond: &mut Vec<(usize, Place)>,
        hits: &mut Vec<Hit>,
    ) {
        for &position in positions {
            let hash = self.lookup.keys().hash(position);
            match table.look(hash, table.home(hash)) {
                Ok(Look::Absent) => {}
                Ok(Look::Found(candidate)) => match self.follow(indexed, &candidate) {
                    Some(met) => hits.push(Hit::new(position, &candidate, met)),
                    None => beyond.push((position, candidate.next)),
                },
                Ok(Look::Beyond(place)) => {
                    table.prefetch(place);
                    beyond.push((position, place));
                }
                Err(DamagedRun) => self.trouble.runs.push(indexed.run.clone()),
            }
        }
    }

    /// The first candidate, from `place` on, whose segment is served.
    fn search(
        &mut self,
        indexed: &'a IndexedRun,
        table: &Table<'_>,
        position: usize,
        mut place: Place,
    ) -> Result<Option<Hit>, DamagedRun> {
        let hash = self.lookup.keys().hash(position);
        while let Some(candidate) = table.search(hash, place)? {
            if let Some(met) = self.follow(indexed, &candidate) {
                return Ok(Some(Hit::new(position, &candidate, met)));
            }
            place = candidate.next;
        }
        Ok(None)
    }

    /// Where a candidate leads to, if its segment is served. What says where its key is is on its way.
    #[inline]
    fn follow(&mut self, indexed: &'a IndexedRun, candidate: &Candidate) -> Option<u32> {
        let mut number = *self.numbers.get(usize::from(candidate.segment))?;
        if number == NOT_MET {
            number = self.meet(indexed, candidate.segment)?;
        }
        let (met, row) = (&self.met[number as usize], candidate.row as usize);
        (row < met.segment.rows()).then(|| met.segment.prefetch_key(row))?;
        Some(number)
    }

    /// What all rows of a segment have in common is looked at once.
    #[cold]
    fn meet(&mut self, indexed: &'a IndexedRun, number: u16) -> Option<u32> {
        let segment = indexed.segments.get(usize::from(number))?.as_ref()?;
        self.met.push(Met { segment, source: NO_SOURCE });
        let met = (self.met.len() - 1) as u32;
        self.numbers[usize::from(number)] = met;
        Some(met)
    }

    /// Second step.
    #[inline]
    fn find_keys(&self, hits: &mut [Hit]) {
        for hit in hits {
            self.find_key(hit);
        }
    }

    fn find_key(&self, hit: &mut Hit) {
        let segment = self.met[hit.met as usize].segment;
        hit.key = segment.find_key(hit.row as usize, self.lookup.wanted()).unwrap_or(NOWHERE);
    }

    /// Third step.
    #[inline]
    fn confirm_all(&mut self, indexed: &'a IndexedRun, hits: &[Hit]) {
        for hit in hits {
            if !self.confirm(hit) {
                self.confirm_another(indexed, hit);
            }
        }
    }

    /// Another row whose hash begins as the key's does; there is nearly never one.
    #[cold]
    fn confirm_another(&mut self, indexed: &'a IndexedRun, first: &Hit) {
        let (position, mut next, table) = (first.position, first.next, indexed.run.table());
        loop {
            match self.search(indexed, &table, position, next) {
                Ok(Some(mut hit)) => {
                    self.find_key(&mut hit);
                    if self.confirm(&hit) {
                        return;
                    }
                    next = hit.next;
                }
                Ok(None) => return,
                Err(DamagedRun) => return self.trouble.runs.push(indexed.run.clone()),
            }
        }
    }

    #[inline]
    fn found(&mut self, hit: &Hit) {
        let met = &mut self.met[hit.met as usize];
        if met.source == NO_SOURCE {
            met.source = self.lookup.add_source(met.segment);
        }
        self.lookup.found(hit.position, met.source, hit.row);
    }

    /// Whether the candidate is the row: the same key and view, and every byte that is wanted of it as it was written.
    #[inline(never)]
    fn confirm(&mut self, hit: &Hit) -> bool {
        let (segment, row) = (self.met[hit.met as usize].segment, hit.row as usize);
        if segment.is_damaged() {
            return false;
        }
        let (position, keys) = (hit.position, self.lookup.keys());
        let same = segment.has_key(row, hit.key.clone(), keys.key(position), keys.view());
        if same == Some(false) || same.is_some() && !self.is_wanted(segment.base(), position) {
            return false;
        }
        if same.is_none() || !segment.has_intact_leaves(row, self.lookup.wanted()) {
            return self.confirm_slowly(position, segment, row);
        }
        self.found(hit);
        true
    }

    /// Whether the candidate is the row, if its bytes are not all to be had from a map. What they are not to be had from for
    /// another reason is damaged.
    #[cold]
    fn confirm_slowly(&mut self, position: usize, segment: &Arc<Segment>, row: usize) -> bool {
        let failures = segment.failures();
        let found = if segment.is_direct() { None } else { self.find_slowly(position, segment, row) };
        match found {
            Some(found) => return found,
            None if segment.failures() > failures => self.trouble.unread += 1,
            None => self.trouble.segments.push(segment.clone()),
        }
        false
    }

    fn find_slowly(&mut self, position: usize, segment: &Segment, row: usize) -> Option<bool> {
        let keys = self.lookup.keys();
        let (key, view) = segment.key(row)?;
        let same = view == keys.view() && *key == *keys.key(position);
        if !same || !self.is_wanted(segment.base(), position) {
            return Some(false);
        }
        self.load(position, segment, row).map(|()| true)
    }

    /// Copies a row that has to be decompressed or read.
    fn load(&mut self, position: usize, segment: &Segment, row: usize) -> Option<()> {
        if !segment.is_compressed() {
            let leaves = segment.read_leaves(row, self.lookup.wanted())?;
            self.lookup.found_read(position, &leaves);
            return Some(());
        }
        let (number, row) = segment.batch_of(row)?;
        let kept = self.unpacked(segment, number)?;
        self.lookup.found_unpacked(position, kept.batch()?, row)
    }

    fn unpacked(&mut self, segment: &Segment, number: usize) -> Option<Arc<Kept>> {
        let key = HotKey { segment: segment.name(), part: Part::Batch(number) };
        if let Some((_, batch)) = self.last.as_ref().filter(|(last, _)| *last == key) {
            return Some(batch.clone());
        }
        let batch = self.hot.get(key, || segment.unpack(number).map(Kept::Batch))?;
        self.last = Some((key, batch.clone()));
        Some(batch)
    }

    /// Whether a row of the key, in a segment of this base, is alive, and the replacer's own if one looks.
    #[inline]
    fn is_wanted(&self, base: u64, position: usize) -> bool {
        let (keys, replacer) = (self.lookup.keys(), self.lookup.replacer());
        if replacer.is_none() && !self.tombstones.may_kill(base) {
            return true;
        }
        let newest = self.tombstones.newest_for_row(keys, position);
        newest <= base && replacer.is_none_or(|replacer| replacer.has_computed(newest))
    }
}
