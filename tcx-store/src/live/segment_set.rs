//! The segments that this process knows, and which of them are served.

mod damage;
mod far;
mod vanished;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use arrow_schema::SchemaRef;

pub(crate) use far::Moved;

use crate::changes::KnownChanges;
use crate::changes::instance::KnownIdentity;
use crate::schema::leaf::Leaf;
use crate::segment::memory_cache::MemoryCache;
use crate::segment::{Segment, SegmentError};
use crate::stats::Counters;
use crate::stats::causes::Cause;
use crate::storage::Storage;
use crate::storage::name::SegmentName;
use crate::storage::warn_once::Warned;
use crate::sys::bytes::Random;
use crate::sys::notice::{Trouble, notice};
use crate::sys::runtime;

/// What became of a segment.
#[derive(Debug)]
enum State {
    Usable(Arc<Segment>),
    /// Damaged, or of another identity.
    Unusable(SegmentError),
    /// Replaced by a compacted one, and its file is gone.
    Gone,
}

/// What a listing has brought.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// The segments that are known now.
    pub(crate) names: Vec<SegmentName>,
    /// Whether any has gone.
    pub(crate) closed: bool,
    /// Whether the listing was stale: one had vanished whose place none has taken.
    pub(crate) vanished: bool,
    /// Whether one is read in another way than before: its file has come to this machine, or is not here any more.
    pub(crate) moved: bool,
}

/// Every segment that was seen. What a listing lacks is not forgotten: a listing may be stale.
#[derive(Debug)]
pub(crate) struct SegmentSet {
    storage: Arc<dyn Storage>,
    schema: SchemaRef,
    memory_cache: Arc<MemoryCache>,
    leaves: Arc<[Leaf]>,
    counters: Arc<Counters>,
    known: BTreeMap<SegmentName, State>,
    /// Segments of the last listing that could not be read, and why.
    unopened: BTreeMap<SegmentName, SegmentError>,
    /// Damaged segments of the last listing that may be sound at another look.
    incomplete: BTreeSet<SegmentName>,
    /// When a segment was last found to be gone whose rows nothing has replaced or killed, as far as is known.
    unexplained: Option<Instant>,
    /// Segments that were listed and not found, and when that was last so: nothing is known of their rows.
    not_found: BTreeMap<SegmentName, Instant>,
    /// Damaged segments, each reported once, and since when they are known to be damaged.
    damaged: BTreeMap<SegmentName, Instant>,
    warned: Warned,
}

/// Segments that a process does not serve because they are damaged.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    /// Those of which a block is: another process may serve their other rows.
    pub(crate) open: Vec<Arc<Segment>>,
    /// Those that no process can open any more. One that has opened them before serves their rows.
    pub(crate) lost: Vec<SegmentName>,
    /// One that another process may serve, and that this one cannot read now.
    pub(crate) unread: Option<SegmentName>,
}

impl SegmentSet {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        schema: SchemaRef,
        leaves: Arc<[Leaf]>,
        memory_cache: Arc<MemoryCache>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            storage,
            schema,
            leaves,
            memory_cache,
            counters,
            known: BTreeMap::new(),
            unopened: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            unexplained: None,
            not_found: BTreeMap::new(),
            damaged: BTreeMap::new(),
            warned: Warned::default(),
        }
    }

    /// Opens what is new of the listed segments, and closes those that have vanished.
    pub(crate) fn open(
        &mut self,
        listed: &BTreeSet<SegmentName>,
        identity: &KnownIdentity,
        changes: &KnownChanges,
    ) -> Opened {
        let mut opened = Opened::default();
        // A stale listing may lack one that could not be opened: its rows are there until it is known to be gone.
        let unopened = std::mem::take(&mut self.unopened);
        let incomplete = std::mem::take(&mut self.incomplete);
        self.known.retain(|name, _| !incomplete.contains(name));
        let unlisted = unopened.keys().chain(&incomplete).filter(|name| !listed.contains(name));
        opened.moved = self.reopen_moved(identity, Moved::Any);
        let new: Vec<SegmentName> =
            listed.iter().chain(unlisted).filter(|name| !self.known.contains_key(name)).copied().collect();
        let mut far = self.open_far(&new, identity);
        for name in &new {
            let is_listed = listed.contains(name);
            let file = far.remove(name).unwrap_or_else(|| self.open_file(*name, identity));
            opened.vanished |= !self.open_one(*name, file, is_listed) && is_listed;
            opened.names.extend(self.known.contains_key(name).then_some(*name));
        }
        let (closed, unreplaced) = self.close_vanished(listed, changes);
        Opened { closed, vanished: opened.vanished || unreplaced, ..opened }
    }

    /// Lets go of segments that were opened in a folder which is another one, or may be. If it is the same, their rows are there, and are
    /// not to be displaced.
    pub(crate) fn forget(&mut self, opened: &[SegmentName]) {
        for name in opened {
            self.known.remove(name);
            let unsure = io::Error::other("the folder could not be compared with the one that is known");
            self.unopened.insert(*name, SegmentError::Failed(unsure));
        }
    }

    /// Takes a segment that was opened; `false` if it was not found.
    fn open_one(
        &mut self,
        name: SegmentName,
        file: io::Result<Result<Segment, SegmentError>>,
        is_listed: bool,
    ) -> bool {
        let Err(error) = self.read(name, file) else { return true };
        self.warned.warn(&*self.storage, &name.to_string(), &error);
        let is_there = error.kind() != io::ErrorKind::NotFound;
        // It was removed since it was listed, or a network file system remembers that it was not there before: the next listing tells.
        if !is_there && is_listed {
            self.not_found.insert(name, runtime::now());
        }
        if is_there || is_listed {
            self.unopened.insert(name, SegmentError::Failed(error));
        }
        is_there
    }

    /// # Errors
    ///
    /// Returns an error if the file cannot be read: nothing is known about it.
    fn read(&mut self, name: SegmentName, file: io::Result<Result<Segment, SegmentError>>) -> io::Result<()> {
        let opened = file?;
        match &opened {
            Ok(_) | Err(SegmentError::Failed(_)) => {}
            Err(SegmentError::Foreign(why)) => tracing::debug!(segment = %name, "not served: {why}"),
            Err(SegmentError::Unknown(what)) => {
                self.counters.unknown_segments.add(1);
                let path = self.storage.path().join(name.to_string());
                tracing::warn!(path = %path.display(), "unknown segment: {what}; its rows are computed again");
                let unknown = format_args!(
                    "unknown segment {}: {what}; its rows are computed again until this program uses the version of tcx that wrote it",
                    path.display()
                );
                notice(Trouble::Unknown, unknown);
            }
            Err(SegmentError::Damaged(what)) => {
                self.note_damage(name, what);
            }
        }
        let state = match opened {
            Ok(segment) => State::Usable(Arc::new(segment)),
            Err(SegmentError::Failed(error)) => return Err(error),
            Err(why) => State::Unusable(why),
        };
        self.known.insert(name, state);
        self.not_found.remove(&name);
        Ok(())
    }

    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    fn open_file(
        &self,
        name: SegmentName,
        identity: &KnownIdentity,
    ) -> io::Result<Result<Segment, SegmentError>> {
        let file = self.storage.open(&name.to_string())?;
        let (types, KnownIdentity { digest, instance, .. }) = ((&self.schema, &self.leaves), identity);
        Ok(Segment::open(file, &self.memory_cache, name, types, digest, *instance))
    }

    /// What this process does not serve because it is damaged.
    pub(crate) fn damaged(&self, identity: &KnownIdentity) -> Damaged {
        let mut damaged = Damaged { unread: self.unopened(), ..Damaged::default() };
        for (&name, state) in &self.known {
            match state {
                State::Unusable(SegmentError::Damaged(_)) => {}
                State::Unusable(SegmentError::Unknown(_)) => {
                    damaged.unread = Some(name);
                    continue;
                }
                _ => continue,
            }
            match self.open_file(name, identity) {
                Ok(Ok(segment)) => damaged.open.push(Arc::new(segment)),
                Ok(Err(SegmentError::Foreign(_))) => {}
                Ok(Err(SegmentError::Damaged(_))) if !self.is_in_doubt(name) => damaged.lost.push(name),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(Err(_)) | Err(_) => damaged.unread = Some(name),
            }
        }
        damaged
    }

    /// Lets go of everything: the folder was removed. Returns whether there was anything.
    pub(crate) fn forget_all(&mut self) -> bool {
        !std::mem::take(&mut self.known).is_empty()
    }

    /// A segment that this process has just written.
    pub(crate) fn add(&mut self, name: SegmentName, identity: &KnownIdentity) -> io::Result<()> {
        let file = self.open_file(name, identity);
        self.read(name, file)?;
        match self.known.get(&name) {
            Some(State::Usable(_)) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the new segment does not verify")),
        }
    }

    /// The segments that stand for others. One that stands for segments that are still here has to be sound itself, as far
    /// as its keys go: else they live.
    pub(crate) fn replacing(&mut self, changes: &KnownChanges) -> Vec<Arc<Segment>> {
        let mut replacing = self.usable();
        replacing.retain(|segment| {
            // None of these has to be committed: what is joined is.
            !segment.inputs().is_empty()
                && changes.newest().is_some_and(|newest| segment.base() <= newest)
                && !changes.tombstones().kill_segment(segment.dated())
        });
        replacing.retain(|segment| {
            let is_here = |input: &SegmentName| matches!(self.known.get(input), Some(State::Usable(_)));
            let is_needed = segment.inputs().iter().any(is_here);
            let is_sound = if is_needed { segment.has_sound_keys() } else { Some(true) };
            if is_sound == Some(false) {
                self.drop_damaged(segment, "a key does not verify");
            }
            is_sound == Some(true)
        });
        replacing
    }

    /// The segments that others stand for.
    pub(crate) fn replaced(&mut self, changes: &KnownChanges) -> HashSet<SegmentName> {
        self.replacing(changes).iter().flat_map(|segment| segment.inputs().iter().copied()).collect()
    }

    /// The segments that are still here and that one stands for alone: they may have been cut short, and a process that cannot read that
    /// one serves all of their rows.
    pub(crate) fn cut(&mut self, changes: &KnownChanges) -> Vec<Arc<Segment>> {
        let replacing = self.replacing(changes);
        let alone = replacing.iter().filter_map(|segment| match segment.inputs() {
            [input] => self.find(*input),
            _ => None,
        });
        alone.collect()
    }

    /// A segment that can be read.
    pub(crate) fn find(&self, name: SegmentName) -> Option<Arc<Segment>> {
        match self.known.get(&name) {
            Some(State::Usable(segment)) => Some(segment.clone()),
            _ => None,
        }
    }

    /// A segment that has been looked at, or why it is not served; `None` for one that has not, or is gone.
    pub(crate) fn opened(&self, name: SegmentName) -> Option<Result<&Arc<Segment>, &SegmentError>> {
        match self.known.get(&name) {
            Some(State::Usable(segment)) => Some(Ok(segment)),
            Some(State::Unusable(why)) => Some(Err(why)),
            Some(State::Gone) => None,
            None => self.unopened.get(&name).map(Err),
        }
    }

    /// The segments whose rows are served. `replaced` are those that others stand for.
    pub(crate) fn served(
        &self,
        changes: &KnownChanges,
        replaced: &HashSet<SegmentName>,
    ) -> HashMap<SegmentName, Arc<Segment>> {
        let usable = self.usable().into_iter();
        let usable = usable.filter(|segment| changes.serves(segment.needs(), segment.dated()));
        usable.map(|segment| (segment.name(), segment)).filter(|(name, _)| !replaced.contains(name)).collect()
    }

    /// Every segment that can be read, in the order of their names.
    pub(crate) fn usable(&self) -> Vec<Arc<Segment>> {
        let usable = self.known.values().filter_map(|state| match state {
            State::Usable(segment) => Some(segment.clone()),
            State::Unusable(_) | State::Gone => None,
        });
        usable.collect()
    }

    /// The newest change that must have been there when a segment got its name. One that waits for its commit has its name before.
    pub(crate) fn newest_base(&self) -> Option<u64> {
        let needs = self.usable().into_iter().map(|segment| segment.needs());
        needs.filter(|needs| needs.commit.is_none()).map(|needs| needs.base).max()
    }

    /// The changes that commit segments, each with the nonce that it has then.
    pub(crate) fn commits(&self) -> BTreeSet<(u64, Random)> {
        let needs = self.usable().into_iter().map(|segment| segment.needs());
        needs.filter_map(|needs| needs.commit.map(|commit| (needs.base, commit))).collect()
    }

    /// A segment that was listed last and could not be read, or is not complete yet, if there is one.
    pub(crate) fn unopened(&self) -> Option<SegmentName> {
        self.unopened.keys().chain(&self.incomplete).next().copied()
    }

    /// Every segment that was seen and not removed.
    pub(crate) fn names(&self) -> impl Iterator<Item = SegmentName> + '_ {
        self.known.keys().chain(self.unopened.keys()).copied()
    }

    /// Why the rows of a segment are not served. Those of a replaced one are elsewhere, if anywhere.
    pub(crate) fn why_unserved(&self, name: SegmentName) -> Cause {
        match self.known.get(&name) {
            // Nothing else keeps one from being served whose changes are known.
            Some(State::Usable(_)) => Cause::Expired,
            Some(State::Unusable(SegmentError::Damaged(_))) => Cause::Damaged,
            // Of a codec that is not known, or its file cannot be read at the moment.
            Some(State::Unusable(SegmentError::Unknown(_) | SegmentError::Failed(_))) => Cause::Unreadable,
            None if self.unopened.contains_key(&name) => Cause::Unreadable,
            // The listing does not show the last one: it was evicted.
            Some(State::Unusable(SegmentError::Foreign(_)) | State::Gone) | None => Cause::Absent,
        }
    }

    /// Whether a segment has been replaced, and its file is gone.
    pub(crate) fn is_gone(&self, name: SegmentName) -> bool {
        matches!(self.known.get(&name), Some(State::Gone))
    }
}
