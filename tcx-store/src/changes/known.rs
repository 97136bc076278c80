//! Which changes this process has read, and creating new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::encode;
use super::identity::IdentityChange;
use super::merge::MergePlan;
use super::table::{ChangeBytes, TombstoneTable};
use super::tombstone::Doomed;
use super::tombstones::Tombstones;
use crate::bytes::Random;
use crate::name::FileName;
use crate::storage::Storage;

/// The numbers that a listing shows.
#[derive(Debug, Default)]
pub(crate) struct ListedChanges {
    pub(crate) changes: BTreeSet<u64>,
    pub(crate) merged: BTreeSet<u64>,
}

/// The changes read so far. What is known is never forgotten.
#[derive(Debug, Default)]
pub(crate) struct KnownChanges {
    /// The number below which every change has been read.
    next: u64,
    tombstones: Arc<Tombstones>,
    /// Changes that could not be read or verified: each kills everything before it, until it can be. Nothing is compacted,
    /// merged or collected meanwhile.
    unread: BTreeMap<u64, Doubt>,
    /// The newest number that must have been given: it was listed, or a segment counts on it.
    given: u64,
    /// Changes below this number are durable, for all that this process knows.
    durable: u64,
    /// What could not be written yet.
    pending: Vec<Doomed>,
}

/// Why a change is not known, though its number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The file could not be read, and may be as sound as any.
    Failed,
    /// It is not what was written.
    Damaged,
}

/// What became of reading one change.
enum Read {
    Learned,
    /// It is not there (any more).
    Vanished,
}

impl KnownChanges {
    /// The newest change known, with all before it; `None` as long as there is no identity.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether the rows of a segment with this base may be served: its changes are read, and none kills them all.
    pub(crate) fn serves(&self, base: u64) -> bool {
        self.newest().is_some_and(|newest| base <= newest) && base >= self.tombstones.floor
    }

    /// Whether only a change that cannot be found or read keeps the rows of a segment with this base from being served.
    pub(crate) fn may_serve_later(&self, base: u64) -> bool {
        !self.serves(base) && base >= self.tombstones.all()
    }

    pub(crate) fn tombstones(&self) -> &Arc<Tombstones> {
        &self.tombstones
    }

    /// Whether every change could be verified, and written: else nothing is joined or removed.
    pub(crate) fn are_settled(&self) -> bool {
        self.unread.is_empty() && self.pending.is_empty()
    }

    /// A change that may kill rows of this number and may be read another time, if there is one.
    pub(crate) fn unread_after(&self, number: u64) -> Option<u64> {
        let newer = self.unread.iter().filter(|(own, _)| **own > number);
        newer.filter(|(_, doubt)| **doubt == Doubt::Failed).map(|(own, _)| *own).next()
    }

    /// The newest change known, and how many up to it could not be read: readers have to be shown when either changes.
    pub(crate) fn shown(&self) -> (Option<u64>, usize) {
        (self.newest(), self.unread.len())
    }

    /// Somebody has given this number to a change, whether it can be found or not.
    pub(crate) fn count_on(&mut self, number: u64) {
        self.given = self.given.max(number);
    }

    /// Takes note of change 0.
    pub(crate) fn learn_identity(&mut self, is_durable: bool) {
        self.next = self.next.max(1);
        // Of the folder before it.
        self.given = 0;
        self.durable = self.durable.max(u64::from(is_durable));
    }

    /// Reads what the listing shows and is not known yet. Tells whether the listing has a gap: it is stale, or a file
    /// has vanished that another took the place of, and is made again.
    ///
    /// Numbers behind a gap stay unknown until it is closed; their segments are not served meanwhile.
    pub(crate) fn learn(&mut self, storage: &dyn Storage, instance: Random, listed: &ListedChanges) -> bool {
        if self.next == 0 {
            return false;
        }
        listed
            .changes
            .last()
            .into_iter()
            .chain(listed.merged.last())
            .for_each(|&number| self.count_on(number));
        self.learn_merged(storage, instance, &listed.merged);
        self.read_again(storage, instance);
        while listed.changes.contains(&self.next) {
            if matches!(self.read_next(storage), Read::Vanished) {
                return true;
            }
        }
        listed.changes.last().is_some_and(|&last| last >= self.next)
    }

    /// Uses a merged file that this process has just written.
    pub(crate) fn adopt_merged(&mut self, storage: &dyn Storage, instance: Random, number: u64) {
        self.learn_merged(storage, instance, &BTreeSet::from([number]));
    }

    /// Opens the newest merged file, if it saves opening changes or probing them one by one.
    fn learn_merged(&mut self, storage: &dyn Storage, instance: Random, merged: &BTreeSet<u64>) {
        for &number in merged.iter().rev() {
            let replaced = self.tombstones.tables.iter().filter(|table| table.number <= number).count();
            let is_missed = self.unread.range(..=number).next().is_some();
            if number < self.next && replaced < 2 && !is_missed {
                return;
            }
            let Ok(map) = storage.map(&FileName::Merged(number).to_string()) else { continue };
            match TombstoneTable::open(number, ChangeBytes::Mapped(map)) {
                Ok(table) if table.merged_in == Some(instance) => return self.push(table),
                // The changes themselves are still there.
                Ok(_) => {}
                Err(what) => tracing::warn!(number, "merged changes are not used: {what}"),
            }
        }
    }

    /// Reads the next change by its name.
    fn read_next(&mut self, storage: &dyn Storage) -> Read {
        let number = self.next;
        match read(storage, number) {
            Ok(Some(table)) => self.push(table),
            Ok(None) => return Read::Vanished,
            Err((doubt, what)) => {
                tracing::warn!(
                    number,
                    "change cannot be verified, no row before it is served until it can be: {what}"
                );
                self.unread.insert(number, doubt);
                self.next = number + 1;
                self.change_tombstones(|_| {});
            }
        }
        Read::Learned
    }

    /// Reads once more what could not be read: a file system may have failed for a moment, or the change has been repaired.
    fn read_again(&mut self, storage: &dyn Storage, instance: Random) {
        let mut readable = Vec::new();
        for (&number, doubt) in &mut self.unread {
            match read(storage, number) {
                Ok(table) => readable.extend(table),
                Err((now, _)) => *doubt = now,
            }
        }
        // In this order: in a folder that was made again meanwhile, others have these numbers.
        if readable.is_empty() || instance_of(storage) != Some(instance) {
            return;
        }
        for table in readable {
            tracing::info!(number = table.number, "change can be verified now");
            self.push(table);
        }
    }

    /// Takes a table in, that of one change or a merged one.
    fn push(&mut self, table: TombstoneTable) {
        self.next = self.next.max(table.number + 1);
        if table.merged_in.is_some() {
            self.unread.retain(|number, _| *number > table.number);
        } else {
            self.unread.remove(&table.number);
        }
        let table = Arc::new(table);
        self.change_tombstones(|tombstones| {
            if table.merged_in.is_some() {
                tombstones.tables.retain(|own| own.number > table.number);
            }
            let at = tombstones.tables.partition_point(|own| own.number < table.number);
            tombstones.tables.insert(at, table);
        });
    }

    /// Makes something dead by the next change. Where that cannot be written, this process honours it all the same, and
    /// tries again with every later change and seal.
    pub(crate) fn kill(&mut self, storage: &dyn Storage, doomed: Doomed) -> io::Result<()> {
        let written =
            self.write_pending(storage).and_then(|()| self.create(storage, |_, _| Some(doomed.clone())));
        if let Err(error) = written {
            self.kill_here(doomed);
            return Err(error);
        }
        self.make_durable(storage)
    }

    /// Makes something dead in this process until it can be written.
    pub(crate) fn kill_here(&mut self, doomed: Doomed) {
        let bytes = encode(u64::MAX, doomed.kind(), Random::new(), &doomed.payload(u64::MAX));
        let table = TombstoneTable::open(u64::MAX, ChangeBytes::Heap(bytes));
        let table = Arc::new(table.expect("what was just encoded can be read"));
        self.pending.push(doomed);
        self.change_tombstones(|tombstones| tombstones.pending.push(table));
    }

    /// Writes what could not be written before.
    pub(crate) fn write_pending(&mut self, storage: &dyn Storage) -> io::Result<()> {
        while let Some(doomed) = self.pending.first().cloned() {
            self.create(storage, |_, _| Some(doomed.clone()))?;
            self.pending.remove(0);
            self.change_tombstones(|tombstones| drop(tombstones.pending.remove(0)));
        }
        Ok(())
    }

    /// Creates the next change and tells its number; it is durable after [`make_durable`](Self::make_durable). `doomed`,
    /// which is told of all tombstones and the newest number, is asked anew whenever another process was faster; with
    /// `None` there is nothing left to create.
    pub(crate) fn create(
        &mut self,
        storage: &dyn Storage,
        mut doomed: impl FnMut(&Tombstones, u64) -> Option<Doomed>,
    ) -> io::Result<Option<u64>> {
        if self.next == 0 {
            return Err(io::Error::other("the folder has no identity yet"));
        }
        loop {
            let number = self.next;
            let Some(doomed) = doomed(&self.tombstones, number - 1) else { return Ok(None) };
            if number == u64::MAX {
                return Err(io::Error::other("no number is left for another change"));
            }
            let bytes = encode(number, doomed.kind(), Random::new(), &doomed.payload(number));
            let name = FileName::Change(number).to_string();
            self.check_no_gap(storage, number)?;
            self.make_durable(storage)?;
            let created = storage.create_if_absent(&name, &bytes);
            let found = storage.map(&name).ok().filter(|map| **map == *bytes);
            // By the nonce: it is ours if the reply to the creation was lost.
            if matches!(created, Ok(true)) || found.is_some() {
                let bytes = found.map_or(ChangeBytes::Heap(bytes), ChangeBytes::Mapped);
                self.push(TombstoneTable::open(number, bytes).map_err(io::Error::other)?);
                if created.is_ok() {
                    self.durable = self.next;
                }
                return Ok(Some(number));
            }
            created?;
            if matches!(self.read_next(storage), Read::Vanished) {
                return Err(io::Error::other(format!("change {number} exists but cannot be found")));
            }
            if self.unread.get(&number) == Some(&Doubt::Failed) {
                return Err(io::Error::other(format!("change {number} exists but cannot be read")));
            }
        }
    }

    /// A copy of a folder that was not completed may lack a change on which there count others, or segments. Its number must not be
    /// given again: another in its place would not kill the rows of those segments.
    fn check_no_gap(&self, storage: &dyn Storage, number: u64) -> io::Result<()> {
        if number > self.given {
            return Ok(());
        }
        match storage.info(&FileName::Change(number).to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::other(format!(
                "change {number} is missing, and others or rows count on it: the folder is a part of a copy. Copy the rest, or run `tcx \
                 verify --repair`"
            ))),
            found => found.map(drop),
        }
    }

    /// Makes every known change durable, before something that counts on them gets a name, the next change too: the names
    /// in a folder may outlive a power loss in any order, a number must not be given twice, and a change behind a gap would
    /// kill rows that were written after the loss.
    pub(crate) fn make_durable(&mut self, storage: &dyn Storage) -> io::Result<()> {
        if self.next > self.durable {
            storage.sync()?;
            self.durable = self.next;
        }
        Ok(())
    }

    /// The tables to merge, if it is worth it.
    pub(crate) fn mergeable(&self) -> Option<MergePlan> {
        let number = self.newest().filter(|_| self.are_settled())?;
        MergePlan::new(number, &self.tombstones.tables)
    }

    fn change_tombstones(&mut self, change: impl FnOnce(&mut Tombstones)) {
        let tombstones = Arc::make_mut(&mut self.tombstones);
        change(tombstones);
        tombstones.floor = tombstones.all().max(self.unread.last_key_value().map_or(0, |(last, _)| *last));
        let of_tables = tombstones.tables.iter().chain(&tombstones.pending).map(|table| table.newest).max();
        tombstones.newest = of_tables.unwrap_or(0).max(tombstones.floor);
    }
}

/// The table of a change; `None` if it is not there (any more).
///
/// # Errors
///
/// Why it cannot be read or verified.
fn read(storage: &dyn Storage, number: u64) -> Result<Option<TombstoneTable>, (Doubt, String)> {
    let map = match storage.map(&FileName::Change(number).to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err((Doubt::Failed, error.to_string())),
        Ok(map) => map,
    };
    match TombstoneTable::open(number, ChangeBytes::Mapped(map)) {
        Ok(table) if table.merged_in.is_none() => Ok(Some(table)),
        Ok(_) => Err((Doubt::Damaged, "it is merged".to_owned())),
        Err(what) => Err((Doubt::Damaged, what)),
    }
}

/// The instance of the folder that is there now; `None` if its change 0 cannot be read.
fn instance_of(storage: &dyn Storage) -> Option<Random> {
    let map = storage.map(&FileName::Change(0).to_string()).ok()?;
    IdentityChange::decode(&map).ok().map(|identity| identity.instance)
}
