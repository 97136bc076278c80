//! Rows that are durable on a machine, and may not be in the store.

use super::folder::Folder;
use crate::changes::{Compared, KnownChanges};
use crate::storage::Storage;
use crate::storage::memory::MemoryStorage;
use crate::sys::bytes::Random;

/// Rows of a session that are durable on a machine.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) machine: usize,
    pub(super) session: usize,
    pub(super) rows: Vec<usize>,
    /// Of the module that was in place then.
    pub(super) instance: Option<Random>,
    /// What the process knew then.
    pub(super) changes: KnownChanges,
}

impl Kept {
    /// Whether the store takes the rows once they are sent: it has the changes that they were sealed after. What was sealed for a module that
    /// was removed, or after a change that an older copy of the module does not have, waits.
    pub(super) fn is_of(&self, folder: &Folder) -> bool {
        let is_same = self.instance.is_some() && self.instance == folder.instance();
        is_same && matches!(self.changes.compare(&changes_of(folder)), Compared::Same | Compared::Repaired(_))
    }
}

/// The changes of the module in place.
fn changes_of(folder: &Folder) -> MemoryStorage {
    let storage = MemoryStorage::root();
    storage.make().unwrap();
    let state = folder.state();
    let is_change = |name: &str| name.starts_with("change-") || name.starts_with("merged-");
    for (name, file) in state.files.iter().filter(|(name, _)| is_change(name)) {
        let mut draft = storage.draft().unwrap();
        draft.write_all(&file.bytes).unwrap();
        draft.publish(name, false).unwrap();
    }
    drop(state);
    storage
}
