//! Collection: removing the files that are no longer needed.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::changes::{Doomed, Tombstones};
use crate::engine::Core;
use crate::error::{Error, Result, is_full};
use crate::live::damage::DamagedFiles;
use crate::live::listing::Listing;
use crate::segment::Segment;
use crate::storage::Held;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;

/// How old files have to be, by the clock of their file system. It decides nothing but when they are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grace {
    /// A compacted segment, before its inputs are removed: readers find it in that time. An index run that leads nowhere.
    pub(crate) replaced: Duration,
    /// A temporary file, before it is taken for one of a process that was killed.
    pub(crate) temporary: Duration,
    /// The most bytes of compacted segments that are verified. The inputs of others are left for later.
    pub(crate) verified_bytes: u64,
    /// Whether segments on other machines are read: their keys, to find those without live rows, and all of those that replace others.
    pub(crate) reads_far: bool,
}

/// What a collection did, and what it left for later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    pub(crate) removed: usize,
    /// Whether there are files to remove that are too young.
    pub(crate) is_unfinished: bool,
}

/// How often a collection is planned again because changes have come since: the next one is soon.
const PLANNED_AT_MOST: usize = 4;

/// Removes the inputs of compacted segments, segments whose rows are all dead or that can no more be committed, index runs that lead nowhere, and the
/// temporary files of killed processes.
///
/// # Errors
///
/// Returns an error if the folder cannot be listed or synced, or is not the one that was opened. Files that cannot be removed
/// now are removed later.
pub(crate) fn collect(core: &Core, grace: Grace) -> Result<Collected> {
    core.check()?;
    for _ in 0..PLANNED_AT_MOST {
        let Some(plan) = Plan::new(core)? else { return Ok(Collected::default()) };
        // An eviction that began before a joined segment got its name may have killed it, and its inputs live again. The listing that showed
        // the segment may lack the changes of the eviction; one that is made afterwards has them.
        let listing = Listing::read(&*core.storage).map_err(|e| failed(core, e))?;
        if are_known(core, &listing).map_err(|e| failed(core, e))? {
            return plan.carry_out(core, grace, &listing);
        }
    }
    Ok(Collected { removed: 0, is_unfinished: true })
}

fn failed(core: &Core, error: io::Error) -> Error {
    Error::io("cannot collect in", core.storage.path(), error)
}

/// Whether a listing shows no change that is not known, and none has got its name since: a listing may be older than the answer of a store
/// that is asked for a name.
fn are_known(core: &Core, listing: &Listing) -> io::Result<bool> {
    let known = core.live().changes.newest();
    let listed = listing.changes.changes.last().max(listing.changes.merged.last());
    Ok(listed.copied() <= known && !is_overtaken(core)?)
}

/// Whether there is a change after the newest that is known.
fn is_overtaken(core: &Core) -> io::Result<bool> {
    let known = core.live().changes.newest();
    let next = FileName::Change(known.map_or(0, |newest| newest + 1));
    core.storage.is_there(&next.to_string())
}

/// What can go by the changes that are known.
struct Plan {
    folder: Box<dyn Held>,
    usable: Vec<Arc<Segment>>,
    /// The segments that were joined from others.
    replacing: Vec<Arc<Segment>>,
    /// The segments that can no more be committed.
    void: Vec<Arc<Segment>>,
    tombstones: Arc<Tombstones>,
}

impl Plan {
    /// `None` as long as changes are in doubt.
    fn new(core: &Core) -> Result<Option<Self>> {
        let mut live = core.live();
        if live.refresh()? {
            core.install(&mut live);
        }
        if live.compactable().is_none() {
            return Ok(None);
        }
        let folder = core.storage.hold().map_err(|e| failed(core, e))?;
        live.check_instance()?;
        // A segment goes because of tombstones: they must be durable before.
        live.changes.make_durable(&*core.storage).map_err(|e| failed(core, e))?;
        let tombstones = live.changes.tombstones().clone();
        let (usable, replacing, void) = (live.decided(), live.replacing(), live.void());
        Ok(Some(Self { folder, usable, replacing, void, tombstones }))
    }

    fn carry_out(self, core: &Core, grace: Grace, listing: &Listing) -> Result<Collected> {
        let Self { folder, usable, replacing, void, tombstones } = self;
        let mut collection = Collection::new(core, folder, grace, listing.segments.clone());
        collection.remove_replaced(replacing).map_err(|e| failed(core, e))?;
        let is_killed = |segment: &Segment| tombstones.kill_segment(segment.dated());
        // A machine that has them removes the others, unless they are dead as a whole.
        let counted = usable.iter().filter(|own| grace.reads_far || !own.is_far() || is_killed(own));
        let is_dead = |own: &&Arc<Segment>| own.dead_rows(&tombstones) == own.rows();
        let mut dead: Vec<_> = counted.filter(is_dead).collect();
        dead.retain(|own| collection.may_remove(own));
        if !dead.is_empty() {
            tombstones.verify_still().map_err(|e| failed(core, e))?;
        }
        for segment in dead {
            collection.remove_dead(segment);
        }
        for segment in &void {
            collection.remove_dead(segment);
        }
        let oldest_kept = core.retention.oldest_kept();
        let has_expired = |own: &Arc<Segment>| own.born() < oldest_kept && !is_killed(own);
        let expired: Vec<_> = usable.into_iter().filter(has_expired).collect();
        collection.remove_rows(&expired)?;
        collection.remove_orphans(listing);
        collection.finish()
    }
}

pub(super) struct Collection<'a> {
    pub(super) core: &'a Core,
    /// Held before it was compared with the one that is known. Whatever comes in its place, an older copy of it that lacks a compacted
    /// segment included, loses nothing.
    pub(super) folder: Box<dyn Held>,
    grace: Grace,
    /// The segments in the folder.
    pub(super) left: BTreeSet<SegmentName>,
    collected: Collected,
}

impl<'a> Collection<'a> {
    pub(super) fn new(
        core: &'a Core,
        folder: Box<dyn Held>,
        grace: Grace,
        left: BTreeSet<SegmentName>,
    ) -> Self {
        Self { core, folder, grace, left, collected: Collected::default() }
    }

    fn has_inputs(&self, segment: &Segment) -> bool {
        self.stands_for(segment).iter().any(|input| self.left.contains(input))
    }

    /// The segments that are dead as long as this one is there. One that is dead as a whole stands for none.
    pub(super) fn stands_for<'s>(&self, segment: &'s Segment) -> &'s [SegmentName] {
        let is_killed = self.core.live().is_killed(segment);
        if is_killed { &[] } else { segment.inputs() }
    }

    /// Whether a file has been there for so long.
    fn is_older(&mut self, name: FileName, grace: Duration) -> bool {
        let is_older = self.folder.info(&name.to_string()).is_ok_and(|info| info.age >= grace);
        self.collected.is_unfinished |= !is_older;
        is_older
    }

    pub(super) fn remove(&mut self, name: FileName) -> bool {
        match self.folder.remove(&name.to_string()) {
            Ok(()) => {
                self.collected.removed += 1;
                true
            }
            Err(error) => {
                let path = self.core.storage.path().join(name.to_string());
                tracing::debug!(path = %path.display(), "cannot remove it: {error}");
                false
            }
        }
    }

    /// Removes what these stand for, the oldest generation first: a segment goes after those it stands for.
    fn remove_replaced(&mut self, mut replacing: Vec<Arc<Segment>>) -> io::Result<()> {
        loop {
            replacing.retain(|segment| self.has_inputs(segment));
            let (ready, waiting): (Vec<_>, Vec<_>) = replacing
                .into_iter()
                .partition(|segment| segment.inputs().iter().all(|input| self.is_last(*input)));
            if ready.is_empty() {
                self.collected.is_unfinished |= !waiting.is_empty();
                return Ok(());
            }
            ready.iter().try_for_each(|segment| self.remove_inputs(segment))?;
            replacing = waiting;
        }
    }

    /// Whether a segment is gone, or stands for none that is still there.
    fn is_last(&self, name: SegmentName) -> bool {
        let own = || self.core.live().segments.find(name);
        !self.left.contains(&name) || own().is_some_and(|own| !self.has_inputs(&own))
    }

    /// Removes what a compacted segment stands for, once the segment itself is known to be whole and durable: it is
    /// read twice, and the folder synced between.
    fn remove_inputs(&mut self, segment: &Arc<Segment>) -> io::Result<()> {
        // It is in this folder as well: one that came in the place of another may hold the inputs alone.
        if !self.is_older(FileName::Segment(segment.name()), self.grace.replaced) {
            return Ok(());
        }
        if segment.is_far() && !self.grace.reads_far {
            // To verify it would read all of it over a network, twice. A machine that has a copy removes them, or a caller that wants it.
            self.collected.is_unfinished = true;
            return Ok(());
        }
        let Some(left) = self.grace.verified_bytes.checked_sub(segment.bytes() as u64) else {
            self.collected.is_unfinished = true;
            return Ok(());
        };
        // If it is killed by an eviction that has begun, its inputs live again.
        if self.core.gives_up() || self.core.live().is_doubted(segment) {
            self.collected.is_unfinished = true;
            return Ok(());
        }
        self.grace.verified_bytes = left;
        let mut is_intact = segment.is_intact();
        if is_intact == Some(true) {
            self.folder.sync()?;
            is_intact = segment.is_intact();
        }
        match is_intact {
            Some(true) if !self.still_stands(segment)? || !self.announce_cut(segment)? => {
                self.collected.is_unfinished = true;
            }
            Some(true) => {
                for input in segment.inputs() {
                    if !self.is_left(segment.name()) {
                        self.collected.is_unfinished = true;
                        break;
                    }
                    self.remove_segment(*input);
                }
            }
            Some(false) => {
                let segments = vec![segment.clone()];
                self.core.drop_damaged(&DamagedFiles { segments, ..DamagedFiles::default() });
            }
            None => self.collected.is_unfinished = true,
        }
        Ok(())
    }

    /// Whether a segment stands for its inputs by every change that there is after it was verified, which takes its time: rows may have been
    /// evicted since, and then the inputs may live again.
    fn still_stands(&self, segment: &Segment) -> io::Result<bool> {
        if is_overtaken(self.core)? {
            // By a change that need not concern it.
            let mut live = self.core.live();
            live.refresh().map_err(io::Error::other)?;
            self.core.install(&mut live);
            drop(live);
            if is_overtaken(self.core)? {
                return Ok(false);
            }
        }
        // Last: other threads may have learned changes at any time before.
        let live = self.core.live();
        Ok(live.changes.are_settled() && !live.is_doubted(segment) && !live.is_killed(segment))
    }

    /// Whether a segment is in the folder still. One of a directory is held, and one in a store is asked: an older copy, which has the inputs
    /// alone, may have come in its place at any time.
    fn is_left(&self, name: SegmentName) -> bool {
        !self.core.storage.is_remote() || self.folder.info(&FileName::Segment(name).to_string()).is_ok()
    }

    /// Says that the inputs of a segment are dead if it was trimmed: a copy of the folder may have them, and not this segment. `false` if they
    /// have to stay: the disk is full, or another process has created a change first, which may concern them.
    fn announce_cut(&self, segment: &Segment) -> io::Result<bool> {
        let mut live = self.core.live();
        let tombstones = live.changes.tombstones();
        let is_cut = |name: Random| tombstones.remove(name, None) && !tombstones.name_segment(name);
        let cut = segment.inputs().iter().filter(|input| is_cut(input.random)).copied().collect();
        let dead: Vec<Random> = live.lineage(&cut).into_iter().collect();
        if dead.is_empty() {
            return Ok(true);
        }
        let created = live.changes.kill_segments(&*self.core.storage, &Doomed::Segments(dead));
        self.core.install(&mut live);
        created.or_else(|error| if is_full(&error) { Ok(false) } else { Err(error) })
    }

    /// Lets readers of this process see what is left.
    pub(super) fn finish(self) -> Result<Collected> {
        if self.collected.removed > 0 {
            let mut live = self.core.live();
            live.refresh()?;
            self.core.install(&mut live);
        }
        Ok(self.collected)
    }

    fn may_remove(&mut self, segment: &Segment) -> bool {
        self.is_older(FileName::Segment(segment.name()), self.grace.replaced)
    }

    fn remove_dead(&mut self, segment: &Segment) {
        if self.may_remove(segment) {
            self.remove_segment(segment.name());
        }
    }

    /// Removes a segment, unless it stands for others that are still there.
    pub(super) fn remove_segment(&mut self, name: SegmentName) {
        if !self.left.contains(&name) {
            return;
        }
        if !self.is_last(name) {
            self.collected.is_unfinished = true;
        } else if self.remove(FileName::Segment(name)) {
            self.left.remove(&name);
        }
    }

    fn remove_orphans(&mut self, listing: &Listing) {
        for random in &listing.temporary {
            let name = FileName::Temporary(*random);
            if self.folder.info(&name.to_string()).is_ok_and(|info| info.age >= self.grace.temporary) {
                self.remove(name);
            }
        }
        let runs = self.core.live().runs_leading_nowhere(&self.left);
        for run in runs.into_iter().filter(|run| listing.runs.contains(run)) {
            if self.is_older(FileName::Run(run), self.grace.replaced) {
                self.remove(FileName::Run(run));
            }
        }
    }
}
