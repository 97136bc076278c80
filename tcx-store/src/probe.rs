//! Finding the rows of a batch in the index: the keys in steps, so that the processor's cache misses overlap.

use std::ops::Range;
use std::sync::Arc;

use crate::changes::Tombstones;
use crate::hot::{HotKey, HotTier, Kept, Part};
use crate::index::{Candidate, DamagedRun, Look, Place, Run, Table};
use crate::key::KeyHash;
use crate::lookup::Lookup;
use crate::segment::Segment;
use crate::snapshot::{IndexedRun, Snapshot};

/// Keys probed together: few enough that what is prefetched stays in the first-level cache.
const STAGE: usize = 64;

/// What a probe found wrong.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// How many rows could not be read: the file system has failed.
    pub(crate) unread: usize,
}

impl Trouble {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.segments.is_empty()
    }
}

/// Finds what it can of the missing rows of `lookup`.
pub(crate) fn probe(lookup: &mut Lookup, snapshot: &Snapshot, hot: &HotTier) -> Trouble {
    let mut open = Vec::with_capacity(lookup.missing());
    let (mut beyond, mut hits) = (Vec::with_capacity(STAGE), Vec::with_capacity(STAGE));
    let (trouble, sources) = (Trouble::default(), Vec::new());
    let mut probe = Probe { lookup, tombstones: &snapshot.tombstones, hot, last: None, trouble, sources };
    for run in &snapshot.runs {
        if probe.lookup.missing() == 0 {
            break;
        }
        open.clear();
        open.extend(probe.lookup.missing_rows());
        probe.sources.clear();
        probe.sources.resize(run.segments.len(), NO_SOURCE);
        for stage in open.chunks(STAGE) {
            probe.candidates(run, stage, &mut beyond, &mut hits);
            probe.confirm_all(run, &mut hits);
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
    /// By the segment's number in the run: its number in the lookup.
    sources: Vec<u32>,
}

/// A segment in which nothing was found yet.
const NO_SOURCE: u32 = u32::MAX;

/// A candidate whose segment is served.
struct Hit<'a> {
    position: usize,
    candidate: Candidate,
    segment: &'a Arc<Segment>,
    row: usize,
    /// Where its key is in the segment, once that was looked for and can be trusted.
    key: Option<Range<usize>>,
}

impl Probe<'_> {
    /// The keys that the run knows. What their confirmation reads first is on its way.
    fn candidates<'r>(
        &mut self,
        indexed: &'r IndexedRun,
        positions: &[usize],
        beyond: &mut Vec<(usize, Place)>,
        hits: &mut Vec<Hit<'r>>,
    ) {
        let (table, keys) = (indexed.run.table(), self.lookup.keys());
        for &position in positions {
            table.prefetch(table.home(keys.hash(position)));
        }
        for &position in positions {
            let hash = keys.hash(position);
            match table.look(hash, table.home(hash)) {
                Ok(Look::Absent) => {}
                Ok(Look::Found(candidate)) => match indexed.hit(position, candidate) {
                    Some(hit) => hits.push(hit),
                    None => beyond.push((position, candidate.next)),
                },
                Ok(Look::Beyond(place)) => {
                    table.prefetch(place);
                    beyond.push((position, place));
                }
                Err(DamagedRun) => self.trouble.runs.push(indexed.run.clone()),
            }
        }
        for (position, place) in beyond.drain(..) {
            match indexed.search(&table, keys.hash(position), position, place) {
                Ok(hit) => hits.extend(hit),
                Err(DamagedRun) => self.trouble.runs.push(indexed.run.clone()),
            }
        }
    }

    fn confirm_all(&mut self, indexed: &IndexedRun, hits: &mut Vec<Hit<'_>>) {
        for hit in &mut *hits {
            hit.key = hit.segment.find_key(hit.row, self.lookup.wanted());
        }
        for hit in &*hits {
            if !self.confirm(hit) {
                self.confirm_another(indexed, hit);
            }
        }
        hits.clear();
    }

    /// Another row whose hash begins as the key's does; there is nearly never one.
    #[cold]
    fn confirm_another(&mut self, indexed: &IndexedRun, first: &Hit<'_>) {
        let Hit { position, mut candidate, .. } = *first;
        let (table, hash) = (indexed.run.table(), self.lookup.keys().hash(position));
        loop {
            match indexed.search(&table, hash, position, candidate.next) {
                Ok(Some(mut hit)) => {
                    hit.key = hit.segment.find_key(hit.row, self.lookup.wanted());
                    if self.confirm(&hit) {
                        return;
                    }
                    candidate = hit.candidate;
                }
                Ok(None) => return,
                Err(DamagedRun) => return self.trouble.runs.push(indexed.run.clone()),
            }
        }
    }

    /// Whether the candidate is the row: the same key and view, and every byte that is wanted of it as it was written.
    #[inline]
    fn confirm(&mut self, hit: &Hit<'_>) -> bool {
        let Hit { position, candidate, segment, row, ref key } = *hit;
        if segment.is_damaged() {
            return false;
        }
        let keys = self.lookup.keys();
        let same = key.clone().and_then(|key| segment.has_key(row, key, keys.key(position), keys.view()));
        if same == Some(false) || same.is_some() && !self.is_wanted(segment.base(), position) {
            return false;
        }
        if same.is_none() || !segment.has_intact_leaves(row, self.lookup.wanted()) {
            return self.confirm_slowly(hit);
        }
        let source = &mut self.sources[usize::from(candidate.segment)];
        if *source == NO_SOURCE {
            *source = self.lookup.add_source(segment);
        }
        self.lookup.found(position, *source, candidate.row);
        true
    }

    /// Whether the candidate is the row, if its bytes are not all to be had from a map. What they are not to be had from for
    /// another reason is damaged.
    #[cold]
    fn confirm_slowly(&mut self, hit: &Hit<'_>) -> bool {
        let failures = hit.segment.failures();
        let found = if hit.segment.is_direct() { None } else { self.find_slowly(hit) };
        match found {
            Some(found) => return found,
            None if hit.segment.failures() > failures => self.trouble.unread += 1,
            None => self.trouble.segments.push(hit.segment.clone()),
        }
        false
    }

    fn find_slowly(&mut self, hit: &Hit<'_>) -> Option<bool> {
        let keys = self.lookup.keys();
        let (key, view) = hit.segment.key(hit.row)?;
        let same = view == keys.view() && *key == *keys.key(hit.position);
        if !same || !self.is_wanted(hit.segment.base(), hit.position) {
            return Some(false);
        }
        self.load(hit.position, hit.segment, hit.row).map(|()| true)
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

impl IndexedRun {
    /// The first candidate, from `place` on, whose segment is served.
    fn search(
        &self,
        table: &Table<'_>,
        hash: KeyHash,
        position: usize,
        mut place: Place,
    ) -> Result<Option<Hit<'_>>, DamagedRun> {
        while let Some(candidate) = table.search(hash, place)? {
            if let Some(hit) = self.hit(position, candidate) {
                return Ok(Some(hit));
            }
            place = candidate.next;
        }
        Ok(None)
    }

    #[inline]
    fn hit(&self, position: usize, candidate: Candidate) -> Option<Hit<'_>> {
        let segment = self.segments.get(usize::from(candidate.segment))?.as_ref()?;
        let row = Some(candidate.row as usize).filter(|row| *row < segment.rows())?;
        segment.prefetch_key(row);
        Some(Hit { position, candidate, segment, row, key: None })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::bytes::Random;
    use crate::index::build_run;
    use crate::key::{KeyHash, hash};
    use crate::name::{FileName, SegmentName};
    use crate::runs::publish_run;
    use crate::storage::{LocalStorage, Storage, System};
    use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

    const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };

    fn open(dir: &Path) -> Store {
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let storage = LocalStorage::new(dir.join("m_v1"), System);
        Store::with_storage(Arc::new(storage), spec, &Options::default()).unwrap()
    }

    /// A store with a row for each of these keys, its number; its only run is the one that `run` makes of the segment.
    fn with_run(dir: &Path, keys: &[&str], run: impl Fn(SegmentName) -> Vec<u8>) -> Store {
        let store = open(dir);
        let mut rows = store.lookup(Keys::text(keys, 0).unwrap()).unwrap();
        let (positions, values) =
            ((0..keys.len()).collect::<Vec<_>>(), (0..keys.len() as u8).collect::<Vec<_>>());
        store.insert(&mut rows, &positions, vec![Column::dense(&values)]).unwrap();
        drop(store);
        let storage = LocalStorage::new(dir.join("m_v1"), System);
        let mut segment = None;
        for name in storage.list().unwrap() {
            match FileName::parse(&name) {
                Some(FileName::Segment(name)) => segment = Some(name),
                Some(FileName::Run(_)) => std::fs::remove_file(dir.join("m_v1").join(name)).unwrap(),
                _ => {}
            }
        }
        publish_run(&storage, Random::new(), &run(segment.unwrap())).unwrap();
        open(dir)
    }

    fn hashes(keys: &[&str]) -> Vec<KeyHash> {
        keys.iter().map(|key| hash(key.as_bytes(), 0)).collect()
    }

    /// What is found of these keys.
    fn found(store: &Store, keys: &[&str]) -> Vec<Option<u8>> {
        let rows = store.lookup(Keys::text(keys, 0).unwrap()).unwrap();
        let missing: Vec<usize> = rows.missing_rows().collect();
        (0..keys.len()).map(|i| (!missing.contains(&i)).then(|| rows.bytes(0, i)[0])).collect()
    }

    #[test]
    fn a_run_that_lies_costs_misses_and_no_wrong_row() {
        let dir = tempfile::tempdir().unwrap();
        // Each hash is said to be the row of the next.
        let keys = ["a", "b", "c"];
        let store = with_run(dir.path(), &keys, |segment| build_run(&[(segment, hashes(&["b", "c", "a"]))]));
        assert_eq!(found(&store, &keys), [None; 3]);
    }

    #[test]
    fn a_run_that_leads_out_of_the_segment_costs_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        let keys = ["a", "b", "c"];
        // Row 3 of three rows.
        let lying = |segment| build_run(&[(segment, hashes(&["x", "y", "z", "a"]))]);
        let store = with_run(dir.path(), &keys, lying);
        assert_eq!(found(&store, &keys), [None; 3]);
        assert_eq!(store.stats().damaged_segments, 0);
    }

    #[test]
    fn of_many_rows_with_one_hash_the_one_with_the_key_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..40).map(|i| format!("key {i}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let one = hash(b"key 39", 0);
        let crowded = |segment| build_run(&[(segment, vec![one; 40])]);
        let store = with_run(dir.path(), &keys, crowded);
        assert_eq!(found(&store, &["key 39", "key 38", "key 39"]), [Some(39), None, Some(39)]);
    }

    #[test]
    fn a_row_is_found_behind_one_of_a_segment_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let keys = ["a", "b", "c"];
        let gone = || SegmentName { random: Random::new(), tail: 1 };
        let behind = |segment| {
            build_run(&[(gone(), hashes(&keys)), (gone(), hashes(&keys)), (segment, hashes(&keys))])
        };
        assert_eq!(found(&with_run(dir.path(), &keys, behind), &keys), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn rows_behind_full_lines_are_found_and_strangers_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let keys: Vec<String> = (0..3000).map(|i| format!("key {i}")).collect();
        let mut rows = store.lookup(Keys::text(&keys, 0).unwrap()).unwrap();
        let positions: Vec<usize> = (0..keys.len()).collect();
        store.insert(&mut rows, &positions, vec![Column::dense(&vec![7; keys.len()])]).unwrap();
        store.flush().unwrap();
        assert_eq!(store.lookup(Keys::text(&keys, 0).unwrap()).unwrap().missing(), 0);
        let strangers = keys.iter().map(|key| format!("{key}, no"));
        assert_eq!(store.lookup(Keys::text(strangers, 0).unwrap()).unwrap().missing(), keys.len());
        let some = (0..3000).map(|i| if i % 3 == 0 { format!("no {i}") } else { format!("key {i}") });
        let rows = store.lookup(Keys::text(some, 0).unwrap()).unwrap();
        assert!(rows.missing_rows().eq((0..3000).step_by(3)));
    }
}
