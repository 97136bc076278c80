//! Changes that a repair has put in the place of damaged ones.

use std::collections::BTreeSet;
use std::io;

use super::KnownChanges;
use crate::changes::read::{nonce, read};
use crate::changes::same::{Origin, listed, repair_nonce, says_repairs};
use crate::changes::table::TombstoneTable;
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

impl KnownChanges {
    /// A repair has put this in the place of a change that this process had read: what it kills is dead for others, and so it is here, and
    /// what the change had committed does not count any more.
    pub(crate) fn adopt_repaired(&mut self, table: TombstoneTable) {
        let lost = if table.all == table.number { "older rows" } else { "rows that it had committed" };
        tracing::warn!(number = table.number, "change was damaged and repaired: {lost} are no longer served");
        // The repair kills rows that this process's own change has not named.
        self.tombstones.own.remove(table.number);
        self.push(table);
    }

    /// If this change says that others were repaired, learns what these say, up to one before which everything is dead: this process may
    /// have read them before they were damaged.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be read.
    pub(super) fn learn_repairs(&mut self, storage: &dyn Storage, news: &TombstoneTable) -> io::Result<()> {
        let Some(Origin { instance, .. }) = self.origin else { return Ok(()) };
        if !says_repairs(news.nonce, instance, news.number) {
            return Ok(());
        }
        // The last one, too, before which everything is dead: the rows that it had committed are not.
        let first = self.tombstones.all().max(1);
        let numbers = self.numbers_in_use(storage)?.into_iter().rev();
        for number in numbers.filter(|number| (first..news.number).contains(number)) {
            let repaired = repair_nonce(instance, number);
            match nonce(storage, number) {
                Ok(Some(found)) if found == repaired => {}
                // In a part of a copy, merged changes may be all there is of it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => continue,
            }
            let table = match read(storage, number) {
                Ok(Some(table)) if table.nonce == repaired => table,
                Err((_, what)) => return Err(io::Error::other(what)),
                Ok(_) => return Err(io::ErrorKind::NotFound.into()),
            };
            if table.all == number {
                self.adopt_repaired(table);
                break;
            }
            // What it names is known by the change that it takes the place of, or by merged ones. What that had committed counts no more.
            self.nonces.insert(number, repaired);
            self.tombstones.own.remove(number);
        }
        Ok(())
    }

    /// The changes that may have been read before they were damaged. A listing may lack some, and a change that no process has made may have
    /// any number.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed.
    fn numbers_in_use(&self, storage: &dyn Storage) -> io::Result<BTreeSet<u64>> {
        let listed = listed(storage).ok_or_else(|| io::Error::other("the folder cannot be listed"))?;
        let listed = listed.iter().filter_map(|name| match name {
            FileName::Change(number) => Some(*number),
            _ => None,
        });
        let read = self.tombstones.tables.iter().map(|table| table.number);
        let known = read.chain(self.nonces.keys().copied()).chain(self.tombstones.own.all());
        Ok(listed.chain(known).collect())
    }

    /// Changes of this process that were repaired are its own no more. Due before merged changes of this number are used in place of changes
    /// that are not read: among these may be the one that says that others were repaired.
    ///
    /// # Errors
    ///
    /// Returns an error if a change cannot be read now.
    pub(super) fn disown_repaired(&self, storage: &dyn Storage, merged: u64) -> io::Result<()> {
        let Some(Origin { instance, .. }) = self.origin else { return Ok(()) };
        let mut own = self.tombstones.own.all();
        // What is older is dead in any case.
        own.retain(|number| *number > self.tombstones.all());
        if own.is_empty() || !self.may_have_news(storage, instance, merged)? {
            return Ok(());
        }
        for number in own {
            if nonce_if_any(storage, number)? == Some(repair_nonce(instance, number)) {
                self.tombstones.own.remove(number);
            }
        }
        Ok(())
    }

    /// Whether any of the changes up to this one that are not read may say that others were repaired.
    fn may_have_news(&self, storage: &dyn Storage, instance: Random, last: u64) -> io::Result<bool> {
        for number in self.next..=last {
            // In a part of a copy, merged changes may be all there is of it.
            if nonce_if_any(storage, number)?.is_none_or(|nonce| says_repairs(nonce, instance, number)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The nonce of a change; `None` if it is not there, or does not begin as that change does.
///
/// # Errors
///
/// Returns an error if it cannot be read.
fn nonce_if_any(storage: &dyn Storage, number: u64) -> io::Result<Option<Random>> {
    match nonce(storage, number) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found,
    }
}
