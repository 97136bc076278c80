//! What this process may have missed: changes that it cannot read now, and segments that no listing has shown since.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::time::Instant;

use super::known::{KnownChanges, ListedChanges, Needs};
use super::read::{Doubt, may_be_sound_later, nonce, read};
use crate::storage::Storage;
use crate::sys::bytes::Random;
use crate::sys::runtime;

impl KnownChanges {
    /// Learns the nonces of the changes on which segments depend, as far as they can be read; the others are let go of. `commits` has the
    /// numbers of the changes, each with the nonce that commits the segment. Returns whether one was learned.
    pub(crate) fn learn_nonces(&mut self, storage: &dyn Storage, commits: &BTreeSet<(u64, Random)>) -> bool {
        self.nonces.retain(|number, _| commits.iter().any(|(own, _)| own == number));
        let unread = std::mem::take(&mut self.unread_nonces);
        let before = self.nonces.len();
        for &(number, commit) in commits.range(..(self.next, Random([0; 16]))) {
            let Entry::Vacant(vacant) = self.nonces.entry(number) else { continue };
            match commit_nonce(storage, number, commit) {
                Ok(Some(nonce)) => {
                    vacant.insert(nonce);
                }
                // A part of a copy may lack the change for good.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => {
                    let since = unread.get(&number).copied().unwrap_or_else(runtime::now);
                    // What is damaged stays so.
                    if found.is_err() || may_be_sound_later(storage, number, since) {
                        self.unread_nonces.insert(number, since);
                    }
                }
            }
        }
        self.unread_nonces.retain(|number, _| !self.nonces.contains_key(number));
        self.nonces.len() > before
    }

    /// The folder was listed: every segment is found whose change was known before. Not so if the listing lacks one of these changes: it
    /// is older, or the folder was gone while it was made.
    pub(crate) fn was_listed(&mut self, listed: &ListedChanges) {
        self.is_gone &= !listed.changes.contains(&0);
        let newest = listed.changes.last().max(listed.merged.last()).copied();
        if newest >= self.newest() {
            self.unlisted = None;
            self.has_unlisted_rows = false;
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

    /// Whether a change was found since the last listing began, and segments may be there that belong to it.
    pub(crate) fn needs_listing(&self) -> bool {
        self.unlisted.is_some()
    }

    /// Whether a change was found since the last listing began that names dead segments: others may have their rows.
    pub(crate) fn may_lack_rows(&self) -> bool {
        self.has_unlisted_rows
    }

    /// The newest change that rows outlive which are computed for those that are missing now. Where the folder was not listed since a
    /// change was found to which segments may belong, or a change cannot be read that commits a segment of `waiting`, their replacement may be there.
    pub(crate) fn outlived(&self, waiting: impl Iterator<Item = Needs>) -> u64 {
        let unread = |base: &u64| {
            self.unread.get(base).is_some_and(Doubt::may_end) || self.unread_nonces.contains_key(base)
        };
        let waiting = waiting.filter(|needs| self.committed(*needs).is_none()).map(|needs| needs.base);
        let first = waiting.filter(unread).chain(self.unlisted).min();
        let newest = self.newest().unwrap_or(0);
        first.map_or(newest, |number| newest.min(number.saturating_sub(1)))
    }

    /// Since when changes look damaged that may be sound at another look: the time of the newest.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        self.unread.values().filter_map(Doubt::since).chain(self.unread_nonces.values().copied()).max()
    }

    /// A change that may commit rows of a known segment and cannot be read now, if there is one.
    pub(crate) fn unread_commit(&self) -> Option<u64> {
        self.unread_nonces.keys().next().copied()
    }
}

/// The nonce of the change of this number; `None` if the change is damaged. For `commit`, the header is enough, since equal nonces are no
/// accident: another one would make a segment void, and has to be verified.
fn commit_nonce(storage: &dyn Storage, number: u64, commit: Random) -> io::Result<Option<Random>> {
    let nonce = nonce(storage, number)?;
    if nonce.is_none_or(|nonce| nonce == commit) {
        return Ok(nonce);
    }
    match read(storage, number) {
        Ok(Some(table)) => Ok(Some(table.nonce)),
        Ok(None) => Err(io::ErrorKind::NotFound.into()),
        Err((Doubt::Failed(_), what)) => Err(io::Error::other(what)),
        Err((Doubt::Damaged(_), _)) => Ok(None),
    }
}
