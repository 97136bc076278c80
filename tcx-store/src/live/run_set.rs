//! The index runs that this process uses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use crate::index::{Run, Stale, fit_in_one, mergeable};
use crate::live::snapshot::{IndexedRun, Unserved, UnservedCause};
use crate::schema::key::KeySeed;
use crate::segment::Segment;
use crate::stats::causes::Cause;
use crate::storage::Storage;
use crate::storage::name::{FileName, SegmentName};
use crate::storage::warn_once::Warned;
use crate::sys::bytes::Random;

/// The most entries of index runs that are merged into one when a writer ends: a tenth of a second's work or so.
const MERGED_AT_THE_END: usize = 4_000_000;

/// Bytes that are not worth rewriting a run for.
const LITTLE: usize = 512;

/// The runs that were opened, those that are used, and those whose files can go.
#[derive(Debug)]
pub(crate) struct RunSet {
    storage: Arc<dyn Storage>,
    /// The largest first, those that have vanished last; none whose segments are all in others.
    used: Vec<Arc<Run>>,
    /// The runs of the last listing, and those that are used and were in an earlier one.
    listed: HashSet<Random>,
    vanished: HashSet<Random>,
    /// The runs that were opened, those that cannot be used too.
    opened: HashSet<Random>,
    /// The runs that were let go of since the last merge: the next merge removes their files. The order in which runs
    /// are kept is the same everywhere, so no two processes remove each other's.
    pruned: Vec<Random>,
    warned: Warned,
}

impl RunSet {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        let (used, pruned, warned) = (Vec::new(), Vec::new(), Warned::default());
        let [opened, listed, vanished] = [(); 3].map(|()| HashSet::new());
        Self { storage, used, listed, vanished, opened, pruned, warned }
    }

    /// How many have been opened.
    pub(crate) fn opened(&self) -> usize {
        self.opened.len()
    }

    /// Opens what is new in a listing. Returns whether a run had vanished: another process has merged it.
    pub(crate) fn open_listed(&mut self, listed: &[Random]) -> bool {
        let known = |run: &Random| self.listed.contains(run) || self.vanished.contains(run);
        let used = self.used.iter().map(|run| run.name()).filter(known);
        self.vanished = used.filter(|run| !listed.contains(run)).collect();
        self.listed = listed.iter().copied().collect();
        self.open(listed)
    }

    /// Opens what is new of these runs. Returns whether one had vanished.
    pub(crate) fn open(&mut self, runs: &[Random]) -> bool {
        let mut vanished = false;
        for &random in runs {
            if self.opened.contains(&random) {
                continue;
            }
            let name = FileName::Run(random).to_string();
            match self.storage.map(&name) {
                Ok(map) => {
                    self.opened.insert(random);
                    self.used.extend(Run::open(map, random).map(Arc::new));
                }
                Err(error) => {
                    vanished |= error.kind() == io::ErrorKind::NotFound;
                    self.warned.warn(&*self.storage, &name, &error);
                }
            }
        }
        vanished
    }

    /// Lets go of the runs all of whose segments are in larger ones, or replaced. Every process keeps the same: of two
    /// that are equal, the one with the smaller name.
    pub(crate) fn prune(&mut self, is_replaced: impl Fn(SegmentName) -> bool) {
        // One that has vanished was replaced: what it still leads to must not keep the smaller one that took its place from being used.
        let vanished = |run: &Run| self.vanished.contains(&run.name());
        self.used.sort_by_key(|run| (vanished(run), Reverse(run.entries()), run.name()));
        let mut covered = HashSet::new();
        // Segments that were not seen yet count: only this run may know them.
        self.used.retain(|run| {
            let adds =
                run.segments().iter().filter(|name| !is_replaced(**name) && covered.insert(**name)).count()
                    > 0;
            self.pruned.extend((!adds).then_some(run.name()));
            adds
        });
    }

    /// The segments that a run leads to.
    pub(crate) fn covered(&self) -> HashSet<SegmentName> {
        self.used.iter().flat_map(|run| run.segments().iter().copied()).collect()
    }

    /// The runs that lead to the served segments, largest first; a segment that two of them know belongs to the
    /// first, and a run that adds none is left out.
    pub(crate) fn cover(&self, served: &HashMap<SegmentName, Arc<Segment>>) -> Vec<IndexedRun> {
        let mut left = served.clone();
        let indexed = self.used.iter().filter_map(|run| {
            let segments: Vec<_> = run.segments().iter().map(|name| left.remove(name)).collect();
            segments.iter().any(Option::is_some).then(|| IndexedRun { run: run.clone(), segments })
        });
        indexed.collect()
    }

    /// The runs that lead to rows which are not served, `why` of each segment.
    pub(crate) fn unserved(&self, why: impl Fn(SegmentName) -> UnservedCause) -> Vec<Unserved> {
        let unserved = self.used.iter().map(|run| {
            let causes = run.segments().iter().map(|name| why(*name)).collect();
            Unserved { run: run.clone(), causes }
        });
        unserved.filter(|own| own.causes.iter().any(|own| own.cause != Cause::Absent)).collect()
    }

    /// The runs that should become one; when the writer `ends`, all of them, unless there is too much in them.
    pub(crate) fn mergeable(&self, ends: bool) -> Option<Vec<Arc<Run>>> {
        self.of_each_seed().into_values().find_map(|runs| {
            let entries = runs.iter().map(|run| run.entries()).sum::<usize>();
            if ends && runs.len() > 1 && entries <= MERGED_AT_THE_END && fit_in_one(&runs) {
                return Some(runs);
            }
            mergeable(&runs)
        })
    }

    /// The runs that can become one: their keys are hashed in the same way.
    fn of_each_seed(&self) -> BTreeMap<KeySeed, Vec<Arc<Run>>> {
        let mut of_each: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for run in &self.used {
            of_each.entry(run.seed()).or_default().push(run.clone());
        }
        of_each
    }

    /// The runs that one run without the entries of segments that are `gone` should replace, if that frees more than
    /// [`LITTLE`].
    pub(crate) fn stale(&self, gone: &dyn Fn(SegmentName) -> bool) -> Option<Stale> {
        let stale = |runs: Vec<Arc<Run>>| Stale::among(&runs, gone).filter(|stale| stale.frees() > LITTLE);
        self.of_each_seed().into_values().find_map(stale)
    }

    /// The bytes of the runs that are used.
    pub(crate) fn bytes(&self) -> usize {
        self.used.iter().map(|run| run.bytes()).sum()
    }

    /// A run that this process has made of others is used; returns the names of all whose files can go.
    pub(crate) fn replace(
        &mut self,
        merged: Random,
        is_replaced: impl Fn(SegmentName) -> bool,
    ) -> Vec<Random> {
        self.open(&[merged]);
        self.prune(is_replaced);
        let mut replaced = self.take_pruned();
        // It could not be opened.
        if !replaced.contains(&merged) && self.used.iter().all(|run| run.name() != merged) {
            replaced.push(merged);
        }
        replaced
    }

    /// The runs that lead to one of these segments.
    pub(crate) fn leading_to(&self, segments: &BTreeSet<SegmentName>) -> Vec<Random> {
        self.used.iter().filter(|run| leads_to(run, segments)).map(|run| run.name()).collect()
    }

    /// A run that this process has made without the entries of segments that are gone is used, and these no more. `false` if it cannot
    /// be opened: these stay in use, because nothing else leads to their rows.
    pub(crate) fn swap(&mut self, stale: &[Arc<Run>], trimmed: Random) -> bool {
        let is_used = |own: &Self| own.used.iter().any(|run| run.name() == trimmed);
        if !is_used(self) {
            // A listing may have found it before these were let go of, when it added nothing to them.
            self.opened.remove(&trimmed);
            self.pruned.retain(|pruned| *pruned != trimmed);
            self.open(&[trimmed]);
        }
        let is_open = is_used(self);
        if is_open {
            self.drop_damaged(stale);
        }
        is_open
    }

    /// The runs that lead to none of these segments.
    pub(crate) fn leading_nowhere(&self, segments: &BTreeSet<SegmentName>) -> Vec<Random> {
        self.used.iter().filter(|run| !leads_to(run, segments)).map(|run| run.name()).collect()
    }

    /// The runs that were let go of, whose files can go.
    pub(crate) fn take_pruned(&mut self) -> Vec<Random> {
        std::mem::take(&mut self.pruned)
    }

    /// Takes damaged runs out of service.
    pub(crate) fn drop_damaged(&mut self, damaged: &[Arc<Run>]) {
        self.used.retain(|run| !damaged.iter().any(|damaged| Arc::ptr_eq(run, damaged)));
    }

    /// Uses a run that was just made: written beside the segments, or where that cannot or must not be done, into an
    /// unnamed file.
    pub(crate) fn add(&mut self, bytes: &[u8], may_write: bool) -> io::Result<()> {
        let random = Random::new();
        self.opened.insert(random);
        let written = may_write.then(|| {
            publish_run(&*self.storage, random, bytes)?;
            self.storage.map(&FileName::Run(random).to_string())
        });
        let map = match written {
            Some(Ok(map)) => map,
            _ => self.storage.map_unnamed(bytes)?,
        };
        self.used.extend(Run::open(map, random).map(Arc::new));
        Ok(())
    }
}

fn leads_to(run: &Run, segments: &BTreeSet<SegmentName>) -> bool {
    run.segments().iter().any(|name| segments.contains(name))
}

/// Gives a run its name. It is not synced: it can be made again at any time.
pub(crate) fn publish_run(storage: &dyn Storage, random: Random, bytes: &[u8]) -> io::Result<()> {
    let mut draft = storage.draft()?;
    draft.write_all(bytes)?;
    draft.publish(&FileName::Run(random).to_string(), false)
}
