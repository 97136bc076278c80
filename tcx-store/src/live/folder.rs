//! The live set: what the listing of a module's folder and its changes say is there.

mod commits;
mod index;
mod instance;
mod stored;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::changes::instance::{KnownIdentity, refuse_other};
use crate::changes::{Compared, Expired, KnownChanges, MergePlan, Replacement, ReplacementPlace, Shown};
use crate::error::{Error, ErrorKind, Result};
use crate::live::damage::DamagedFiles;
use crate::live::listing::Listing;
use crate::live::retention::Retention;
use crate::live::run_set::RunSet;
use crate::live::segment_set::{Moved, SegmentSet};
use crate::live::snapshot::Snapshot;
use crate::schema::spec::Spec;
use crate::segment::Segment;
use crate::stats::Counters;
use crate::storage::Storage;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;
pub(crate) use index::key_hashes;
pub(crate) use stored::{Kept, Stored};

/// So often a listing is made again because it was stale, or may lack what a change commits that was found in it.
const LISTED_AT_MOST: usize = 3;

/// Everything this process knows of the folder. What a listing lacks is not forgotten: a listing may be stale.
#[derive(Debug)]
pub(crate) struct Live {
    storage: Arc<dyn Storage>,
    spec: Spec,
    counters: Arc<Counters>,
    identity: Option<KnownIdentity>,
    pub(crate) changes: KnownChanges,
    pub(crate) segments: SegmentSet,
    runs: RunSet,
    /// What readers were shown of the changes, and whether files came or went since.
    shown: Shown,
    has_new_files: bool,
    /// Whether segments of other processes were found whose names may not be durable yet.
    has_unsynced_names: bool,
    /// Whether this process may leave files in the folder.
    may_write: bool,
    /// The last place among the tombstones that this process has written for recomputed rows.
    replaced: Arc<ReplacementPlace>,
}

impl Live {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        spec: Spec,
        segments: SegmentSet,
        counters: Arc<Counters>,
        may_write: bool,
    ) -> Self {
        Self {
            segments,
            runs: RunSet::new(storage.clone()),
            storage,
            spec,
            counters,
            identity: None,
            changes: KnownChanges::default(),
            shown: Shown::default(),
            has_new_files: false,
            has_unsynced_names: false,
            replaced: Arc::default(),
            may_write,
        }
    }

    /// From now on this process leaves files in the folder.
    pub(crate) fn allow_writing(&mut self) {
        self.may_write = true;
    }

    /// A segment that was listed last and could not be read, if there is one.
    pub(crate) fn unopened(&self) -> Option<SegmentName> {
        self.segments.unopened()
    }

    /// Whether a damaged segment may be sound at another look.
    pub(crate) fn is_in_doubt(&self, segment: SegmentName) -> bool {
        self.segments.is_in_doubt(segment)
    }

    /// Since when files look damaged that may be sound at another look: the time of the newest.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        self.segments.in_doubt_since().max(self.changes.in_doubt_since())
    }

    /// Lists the folder and learns what is new in it. Returns whether readers need a new snapshot, even if something
    /// failed after it was learned.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder belongs to another identity, if change 0 is damaged, or if the listing fails.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        for _ in 0..LISTED_AT_MOST {
            if !self.learn()? {
                break;
            }
        }
        Ok(self.has_new_files || self.changes.shown() != self.shown)
    }

    /// Maps the segments that have come to this machine since they were opened. Returns whether readers need a new snapshot.
    pub(crate) fn map_arrived(&mut self) -> bool {
        let Some(identity) = &self.identity else { return false };
        self.has_new_files |= self.segments.reopen_moved(identity, Moved::Here);
        self.has_new_files
    }

    /// As [`refresh`](Self::refresh), before rows are sealed. While the files cannot be reached, rows are sealed with the changes that are
    /// known: a change that is not known yet kills them, wherever they wait. So they are, if a listing is dear, unless the rows `depend` on
    /// what others have done: they replace rows, or were put.
    ///
    /// # Errors
    ///
    /// As [`refresh`](Self::refresh).
    pub(crate) fn refresh_to_seal(&mut self, depend: bool) -> Result<bool> {
        if self.identity.is_some() && !depend && self.storage.list_every().is_some() {
            return Ok(false);
        }
        match self.refresh() {
            Err(error)
                if error.kind() == ErrorKind::Io && self.identity.is_some() && self.storage.is_away() =>
            {
                Ok(false)
            }
            refreshed => refreshed,
        }
    }

    /// One listing; whether another has to be made: a file of it had vanished, so that what took its place is in a newer one, or it
    /// lacked a change, or it shows the commit of segments that may have got their names while it was made.
    ///
    /// The folder is compared with what is known of it before and after: what was learned of another that took its place is
    /// let go of again.
    fn learn(&mut self) -> Result<bool> {
        self.storage.look_ahead();
        let listing = match self.compare()? {
            // What cannot be found any more is closed; nothing else is known of a folder that is gone.
            Compared::Removed => Listing::default(),
            _ => {
                Listing::read(&*self.storage).map_err(|e| Error::io("cannot list", self.storage.path(), e))?
            }
        };
        if !listing.changes.changes.contains(&0) {
            self.changes.lose_sight();
        }
        let (mut changes, mut identity) = (self.changes.clone(), self.identity.clone());
        changes.was_listed(&listing.changes);
        if identity.is_none() && listing.changes.changes.contains(&0) {
            let found = KnownIdentity::read(&*self.storage, &self.spec)?;
            changes.learn_identity(found.origin(), false);
            identity = Some(found);
        }
        // Runs first: a segment that one of them covers needs none of its own.
        let opened_runs = self.runs.opened();
        let mut stale = self.runs.open_listed(&listing.runs);
        self.has_new_files |= self.runs.opened() > opened_runs;
        let Some(identity) = identity else { return Ok(stale) };
        stale |= changes.learn(&*self.storage, &listing.changes);
        let was_unopened = self.segments.unopened().is_some();
        let opened = self.segments.open(&listing.segments, &identity, &changes);
        self.has_new_files |= was_unopened != self.segments.unopened().is_some();
        if let Some(base) = self.segments.newest_base() {
            changes.count_on(base);
        }
        let has_new_nonces = changes.learn_nonces(&*self.storage, &self.segments.commits());
        stale |= changes.needs_listing();
        self.has_new_files |= opened.closed || opened.moved;
        let is_news = !opened.names.is_empty()
            || has_new_nonces
            || changes.shown() != self.changes.shown()
            // Merged changes say what is known already, unless they are another folder's.
            || !Arc::ptr_eq(changes.tombstones(), self.changes.tombstones());
        if is_news && !self.confirm(&changes, &opened.names)? {
            // The next listing is of the folder as it is by then.
            return Ok(true);
        }
        self.has_new_files |= has_new_nonces || !opened.names.is_empty();
        self.has_unsynced_names |= opened.closed || !opened.names.is_empty();
        (self.changes, self.identity) = (changes, Some(identity));
        Ok(stale || opened.vanished)
    }

    /// Whether the folder is the one in which this was learned: else the segments are let go of.
    fn confirm(&mut self, changes: &KnownChanges, opened: &[SegmentName]) -> Result<bool> {
        let mut compared = changes.compare(&*self.storage);
        if matches!(compared, Compared::Same) && changes.has_another_anchor(&self.changes) {
            // An older copy may have come in between, with a change of a process that has not noticed yet, and takes it back soon.
            compared = self.changes.compare(&*self.storage);
        }
        if matches!(compared, Compared::Same) {
            return Ok(true);
        }
        self.segments.forget(opened);
        // Their rows are in doubt from now on.
        self.has_new_files |= !opened.is_empty();
        match compared {
            Compared::Removed => Ok(false),
            compared => refuse_other(&*self.storage, &self.spec, &compared).map(|()| false),
        }
    }

    /// Makes the names durable that other processes have given to segments and changes: rows were served from these segments, and some of
    /// the changes have committed them.
    pub(crate) fn sync_names(&mut self) -> io::Result<()> {
        if self.has_unsynced_names || self.changes.are_unsynced() {
            match self.storage.sync() {
                Ok(()) => self.changes.were_synced(&*self.storage),
                // A folder that is gone has no names. If it comes back, they are synced then.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
            self.has_unsynced_names = false;
        }
        Ok(())
    }

    /// This process has written these tombstones for recomputed rows.
    pub(crate) fn add_replacements(&mut self, replacements: &[Replacement]) {
        for replacement in replacements {
            self.replaced = self.replaced.add(replacement.clone());
        }
    }

    /// These rows of this process were to take the place of others and have died by their age.
    pub(crate) fn add_expired(&mut self, expired: Expired) {
        if !expired.is_empty() {
            self.replaced = self.replaced.add_expired(expired);
        }
    }

    /// The tombstones for recomputed rows that were found to be written since the last call, although an error had answered them.
    pub(crate) fn take_found(&mut self) -> Vec<Replacement> {
        let found = self.changes.take_found();
        self.add_replacements(&found);
        found
    }

    /// A segment that this process has just sealed, with its run.
    pub(crate) fn add(&mut self, name: SegmentName, run: Random) -> io::Result<()> {
        self.add_run(run);
        self.add_segment(name)
    }

    /// A segment that this process has just named.
    pub(crate) fn add_segment(&mut self, name: SegmentName) -> io::Result<()> {
        self.identity.as_ref().map_or(Ok(()), |identity| self.segments.add(name, identity))
    }

    /// Takes damaged files out of service.
    pub(crate) fn drop_damaged(&mut self, damaged: &DamagedFiles) {
        for segment in &damaged.segments {
            self.segments.drop_damaged(segment, "a checksum is wrong");
        }
        self.runs.drop_damaged(&damaged.runs);
        for run in damaged.runs.iter().filter(|_| self.may_write) {
            // It would push the good ones aside in every process to come. What cannot be removed is met again.
            let _ = self.storage.remove(&FileName::Run(run.name()).to_string());
        }
    }

    /// What readers see from now on. Segments that no run covers get one.
    pub(crate) fn snapshot(&mut self, retention: &Retention) -> Snapshot {
        self.changes.announce();
        let oldest_kept = retention.oldest_kept();
        let (served, is_indexed) = loop {
            let replaced = self.segments.replaced(&self.changes);
            self.runs.prune(|name| replaced.contains(&name) || self.segments.is_gone(name));
            let mut served = self.segments.served(&self.changes, &replaced);
            served.retain(|_, segment| segment.born() >= oldest_kept);
            if let Some(is_indexed) = self.index(&served) {
                break (served, is_indexed);
            }
        };
        // What could not be indexed is indexed after the next listing, whether it shows anything new or not.
        (self.shown, self.has_new_files) = (self.changes.shown(), !is_indexed);
        let tombstones = self.changes.tombstones().clone();
        let known = self.changes.newest().unwrap_or(0);
        let expires = retention.expires(served.values());
        let waiting = self.segments.usable().into_iter().map(|segment| segment.needs());
        let outlived = self.changes.outlived(waiting.filter(|needs| needs.commit.is_some()));
        let (unserved, is_unindexed) = self.unserved(&served);
        let is_unread = self.changes.unread_after(0).is_some();
        let counts_on_more = self.segments.newest_base() > self.changes.newest();
        let lacks_rows = counts_on_more || self.changes.may_lack_rows();
        let is_partial = !is_indexed || lacks_rows || self.segments.unopened().is_some();
        let (runs, segments) = (self.runs.cover(&served), served.into_values().collect());
        let replaced = self.replaced.clone();
        Snapshot {
            runs,
            unserved,
            is_unindexed,
            segments,
            known,
            outlived,
            is_unread,
            is_partial,
            expires,
            tombstones,
            replaced,
        }
    }

    /// The served segments, in the order of their names, and their identity; `None` as long as changes are in doubt.
    pub(crate) fn compactable(&mut self) -> Option<(Vec<Arc<Segment>>, KnownIdentity)> {
        let identity = self.identity.clone().filter(|_| self.changes.are_settled())?;
        let replaced = self.segments.replaced(&self.changes);
        let mut served: Vec<_> = self.segments.served(&self.changes, &replaced).into_values().collect();
        served.sort_by_key(|segment| segment.name());
        Some((served, identity))
    }

    /// The names of the served segments, those of expired rows included.
    pub(crate) fn served(&mut self) -> HashSet<SegmentName> {
        let replaced = self.segments.replaced(&self.changes);
        self.segments.served(&self.changes, &replaced).into_keys().collect()
    }

    /// The segments that will be served once changes can be read: those that count on one, and what is before it.
    pub(crate) fn waiting(&mut self) -> Vec<Arc<Segment>> {
        let replaced = self.segments.replaced(&self.changes);
        let mut waiting = self.segments.usable();
        waiting.retain(|segment| {
            self.changes.may_serve_later(segment.needs(), segment.dated())
                && !replaced.contains(&segment.name())
        });
        waiting
    }

    /// The segments that stand for others.
    pub(crate) fn replacing(&mut self) -> Vec<Arc<Segment>> {
        self.segments.replacing(&self.changes)
    }

    /// The changes that should become one file, and the instance they are of.
    pub(crate) fn mergeable_changes(&self) -> Option<(MergePlan, Random)> {
        Some((self.changes.mergeable()?, self.identity.as_ref()?.instance))
    }

    /// A file of merged changes that this process has written takes their place.
    pub(crate) fn adopt_merged_changes(&mut self, number: u64) {
        self.changes.adopt_merged(&*self.storage, number);
    }
}
