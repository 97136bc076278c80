//! Changes that a repair has put in the place of damaged ones.

use std::io;

use super::KnownChanges;
use crate::changes::read::{nonce, read};
use crate::changes::same::{Origin, repair_nonce, says_repairs};
use crate::changes::table::TombstoneTable;
use crate::storage::Storage;

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
        for number in (self.tombstones.all().max(1)..news.number).rev() {
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
}
