//! Repairing one damaged file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::{Damage, DamagedFile, Repaired};
use crate::changes::{IdentityChange, as_merged_say, map_change, news_of_repairs, tombstone_for_everything};
use crate::error::{Error, Result};
use crate::live::listing::Listing;
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, Storage, System};
use crate::sys::bytes::Random;

/// Where damaged segments and stray files are moved, in the module's folder.
pub(crate) const DAMAGED: &str = "damaged";

/// Processes that have read a change and later ones do not look at it again: they would go on serving rows that others take for dead, and
/// join and merge them. So after changes were repaired, a new one makes them look. Even if the last of those repaired was the newest:
/// another process may have made the next one in this moment.
///
/// `damaged` are all changes that were damaged or missing, also those that are not repaired now: as long as a later one is, the number of
/// the next change may have been given. Repairing that one says enough of those before it.
pub(super) fn announce(dir: &Path, damaged: &[Damage], repaired: &[Damage]) -> Result<()> {
    let last = |damage: &[Damage]| {
        let changes = damage.iter().filter(|damage| damage.kind == DamagedFile::Change);
        let number = |damage: &Damage| match FileName::parse(&damage.file)? {
            FileName::Change(number) => Some(number),
            _ => None,
        };
        changes.filter_map(number).max()
    };
    let Some(number) = last(repaired).filter(|number| last(damaged) == Some(*number)) else { return Ok(()) };
    let name = FileName::Change(number).to_string();
    let storage = LocalStorage::new(dir.to_owned(), System);
    create_after(&storage, number).map_err(|e| Error::io("cannot repair", dir.join(name), e))
}

/// Creates the next change, by which processes learn of repairs up to this one.
fn create_after(storage: &dyn Storage, repaired: u64) -> io::Result<()> {
    let instance = instance(storage)?;
    loop {
        let listed = Listing::read(storage)?.changes.changes;
        let next = (repaired + 1..u64::MAX).find(|number| !listed.contains(number)).unwrap_or(u64::MAX);
        // As before any change: no number is given twice, or left behind a gap.
        storage.sync()?;
        if storage.create_if_absent(&FileName::Change(next).to_string(), &news_of_repairs(instance, next))? {
            return Ok(());
        }
    }
}

/// The instance of the folder.
fn instance(storage: &dyn Storage) -> io::Result<Random> {
    let zero = map_change(storage, FileName::Change(0))?;
    zero.and_then(|map| IdentityChange::decode(&map)).map(|zero| zero.instance).map_err(io::Error::other)
}

pub(super) fn repair(dir: &Path, damage: Damage) -> Result<Repaired> {
    let storage = LocalStorage::new(dir.to_owned(), System);
    let failed = |e| Error::io("cannot repair", dir.join(&damage.file), e);
    let done = match (damage.kind, FileName::parse(&damage.file)) {
        (DamagedFile::Change, Some(FileName::Change(number @ 1..))) => {
            replace_change(&storage, number).map_err(failed)?
        }
        (DamagedFile::Segment | DamagedFile::Stray, _) => {
            move_aside(dir, &damage.file).map_err(failed)?;
            "moved into `damaged`"
        }
        (DamagedFile::Run | DamagedFile::Merged, _) => {
            storage.remove(&damage.file).map_err(failed)?;
            "removed: it is rebuilt when it is needed"
        }
        (DamagedFile::Change, _) => return Err(failed(io::ErrorKind::Unsupported.into())),
    };
    Ok(Repaired { damage, done: done.to_owned() })
}

/// What every reader has taken the damaged change for becomes what it says, or what merged changes say of it: the only name that is ever
/// written twice. Returns what was done, in words.
fn replace_change(storage: &dyn Storage, number: u64) -> io::Result<&'static str> {
    let instance = instance(storage)?;
    let (bytes, done) = match as_merged_say(storage, instance, number)? {
        Some(bytes) => (bytes, "replaced by what merged changes say of it"),
        None => {
            (tombstone_for_everything(instance, number), "replaced by a tombstone for everything before it")
        }
    };
    let mut draft = storage.draft()?;
    draft.write_all(&bytes)?;
    let name = FileName::Change(number).to_string();
    if !storage.info(&name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return draft.publish(&name, true).map(|()| done);
    }
    // Another process may give the number in this moment, or have given it: a network file system may not show it yet.
    if draft.create(&name)? { Ok(done) } else { Err(io::Error::other("it is there now: verify again")) }
}

fn move_aside(dir: &Path, name: &str) -> io::Result<()> {
    let damaged = dir.join(DAMAGED);
    match fs::create_dir(&damaged) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !fs::symlink_metadata(&damaged)?.is_dir() {
        return Err(io::Error::other("`damaged` is not a folder: move it away"));
    }
    fs::rename(dir.join(name), damaged.join(name))?;
    // In this order the segment is somewhere after a power loss.
    File::open(&damaged)?.sync_all()?;
    File::open(dir)?.sync_all()
}
