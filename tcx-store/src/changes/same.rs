//! Whether the folder is still the one that this process knows: a mount may have been lost, and another folder, or an older
//! copy of this one, have come in its place.

use std::io::{self, ErrorKind};

use super::identity::IdentityChange;
use super::known::KnownChanges;
use super::read::{Doubt, is_of_another_version, map, nonce, read};
use super::repaired::how_to_repair;
use super::table::TombstoneTable;
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

/// Change 0, as a folder is known by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) instance: Random,
    pub(crate) nonce: Random,
}

/// The newest change of which this process knows the nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) number: u64,
    pub(super) nonce: Random,
}

/// What a look at the folder says of what this process knows.
#[derive(Debug)]
pub(crate) enum Compared {
    /// Change 0 and the newest known change are those that this process has read.
    Same,
    /// This process has read the newest change before it was damaged; a repair has put this in its place.
    Repaired(Box<TombstoneTable>),
    /// It is empty, or gone.
    Removed,
    /// Its change 0 is another.
    OtherOrigin,
    /// It has the same change 0, and another change under this number, or none.
    OtherChange(u64),
    /// This change cannot be read now: it may be the same.
    Unread(u64, io::Error),
}

impl Compared {
    /// Whether the folder is the same, for the steps of a write: what else it is, the next look at the folder says in full.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is another one, or if the comparison is impossible now.
    pub(crate) fn confirmed(self) -> io::Result<()> {
        let other = |what: String| Err(io::Error::other(what));
        match self {
            Self::Same => Ok(()),
            Self::Removed => Err(io::Error::new(ErrorKind::NotFound, "the folder is empty or gone")),
            Self::OtherOrigin => other("another folder has taken its place".to_owned()),
            Self::OtherChange(number) => other(format!("its change {number} is not the one read before")),
            Self::Repaired(table) => {
                other(format!("its change {} was just repaired: try again", table.number))
            }
            Self::Unread(number, error) => other(format!("its change {number} cannot be read: {error}")),
        }
    }
}

/// The nonce of the change that a repair puts in the place of a damaged change: a process that knew the change before recognises
/// by it that the folder is the same.
pub(crate) fn repair_nonce(instance: Random, number: u64) -> Random {
    derived_nonce(b"tcx repair", instance, number)
}

/// A nonce for a change by which processes learn that changes before it were repaired. Only a half of it is derived: such a change in an
/// older copy of the folder, of other changes, is another one.
pub(super) fn repairs_nonce(instance: Random, number: u64) -> Random {
    half_derived_nonce(b"tcx repairs", instance, number)
}

/// A nonce for a change that comes before the first one is repaired. A repair that is interrupted after it is found by it.
pub(super) fn begun_nonce(instance: Random, number: u64) -> Random {
    half_derived_nonce(b"tcx repair begins", instance, number)
}

/// Whether a change with this nonce says that a repair has begun.
pub(super) fn says_begun(nonce: Random, instance: Random, number: u64) -> bool {
    nonce.0[..8] == derived_nonce(b"tcx repair begins", instance, number).0[..8]
}

/// Whether a change with this nonce says that changes before it were repaired.
pub(super) fn says_repairs(nonce: Random, instance: Random, number: u64) -> bool {
    nonce.0[..8] == derived_nonce(b"tcx repairs", instance, number).0[..8]
}

fn half_derived_nonce(what: &[u8], instance: Random, number: u64) -> Random {
    let mut nonce = Random::new();
    nonce.0[..8].copy_from_slice(&derived_nonce(what, instance, number).0[..8]);
    nonce
}

fn derived_nonce(what: &[u8], instance: Random, number: u64) -> Random {
    let mut hasher = blake3::Hasher::new();
    hasher.update(what).update(&instance.0).update(&number.to_le_bytes());
    let mut nonce = [0; 16];
    hasher.finalize_xof().fill(&mut nonce);
    Random(nonce)
}

impl KnownChanges {
    /// Whether the folder is known by another change than before.
    pub(crate) fn has_another_anchor(&self, before: &Self) -> bool {
        self.anchor != before.anchor
    }

    /// Compares change 0 and the newest known change with what is in the folder now.
    pub(crate) fn compare(&self, storage: &dyn Storage) -> Compared {
        let Some(origin) = self.origin else { return Compared::Same };
        match nonce(storage, 0) {
            Ok(Some(found)) if found == origin.nonce => {}
            Ok(Some(_)) => match read_origin(storage) {
                Ok(Ok(found)) if found == origin => {}
                Ok(Ok(_)) => return Compared::OtherOrigin,
                Ok(Err(_)) => return Compared::Unread(0, ErrorKind::InvalidData.into()),
                Err(error) => return Compared::Unread(0, error),
            },
            // It is not what was written, and says nothing of the folder.
            Ok(None) => return Compared::Unread(0, ErrorKind::InvalidData.into()),
            // A listing that fails as well says nothing: the mount may be lost for a while.
            Err(error) => {
                return match listed(storage) {
                    Some(names) if names.is_empty() => Compared::Removed,
                    _ => Compared::Unread(0, error),
                };
            }
        }
        let anchored = self.anchor.map_or(Compared::Same, |anchor| anchor.compare(storage, origin));
        // The nonce of a change that is unreadable, or known by a merged file alone, is not known. Its number says enough of a copy
        // that was made before it.
        let anchor = self.anchor.map_or(0, |anchor| anchor.number);
        match (anchored, self.newest().filter(|number| *number > anchor)) {
            (Compared::Same, Some(number)) => match self.unread.get(&number) {
                Some(doubt) => compare_unread(storage, number, doubt, origin),
                None => compare_merged(storage, number),
            },
            (compared, _) => compared,
        }
    }
}

/// By what the folder is known, of the whole of change 0: another one would be refused for good. Or what is wrong with its bytes.
///
/// # Errors
///
/// Returns an error if it cannot be read.
fn read_origin(storage: &dyn Storage) -> io::Result<Result<Origin, String>> {
    let map = map(storage, FileName::Change(0))?;
    let change = map.and_then(|map| IdentityChange::decode(&map));
    Ok(change.map(|change| Origin { instance: change.instance, nonce: change.nonce }))
}

/// Whether the change of this number that could not be read is in the folder, as far as its length and time show. Another file would
/// be taken for that change: it would not kill the rows that were looked up before it was made.
fn compare_unread(storage: &dyn Storage, number: u64, doubt: &Doubt, origin: Origin) -> Compared {
    match storage.info(&FileName::Change(number).to_string()) {
        Ok(info) if doubt.is_of(&info) => Compared::Same,
        Ok(info) => match nonce(storage, number) {
            Ok(found) if found == Some(repair_nonce(origin.instance, number)) => Compared::Same,
            // A copy that is under way looks different each time.
            Ok(_) if doubt.has_grown(storage, number, &info) => Compared::Same,
            Ok(_) => Compared::OtherChange(number),
            Err(error) => Compared::Unread(number, error),
        },
        Err(error) => absent(storage, number, error),
    }
}

/// Whether a change of this number is in the folder.
fn compare_number(storage: &dyn Storage, number: u64) -> Compared {
    match storage.info(&FileName::Change(number).to_string()) {
        Ok(_) => Compared::Same,
        Err(error) => absent(storage, number, error),
    }
}

/// The change could not be found, for this reason.
fn absent(storage: &dyn Storage, number: u64, error: io::Error) -> Compared {
    if error.kind() == ErrorKind::NotFound {
        return missing(storage, number, error);
    }
    Compared::Unread(number, error)
}

/// Whether a change of this number is in the folder, or one that it was merged into: that is all there is of it in a part of a copy.
fn compare_merged(storage: &dyn Storage, number: u64) -> Compared {
    if storage.info(&FileName::Merged(number).to_string()).is_ok() {
        return Compared::Same;
    }
    let compared = compare_number(storage, number);
    if !matches!(compared, Compared::OtherChange(_)) {
        return compared;
    }
    let is_later = |name: &FileName| matches!(name, FileName::Merged(merged) if *merged > number);
    match listed(storage) {
        Some(names) if names.iter().any(is_later) => Compared::Same,
        Some(_) => compared,
        None => Compared::Unread(number, ErrorKind::NotFound.into()),
    }
}

impl Anchor {
    fn compare(&self, storage: &dyn Storage, origin: Origin) -> Compared {
        let number = self.number;
        match nonce(storage, number) {
            Ok(found) if found == Some(self.nonce) => Compared::Same,
            Ok(_) => self.compare_other(storage, origin),
            Err(error) if error.kind() == ErrorKind::NotFound => missing(storage, number, error),
            Err(error) => Compared::Unread(number, error),
        }
    }

    /// Another file has the name of the change.
    fn compare_other(&self, storage: &dyn Storage, origin: Origin) -> Compared {
        let number = self.number;
        match read(storage, number) {
            // What was read first was misread.
            Ok(Some(table)) if table.nonce == self.nonce => Compared::Same,
            Ok(Some(table)) if table.nonce == repair_nonce(origin.instance, number) => {
                Compared::Repaired(Box::new(table))
            }
            Ok(Some(_)) => Compared::OtherChange(number),
            Ok(None) => Compared::Unread(number, ErrorKind::NotFound.into()),
            Err((Doubt::Failed(_), what)) => Compared::Unread(number, io::Error::other(what)),
            // What this process has read was of a version that it knows.
            Err((Doubt::Damaged(_), _)) if is_of_another_version(storage, FileName::Change(number)) => {
                Compared::OtherChange(number)
            }
            Err((Doubt::Damaged(_), what)) => {
                let what = format!("it is damaged, {what}: {}", how_to_repair(storage));
                Compared::Unread(number, io::Error::new(ErrorKind::InvalidData, what))
            }
        }
    }
}

/// The change cannot be found by its name. A listing confirms it: a file system may fail for a moment.
fn missing(storage: &dyn Storage, number: u64, error: io::Error) -> Compared {
    let Some(names) = listed(storage) else { return Compared::Unread(number, error) };
    if names.is_empty() {
        return Compared::Removed;
    }
    let has = |number| names.contains(&FileName::Change(number));
    if has(0) && !has(number) {
        return Compared::OtherChange(number);
    }
    Compared::Unread(number, error)
}

/// The files of tcx in the folder; `None` if it cannot be listed. Folders in it say nothing: that of the sessions, or of
/// damaged segments, stays if a user removes all files.
pub(super) fn listed(storage: &dyn Storage) -> Option<Vec<FileName>> {
    Some(storage.list().ok()?.iter().filter_map(|name| FileName::parse(name)).collect())
}
