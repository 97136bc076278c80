//! Finding the rows of a batch in the index: all keys in stages, so that the processor's cache misses overlap.

use std::sync::Arc;

use crate::index::{Candidate, Run};
use crate::lookup::{Lookup, is_intact};
use crate::schema::Leaf;
use crate::segment::Segment;
use crate::snapshot::{IndexedRun, Snapshot};

/// Keys probed together: few enough that what is prefetched stays in the first-level cache.
const STAGE: usize = 256;

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
    let mut probe =
        Probe { lookup, leaves, trouble: Trouble::default(), candidates: Vec::with_capacity(STAGE) };
    let mut open: Vec<usize> = probe.lookup.open().collect();
    for run in &snapshot.runs {
        if open.is_empty() {
            break;
        }
        open.chunks(STAGE).for_each(|stage| probe.stage(run, stage));
        open.retain(|&position| probe.lookup.is_open(position));
    }
    probe.trouble
}

struct Probe<'a> {
    lookup: &'a mut Lookup,
    leaves: &'a [Leaf],
    trouble: Trouble,
    candidates: Vec<(usize, Candidate)>,
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
        if key != keys.key(position) || view != keys.view() {
            return false;
        }
        if !is_intact(segment, self.leaves, row) {
            self.trouble.segments.push(segment.clone());
            return false;
        }
        self.lookup.found(position, segment, candidate.row);
        true
    }
}

impl IndexedRun {
    fn segment(&self, candidate: Candidate) -> Option<&Arc<Segment>> {
        self.segments.get(candidate.segment as usize)?.as_ref()
    }
}
