//! Whether the folder is the one that is known.

use super::Live;
use crate::changes::Compared;
use crate::changes::instance::{KnownIdentity, refuse_other};
use crate::error::Result;

impl Live {
    /// Compares the folder with what is known of it, and takes note of a change that was repaired: it is the same folder, or
    /// removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is another one, is an older copy, or cannot be read.
    pub(super) fn compare(&mut self) -> Result<Compared> {
        match self.changes.compare(&*self.storage) {
            Compared::Repaired(table) => {
                self.changes.adopt_repaired(*table);
                self.has_new_files = true;
                Ok(Compared::Same)
            }
            Compared::Removed => Ok(Compared::Removed),
            compared => refuse_other(&*self.storage, &self.spec, &compared).map(|()| compared),
        }
    }

    /// The identity that new segments carry; change 0 is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder belongs to another identity, if it was removed and created again, or if a write fails.
    pub(crate) fn ensure_identity(&mut self) -> Result<KnownIdentity> {
        if let Some(known) = self.identity.clone() {
            match self.compare()? {
                // No change was known there, so that no number is given a second time.
                Compared::Removed if self.changes.newest() <= Some(0) => {}
                compared => {
                    refuse_other(&*self.storage, &self.spec, &compared)?;
                    return Ok(known);
                }
            }
        }
        // Never as the same instance: another process may know more changes of it, and the numbers begin again.
        let created = KnownIdentity::create(&*self.storage, &self.spec)?;
        self.has_new_files |= self.segments.forget_all();
        self.changes.learn_identity(created.origin(), true);
        self.identity = Some(created.clone());
        Ok(created)
    }

    /// Makes sure that a change which is made now is one of the folder that is known. One that is gone is not made again for it: the change
    /// would not reach the rows in it, which are served on once a lost mount is back.
    ///
    /// # Errors
    ///
    /// As [`check_instance`](Self::check_instance), or as [`ensure_identity`](Self::ensure_identity) where no folder is known.
    pub(crate) fn ensure_to_kill(&mut self) -> Result<()> {
        if self.identity.is_some() { self.check_instance() } else { self.ensure_identity().map(drop) }
    }

    /// Makes sure that the folder is still the one that is known, before something is written to it or removed from it.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder was removed, was created again, was replaced by an older copy, or cannot be read.
    pub(crate) fn check_instance(&mut self) -> Result<()> {
        let compared = self.compare()?;
        refuse_other(&*self.storage, &self.spec, &compared)
    }
}
