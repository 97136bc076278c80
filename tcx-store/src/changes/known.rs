//! Which changes this process has read, and creating new ones.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::merge::MergePlan;
use super::table::{ChangeBytes, TombstoneTable};
use super::tombstone::Doomed;
use super::tombstones::Tombstones;
use super::{KIND_TOMBSTONE, encode};
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
    /// Whether a change could not be verified: then nothing is compacted, merged or collected.
    doubtful: bool,
    /// Changes below this number are durable, for all that this process knows.
    durable: u64,
    /// What could not be written yet.
    pending: Vec<Doomed>,
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

    pub(crate) fn tombstones(&self) -> &Arc<Tombstones> {
        &self.tombstones
    }

    /// Whether every change could be verified, and written: else nothing is joined or removed.
    pub(crate) fn are_settled(&self) -> bool {
        !self.doubtful && self.pending.is_empty()
    }

    /// Takes note of change 0.
    pub(crate) fn learn_identity(&mut self, is_durable: bool) {
        self.next = self.next.max(1);
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
        self.learn_merged(storage, instance, &listed.merged);
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
            if number < self.next && replaced < 2 {
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
        let table = match storage.map(&FileName::Change(number).to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Read::Vanished,
            Err(error) => Err(error.to_string()),
            Ok(map) => TombstoneTable::open(number, ChangeBytes::Mapped(map)),
        };
        match table
            .and_then(|table| if table.merged_in.is_none() { Ok(table) } else { Err("it is merged".into()) })
        {
            Ok(table) => self.push(table),
            Err(what) => {
                tracing::warn!(
                    number,
                    "change cannot be verified, all rows before it are computed again: {what}"
                );
                self.doubtful = true;
                self.change_tombstones(|tombstones| tombstones.floor = number);
                self.next = number + 1;
            }
        }
        Read::Learned
    }

    /// Takes a table in, the newest or a merged one.
    fn push(&mut self, table: TombstoneTable) {
        self.next = self.next.max(table.number + 1);
        let table = Arc::new(table);
        self.change_tombstones(|tombstones| {
            tombstones.floor = tombstones.floor.max(table.all);
            if table.merged_in.is_some() {
                tombstones.tables.retain(|own| own.number > table.number);
                tombstones.tables.insert(0, table);
            } else {
                tombstones.tables.push(table);
            }
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
        let bytes = encode(u64::MAX, KIND_TOMBSTONE, Random::new(), &doomed.payload(u64::MAX));
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
            let bytes = encode(number, KIND_TOMBSTONE, Random::new(), &doomed.payload(number));
            let name = FileName::Change(number).to_string();
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
        let of_tables = tombstones.tables.iter().chain(&tombstones.pending).map(|table| table.newest).max();
        tombstones.newest = of_tables.unwrap_or(0).max(tombstones.floor);
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::key_hash;
    use super::*;
    use crate::storage::{LocalStorage, System};

    fn keys(range: std::ops::Range<usize>) -> Doomed {
        Doomed::Keys(range.map(|i| format!("key {i}").into_bytes().into()).collect())
    }

    fn listed(storage: &dyn Storage) -> ListedChanges {
        let mut listed = ListedChanges::default();
        for name in storage.list().unwrap() {
            match FileName::parse(&name) {
                Some(FileName::Change(number)) => drop(listed.changes.insert(number)),
                Some(FileName::Merged(number)) => drop(listed.merged.insert(number)),
                _ => {}
            }
        }
        listed
    }

    const INSTANCE: Random = Random([7; 16]);

    fn known(storage: &dyn Storage) -> KnownChanges {
        let mut known = KnownChanges::default();
        known.learn_identity(true);
        assert!(!known.learn(storage, INSTANCE, &listed(storage)));
        known
    }

    #[test]
    fn a_tombstone_kills_what_is_older_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let mut writer = known(&storage);
        writer.kill(&storage, keys(0..1000)).unwrap();
        writer.kill(&storage, Doomed::Prefix((*b"key 10").into())).unwrap();
        let reader = known(&storage);
        assert_eq!(reader.newest(), Some(2));
        for known in [&writer, &reader] {
            let tombstones = known.tombstones();
            for i in 0..2000 {
                let (key, begins) = (format!("key {i}"), i.to_string().starts_with("10"));
                assert_eq!(tombstones.kill(0, key.as_bytes()), i < 1000 || begins, "{key}");
                assert_eq!(tombstones.kill(1, key.as_bytes()), begins, "{key}");
                assert!(!tombstones.kill(2, key.as_bytes()));
            }
            assert!(!tombstones.kill(0, b"key 1"[..4].as_ref()), "shorter than the prefix");
        }
        writer.kill(&storage, Doomed::All).unwrap();
        assert!(writer.tombstones().kill(2, b"anything"));
        assert!(!writer.serves(2) && writer.serves(3));
    }

    #[test]
    fn merged_changes_say_the_same_as_the_changes() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let mut writer = known(&storage);
        for round in 0..40 {
            writer.kill(&storage, keys(round * 10..round * 10 + 30)).unwrap();
            if round % 7 == 0 {
                let prefix = format!("key {round}").into_bytes().into();
                writer.kill(&storage, Doomed::Prefix(prefix)).unwrap();
            }
            if let Some(plan) = writer.mergeable() {
                let number = plan.write(&storage, INSTANCE).unwrap();
                let before = writer.newest();
                writer.adopt_merged(&storage, INSTANCE, number);
                assert_eq!(writer.newest(), before);
                assert!(writer.tombstones.tables.len() < 16);
            }
        }
        let merged = known(&storage);
        assert!(merged.tombstones.tables[0].merged_in.is_some());
        let mut single = KnownChanges::default();
        single.learn_identity(true);
        single.learn(&storage, INSTANCE, &ListedChanges { merged: BTreeSet::new(), ..listed(&storage) });
        let mut foreign = KnownChanges::default();
        foreign.learn_identity(true);
        foreign.learn(&storage, Random([8; 16]), &listed(&storage));
        for known in [&merged, &single, &foreign] {
            assert_eq!(known.newest(), writer.newest());
            for key in (0..500).map(|i| format!("key {i}")) {
                let newest = |known: &KnownChanges| {
                    known.tombstones.newest_for(key.as_bytes(), key_hash(key.as_bytes()))
                };
                assert_eq!(newest(known), newest(&writer), "{key}");
            }
        }
        assert!(foreign.tombstones.tables[0].merged_in.is_none(), "merged for another instance");
    }

    #[test]
    fn a_change_that_cannot_be_verified_kills_all_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let mut writer = known(&storage);
        for _ in 0..3 {
            writer.kill(&storage, keys(0..2)).unwrap();
        }
        let path = dir.path().join("m_v1/change-00000000000000000002");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"damaged").unwrap();
        let reader = known(&storage);
        assert_eq!(reader.newest(), Some(3));
        assert!(!reader.are_settled());
        assert!(!reader.serves(1) && reader.serves(2));
        assert!(reader.tombstones().kill(2, b"key 1") && !reader.tombstones().kill(2, b"key 2"));
    }

    #[test]
    fn numbers_that_come_to_an_end_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        for number in [u64::MAX - 1, u64::MAX] {
            MergePlan { number, tables: Vec::new() }.write(&storage, INSTANCE).unwrap();
        }
        let mut known = known(&storage);
        assert_eq!(known.newest(), Some(u64::MAX - 1), "the last one names no file");
        assert!(known.kill(&storage, keys(0..1)).unwrap_err().to_string().contains("no number is left"));
        assert!(known.tombstones().kill(u64::MAX - 1, b"key 0"), "it holds here all the same");
    }

    #[test]
    fn what_lies_behind_a_gap_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let mut writer = known(&storage);
        assert!(!KnownChanges::default().serves(0), "nothing is known before the identity");
        for _ in 0..3 {
            writer.kill(&storage, keys(0..2)).unwrap();
        }
        let mut reader = KnownChanges::default();
        reader.learn_identity(true);
        let mut incomplete = listed(&storage);
        incomplete.changes.remove(&2);
        assert!(reader.learn(&storage, INSTANCE, &incomplete));
        assert_eq!(reader.newest(), Some(1));
        assert!(!reader.learn(&storage, INSTANCE, &ListedChanges::default()));
        assert_eq!(reader.newest(), Some(1), "what is known is not forgotten");
        assert!(!reader.learn(&storage, INSTANCE, &listed(&storage)));
        assert_eq!(reader.newest(), Some(3));
    }

    #[test]
    fn who_finds_the_number_taken_learns_it_and_takes_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().join("m_v1"), System);
        let (mut first, mut second) = (known(&storage), known(&storage));
        first.kill(&storage, keys(0..1)).unwrap();
        second.kill(&storage, keys(1..2)).unwrap();
        assert_eq!(second.newest(), Some(2));
        assert!(second.tombstones().kill(0, b"key 0"));
    }
}
