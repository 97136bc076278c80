//! Repairing damaged files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::lost::Losses;
use super::{Damage, DamagedFile, Repaired, verify_all};
use crate::changes::{self, IdentityChange, map_change, news_of_repairs, tombstone_for_everything};
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::live::listing::Listing;
use crate::storage::name::FileName;
use crate::storage::{DAMAGED, Storage};
use crate::sys::bytes::Random;

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
        let losses = Losses { moved: &moved, changes: &changes, killing };
        self.announce_lost(last, &losses)?;
        Ok(true)
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
    pub(super) fn create_after(&self, last: u64, bytes: impl Fn(Random, u64) -> Vec<u8>) -> Result<u64> {
        loop {
            let next = next_after(last, &self.listed()?);
            if self.create(next, &bytes)? {
                return Ok(next);
            }
        }
    }

    /// The numbers of the changes that are there.
    pub(super) fn listed(&self) -> Result<BTreeSet<u64>> {
        let failed = |error| Error::io("cannot list", self.storage.path(), error);
        Listing::read(self.storage).map(|listing| listing.changes.changes).map_err(failed)
    }

    /// Creates the change with this number; `false` if it is there.
    pub(super) fn create(&self, number: u64, bytes: impl Fn(Random, u64) -> Vec<u8>) -> Result<bool> {
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

    pub(super) fn failed(&self, file: &str, error: io::Error) -> Error {
        Error::io("cannot repair", self.storage.path().join(file), error)
    }
}

/// The first number after this one that no listed change has.
pub(super) fn next_after(last: u64, listed: &BTreeSet<u64>) -> u64 {
    (last + 1..u64::MAX).find(|number| !listed.contains(number)).unwrap_or(u64::MAX)
}

/// The random bits of the name of a segment.
pub(super) fn random(segment: &str) -> Option<Random> {
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
