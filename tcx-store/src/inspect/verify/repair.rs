//! Repairing damaged files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::{Damage, DamagedFile, Repaired, verify_all};
use crate::changes::{
    self, IdentityChange, Lost, announcement_of_lost, begin_of_repair, map_change, news_of_repairs,
    tombstone_for_everything,
};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{Inspected, Inspection};
use crate::live::listing::Listing;
use crate::segment::Segment;
use crate::storage::name::FileName;
use crate::storage::{DAMAGED, Storage};
use crate::sys::bytes::Random;

/// How often what is lost is announced, and how often the second of its changes is tried, if other processes are faster.
const ANNOUNCED_AT_MOST: usize = 32;

/// A folder that is repaired.
pub(crate) struct Repair<'a> {
    pub(crate) storage: &'a dyn Storage,
    /// Looks at the folder as it is now.
    pub(crate) look: &'a dyn Fn() -> Result<Inspection>,
}

impl Repair<'_> {
    /// Verifies again, and repairs those of these files that are still found to be damaged; returns what was done to each.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be verified, or a repair not be written.
    pub(crate) fn run(&self, found: &[Damage], progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Repaired>> {
        let again = verify_all(&(self.look)()?, progress)?.damage;
        let is_found = |damage: &&Damage| found.iter().any(|first| first.file == damage.file);
        let twice: Vec<Damage> = again.iter().filter(is_found).cloned().collect();
        let merged = self.as_merged_say(&twice)?;
        let is_announced = self.begin(&again, &twice, &merged)?;
        // Rows go when other processes can know it. What cannot be announced now is repaired another time.
        let is_derived = |damage: &Damage| {
            matches!(damage.kind, DamagedFile::Run | DamagedFile::Merged | DamagedFile::Stray)
        };
        let due = twice.iter().filter(|damage| is_announced || is_derived(damage));
        let repaired = due.map(|damage| self.repair(damage.clone(), &merged)).collect::<Result<_>>()?;
        self.announce(&again, &twice)?;
        Ok(repaired)
    }

    /// Before the first damaged change is replaced, a new one says that a repair has begun: one that is interrupted is found by it. It kills
    /// the rows that tombstones for everything kill, so that they die for every process as they do by any change. A process that goes by such
    /// a tombstone could put values while another, which has read the damaged change before, joins the rows that these replace.
    ///
    /// A process may also have joined rows that are lost, and give the result its name later. So what is lost is announced in two changes, as
    /// [what is evicted](crate::live::folder). A process that cannot read a damaged change may seal rows that are lost until it can, and others
    /// may join these. So the first change kills them as well, for who knows it, and what others have joined by then is looked for after it.
    ///
    /// Returns whether it was announced: no number is given while one may be that is damaged, and not repaired now.
    fn begin(
        &self,
        damaged: &[Damage],
        repaired: &[Damage],
        merged: &BTreeMap<u64, Vec<u8>>,
    ) -> Result<bool> {
        let changes = changes(repaired, &[DamagedFile::Change]);
        let killing = changes.iter().rfind(|number| !merged.contains_key(*number)).copied().unwrap_or(0);
        let Some(last) = last_repaired(damaged, repaired) else { return Ok(false) };
        let moved = repaired.iter().filter(|damage| damage.kind == DamagedFile::Segment);
        let moved: BTreeSet<Random> = moved.filter_map(|damage| random(&damage.file)).collect();
        if moved.is_empty() && changes.is_empty() {
            return Ok(true);
        }
        self.announce_lost(last, killing, &changes, &moved)?;
        Ok(true)
    }

    /// Creates the new changes, after change `last`, that say what is lost: the rows of segments that are `moved` away, those before change
    /// `killing`, and those that any of these changes has committed.
    fn announce_lost(
        &self,
        last: u64,
        killing: u64,
        changes: &BTreeSet<u64>,
        moved: &BTreeSet<Random>,
    ) -> Result<()> {
        let is_lost = |segment: &Segment| {
            let needs = segment.needs();
            needs.base < killing || needs.commit.is_some() && changes.contains(&needs.base)
        };
        let killed = (!changes.is_empty()).then_some(killing);
        let first_look = (self.look)()?;
        for attempt in 0..ANNOUNCED_AT_MOST {
            let folder = if attempt == 0 { &first_look } else { &(self.look)()? };
            let leaving: Vec<Random> = lost(folder, moved, &is_lost).into_iter().collect();
            let doubtful = if changes.is_empty() { Vec::new() } else { unread(folder, moved) };
            if killing == 0 && leaving.is_empty() && doubtful.is_empty() {
                let only = |instance, number| begin_of_repair(instance, number, killed, None);
                return self.create_after(last, only).map(drop);
            }
            let first = |_, number| announcement_of_lost(number, killing, &leaving, &doubtful);
            let before = self.create_after(last, first)?;
            let mut announced = Lost { names: leaving, doubtful, before, there: Vec::new() };
            if self.kill_lost(&first_look, &mut announced, &is_lost, killed)? {
                return Ok(());
            }
        }
        Err(self.overtaken())
    }

    /// Creates the second change, once the first has `announced` what is lost. It follows the changes that were known when the folder was
    /// listed for it: after the second change of another removal, what a joined segment stands for may be gone that is not in
    /// that list. Returns `false` if such a removal has ended what the first change says: then all begins again.
    fn kill_lost(
        &self,
        first_look: &Inspection,
        announced: &mut Lost,
        is_lost: &dyn Fn(&Segment) -> bool,
        killed: Option<u64>,
    ) -> Result<bool> {
        let leaving = announced.names.clone();
        let first = [&*leaving, &announced.doubtful].concat();
        for _ in 0..ANNOUNCED_AT_MOST {
            // Before the look: no change that it does not know has this number.
            let listed = self.listed()?;
            let next = next_after(announced.before, &listed);
            let later = (self.look)()?;
            // As long as a change is missing, no process goes by those after it.
            let expected = later.newest_change() + 1;
            let is_stopped = expected < announced.before && !listed.contains(&expected);
            if !is_stopped && later.changes.is_unread_after(announced.before) {
                let what = io::Error::other("a newer change cannot be read now: verify again");
                return Err(self.failed(&FileName::Change(announced.before).to_string(), what));
            }
            if !is_stopped && !later.changes.tombstones().announce(announced.before, &first) {
                return Ok(false);
            }
            let of_changes: BTreeSet<Random> = lineage(&later, is_lost).collect();
            let mut there = stay(first_look, &later, &of_changes);
            let names: BTreeSet<Random> = of_changes.into_iter().chain(leaving.iter().copied()).collect();
            there.retain(|name| !names.contains(name));
            [announced.names, announced.there] = [names, there].map(|names| names.into_iter().collect());
            let second = |instance, number| begin_of_repair(instance, number, killed, Some(&*announced));
            if self.create(next, second)? {
                return Ok(true);
            }
        }
        Err(self.overtaken())
    }

    fn overtaken(&self) -> Error {
        let what = format!(
            "what is damaged in {} is not repaired yet: other processes change the folder again and again; try again later",
            self.storage.path().display()
        );
        Error::of_kind(ErrorKind::Contended, what)
    }

    /// Processes that have read a change and later ones do not look at it again, and go on serving rows that it has committed. So after
    /// changes were repaired, a new one makes them look.
    fn announce(&self, damaged: &[Damage], repaired: &[Damage]) -> Result<()> {
        match last_repaired(damaged, repaired) {
            Some(last) if last > 0 => self.create_after(last, news_of_repairs).map(drop),
            _ => Ok(()),
        }
    }

    /// What merged changes say of the damaged ones.
    fn as_merged_say(&self, damaged: &[Damage]) -> Result<BTreeMap<u64, Vec<u8>>> {
        let mut numbers = changes(damaged, &[DamagedFile::Change]);
        numbers.remove(&0);
        let Some(first) = numbers.first() else { return Ok(BTreeMap::new()) };
        let said = instance(self.storage)
            .and_then(|instance| changes::as_merged_say(self.storage, instance, &numbers));
        said.map_err(|error| self.failed(&FileName::Change(*first).to_string(), error))
    }

    /// Creates the next change after this one, and returns its number.
    fn create_after(&self, last: u64, bytes: impl Fn(Random, u64) -> Vec<u8>) -> Result<u64> {
        loop {
            let next = next_after(last, &self.listed()?);
            if self.create(next, &bytes)? {
                return Ok(next);
            }
        }
    }

    /// The numbers of the changes that are there.
    fn listed(&self) -> Result<BTreeSet<u64>> {
        let failed = |error| Error::io("cannot list", self.storage.path(), error);
        Listing::read(self.storage).map(|listing| listing.changes.changes).map_err(failed)
    }

    /// Creates the change with this number; `false` if it is there.
    fn create(&self, number: u64, bytes: impl Fn(Random, u64) -> Vec<u8>) -> Result<bool> {
        let name = FileName::Change(number).to_string();
        let create = || {
            let instance = instance(self.storage)?;
            // As before any change: no number is given twice, or left behind a gap.
            self.storage.sync()?;
            self.storage.create_if_absent(&name, &bytes(instance, number))
        };
        create().map_err(|error| self.failed(&name, error))
    }

    /// Repairs a file; `merged` has what merged changes say of damaged ones.
    fn repair(&self, damage: Damage, merged: &BTreeMap<u64, Vec<u8>>) -> Result<Repaired> {
        let failed = |error| self.failed(&damage.file, error);
        let done = match (damage.kind, FileName::parse(&damage.file)) {
            (DamagedFile::Change, Some(FileName::Change(number @ 1..))) => {
                let merged = merged.get(&number).map(Vec::as_slice);
                replace_change(self.storage, number, merged).map_err(failed)?.to_owned()
            }
            // By a change that comes after all others.
            (DamagedFile::UnfinishedRepair, _) => "its repair is announced to running processes".to_owned(),
            (DamagedFile::Segment | DamagedFile::Stray, _) => match self.storage.set_aside(&damage.file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    "removed by another process".to_owned()
                }
                moved => moved.map(|()| format!("moved into `{DAMAGED}`")).map_err(failed)?,
            },
            (DamagedFile::Run | DamagedFile::Merged, _) => {
                self.storage.remove(&damage.file).map_err(failed)?;
                "removed: it is rebuilt when it is needed".to_owned()
            }
            (DamagedFile::Change, _) => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        Ok(Repaired { damage, done })
    }

    fn failed(&self, file: &str, error: io::Error) -> Error {
        Error::io("cannot repair", self.storage.path().join(file), error)
    }
}

/// The first number after this one that no listed change has.
fn next_after(last: u64, listed: &BTreeSet<u64>) -> u64 {
    (last + 1..u64::MAX).find(|number| !listed.contains(number)).unwrap_or(u64::MAX)
}

/// The segments whose rows are lost by a repair: their random bits, and those of what they were joined from.
fn lost(
    folder: &Inspection,
    moved: &BTreeSet<Random>,
    is_lost: &dyn Fn(&Segment) -> bool,
) -> BTreeSet<Random> {
    // If one that is moved away was joined from segments that are still here, these live again.
    let stays: BTreeSet<Random> = folder.segments().filter_map(|own| random(&own.name)).collect();
    let is_moved = |own: &Segment| !is_lost(own) && moved.contains(&own.name().random);
    let of_moved = lineage(folder, &is_moved).filter(|name| !stays.contains(name));
    lineage(folder, is_lost).chain(of_moved).chain(moved.iter().copied()).collect()
}

/// The random bits of the names of these segments, and of those that they were joined from.
fn lineage<'a>(
    folder: &'a Inspection,
    is_one: &'a dyn Fn(&Segment) -> bool,
) -> impl Iterator<Item = Random> + 'a {
    let opened = folder.segments.iter().filter_map(|own| own.segment.as_deref());
    opened.filter(|segment| is_one(segment)).flat_map(Segment::lineage)
}

/// The segments that cannot be read, and whose rows may be lost: their random bits.
fn unread(folder: &Inspection, moved: &BTreeSet<Random>) -> Vec<Random> {
    let hides = folder.segments.iter().filter(|own| own.segment.is_none() && own.facts.state.hides_rows());
    let names = hides.filter_map(|own| random(&own.facts.name));
    names.filter(|name| !moved.contains(name)).collect()
}

/// The segments that are there now and stay, whatever they were joined from. Not those that have come since the first look and were joined
/// from lost ones: by the time of the first change, rows may have been put in the place of these.
fn stay(first: &Inspection, later: &Inspection, lost: &BTreeSet<Random>) -> BTreeSet<Random> {
    let before: BTreeSet<Random> = first.segments().filter_map(|own| random(&own.name)).collect();
    let is_joined_from_lost = |own: &Inspected| {
        own.segment.as_ref().is_some_and(|own| own.lineage().any(|name| lost.contains(&name)))
    };
    let named = later.segments.iter().filter_map(|own| Some((random(&own.facts.name)?, own)));
    named
        .filter(|(name, own)| before.contains(name) || !is_joined_from_lost(own))
        .map(|(name, _)| name)
        .collect()
}

/// The random bits of the name of a segment.
fn random(segment: &str) -> Option<Random> {
    match FileName::parse(segment) {
        Some(FileName::Segment(name)) => Some(name.random),
        _ => None,
    }
}

/// Damage whose repair has to be announced to processes that have read the change before it.
const ANNOUNCED: [DamagedFile; 2] = [DamagedFile::Change, DamagedFile::UnfinishedRepair];

/// The numbers of the changes among these whose damage is of such a kind.
fn changes(damage: &[Damage], kinds: &[DamagedFile]) -> BTreeSet<u64> {
    let changes = damage.iter().filter(|damage| kinds.contains(&damage.kind));
    let number = |damage: &Damage| match FileName::parse(&damage.file)? {
        FileName::Change(number) => Some(number),
        _ => None,
    };
    changes.filter_map(number).collect()
}

/// The newest change that is repaired, 0 without one. `None` if a later one is damaged or missing, and not repaired now: as long as it is, the
/// number of the next change may have been given. Repairing that one says enough of those before it.
fn last_repaired(damaged: &[Damage], repaired: &[Damage]) -> Option<u64> {
    let [damaged, repaired] = [damaged, repaired].map(|damage| changes(damage, &ANNOUNCED).pop_last());
    (damaged == repaired).then_some(repaired.unwrap_or(0))
}

/// The instance of the folder.
fn instance(storage: &dyn Storage) -> io::Result<Random> {
    let zero = map_change(storage, FileName::Change(0))?;
    zero.and_then(|map| IdentityChange::decode(&map)).map(|zero| zero.instance).map_err(io::Error::other)
}

/// What every reader has taken the damaged change for becomes what it says, or what merged changes say of it: the only name that is ever
/// written twice. Returns what was done, in words.
fn replace_change(storage: &dyn Storage, number: u64, merged: Option<&[u8]>) -> io::Result<&'static str> {
    let mut draft = storage.draft()?;
    let done = if let Some(bytes) = merged {
        draft.write_all(bytes)?;
        "replaced by what merged changes say of it"
    } else {
        draft.write_all(&tombstone_for_everything(instance(storage)?, number))?;
        "replaced by a tombstone for everything before it"
    };
    let name = FileName::Change(number).to_string();
    if !storage.info(&name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return draft.publish(&name, true).map(|()| done);
    }
    // Another process may give the number in this moment, or have given it: a network file system may not show it yet.
    if draft.create(&name)? { Ok(done) } else { Err(io::Error::other("it is there now: verify again")) }
}
