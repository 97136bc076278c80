//! Which changes this process has read.

mod repairs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::known_tombstones::Tombstones;
use super::merge::MergePlan;
use super::pending::Attempt;
use super::read::{Doubt, map, read};
use super::replacements::Replacement;
use super::same::{Anchor, Origin};
use super::table::{ChangeBytes, TombstoneTable};
use super::whole::Dated;
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;
use crate::sys::notice::{Trouble, notice};

/// The numbers that a listing shows.
#[derive(Debug, Default)]
pub(crate) struct ListedChanges {
    pub(crate) changes: BTreeSet<u64>,
    pub(crate) merged: BTreeSet<u64>,
}

/// The changes read so far. What is known is never forgotten.
///
/// A copy shares the tables: what is learned goes into one, which is adopted once the folder is known to be still the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownChanges {
    /// Change 0, once it has been read or created.
    pub(super) origin: Option<Origin>,
    /// By which the folder is known besides.
    pub(super) anchor: Option<Anchor>,
    /// The number below which every change has been read.
    pub(super) next: u64,
    pub(super) tombstones: Arc<Tombstones>,
    /// Changes that could not be read or verified: each kills everything before it, until it can be. Nothing is compacted,
    /// merged or collected until then.
    pub(super) unread: BTreeMap<u64, Doubt>,
    /// The newest number that must have been given: it was listed, or a segment counts on it.
    pub(super) given: u64,
    /// Changes below this number are durable, for all that this process knows.
    pub(super) durable: u64,
    /// How many invalidations have failed.
    pub(super) failed: u64,
    /// Failed attempts to write the tombstone of rows that were recomputed, as long as the rows wait.
    pub(super) tried: Vec<Weak<Attempt>>,
    /// Failed attempts that were found to be written, the number of each, and the tombstones without it: rows do not know yet.
    pub(super) late: Vec<(Arc<Attempt>, u64, Tombstones)>,
    /// Those of them that were for recomputed rows: rows which were recomputed later do not know yet.
    pub(super) found: Vec<Replacement>,
    /// The nonces of changes: those that were read lately, and those that segments need.
    pub(super) nonces: BTreeMap<u64, Random>,
    /// The changes whose nonces segments need and could not be read now, though merged changes may say what they kill; since when.
    pub(super) unread_nonces: BTreeMap<u64, Instant>,
    /// The oldest change of another process that was found since the last listing began, and is a tombstone of views or names dead segments:
    /// that listing may lack the segments that it commits, or what stands for those that it names, which had got their names before.
    pub(super) unlisted: Option<u64>,
    /// Whether one of these names dead segments. Rows of theirs may be there all the same, whatever their keys.
    pub(super) has_unlisted_rows: bool,
    /// Whether the last listing did not show the folder, which is known.
    pub(super) is_gone: bool,
}

/// What readers have to be shown again when it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    newest: Option<u64>,
    unread: usize,
    /// The oldest changes that may be read another time: they decide what rows [outlive](KnownChanges::outlived).
    unreadable: (Option<u64>, Option<u64>),
    unlisted: Option<u64>,
}

/// What the rows of a segment need to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Every change up to this number is known.
    pub(crate) base: u64,
    /// The nonce of the change of that number: it makes way for the rows, and commits them.
    pub(crate) commit: Option<Random>,
}

/// What became of reading one change.
pub(super) enum Read {
    Learned,
    /// It is not there (any more).
    Vanished,
}

impl KnownChanges {
    /// The newest change known, with all before it; `None` as long as there is no identity.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether the rows of a segment may be served: its changes are read, and none kills them all.
    pub(crate) fn serves(&self, needs: Needs, segment: Dated<'_>) -> bool {
        self.newest().is_some_and(|newest| needs.base <= newest)
            && needs.base >= self.tombstones.floor
            && !self.tombstones.kill_segment(segment)
            && self.committed(needs) == Some(true)
    }

    /// Whether only a change that cannot be found or read keeps the rows of a segment from being served.
    pub(crate) fn may_serve_later(&self, needs: Needs, segment: Dated<'_>) -> bool {
        !self.serves(needs, segment)
            && needs.base >= self.tombstones.all()
            && !self.tombstones.kill_segment(segment)
            && self.committed(needs) != Some(false)
    }

    /// Whether the change exists that commits a segment. `None` if that is not known: its number was not given yet, or its nonce cannot
    /// be read.
    pub(crate) fn committed(&self, needs: Needs) -> Option<bool> {
        needs.commit.map_or(Some(true), |commit| self.nonces.get(&needs.base).map(|found| *found == commit))
    }

    /// Whether the number of the change that would commit a segment was given to another one, which verifies: the segment is void forever.
    pub(crate) fn is_void(&self, storage: &dyn Storage, needs: Needs) -> bool {
        let found =
            || matches!(read(storage, needs.base), Ok(Some(table)) if Some(table.nonce) != needs.commit);
        self.committed(needs) == Some(false) && found()
    }

    pub(crate) fn tombstones(&self) -> &Arc<Tombstones> {
        &self.tombstones
    }

    /// Whether every change could be verified, and written: else nothing is joined or removed.
    pub(crate) fn are_settled(&self) -> bool {
        self.unread.is_empty() && self.tombstones.pending.is_empty()
    }

    /// A change that may kill rows of this number and may be read in a moment, if there is one: it hides rows that may be served then.
    pub(crate) fn unread_after(&self, number: u64) -> Option<u64> {
        let newer = self.unread.iter().filter(|(own, _)| **own > number);
        newer.filter(|(_, doubt)| doubt.may_end()).map(|(own, _)| *own).next()
    }

    /// Whether a change that may kill rows of this number cannot be read or verified, now or ever.
    pub(crate) fn is_unread_after(&self, number: u64) -> bool {
        self.unread.keys().any(|own| *own > number)
    }

    /// What readers have to be shown again when it changes.
    pub(crate) fn shown(&self) -> Shown {
        let (unread, unreadable) = (self.unread.len(), (self.unread_after(0), self.unread_commit()));
        Shown { newest: self.newest(), unread, unreadable, unlisted: self.unlisted }
    }

    /// A process has given this number to a change, whether it can be found or not.
    pub(crate) fn count_on(&mut self, number: u64) {
        self.given = self.given.max(number);
    }

    /// Takes note of change 0.
    pub(crate) fn learn_identity(&mut self, origin: Origin, is_durable: bool) {
        self.origin = Some(origin);
        self.next = self.next.max(1);
        // Of the folder before it.
        self.given = 0;
        self.nonces.clear();
        self.durable = self.durable.max(u64::from(is_durable));
    }

    /// Reads what the listing shows and is not known yet. Returns whether the listing has a gap: it is stale, or a file
    /// has vanished that another took the place of, and is made again.
    ///
    /// Numbers behind a gap stay unknown until it is closed; until then their segments are not served.
    pub(crate) fn learn(&mut self, storage: &dyn Storage, listed: &ListedChanges) -> bool {
        if self.next == 0 {
            return false;
        }
        listed
            .changes
            .last()
            .into_iter()
            .chain(listed.merged.last())
            .for_each(|&number| self.count_on(number));
        // Among the changes of a merged file may be one that a failed attempt of this process has written, which is recognised by its own file.
        // So may one that could not be read.
        let next = listed.changes.contains(&self.next).then_some(self.next);
        let unread = self.unread_after(0).into_iter().chain(next).min().filter(|_| self.may_find_attempts());
        self.learn_merged(storage, listed.merged.range(..unread.unwrap_or(u64::MAX)));
        self.read_again(storage);
        while listed.changes.contains(&self.next) {
            if matches!(self.read_next(storage), Read::Vanished) {
                return true;
            }
        }
        listed.changes.last().is_some_and(|&last| last >= self.next)
    }

    /// Uses a merged file that this process has just written.
    pub(crate) fn adopt_merged(&mut self, storage: &dyn Storage, number: u64) {
        self.learn_merged(storage, std::iter::once(&number));
    }

    /// Opens the newest merged file, if it saves opening changes or probing them one by one.
    fn learn_merged<'a>(&mut self, storage: &dyn Storage, merged: impl DoubleEndedIterator<Item = &'a u64>) {
        let instance = self.origin.map(|origin| origin.instance);
        for &number in merged.rev() {
            let replaced = self.tombstones.tables.iter().filter(|table| table.number <= number).count();
            let is_missed = self.unread.range(..=number).next().is_some();
            if number < self.next && replaced < 2 && !is_missed {
                return;
            }
            let Ok(map) = map(storage, FileName::Merged(number)) else { continue };
            match map.and_then(|map| TombstoneTable::open(number, ChangeBytes::Mapped(map))) {
                Ok(table) if table.merged_in.is_some() && table.merged_in == instance => {
                    // Known without its nonce, the folder could be taken for an older copy of itself: it is used another time.
                    if !self.anchor_at(storage, number) {
                        continue;
                    }
                    if self.disown_repaired(storage, number).is_err() {
                        continue;
                    }
                    return self.push_found(table);
                }
                // The changes themselves are still there.
                Ok(_) => {}
                Err(what) => {
                    tracing::warn!(number, "merged changes ignored: {what}; each change is read instead");
                }
            }
        }
    }

    /// The folder is known by the last change of a merged file, too, which is in its own file. `false` where that cannot be read now.
    fn anchor_at(&mut self, storage: &dyn Storage, number: u64) -> bool {
        if self.anchor.is_some_and(|anchor| anchor.number >= number) {
            return true;
        }
        match read(storage, number) {
            Ok(Some(table)) => self.anchor = Some(Anchor { number, nonce: table.nonce }),
            // In a part of a copy the merged file is all there is of it.
            Ok(None) | Err((Doubt::Damaged(_), _)) => {}
            Err((Doubt::Failed(_), _)) => return false,
        }
        true
    }

    /// Reads the next change by its name.
    pub(super) fn read_next(&mut self, storage: &dyn Storage) -> Read {
        let number = self.next;
        match read(storage, number) {
            Ok(Some(table)) if self.waits(&table) || self.learn_repairs(storage, &table).is_err() => {
                self.doubt(number, Doubt::Failed(None));
            }
            Ok(Some(table)) => self.push_found(table),
            Ok(None) => return Read::Vanished,
            Err((doubt, what)) => {
                tracing::warn!(
                    number,
                    "change cannot be verified: {what}; older rows are not served until it can be"
                );
                let unverified = format_args!(
                    "change {number} in {} cannot be verified: {what}; older rows are computed again until it can be; check the disk, and run `tcx verify`",
                    storage.path().display()
                );
                notice(Trouble::Damaged, unverified);
                self.doubt(number, doubt);
            }
        }
        Read::Learned
    }

    /// The next change cannot be used yet.
    fn doubt(&mut self, number: u64, doubt: Doubt) {
        self.unread.insert(number, doubt);
        // It may commit segments that no listing has shown yet.
        self.unlisted = Some(self.unlisted.map_or(number, |unlisted| unlisted.min(number)));
        self.next = number + 1;
        self.change_tombstones(|_| {});
    }

    /// Whether an attempt of this process that had failed has written this and an earlier change cannot be read now. What
    /// outlives it is compared with every change before it, and with none later.
    fn waits(&self, table: &TombstoneTable) -> bool {
        self.unread_after(0).is_some_and(|unread| unread < table.number)
            && self.find_attempt(table.nonce).is_some()
    }

    /// Reads again what could not be read: a file system may have failed for a moment, or the change has been repaired.
    fn read_again(&mut self, storage: &dyn Storage) {
        let mut readable = Vec::new();
        for (&number, doubt) in
            self.unread.iter_mut().filter(|(number, doubt)| doubt.is_over(storage, **number))
        {
            match read(storage, number) {
                Ok(Some(table)) => readable.push(table),
                Ok(None) => doubt.lose_file(),
                Err((now, _)) => *doubt = now.after(*doubt, storage, number),
            }
        }
        for table in readable {
            if self.waits(&table) || self.learn_repairs(storage, &table).is_err() {
                continue;
            }
            tracing::info!(number = table.number, "change can be verified now");
            self.push_found(table);
        }
    }

    /// Takes in what others have written.
    fn push_found(&mut self, table: TombstoneTable) {
        let is_merged = table.merged_in.is_some();
        // What a merged file says of changes that are known is no news.
        let first =
            if is_merged { self.unread.keys().next().copied().unwrap_or(self.next) } else { table.number };
        let names_dead = table.whole.names_dead();
        if (table.is_of_views || names_dead) && first <= table.number {
            self.unlisted = Some(self.unlisted.map_or(first, |unlisted| unlisted.min(first)));
            self.has_unlisted_rows |= names_dead;
        }
        self.push(table);
    }

    /// Takes a table in, that of one change or a merged one.
    pub(super) fn push(&mut self, table: TombstoneTable) {
        let TombstoneTable { number, nonce, .. } = table;
        if table.merged_in.is_none()
            && let Some(attempt) = self.find_attempt(nonce)
        {
            self.settle(attempt, number);
        }
        if table.merged_in.is_none() {
            self.nonces.insert(number, nonce);
        } else if number >= self.next {
            // Among the changes that are not read may be one which says that others were repaired: nonces are read again.
            self.nonces.clear();
        }
        self.next = self.next.max(number + 1);
        if table.merged_in.is_none() && self.anchor.is_none_or(|anchor| anchor.number <= number) {
            self.anchor = Some(Anchor { number, nonce });
        }
        if table.merged_in.is_some() {
            self.unread.retain(|number, _| *number > table.number);
        } else {
            self.unread.remove(&table.number);
        }
        if table.all > self.tombstones.all() && (table.merged_in.is_some() || table.all != number) {
            // A repair puts a tombstone for everything in the place of that change. This process has not named the rows that die by it.
            self.tombstones.own.remove(table.all);
        }
        let table = Arc::new(table);
        self.change_tombstones(|tombstones| {
            if table.merged_in.is_some() {
                // They may be merged by a process that did not know yet of a repair.
                tombstones.tables.retain(|own| own.number > table.number || own.all > table.all);
            }
            let at = tombstones.tables.partition_point(|own| own.number < table.number);
            tombstones.tables.insert(at, table);
        });
    }

    /// The tables to merge, if it is worth it.
    pub(crate) fn mergeable(&self) -> Option<MergePlan> {
        let number = self.newest().filter(|_| self.are_settled())?;
        MergePlan::new(number, &self.tombstones.tables)
    }

    pub(super) fn change_tombstones(&mut self, change: impl FnOnce(&mut Tombstones)) {
        let tombstones = Arc::make_mut(&mut self.tombstones);
        change(tombstones);
        tombstones.floor = tombstones.all().max(self.unread.last_key_value().map_or(0, |(last, _)| *last));
        tombstones.count();
    }
}
