//! Repairing one damaged file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::{Damage, DamagedFile, Repaired};
use crate::changes::{IdentityChange, map_change, tombstone_for_everything};
use crate::error::{Error, Result};
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, Storage, System};

/// Where damaged segments and stray files are moved, in the module's folder.
pub(crate) const DAMAGED: &str = "damaged";

pub(super) fn repair(dir: &Path, damage: Damage) -> Result<Repaired> {
    let storage = LocalStorage::new(dir.to_owned(), System);
    let failed = |e| Error::io("cannot repair", dir.join(&damage.file), e);
    let done = match (damage.kind, FileName::parse(&damage.file)) {
        (DamagedFile::Change, Some(FileName::Change(number @ 1..))) => {
            replace_change(&storage, number).map_err(failed)?;
            "replaced by a tombstone for everything before it"
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

/// What every reader has taken the damaged change for becomes what it says: the only name that is ever written twice.
fn replace_change(storage: &dyn Storage, number: u64) -> io::Result<()> {
    let zero = map_change(storage, FileName::Change(0))?;
    let zero = zero.and_then(|map| IdentityChange::decode(&map)).map_err(io::Error::other)?;
    let mut draft = storage.draft()?;
    draft.write_all(&tombstone_for_everything(zero.instance, number))?;
    let name = FileName::Change(number).to_string();
    if !storage.info(&name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return draft.publish(&name, true);
    }
    // Another process may give the number in this moment, or have given it: a network file system may not show it yet.
    if draft.create(&name)? { Ok(()) } else { Err(io::Error::other("it is there now: verify again")) }
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
