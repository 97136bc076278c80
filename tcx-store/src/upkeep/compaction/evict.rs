//! Removing rows that nothing has invalidated: those that expire, and those that have to make room.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::collect::{Collection, Grace};
use crate::changes::{Dated, Doomed, bytes_of_eviction};
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::live::folder::{Kept, Live};
use crate::live::listing::Listing;
use crate::segment::Segment;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;
use crate::upkeep::eviction::EvictionOrder;

/// Nothing but the segments themselves is looked at.
const GRACE: Grace =
    Grace { replaced: Duration::ZERO, temporary: Duration::MAX, verified_bytes: 0, reads_far: false };

/// So often others may create a change first before rows that are about to go stay, until they are to go again.
const ANNOUNCED_AT_MOST: usize = 32;

/// How much is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Segments with this number of bytes, and no other: a user has confirmed them.
    Segments(u64),
    /// This number of bytes, beside what the changes take that say what goes.
    Folder(u64),
}

impl Excess {
    fn bytes(self) -> u64 {
        match self {
            Self::Segments(bytes) | Self::Folder(bytes) => bytes,
        }
    }

    /// How many bytes have to be freed by segments that have this number of names, with those of all that they were joined from.
    fn with_names(self, names: usize) -> u64 {
        match self {
            Self::Segments(bytes) => bytes,
            Self::Folder(bytes) => bytes.saturating_add(bytes_of_eviction(names)),
        }
    }
}

/// Removes segments in this order until so much is free.
///
/// # Errors
///
/// Returns an error if the folder cannot be listed, is not the one that was opened, or cannot be written.
pub(crate) fn evict(core: &Core, excess: Excess, order: EvictionOrder) -> Result<()> {
    let failed = |e: io::Error| Error::io("cannot list", core.storage.path(), e);
    let (folder, usable, served) = {
        let mut live = core.live();
        if live.changes.newest().is_none() {
            // Nothing was stored yet, and there may be no folder.
            return Ok(());
        }
        let folder = core.storage.hold().map_err(failed)?;
        live.check_instance()?;
        // Which rows are the oldest that anybody needs is not known while a change cannot be read.
        if live.changes.unread_after(0).is_some() {
            return Ok(());
        }
        // What is dead frees no room that collection does not free.
        let mut usable = live.decided();
        usable.retain(|segment| !live.is_killed(segment));
        (folder, usable, live.served())
    };
    // Without the lock: a policy may take its time, and lookups do not wait for it.
    let usable = order.of_segments(core, usable, &served, excess.bytes());
    let left = Listing::read(&*core.storage).map_err(failed)?.segments;
    let mut collection = Collection::new(core, folder, GRACE, left);
    let chosen = collection.first_that_free(excess, usable);
    collection.remove_rows(&chosen)?;
    collection.finish().map(drop)
}

/// Rows that are about to go.
pub(crate) struct Removal {
    /// The segments from which they came were born until this time, in milliseconds since 1970.
    pub(crate) until: u64,
    /// The segments that go.
    pub(crate) goes: HashSet<SegmentName>,
    /// The random bits of their names, and of those of all that they were joined from: copies of the folder may have these.
    pub(crate) lineage: HashSet<Random>,
    /// A segment that stays until another one, with fewer rows, has its name.
    pub(crate) rewritten: Option<(SegmentName, SegmentName)>,
    /// If not all rows of what goes are known: the segments that were known when rows were looked for since the first change. Another one that
    /// was joined from what goes is dead as well.
    pub(crate) known: Option<HashSet<Random>>,
}

/// Says that rows are about to go.
///
/// Another process may have joined these at any time before, and give the result its name at any time to come. By then, others may have put
/// values in the place of the rows, or invalidated what they have found, and not them. So a first change names what goes, and no process that
/// knows of it joins that; then the folder is listed, and a second change kills what goes, and what was joined before and is not there. Each follows the changes
/// that were known when the folder was listed: after those of another eviction, it is listed again.
///
/// # Errors
///
/// Returns an error if the folder cannot be listed or written, or is not the one that was opened; and one of the kind `Contended` if others
/// create changes again and again.
pub(crate) fn announce_removal(core: &Core, removal: &Removal) -> Result<()> {
    let first = announce_leaving(core, removal)?;
    kill_leaving(core, removal, first).map(drop)
}

/// The first of the two changes of [`announce_removal`]; its number.
///
/// # Errors
///
/// As [`announce_removal`].
pub(crate) fn announce_leaving(core: &Core, removal: &Removal) -> Result<u64> {
    announce(core, removal, None).map(Option::unwrap_or_default)
}

/// The second of the two changes of [`announce_removal`], after the first one with this number. Returns `false` if not all rows are known and
/// the first change is in force no more: something may have been joined from what goes since, and has to be looked at.
///
/// # Errors
///
/// As [`announce_removal`].
pub(crate) fn kill_leaving(core: &Core, removal: &Removal, first: u64) -> Result<bool> {
    announce(core, removal, Some(first)).map(|second| second.is_some())
}

/// What became of an attempt to create a change.
enum Step {
    /// It has this number.
    Created(u64),
    /// Another process was faster, whose change is known now.
    Overtaken,
    /// Another removal has ended what the first change says.
    Ended,
}

/// Creates one of the two changes, and returns its number; `None` if the second one must not be created.
fn announce(core: &Core, removal: &Removal, first: Option<u64>) -> Result<Option<u64>> {
    for _ in 0..ANNOUNCED_AT_MOST {
        // Lookups get the lock in between.
        let mut live = core.live();
        match removal.announce_next(core, &mut live, first)? {
            Step::Created(number) => return Ok(Some(number)),
            Step::Ended => return Ok(None),
            Step::Overtaken => {}
        }
    }
    let what = format!(
        "rows in {} are not removed yet: other processes change the folder again and again; try again later",
        core.storage.path().display()
    );
    Err(Error::of_kind(ErrorKind::Contended, what))
}

impl Removal {
    /// Creates the first change, or the second one if the first has this number.
    fn announce_next(&self, core: &Core, live: &mut Live, first: Option<u64>) -> Result<Step> {
        let Self { until, ref goes, ref lineage, rewritten, .. } = *self;
        let failed = |e: io::Error| Error::io("cannot write a change in", core.storage.path(), e);
        live.changes.write_pending(&*core.storage).map_err(failed)?;
        live.refresh()?;
        live.check_complete()?;
        if let Some(first) = first
            && self.known.is_some()
        {
            let goes: Vec<Random> = self.goes.iter().map(|name| name.random).collect();
            if !live.changes.tombstones().announce(first, &goes) {
                return Ok(Step::Ended);
            }
            self.check_new(core, live)?;
        }
        let mut leaving = live.changes.tombstones().leaving();
        leaving.extend(rewritten.map(|(own, _)| own.random));
        let (mut kept, mut dead) = (Kept::default(), Vec::new());
        leaving.extend(goes.iter().map(|name| name.random).chain(lineage.iter().copied()));
        if first.is_some() {
            kept = live.kept(until, goes, |own| self.keeps(own));
            kept.sure.extend(rewritten.map(|(_, next)| next.random));
            dead.extend(lineage);
        }
        let (Kept { sure, unread }, leaving) = (kept, leaving.into_iter().collect());
        let doomed = Doomed::Evicted { before: first, until, kept: sure, unread, leaving, dead };
        let created = live.changes.kill_segments(&*core.storage, &doomed);
        core.install(live);
        let number = live.changes.newest().unwrap_or(0);
        Ok(if created.map_err(failed)? { Step::Created(number) } else { Step::Overtaken })
    }

    /// What has come since rows were looked for, and cannot be read, may have been joined from what goes.
    fn check_new(&self, core: &Core, live: &Live) -> Result<()> {
        let Some(known) = &self.known else { return Ok(()) };
        let is_unread = |name: &SegmentName| {
            let is_new = !known.contains(&name.random) && !self.goes.contains(name);
            is_new && live.segments.find(*name).is_none() && !live.segments.is_gone(*name)
        };
        match live.segments.names().find(is_unread) {
            None => Ok(()),
            Some(name) => {
                let path = core.storage.path().join(name.to_string());
                let what = io::Error::other("another process has just joined or written it: try again");
                Err(Error::io("cannot read all keys of", path, what))
            }
        }
    }

    /// Whether a joined segment that is there stays.
    fn keeps(&self, segment: Dated<'_>) -> bool {
        let Some(known) = &self.known else { return true };
        let has_gone = || segment.lineage.may_have(|name| self.lineage.contains(&name));
        known.contains(&segment.name) || !has_gone()
    }
}

impl Collection<'_> {
    /// The first of these that free so much together with what they stand for.
    fn first_that_free(&self, excess: Excess, segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
        let (mut freed, mut names, mut counted) = (0, 0, HashSet::new());
        let mut is_needed = |segment: &Arc<Segment>| {
            let is_needed = freed < excess.with_names(names);
            names += segment.lineage().count();
            let new: Vec<_> =
                self.with_inputs(segment).into_iter().filter(|name| counted.insert(*name)).collect();
            let live = self.core.live();
            let own = new.into_iter().filter_map(|name| live.segments.find(name));
            freed += own.map(|own| own.bytes() as u64).sum::<u64>();
            is_needed
        };
        segments.into_iter().take_while(|segment| is_needed(segment)).collect()
    }

    /// Removes these segments, each after those it stands for.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or written, or is not the one that was opened.
    pub(super) fn remove_rows(&mut self, segments: &[Arc<Segment>]) -> Result<()> {
        let Some(until) = segments.iter().map(|segment| segment.youngest()).max() else { return Ok(()) };
        let groups: Vec<_> = segments.iter().map(|segment| self.with_inputs(segment)).collect();
        let goes: HashSet<_> = groups.iter().flatten().copied().collect();
        if goes.is_empty() {
            return Ok(());
        }
        let lineage = self.core.live().lineage(&goes);
        self.announce(&Removal { until, goes, lineage, rewritten: None, known: None })?;
        groups.into_iter().flatten().for_each(|name| self.remove_segment(name));
        Ok(())
    }

    /// Says that rows are about to go. If there is no room for the changes, index runs make room, the smallest first: they can be built again. No row
    /// goes before the changes say so.
    ///
    /// # Errors
    ///
    /// As [`announce_removal`].
    fn announce(&mut self, removal: &Removal) -> Result<()> {
        let mut runs = None;
        loop {
            match announce_removal(self.core, removal) {
                Err(error) if error.is_full() => {
                    let left = runs.get_or_insert_with(|| self.runs_by_size());
                    let Some(run) = left.pop() else { return Err(error) };
                    self.remove(FileName::Run(run));
                }
                announced => return announced,
            }
        }
    }

    /// The index runs in the folder, the largest first.
    fn runs_by_size(&self) -> Vec<Random> {
        let runs = Listing::read(&*self.core.storage).map(|listing| listing.runs).unwrap_or_default();
        let bytes =
            |run: &Random| self.folder.info(&FileName::Run(*run).to_string()).map_or(0, |own| own.bytes);
        let mut runs: Vec<Random> = runs.into_iter().collect();
        runs.sort_by_key(|run| (Reverse(bytes(run)), *run));
        runs
    }

    /// A segment that is in the folder, and those files in it that the segment stands for, each before those that stand for it.
    fn with_inputs(&self, segment: &Segment) -> Vec<SegmentName> {
        // What it stands for is all that a folder without it has of the rows, which may be younger than the oldest of them.
        if self.folder.info(&FileName::Segment(segment.name()).to_string()).is_err() {
            return Vec::new();
        }
        let find = |name| self.core.live().segments.find(name);
        let inputs_of = |name| find(name).map(|own| self.stands_for(&own).to_vec());
        let names = inputs_first(segment.name(), inputs_of).into_iter();
        names.filter(|name| self.left.contains(name)).collect()
    }
}

/// A segment and all that it stands for, each once and before those that stand for it. A file may name itself, or a circle of
/// files one another: tcx writes no such files, and they must not cause an endless loop.
fn inputs_first(
    segment: SegmentName,
    inputs_of: impl Fn(SegmentName) -> Option<Vec<SegmentName>>,
) -> Vec<SegmentName> {
    let (mut order, mut seen, mut waiting) = (Vec::new(), BTreeSet::new(), vec![(segment, false)]);
    while let Some((name, is_entered)) = waiting.pop() {
        if is_entered {
            order.push(name);
        } else if seen.insert(name)
            && let Some(inputs) = inputs_of(name)
        {
            waiting.push((name, true));
            waiting.extend(inputs.into_iter().map(|input| (input, false)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Lineage;

    #[test]
    fn what_was_joined_from_what_goes_stays_if_it_was_known() {
        let [known, new, gone] = [1, 2, 3].map(|number| Random([number; 16]));
        let removal = Removal {
            until: 0,
            goes: HashSet::new(),
            lineage: HashSet::from([gone]),
            rewritten: None,
            known: Some(HashSet::from([known])),
        };
        let keeps = |removal: &Removal, name: Random, ancestors: &[Random], has_more: bool| {
            let lineage = Lineage { inputs: &[], ancestors, has_more };
            removal.keeps(Dated { base: 0, born: 0, name, lineage })
        };
        // It may not have been read, or be replaced by another one that was.
        assert!(keeps(&removal, known, &[gone], true));
        assert!(keeps(&removal, new, &[new], false));
        assert!(!keeps(&removal, new, &[gone], false) && !keeps(&removal, new, &[], true));
        assert!(keeps(&Removal { known: None, ..removal }, new, &[gone], true), "all its rows are known");
    }

    fn order(inputs: &[&[u8]]) -> Vec<u8> {
        let name = |number: u8| SegmentName { random: Random([number; 16]), tail: 0 };
        let of = |of: SegmentName| {
            let inputs = inputs.get(usize::from(of.random.0[0]))?;
            Some(inputs.iter().map(|number| name(*number)).collect())
        };
        inputs_first(name(0), of).into_iter().map(|name| name.random.0[0]).collect()
    }

    #[test]
    fn segments_that_name_themselves_or_a_circle_as_their_inputs_come_to_an_end() {
        assert_eq!(order(&[&[0]]), [0]);
        assert_eq!(order(&[&[1], &[2], &[0]]), [2, 1, 0]);
        assert_eq!(
            order(&[&[1, 2], &[2, 9], &[]]),
            [2, 1, 0],
            "each once, those that are not here not at all"
        );
        let long: Vec<Vec<u8>> = (1..=250).map(|next| vec![next]).collect();
        let long: Vec<&[u8]> = long.iter().map(Vec::as_slice).chain([&[0][..]]).collect();
        assert_eq!(order(&long).len(), 251);
    }
}
