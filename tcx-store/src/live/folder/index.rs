//! The index runs of the folder: those that lead to what is served, and those that are made, merged and removed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::Live;
use crate::index::{Run, Stale, build_run};
use crate::live::snapshot::{Unserved, UnservedCause};
use crate::schema::key::{KeyHash, KeySeed};
use crate::segment::Segment;
use crate::stats::causes::Cause;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::sys::helpers::{take, with_helpers};
use crate::sys::runtime::lock;

/// Segments on other machines whose keys are read at the same time. Their hashes are in memory until they are written.
const HASHED_AT_ONCE: usize = 4;

impl Live {
    /// The index run of such a segment.
    pub(crate) fn add_run(&mut self, run: Random) {
        self.runs.open(&[run]);
    }

    /// The runs that should become one; when the writer `ends`, all of them, unless there is too much in them.
    pub(crate) fn mergeable(&self, ends: bool) -> Option<Vec<Arc<Run>>> {
        self.runs.mergeable(ends)
    }

    /// The runs that have entries of segments that are `gone`, if it is worth it to rewrite them.
    pub(crate) fn stale_runs(&self, gone: &dyn Fn(SegmentName) -> bool) -> Option<Stale> {
        self.runs.stale(gone)
    }

    /// A run that this process has made of stale ones takes their place; `false` if it cannot be opened.
    pub(crate) fn swap_runs(&mut self, stale: &[Arc<Run>], trimmed: Random) -> bool {
        self.runs.swap(stale, trimmed)
    }

    /// A run that this process has made of others takes their place; returns the names of those it replaces.
    pub(crate) fn replace_runs(&mut self, merged: Random) -> Vec<Random> {
        let replaced = self.segments.replaced(&self.changes);
        self.runs.replace(merged, |name| replaced.contains(&name) || self.segments.is_gone(name))
    }

    /// The runs that were let go of since this was asked.
    pub(crate) fn take_pruned_runs(&mut self) -> Vec<Random> {
        self.runs.take_pruned()
    }

    /// The runs that lead to one of these segments.
    pub(crate) fn runs_leading_to(&self, segments: &BTreeSet<SegmentName>) -> Vec<Random> {
        self.runs.leading_to(segments)
    }

    /// The runs that lead to none of these segments.
    pub(crate) fn runs_leading_nowhere(&self, segments: &BTreeSet<SegmentName>) -> Vec<Random> {
        self.runs.leading_nowhere(segments)
    }

    /// What the runs know of rows that are not served, and whether there are such rows to which none leads.
    pub(super) fn unserved(&mut self, served: &HashMap<SegmentName, Arc<Segment>>) -> (Vec<Unserved>, bool) {
        let replaced = self.segments.replaced(&self.changes);
        let is_cut = !self.segments.cut(&self.changes).is_empty();
        let why = |name| {
            let segment = self.segments.find(name);
            let base = segment.as_ref().map(|segment| segment.base());
            let is_uncommitted = || segment.as_ref().is_some_and(|segment| self.is_uncommitted(segment));
            let cause = if served.contains_key(&name) || replaced.contains(&name) || is_uncommitted() {
                Cause::Absent
            } else if let Some(dead) = segment.as_ref().filter(|segment| self.is_killed(segment)) {
                let is_too_old = self.changes.tombstones().kill_by_age(dead.base(), dead.born());
                if is_too_old { Cause::Invalidated } else { Cause::Absent }
            } else if segment
                .as_ref()
                .is_some_and(|segment| !self.changes.serves(segment.needs(), segment.dated()))
            {
                Cause::Unreadable
            } else {
                self.segments.why_unserved(name)
            };
            UnservedCause { cause, base }
        };
        let covered = self.runs.covered();
        let mut bare = self.segments.names().filter(|name| !covered.contains(name));
        let is_unindexed = bare.any(|name| why(name).cause != Cause::Absent);
        (self.runs.unserved(why), is_unindexed || is_cut)
    }

    /// Makes a run for every segment that has none, and returns whether all have one now. `None` if a segment turned out to be damaged,
    /// so that what it stood for has to be served.
    pub(super) fn index(&mut self, served: &HashMap<SegmentName, Arc<Segment>>) -> Option<bool> {
        // Without an identity, nothing is served.
        let Some(seed) = self.identity.as_ref().map(|own| KeySeed::of_instance(own.instance)) else {
            return Some(true);
        };
        let (mut are_sound, mut are_indexed) = (true, true);
        let covered = self.runs.covered();
        let mut bare: Vec<_> = served.values().filter(|segment| !covered.contains(&segment.name())).collect();
        bare.sort_by_key(|segment| segment.name());
        // Those of this machine one after the other.
        let together = bare.chunk_by(|one, other| one.is_far() && other.is_far());
        let together = together.flat_map(|bare| bare.chunks(HASHED_AT_ONCE));
        let done = together.flat_map(|bare| hash_all(bare, seed));
        for (segment, hashed) in done {
            let hashes = match hashed {
                Hashed::All(found) => found,
                // What only could not be read now is indexed another time.
                Hashed::Unread => {
                    are_indexed = false;
                    continue;
                }
                Hashed::Damaged => {
                    self.segments.drop_damaged(segment, "a key does not verify");
                    (are_indexed, are_sound) = (false, false);
                    continue;
                }
            };
            self.counters.rebuilt_runs.add(1);
            if let Err(error) = self.runs.add(&build_run(seed, &[(segment.name(), hashes)]), self.may_write) {
                are_indexed = false;
                tracing::warn!(
                    segment = %segment.name(),
                    "cannot write an index run: {error}; make room in the module's folder or in TMPDIR"
                );
            }
        }
        are_sound.then_some(are_indexed)
    }
}

/// The hashes of all keys of a segment.
enum Hashed {
    All(Vec<KeyHash>),
    /// Some could not be read.
    Unread,
    /// One does not verify.
    Damaged,
}

impl Hashed {
    fn of(segment: &Segment, seed: KeySeed) -> Self {
        let failures = segment.failures();
        match key_hashes(segment, seed) {
            Some(hashes) => Self::All(hashes),
            None if segment.failures() > failures => Self::Unread,
            None => Self::Damaged,
        }
    }
}

/// The hashes of the keys of these segments, which are read at the same time.
fn hash_all<'s>(
    segments: &[&'s Arc<Segment>],
    seed: KeySeed,
) -> impl Iterator<Item = (&'s Arc<Segment>, Hashed)> + use<'s> {
    let (next, done) = (Mutex::new(segments.iter()), Mutex::new(Vec::with_capacity(segments.len())));
    with_helpers("tcx-keys", segments.len().saturating_sub(1), || {
        while let Some(segment) = take(&next) {
            let hashed = Hashed::of(segment, seed);
            lock(&done).push((*segment, hashed));
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(segment, _)| segment.name());
    done.into_iter()
}

/// The hashes of all keys of a segment; `None` if one cannot be trusted.
pub(crate) fn key_hashes(segment: &Segment, seed: KeySeed) -> Option<Vec<KeyHash>> {
    (0..segment.rows()).map(|row| segment.key(row).map(|(key, view)| seed.hash(&key, view))).collect()
}
