//! Creating changes: what is to be dead, and the merged file that says the same in one.

use std::io;
use std::sync::Arc;

use super::encode;
use super::known::{KnownChanges, Read};
use super::known_tombstones::Tombstones;
use super::new_tombstone::Doomed;
use super::pending::Attempt;
use super::read::{Doubt, NONCE};
use super::repaired::how_to_repair;
use super::same::{Compared, listed};
use super::table::{ChangeBytes, TombstoneTable};
use crate::storage::name::{FileName, SegmentName};
use crate::storage::{Draft, Storage};

/// So often other processes may be faster before it is an error that a change is not created.
const TRIED_AT_MOST: usize = 64;

/// A change that is written and has no name yet. It gets one only in the folder that it was written in.
pub(crate) struct DraftedChange {
    number: u64,
    bytes: Vec<u8>,
    draft: Box<dyn Draft>,
    /// The segments that it commits.
    segments: Vec<SegmentName>,
}

impl DraftedChange {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The same change, which commits these segments.
    pub(crate) fn committing(self, segments: Vec<SegmentName>) -> Self {
        Self { segments, ..self }
    }
}

fn cannot_be_read(change: u64) -> io::Error {
    io::Error::other(format!("change {change} exists but cannot be read"))
}

/// Whether bytes that do not verify may be those of this change: a half of their nonce is the same, or they have none.
fn may_be(bytes: &[u8], change: &[u8]) -> bool {
    let halves = [NONCE, NONCE + 8].map(|at| at..at + 8);
    halves.into_iter().any(|half| bytes.get(half.clone()).is_none_or(|found| Some(found) == change.get(half)))
}

/// Other processes were faster again and again.
pub(crate) fn contended() -> io::Error {
    let what = "other processes create changes again and again; try again when they have less to do";
    io::Error::new(io::ErrorKind::ResourceBusy, what)
}

fn no_identity() -> io::Error {
    io::Error::other("the folder has no identity yet")
}

/// The folder of a store is not held while a change is created. If an older copy takes its place that has all changes before, only the segments
/// show it: they are gone, and the change kills the rows that they were to replace. Then they are written again, as if the creation had failed.
fn confirm_committed(storage: &dyn Storage, segments: &[SegmentName]) -> io::Result<()> {
    for segment in segments.iter().filter(|_| storage.is_remote()) {
        if !storage.is_there(&segment.to_string())? {
            let what = format!(
                "{segment} is gone, which was to be committed: an older copy has taken the place of the module"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
    }
    Ok(())
}

/// A change that this process has created.
struct Created {
    bytes: ChangeBytes,
    /// Whether its name is known to be durable, in the folder that is known.
    is_durable: bool,
}

impl KnownChanges {
    /// Makes something dead by the next change. Where that cannot be written, this process honours it all the same, and
    /// tries again with every later change and seal.
    pub(crate) fn kill(&mut self, storage: &dyn Storage, doomed: Doomed) -> io::Result<()> {
        let attempt = Attempt::new();
        let written = self
            .write_pending(storage)
            .and_then(|()| self.create(storage, &attempt, |_, _| Some(doomed.clone())));
        if let Err(error) = written {
            self.kill_here(doomed, attempt);
            return Err(error);
        }
        self.make_durable(storage)
    }

    /// Makes whole segments dead by the next change; `false` if another process was faster, whose change is known now. What cannot be written is
    /// not honoured: by the time it could be, other segments may be there.
    pub(crate) fn kill_segments(&mut self, storage: &dyn Storage, doomed: &Doomed) -> io::Result<bool> {
        self.write_pending(storage)?;
        let drafted = self.draft(storage, &Attempt::new(), doomed)?;
        if self.create_drafted(storage, drafted)?.is_none() {
            return Ok(false);
        }
        self.make_durable(storage).map(|()| true)
    }

    /// Makes every change durable, also those that could not be written before.
    pub(crate) fn write_all(&mut self, storage: &dyn Storage) -> io::Result<()> {
        self.write_pending(storage)?;
        self.make_durable(storage)
    }

    /// Whether there is nothing to write.
    pub(crate) fn are_durable(&self) -> bool {
        self.tombstones.pending.is_empty() && !self.are_unsynced()
    }

    /// Writes what could not be written before.
    pub(crate) fn write_pending(&mut self, storage: &dyn Storage) -> io::Result<()> {
        self.announce();
        while let Some(first) = self.tombstones.pending.first().cloned() {
            // What was looked up since it failed is compared with every change before it.
            if let Some(unread) = self.unread_after(0) {
                return Err(cannot_be_read(unread));
            }
            self.create(storage, &first.attempt, |tombstones, _| {
                // Its creation may have succeeded the last time: the change is found where another was expected.
                let is_pending = tombstones.pending.iter().any(|pending| Arc::ptr_eq(pending, &first));
                is_pending.then(|| first.doomed.clone())
            })?;
            self.announce();
        }
        Ok(())
    }

    /// Creates the next change and returns its number; it is durable after [`make_durable`](Self::make_durable). `doomed`,
    /// which gets all tombstones and the newest number, is called again whenever another process was faster; with
    /// `None` there is nothing left to create.
    pub(crate) fn create(
        &mut self,
        storage: &dyn Storage,
        attempt: &Attempt,
        mut doomed: impl FnMut(&Tombstones, u64) -> Option<Doomed>,
    ) -> io::Result<Option<u64>> {
        if self.next == 0 {
            return Err(no_identity());
        }
        for _ in 0..TRIED_AT_MOST {
            let Some(doomed) = doomed(&self.tombstones, self.next - 1) else { return Ok(None) };
            let drafted = self.draft(storage, attempt, &doomed)?;
            if let Some(number) = self.create_drafted(storage, drafted)? {
                return Ok(Some(number));
            }
        }
        Err(contended())
    }

    /// Writes the next change, which gets no name yet.
    pub(crate) fn draft(
        &mut self,
        storage: &dyn Storage,
        attempt: &Attempt,
        doomed: &Doomed,
    ) -> io::Result<DraftedChange> {
        let number = self.next;
        if number == 0 {
            return Err(no_identity());
        }
        if number == u64::MAX {
            return Err(io::Error::other("no number is left for another change"));
        }
        if let Some(what) = doomed.too_large() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let bytes = encode(number, doomed.kind(), attempt.nonce, &doomed.payload(number));
        self.check_no_gap(storage, number)?;
        self.make_durable(storage)?;
        let mut draft = storage.draft()?;
        draft.write_all(&bytes)?;
        Ok(DraftedChange { number, bytes, draft, segments: Vec::new() })
    }

    /// Creates a change that was drafted, and returns its number; `None` if another process was faster, whose change is known now.
    pub(crate) fn create_drafted(
        &mut self,
        storage: &dyn Storage,
        drafted: DraftedChange,
    ) -> io::Result<Option<u64>> {
        let number = drafted.number;
        if number != self.next {
            return Ok(None);
        }
        let Some(Created { bytes, is_durable }) = self.create_next(storage, drafted)? else {
            return Ok(None);
        };
        self.tombstones.own.add(number);
        self.push(TombstoneTable::open(number, bytes).map_err(io::Error::other)?);
        if is_durable {
            self.durable = self.next;
        }
        Ok(Some(number))
    }

    fn create_next(
        &mut self,
        storage: &dyn Storage,
        DraftedChange { number, bytes, draft, segments }: DraftedChange,
    ) -> io::Result<Option<Created>> {
        let name = FileName::Change(number).to_string();
        // After the draft was made: it gets its name only in the folder that holds it.
        self.compare(storage).confirmed()?;
        let created = draft.create(&name);
        let there = match storage.map(&name) {
            // Whose it is cannot be said: the reply to the creation may have been lost, and what it commits is not to be taken back.
            Err(error) if matches!(created, Ok(false)) => return Err(error),
            there => there.ok(),
        };
        let may_be_own = there.as_deref().is_some_and(|there| may_be(there, &bytes));
        if matches!(created, Ok(true)) && there.is_some() && !may_be_own {
            // The creation was undone, and another process has got the number.
            let what = format!("change {number} was created, and is another one now");
            return Err(io::Error::other(what));
        }
        let found = there.filter(|map| **map == *bytes);
        // By the nonce: it is ours if the reply to the creation was lost.
        if matches!(created, Ok(true)) || found.is_some() {
            let is_confirmed = self.confirm_created(storage, &name, &bytes)?;
            confirm_committed(storage, &segments)?;
            let bytes = found.map_or(ChangeBytes::Heap(bytes), ChangeBytes::Mapped);
            return Ok(Some(Created { bytes, is_durable: is_confirmed && created.is_ok() }));
        }
        created?;
        self.learn_next(storage)?;
        // Nor can it be said of a change that is damaged, or misread, and may be this one.
        if may_be_own && self.unread.contains_key(&number) { Err(cannot_be_read(number)) } else { Ok(None) }
    }

    /// A change counts only in a folder with change 0: another process may have removed that while this change was created, and
    /// missed this one. Nothing can be created in what would be left of the folder, so that it goes, too.
    ///
    /// `false` if that cannot be said now: the change is this process's own all the same, and
    /// [`make_durable`](Self::make_durable) looks again.
    fn confirm_created(&self, storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<bool> {
        let zero = FileName::Change(0).to_string();
        if self.origin.is_some()
            && storage.open(&zero).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            // Only a listing that has this change and no change 0 shows what is left of a folder that was removed. Any other may be
            // that of a file system which fails, or of what is under a lost mount: once the folder is back, it has a change
            // that other processes have read, and removing that would leave a gap.
            let Some(names) = listed(storage) else { return Ok(false) };
            let has = |name: &str| names.iter().any(|found| found.to_string() == name);
            if !has(name) || has(&zero) {
                return Ok(false);
            }
            if storage.map(name).is_ok_and(|map| *map == *bytes) {
                storage.remove(name)?;
            }
            let what = format!("the folder was removed while {name} was created");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        match self.compare(storage) {
            Compared::Unread(..) => Ok(false),
            compared => compared.confirmed().map(|()| true),
        }
    }

    /// Reads the change that another process has created under the next number.
    fn learn_next(&mut self, storage: &dyn Storage) -> io::Result<()> {
        let (number, mut learned) = (self.next, self.clone());
        if matches!(learned.read_next(storage), Read::Vanished) {
            return Err(io::Error::other(format!("change {number} exists but cannot be found")));
        }
        // Also what was known before: an older copy may have come in between, and have a change of a process that has not noticed yet. That
        // takes it back, because the changes before it are missing.
        self.compare(storage).confirmed()?;
        learned.compare(storage).confirmed()?;
        *self = learned;
        self.announce();
        if matches!(self.unread.get(&number), Some(Doubt::Failed(_))) {
            return Err(cannot_be_read(number));
        }
        Ok(())
    }

    /// A copy of a folder that was not completed may lack a change on which there count others, or segments. Its number must not be
    /// given again: another in its place would not kill the rows of those segments.
    fn check_no_gap(&self, storage: &dyn Storage, number: u64) -> io::Result<()> {
        if number > self.given {
            return Ok(());
        }
        match storage.info(&FileName::Change(number).to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::other(format!(
                "change {number} is missing, and other changes or rows depend on it: the folder is an incomplete copy; copy the rest, or {}",
                how_to_repair(storage)
            ))),
            found => found.map(drop),
        }
    }

    /// Makes every known change durable, before something that counts on them gets a name, the next change too: the names
    /// in a folder may outlive a power loss in any order, a number must not be given twice, and a change behind a gap would
    /// kill rows that were written after the loss. They are durable in this folder and no other.
    pub(crate) fn make_durable(&mut self, storage: &dyn Storage) -> io::Result<()> {
        if self.are_unsynced() {
            storage.sync()?;
            self.compare(storage).confirmed()?;
            self.durable = self.next;
        }
        Ok(())
    }

    /// Whether changes are known whose names may not be durable.
    pub(crate) fn are_unsynced(&self) -> bool {
        self.next > self.durable
    }

    /// The folder was synced after the changes were found that are known.
    pub(crate) fn were_synced(&mut self, storage: &dyn Storage) {
        if matches!(self.compare(storage), Compared::Same) {
            self.durable = self.next;
        }
    }
}
