//! What the writer does when no caller waits: it merges index runs and changes, joins segments, and removes reclaimable
//! files.

use std::collections::BTreeSet;
use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Run, write_merged};
use crate::leases::collect::{LEASES_STAY, remove_old};
use crate::leases::files::StoredLeases;
use crate::live::damage::DamagedFiles;
use crate::live::listing::Listing;
use crate::options::GC_GRACE;
use crate::stats::Work;
use crate::storage::TEMPORARY_FILES_STAY;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;
use crate::sys::runtime;
use crate::sys::runtime::lock;
use crate::upkeep::compaction::{Collected, Effort, Excess, Grace, collect, compact, evict};
use crate::upkeep::eviction::EvictionOrder;

/// Merges index runs until none is due; into one, if there is not too much in them, when the writer `ends`. A merge that fails costs speed and nothing else.
pub(crate) fn merge_runs(core: &Core, ends: bool) {
    loop {
        let Some(runs) = core.live().mergeable(ends) else { return };
        // Without the lock: readers go on with the runs they have, which stay mapped.
        let gone = gone_segments(core, &runs);
        let is_useless =
            |run: &Run| !run.is_intact() || run.segments().iter().all(|name| gone.contains(name));
        let useless: Vec<_> = runs.iter().filter(|run| is_useless(run)).cloned().collect();
        if !useless.is_empty() {
            core.drop_damaged(&DamagedFiles { runs: useless, ..DamagedFiles::default() });
            continue;
        }
        let gone = gone_segments(core, &runs);
        let (merged, start) = (Random::new(), Instant::now());
        let published = core.storage.draft().and_then(|mut draft| {
            write_merged(&mut draft, &runs, &|name| gone.contains(&name))?;
            if are_intact_still(core, &runs) {
                draft.publish(&FileName::Run(merged).to_string(), false).map(|()| true)
            } else {
                Ok(false)
            }
        });
        if matches!(published, Ok(false)) {
            continue;
        }
        if core.tried("merge index runs", published).is_none() {
            return;
        }
        core.took(Work::Merge, start);
        let mut live = core.live();
        let replaced = live.replace_runs(merged);
        core.install(&mut live);
        drop(live);
        if replaced.is_empty() {
            return;
        }
        for name in &replaced {
            // A run that stays is opened again by others, and found to add nothing.
            let _ = core.storage.remove(&FileName::Run(*name).to_string());
        }
        if replaced == [merged] {
            // It could not be opened, or another process was faster: the same merge would give the same.
            return;
        }
    }
}

/// Whether runs are as they were written still. The checksums of one that is made from them are those of what was read, and they are
/// removed: rows would be missing for good. Others go out of service, and are made again from their segments.
fn are_intact_still(core: &Core, runs: &[Arc<Run>]) -> bool {
    let damaged: Vec<_> = runs.iter().filter(|run| !run.is_intact_still()).cloned().collect();
    let are_intact = damaged.is_empty();
    if !are_intact {
        core.drop_damaged(&DamagedFiles { runs: damaged, ..DamagedFiles::default() });
    }
    are_intact
}

/// How often an index is written, if other processes remove each one.
const TRIMMED_AT_MOST: usize = 8;

/// Writes one run instead of those with entries of segments that are gone, without these entries.
///
/// The segment of another process whose run was published just before this, and that gets its name just after, loses that run: it
/// is made again from the segment.
///
/// Returns `false` if another process has removed that run before the larger ones were: it seemed to add nothing to them.
fn trim_runs(core: &Core, at_least: u64) -> io::Result<bool> {
    let listing = Listing::read(&*core.storage)?;
    let is_gone = |name| !listing.segments.contains(&name);
    let stale = core.live().stale_runs(&is_gone).filter(|stale| stale.frees() as u64 >= at_least);
    let Some(stale) = stale else { return Ok(true) };
    let (trimmed, start) = (Random::new(), Instant::now());
    let mut draft = core.storage.draft()?;
    write_merged(&mut draft, &stale.runs, &|name| stale.left_out.contains(&name))?;
    if !are_intact_still(core, &stale.runs) {
        return Ok(false);
    }
    let name = FileName::Run(trimmed).to_string();
    draft.publish(&name, false)?;
    core.took(Work::Merge, start);
    let mut live = core.live();
    if !live.swap_runs(&stale.runs, trimmed) {
        if core.storage.info(&name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(false);
        }
        let _ = core.storage.remove(&name);
        return Err(io::Error::other("the index run that was just written cannot be read"));
    }
    core.install(&mut live);
    drop(live);
    for run in &stale.runs {
        // A run that stays is opened again by others.
        let _ = core.storage.remove(&FileName::Run(run.name()).to_string());
    }
    Ok(true)
}

/// The segments of these runs that are neither here nor going to come: a run gets its name a moment before its segment does.
fn gone_segments(core: &Core, runs: &[Arc<Run>]) -> HashSet<SegmentName> {
    if core.storage.list_every().is_some() {
        // A listing is dear. Their entries stay until the index is trimmed.
        return HashSet::new();
    }
    let Ok(listing) = Listing::read(&*core.storage) else { return HashSet::new() };
    let is_settled = |run: &&Arc<Run>| {
        let info = core.storage.info(&FileName::Run(run.name()).to_string());
        info.is_ok_and(|info| info.age >= SEGMENTS_COME_WITHIN)
    };
    let names = runs.iter().filter(is_settled).flat_map(|run| run.segments().iter().copied());
    let live = core.live();
    names.filter(|name| !listing.segments.contains(name) && live.segments.find(*name).is_none()).collect()
}

/// Merges changes if it is worth it. What fails costs speed and nothing else: the changes themselves stay.
pub(crate) fn merge_changes(core: &Core) {
    let storage = &*core.storage;
    let Some((plan, instance)) = core.live().mergeable_changes() else { return };
    // It gets its name only in the folder that holds it: it is written before the folder is looked at.
    let merged = storage.sync().and_then(|()| {
        let draft = plan.write(storage, instance)?;
        core.live().check_instance().map_err(io::Error::other)?;
        plan.publish(draft)
    });
    let Some(number) = core.tried("merge changes", merged) else { return };
    let mut live = core.live();
    if core.tried("merge changes", live.check_instance()).is_none() {
        return;
    }
    live.adopt_merged_changes(number);
    core.install(&mut live);
    drop(live);
    let Ok(listing) = Listing::read(storage) else { return };
    for older in listing.changes.merged.range(..number) {
        // One that stays is not read again.
        let _ = storage.remove(&FileName::Merged(*older).to_string());
    }
}

/// A segment whose index run is older than this, and that is not there, does not come any more.
const SEGMENTS_COME_WITHIN: Duration = Duration::from_mins(10);

/// What is read to verify replacements while a caller waits for the end: a second or so.
const VERIFIED_AT_THE_END: u64 = 1 << 30;

impl Core {
    /// Joins segments as long as it is worth it; returns whether it did.
    ///
    /// # Errors
    ///
    /// Returns an error if a write fails; segments that were joined before stay joined.
    pub(crate) fn compact(&self, effort: Effort) -> Result<bool> {
        let _alone = lock(&self.upkeep);
        let compacted = self.compact_until_done(effort);
        lock(&self.claim).release();
        compacted
    }

    fn compact_until_done(&self, effort: Effort) -> Result<bool> {
        let (mut any, mut left_out) = (false, BTreeSet::new());
        while !self.gives_up() && compact(self, effort, &mut left_out)? {
            any = true;
        }
        Ok(any)
    }

    /// Whether this process is to join segments now. Where other machines would read the same segments over a network, one at a time
    /// does; a caller that wants it done joins them in any case.
    pub(crate) fn may_compact(&self, effort: Effort) -> bool {
        if self.storage.list_every().is_none() {
            return true;
        }
        // It is advisory: what is not known decides nothing.
        let has_claim = lock(&self.claim).take(runtime::now());
        matches!(has_claim, Ok(true)) || effort == Effort::Thorough
    }

    /// Removes files that are no longer needed and are older than `replaced`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or synced, or is not the one that was opened.
    pub(crate) fn collect(&self, replaced: Duration) -> Result<Collected> {
        self.collect_of(replaced, false)
    }

    /// As [`collect`](Self::collect). Segments on other machines are read for it where that is needed.
    ///
    /// # Errors
    ///
    /// As [`collect`](Self::collect).
    pub(crate) fn collect_everywhere(&self, replaced: Duration) -> Result<Collected> {
        self.collect_of(replaced, true)
    }

    fn collect_of(&self, replaced: Duration, reads_far: bool) -> Result<Collected> {
        let _alone = lock(&self.upkeep);
        let start = Instant::now();
        let temporary = TEMPORARY_FILES_STAY.max(replaced);
        let collected = collect(self, Grace { replaced, temporary, verified_bytes: u64::MAX, reads_far })?;
        // With the segments that they led to.
        self.remove_pruned_runs();
        remove_old(&StoredLeases::new(self.storage.clone()), LEASES_STAY.max(replaced));
        self.took(Work::Collection, start);
        Ok(collected)
    }

    /// Removes the oldest segments until they have `bytes` bytes together.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or is not the one that was opened.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        let _alone = lock(&self.upkeep);
        evict(self, Excess::Segments(bytes), EvictionOrder::OLDEST)
    }

    /// Makes the index as small as its rows need, if that frees `at_least` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or is not the one that was opened, if a write fails, or if
    /// other processes remove the smaller index again and again.
    pub(crate) fn trim_index(&self, at_least: u64) -> Result<()> {
        self.check()?;
        let _alone = lock(&self.upkeep);
        for _ in 0..TRIMMED_AT_MOST {
            {
                let mut live = self.live();
                live.refresh()?;
                self.install(&mut live);
                live.check_instance()?;
            }
            let trimmed = trim_runs(self, at_least);
            self.remove_pruned_runs();
            if trimmed.map_err(|e| Error::io("cannot rewrite the index of", self.storage.path(), e))? {
                return Ok(());
            }
        }
        let path = self.storage.path().display();
        let what = format!(
            "the index of {path} is not made smaller: other processes merge it again and again; no row is lost, and the next call tries it again"
        );
        Err(Error::of_kind(ErrorKind::Contended, what))
    }

    /// Whether background work is to be given up.
    pub(crate) fn gives_up(&self) -> bool {
        self.gives_up.load(Ordering::Relaxed)
    }

    /// What is done after every seal; everything else waits until the writer has nothing to do.
    pub(crate) fn tidy(&self) {
        self.tried("join segments", self.compact(Effort::Small));
        merge_runs(self, false);
        merge_changes(self);
        self.remove_pruned_runs();
        self.tried("keep within the limits", self.keep_within_limits());
    }

    /// Removes the runs that compaction or merging has replaced. One that stays is opened again by others, and
    /// found to add nothing.
    pub(crate) fn remove_pruned_runs(&self) {
        let pruned = self.live().take_pruned_runs();
        for run in pruned {
            let _ = self.storage.remove(&FileName::Run(run).to_string());
        }
    }

    /// What is done before the writer ends: a process that has come and gone does not leave what it has replaced.
    pub(crate) fn tidy_at_the_end(&self) {
        self.tried("join segments", self.compact(Effort::Small));
        merge_runs(self, true);
        merge_changes(self);
        self.remove_pruned_runs();
        self.tried("remove replaced files", self.collect_at_the_end());
        self.tried("keep within the limits", self.keep_within_limits());
    }

    /// The time that replaced files stay for saves other processes a listing, and never decides what is right. On a network file
    /// system it saves them failed reads, and who has asked for more of it wants the files.
    fn collect_at_the_end(&self) -> Result<()> {
        if self.gc_grace > GC_GRACE || self.storage.is_remote() {
            return Ok(());
        }
        let grace = Grace {
            replaced: Duration::ZERO,
            temporary: TEMPORARY_FILES_STAY,
            verified_bytes: VERIFIED_AT_THE_END,
            reads_far: false,
        };
        let _alone = lock(&self.upkeep);
        collect(self, grace).map(drop)
    }

    /// Removes what was replaced long ago, while rows are sealed all the time.
    pub(crate) fn collect_old(&self, gc_grace: Duration) {
        self.tried("remove replaced files", self.collect(gc_grace));
    }

    /// What is done when the writer has nothing to do; returns whether something is left for later.
    pub(crate) fn tidy_thoroughly(&self, gc_grace: Duration) -> bool {
        self.tried("join segments", self.compact(Effort::Steady));
        merge_runs(self, false);
        merge_changes(self);
        self.remove_pruned_runs();
        let collected = self.tried("remove replaced files", self.collect(gc_grace));
        self.tried("keep within the limits", self.keep_within_limits());
        let is_unfinished = collected.is_some_and(|collected| collected.is_unfinished);
        is_unfinished || self.snapshot().expires.is_some()
    }

    /// What fails here is done another time.
    fn tried<T, E: Display>(&self, action: &'static str, done: Result<T, E>) -> Option<T> {
        self.failing.note(action, self.storage.path(), done)
    }
}
