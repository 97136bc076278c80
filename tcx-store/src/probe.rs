//! Finding the rows of a batch in the index: all keys in stages, so that the processor's cache misses overlap.

use std::sync::Arc;

use crate::changes::Tombstones;
use crate::index::{Candidate, Run};
use crate::lookup::{Lookup, is_intact};
use crate::schema::Leaf;
use crate::segment::Segment;
use crate::snapshot::{IndexedRun, Snapshot};

/// Keys probed together: few enough that what is prefetched stays in the first-level cache.
const STAGE: usize = 128;

/// What a probe found wrong.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Trouble {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.segments.is_empty()
    }
}

/// Finds what it can of the missing rows of `lookup`.
pub(crate) fn probe(lookup: &mut Lookup, leaves: &[Leaf], snapshot: &Snapshot) -> Trouble {
    let (trouble, candidates, sources) = (Trouble::default(), Vec::with_capacity(STAGE), Vec::new());
    let tombstones = &*snapshot.tombstones;
    let mut probe = Probe { lookup, leaves, tombstones, trouble, candidates, sources };
    let mut open: Vec<usize> = probe.lookup.missing_rows().collect();
    for run in &snapshot.runs {
        if open.is_empty() {
            break;
        }
        probe.sources.clear();
        probe.sources.resize(run.segments.len(), None);
        open.chunks(STAGE).for_each(|stage| probe.stage(run, stage));
        open.retain(|&position| probe.lookup.is_open(position));
    }
    probe.trouble
}

struct Probe<'a> {
    lookup: &'a mut Lookup,
    leaves: &'a [Leaf],
    tombstones: &'a Tombstones,
    trouble: Trouble,
    candidates: Vec<(usize, Candidate)>,
    /// By the segment's number in the run: its number in the lookup.
    sources: Vec<Option<usize>>,
}

impl Probe<'_> {
    fn stage(&mut self, indexed: &IndexedRun, positions: &[usize]) {
        for &position in positions {
            indexed.run.prefetch(self.lookup.keys().hash(position));
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        for &position in positions {
            if let Some(candidate) = self.next(indexed, position, None) {
                if let Some(segment) = indexed.segment(candidate) {
                    segment.prefetch_key(candidate.row as usize);
                }
                candidates.push((position, candidate));
            }
        }
        for &(_, candidate) in &candidates {
            if let Some(segment) = indexed.segment(candidate) {
                segment.prefetch_row(candidate.row as usize);
            }
        }
        for &(position, first) in &candidates {
            let mut next = Some(first);
            while let Some(candidate) = next {
                if self.confirm(indexed, position, candidate) {
                    break;
                }
                next = self.next(indexed, position, next);
            }
        }
        self.candidates = candidates;
    }

    fn next(&mut self, indexed: &IndexedRun, position: usize, last: Option<Candidate>) -> Option<Candidate> {
        indexed.run.probe(self.lookup.keys().hash(position), last).unwrap_or_else(|_| {
            self.trouble.runs.push(indexed.run.clone());
            None
        })
    }

    /// Whether the candidate is the row: the same key and view, and every byte of it as it was written.
    fn confirm(&mut self, indexed: &IndexedRun, position: usize, candidate: Candidate) -> bool {
        let Some(segment) = indexed.segment(candidate) else { return false };
        let row = candidate.row as usize;
        if segment.is_damaged() || row >= segment.rows() {
            return false;
        }
        let keys = self.lookup.keys();
        let Some((key, view)) = segment.key(row) else {
            self.trouble.segments.push(segment.clone());
            return false;
        };
        if key != keys.key(position) || view != keys.view() || !self.is_wanted(segment.base(), position) {
            return false;
        }
        if !is_intact(segment, self.leaves, row) {
            self.trouble.segments.push(segment.clone());
            return false;
        }
        let known = &mut self.sources[usize::from(candidate.segment)];
        let source = *known.get_or_insert_with(|| self.lookup.source(segment));
        self.lookup.found(position, source, candidate.row);
        true
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
    fn segment(&self, candidate: Candidate) -> Option<&Arc<Segment>> {
        self.segments.get(usize::from(candidate.segment))?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use crate::bytes::Random;
    use crate::index::build_run;
    use crate::key::hash;
    use crate::name::FileName;
    use crate::runs::publish_run;
    use crate::storage::{LocalStorage, Storage, System};
    use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

    const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };

    /// A store with the rows `a` = 1, `b` = 2 and `c` = 3, whose run says of each hash that it is the row of the next.
    fn with_a_lying_run(dir: &std::path::Path) -> Store {
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let storage = || LocalStorage::new(dir.join("m_v1"), System);
        let store =
            Store::with_storage(std::sync::Arc::new(storage()), spec.clone(), &Options::default()).unwrap();
        let mut rows = store.lookup(Keys::text(["a", "b", "c"], 0).unwrap()).unwrap();
        store.insert(&mut rows, &[0, 1, 2], vec![Column::dense(&[1, 2, 3])]).unwrap();
        drop(store);
        let mut segment = None;
        for name in storage().list().unwrap() {
            match FileName::parse(&name) {
                Some(FileName::Segment(name)) => segment = Some(name),
                Some(FileName::Run(_)) => std::fs::remove_file(dir.join("m_v1").join(name)).unwrap(),
                _ => {}
            }
        }
        let hashes = ["b", "c", "a"].map(|key| hash(key.as_bytes(), 0)).to_vec();
        publish_run(&storage(), Random::new(), &build_run(&[(segment.unwrap(), hashes)])).unwrap();
        Store::with_storage(std::sync::Arc::new(storage()), spec, &Options::default()).unwrap()
    }

    #[test]
    fn a_run_that_lies_costs_misses_and_no_wrong_row() {
        let dir = tempfile::tempdir().unwrap();
        let store = with_a_lying_run(dir.path());
        let rows = store.lookup(Keys::text(["a", "b", "c"], 0).unwrap()).unwrap();
        assert_eq!(rows.missing(), 3);
    }

    #[test]
    fn a_run_that_leads_out_of_the_segment_costs_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        drop(with_a_lying_run(dir.path()));
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let names: Vec<_> = storage.list().unwrap().iter().filter_map(|name| FileName::parse(name)).collect();
        let segment = names.iter().find_map(|name| match name {
            FileName::Segment(name) => Some(*name),
            _ => None,
        });
        // Row 3 of three rows.
        let hashes = ["x", "y", "z", "a"].map(|key| hash(key.as_bytes(), 0)).to_vec();
        publish_run(&storage, Random::new(), &build_run(&[(segment.unwrap(), hashes)])).unwrap();
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let store = Store::with_storage(std::sync::Arc::new(storage), spec, &Options::default()).unwrap();
        assert_eq!(store.lookup(Keys::text(["a"], 0).unwrap()).unwrap().missing(), 1);
    }
}
