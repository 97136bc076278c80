//! What this process may have missed: changes that it cannot read now, and segments that no listing has shown since.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;

use super::known::{KnownChanges, ListedChanges, Needs};
use super::read::{Doubt, is_new, nonce};
use crate::storage::Storage;

impl KnownChanges {
    /// Reads the nonces of the changes of these numbers, on which segments depend, as far as they can be read; the others are let go of.
    /// The header is enough: equal nonces are no accident. Returns whether one was read.
    pub(crate) fn learn_nonces(&mut self, storage: &dyn Storage, numbers: &BTreeSet<u64>) -> bool {
        self.nonces.retain(|number, _| numbers.contains(number));
        self.unread_nonces.clear();
        let before = self.nonces.len();
        for &number in numbers.range(..self.next) {
            let Entry::Vacant(vacant) = self.nonces.entry(number) else { continue };
            match nonce(storage, number) {
                Ok(Some(nonce)) => {
                    vacant.insert(nonce);
                }
                // A part of a copy may lack the change for good, and one that is damaged stays so.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(None) if !is_new(storage, number) => {}
                _ => {
                    self.unread_nonces.insert(number);
                }
            }
        }
        self.nonces.len() > before
    }

    /// The folder was listed: every segment is found whose change was known before. Not so if the listing lacks one of these changes: it
    /// is older, or the folder was gone while it was made.
    pub(crate) fn was_listed(&mut self, listed: &ListedChanges) {
        self.is_gone &= !listed.changes.contains(&0);
        let newest = listed.changes.last().max(listed.merged.last()).copied();
        if newest >= self.newest() {
            self.unlisted = None;
        }
    }

    /// The folder is gone, perhaps for a while, and its segments with it: until a listing shows it again, rows may be there of the keys that
    /// changes name. What was made before everything was invalidated is dead.
    pub(crate) fn lose_sight(&mut self) {
        self.is_gone = self.origin.is_some();
        let first = self.tombstones.all() + 1;
        if self.next > 1 {
            self.unlisted = Some(self.unlisted.map_or(first, |unlisted| unlisted.min(first)));
        }
    }

    /// Whether the folder is known and the last listing did not show it.
    pub(crate) fn are_out_of_sight(&self) -> bool {
        self.is_gone
    }

    /// Whether a tombstone of views was found since the last listing began.
    pub(crate) fn needs_listing(&self) -> bool {
        self.unlisted.is_some()
    }

    /// The newest change that rows outlive which are computed for those that are missing now. Where the folder was not listed since a
    /// tombstone of views was found, or a change cannot be read that commits a segment of `waiting`, their replacement may be there.
    pub(crate) fn outlived(&self, waiting: impl Iterator<Item = Needs>) -> u64 {
        let unread = |base: &u64| {
            self.unread.get(base).is_some_and(Doubt::may_end) || self.unread_nonces.contains(base)
        };
        let waiting = waiting.filter(|needs| self.committed(*needs).is_none()).map(|needs| needs.base);
        let first = waiting.filter(unread).chain(self.unlisted).min();
        let newest = self.newest().unwrap_or(0);
        first.map_or(newest, |number| newest.min(number.saturating_sub(1)))
    }

    /// A change that may commit rows of a known segment and cannot be read now, if there is one.
    pub(crate) fn unread_commit(&self) -> Option<u64> {
        self.unread_nonces.first().copied()
    }
}
