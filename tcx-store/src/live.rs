//! The live set: what the listing of a module's folder and its changes say is there.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::bytes::Random;
use crate::changes::{IdentityChange, KnownChanges};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Run, build_run, mergeable};
use crate::key::{KeyHash, hash};
use crate::name::{FileName, SegmentName};
use crate::segment::{Segment, SegmentError};
use crate::snapshot::{IndexedRun, Snapshot};
use crate::spec::Spec;
use crate::stats::Counters;
use crate::storage::Storage;

/// The most entries of index runs that are merged into one when a writer ends: a tenth of a second's work or so.
const MERGED_AT_THE_END: usize = 4_000_000;

/// Everything this process knows of the folder. What a listing lacks is not forgotten: a listing may be stale.
#[derive(Debug)]
pub(crate) struct Live {
    storage: Arc<dyn Storage>,
    spec: Spec,
    schema: SchemaRef,
    counters: Arc<Counters>,
    identity: Option<KnownIdentity>,
    changes: KnownChanges,
    /// `None` is a segment that is not served: damaged, or another's.
    segments: HashMap<SegmentName, Option<Arc<Segment>>>,
    /// The largest first; none whose segments are all in larger ones.
    runs: Vec<Arc<Run>>,
    /// The runs that were opened, those that cannot be used too.
    opened_runs: HashSet<Random>,
    /// The runs that were let go of since the last merge: whoever merges removes their files. The order in which runs
    /// are kept is the same everywhere, so no two processes remove each other's.
    pruned: Vec<Random>,
    /// The files that could not be opened and were warned of.
    warned: HashSet<String>,
}

/// Change 0, once it has been read or created.
#[derive(Clone, Debug)]
pub(crate) struct KnownIdentity {
    pub(crate) instance: Random,
    pub(crate) digest: String,
    /// To create the file again, should somebody remove it.
    bytes: Vec<u8>,
}

/// The files of a listing that are tcx's.
#[derive(Default)]
struct Listing {
    segments: Vec<SegmentName>,
    changes: BTreeSet<u64>,
    runs: Vec<Random>,
}

impl Live {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        spec: Spec,
        schema: SchemaRef,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            storage,
            spec,
            schema,
            counters,
            identity: None,
            changes: KnownChanges::default(),
            segments: HashMap::new(),
            runs: Vec::new(),
            opened_runs: HashSet::new(),
            pruned: Vec::new(),
            warned: HashSet::new(),
        }
    }

    /// Lists the folder and learns what is new in it. Tells whether anything was.
    ///
    /// # Errors
    ///
    /// A folder of another identity, a damaged identity, a listing that fails.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let (new, vanished) = self.learn()?;
        // Another process has merged runs: what took their place is in a newer listing.
        let newer = vanished && self.learn()?.0;
        Ok(new || newer)
    }

    /// One listing: whether anything was new, and whether a listed run had vanished.
    fn learn(&mut self) -> Result<(bool, bool)> {
        let names = self.storage.list().map_err(|e| Error::io("cannot list", self.storage.path(), e))?;
        let mut listing = Listing::default();
        for name in names.iter().filter_map(|name| FileName::parse(name)) {
            match name {
                FileName::Segment(name) => listing.segments.push(name),
                FileName::Change(number) => drop(listing.changes.insert(number)),
                FileName::Run(random) => listing.runs.push(random),
            }
        }
        if self.identity.is_none() && listing.changes.contains(&0) {
            self.read_identity()?;
        }
        let before = (self.changes.newest(), self.changes.floor());
        self.changes.learn_listed(&listing.changes);
        // Runs first: a segment that one of them covers needs none of its own.
        let known = self.opened_runs.len();
        let vanished = self.open_runs(&listing.runs);
        let runs = self.opened_runs.len() > known;
        let segments = self.open_segments(&listing.segments);
        let new = runs || segments || before != (self.changes.newest(), self.changes.floor());
        Ok((new, vanished))
    }

    fn read_identity(&mut self) -> Result<()> {
        let change = self.read_change_0()?;
        let difference = change.difference(&self.spec);
        if !difference.is_empty() {
            return Err(refused(&self.spec.module_id, self.storage.path(), &difference));
        }
        self.learn_identity(&change);
        Ok(())
    }

    fn read_change_0(&self) -> Result<IdentityChange> {
        let name = FileName::Change(0).to_string();
        let path = self.storage.path().join(&name);
        let map = self.storage.map(&name).map_err(|e| Error::io("cannot read", &path, e))?;
        IdentityChange::decode(&map).map_err(|what| {
            let advice = "the cache cannot be used: move the folder away, or restore the file";
            Error::corrupt(path, format!("{what}; {advice}"))
        })
    }

    fn learn_identity(&mut self, change: &IdentityChange) {
        let (instance, digest, bytes) = (change.instance, change.digest(), change.encode());
        self.identity = Some(KnownIdentity { instance, digest, bytes });
        self.changes.learn_identity();
    }

    /// The identity that new segments carry; change 0 is created if nobody has.
    ///
    /// # Errors
    ///
    /// A folder of another identity, or one that was removed and made again; a write that fails.
    pub(crate) fn ensure_identity(&mut self) -> Result<KnownIdentity> {
        let Some(known) = &self.identity else {
            let change = IdentityChange::new(&self.spec);
            if self.create_change_0(&change.encode())? {
                self.learn_identity(&change);
            } else {
                self.read_identity()?;
            }
            return self
                .identity
                .clone()
                .ok_or_else(|| Error::corrupt(self.storage.path(), "change 0 vanished"));
        };
        // Somebody may have removed the folder under us, and made another.
        let found = match self.read_change_0() {
            Err(error) if error.kind() == ErrorKind::Io && self.create_change_0(&known.bytes)? => {
                return Ok(known.clone());
            }
            found => found?,
        };
        if found.instance == known.instance {
            return Ok(known.clone());
        }
        let (id, path) = (&self.spec.module_id, self.storage.path().display());
        Err(Error::incompatible(format!(
            "the cache of `{id}` at {path} was removed and made again by another process: open the module again"
        )))
    }

    fn create_change_0(&self, bytes: &[u8]) -> Result<bool> {
        let name = FileName::Change(0).to_string();
        let failed = |e| Error::io("cannot create", self.storage.path().join(&name), e);
        self.storage.create_if_absent(&name, bytes).map_err(failed)
    }

    /// The newest change known, and the number below which rows are dead.
    pub(crate) fn known(&self) -> (u64, u64) {
        (self.changes.newest().unwrap_or(0), self.changes.floor())
    }

    /// Tells whether one of them had vanished.
    fn open_runs(&mut self, listed: &[Random]) -> bool {
        let mut vanished = false;
        for &random in listed {
            if self.opened_runs.contains(&random) {
                continue;
            }
            match self.storage.map(&FileName::Run(random).to_string()) {
                Ok(map) => {
                    self.opened_runs.insert(random);
                    self.runs.extend(Run::open(map, random).map(Arc::new));
                }
                Err(error) => {
                    vanished |= error.kind() == io::ErrorKind::NotFound;
                    self.skip_for_now(&FileName::Run(random).to_string(), &error);
                }
            }
        }
        self.prune_runs();
        vanished
    }

    fn open_segments(&mut self, listed: &[SegmentName]) -> bool {
        let known = self.segments.len();
        for &name in listed {
            if self.segments.contains_key(&name) {
                continue;
            }
            let Some(identity) = &self.identity else { return false };
            match self.storage.map(&name.to_string()) {
                Ok(map) => {
                    let opened = Segment::open(map, name, &self.schema, &identity.digest, identity.instance);
                    self.note(name, opened);
                }
                Err(error) => self.skip_for_now(&name.to_string(), &error),
            }
        }
        self.segments.len() > known
    }

    fn note(&mut self, name: SegmentName, opened: Result<Segment, SegmentError>) {
        let served = match opened {
            Ok(segment) => Some(Arc::new(segment)),
            Err(SegmentError::Foreign(why)) => {
                tracing::debug!(segment = %name, "not served: {why}");
                None
            }
            Err(SegmentError::Damaged(what)) => {
                self.count_damage(name, &what);
                None
            }
        };
        self.segments.insert(name, served);
    }

    /// A file that cannot be opened now may be gone, or readable at the next listing.
    fn skip_for_now(&mut self, name: &str, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound && self.warned.insert(name.to_owned()) {
            let path = self.storage.path().join(name);
            tracing::warn!(path = %path.display(), "cannot open it, tried again at every listing: {error}");
        }
    }

    fn count_damage(&self, name: SegmentName, what: &str) {
        self.counters.damaged_segments.add(1);
        let path = self.storage.path().join(name.to_string());
        tracing::warn!(path = %path.display(), "damaged segment: {what}; its rows are computed again");
    }

    /// A segment that this process has just sealed, with its run.
    pub(crate) fn add(&mut self, name: SegmentName, run: Random) -> io::Result<()> {
        self.open_runs(&[run]);
        let map = self.storage.map(&name.to_string())?;
        if let Some(identity) = &self.identity {
            let opened = Segment::open(map, name, &self.schema, &identity.digest, identity.instance);
            self.note(name, opened);
        }
        match self.segments.get(&name) {
            Some(Some(_)) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the new segment does not verify")),
        }
    }

    /// Takes damaged files out of service.
    pub(crate) fn drop_damaged(&mut self, trouble: &crate::probe::Trouble) {
        for segment in trouble.segments.iter().filter(|segment| segment.mark_damaged()) {
            self.count_damage(segment.name(), "a checksum is wrong");
            self.segments.insert(segment.name(), None);
        }
        self.runs.retain(|run| !trouble.runs.iter().any(|damaged| Arc::ptr_eq(run, damaged)));
        for run in &trouble.runs {
            // It would push the good ones aside in every process to come. What cannot be removed is met again.
            let _ = self.storage.remove(&FileName::Run(run.name()).to_string());
        }
    }

    /// What readers see from now on. Segments that no run covers get one.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let changes = self.changes.clone();
        let served = |segment: &Option<Arc<Segment>>| segment.clone().filter(|s| changes.serves(s.base()));
        let segments: Vec<_> = self.segments.values().filter_map(served).collect();
        self.index(&segments);
        let served: HashMap<_, _> =
            self.segments.iter().filter_map(|(name, s)| Some((*name, served(s)?))).collect();
        let runs = self.cover(&served);
        let (known, floor) = self.known();
        Snapshot { runs, segments: served.values().cloned().collect(), known, floor }
    }

    /// The runs that lead to the served segments, largest first; a segment that two of them know belongs to the
    /// first, and a run that adds none is left out.
    fn cover(&self, served: &HashMap<SegmentName, Arc<Segment>>) -> Vec<IndexedRun> {
        let mut left = served.clone();
        let indexed = self.runs.iter().filter_map(|run| {
            let segments: Vec<_> = run.segments().iter().map(|name| left.remove(name)).collect();
            segments.iter().any(Option::is_some).then(|| IndexedRun { run: run.clone(), segments })
        });
        indexed.collect()
    }

    /// The runs that should become one; when the writer `ends`, all of them, unless there is too much in them.
    pub(crate) fn mergeable(&self, ends: bool) -> Option<Vec<Arc<Run>>> {
        let entries = self.runs.iter().map(|run| run.entries()).sum::<usize>();
        if ends && self.runs.len() > 1 && entries <= MERGED_AT_THE_END {
            return Some(self.runs.clone());
        }
        mergeable(&self.runs)
    }

    /// A run that this process has made of others takes their place; tells the names of those it replaces.
    pub(crate) fn replace_runs(&mut self, merged: Random) -> Vec<Random> {
        self.open_runs(&[merged]);
        let mut replaced = std::mem::take(&mut self.pruned);
        // It could not be opened.
        if !replaced.contains(&merged) && self.runs.iter().all(|run| run.name() != merged) {
            replaced.push(merged);
        }
        replaced
    }

    /// Lets go of the runs all of whose segments are in larger ones. Every process keeps the same: of two that are
    /// equal, the one with the smaller name.
    fn prune_runs(&mut self) {
        self.runs.sort_by_key(|run| (std::cmp::Reverse(run.entries()), run.name()));
        let mut covered = HashSet::new();
        // Segments that were not seen yet count: only this run may know them.
        self.runs.retain(|run| {
            let adds = run.segments().iter().filter(|name| covered.insert(**name)).count() > 0;
            self.pruned.extend((!adds).then_some(run.name()));
            adds
        });
    }

    /// Makes a run for every segment that has none.
    fn index(&mut self, segments: &[Arc<Segment>]) {
        let covered: HashSet<SegmentName> =
            self.runs.iter().flat_map(|run| run.segments().iter().copied()).collect();
        for segment in segments.iter().filter(|segment| !covered.contains(&segment.name())) {
            let Some(hashes) = key_hashes(segment) else {
                if segment.mark_damaged() {
                    self.count_damage(segment.name(), "a key cannot be read");
                }
                self.segments.insert(segment.name(), None);
                continue;
            };
            let bytes = build_run(&[(segment.name(), hashes)]);
            self.counters.rebuilt_runs.add(1);
            match self.map_run(&bytes) {
                Ok(run) => self.runs.extend(run.map(Arc::new)),
                Err(error) => tracing::warn!(segment = %segment.name(), "cannot index: {error}"),
            }
        }
    }

    /// Writes the run beside the segments, or into an unnamed file where that cannot be done.
    fn map_run(&mut self, bytes: &[u8]) -> io::Result<Option<Run>> {
        let random = Random::new();
        self.opened_runs.insert(random);
        let published = publish_run(&*self.storage, random, bytes)
            .and_then(|()| self.storage.map(&FileName::Run(random).to_string()));
        let map = match published {
            Ok(map) => map,
            Err(_) => self.storage.map_unnamed(bytes)?,
        };
        Ok(Run::open(map, random))
    }
}

/// Gives a run its name. It is not synced: it can be made again at any time.
pub(crate) fn publish_run(storage: &dyn Storage, random: Random, bytes: &[u8]) -> io::Result<()> {
    let mut draft = storage.draft()?;
    draft.write_all(bytes)?;
    draft.publish(&FileName::Run(random).to_string(), false)
}

/// The hashes of all keys of a segment; `None` if one cannot be trusted.
fn key_hashes(segment: &Segment) -> Option<Vec<KeyHash>> {
    (0..segment.rows()).map(|row| segment.key(row).map(|(key, view)| hash(key, view))).collect()
}

pub(crate) fn refused(module_id: &str, path: &std::path::Path, difference: &str) -> Error {
    Error::incompatible(format!(
        "the cache of `{module_id}` at {} belongs to another module:{difference}\n  \
         bump the id, as in `{}`, to start a new cache",
        path.display(),
        crate::name::bumped(module_id),
    ))
}
