//! Looking up rows.

use std::time::Instant;

use super::Store;
use crate::error::Result;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::read::lookup_options::LookupOptions;
use crate::schema::key::Keys;

impl Store {
    /// Finds the rows of these keys.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys have another type, or if the folder is not the one that was opened. Disk failures are not
    /// returned as errors: unreadable rows are missing.
    pub fn lookup(&self, keys: Keys) -> Result<Lookup> {
        self.lookup_with(keys, LookupOptions::default())
    }

    /// As [`lookup`](Self::lookup): of some leaves only, into memory of the caller, for a recompute session, or without being
    /// counted.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup). Also returns an error if the store has no such leaf, if the leaf of a destination is not
    /// looked up, or if a destination has not room for exactly one row for each key.
    pub fn lookup_with(&self, keys: Keys, options: LookupOptions<'_, '_>) -> Result<Lookup> {
        self.core.check_leaves(options.leaves.map_or(&[][..], |leaves| leaves))?;
        for destination in &*options.destinations {
            self.core.check_destination(destination, keys.len(), options.leaves.map(|leaves| &**leaves))?;
        }
        let core = self.reader()?;
        let start = (!options.uncounted).then(Instant::now);
        let lookup = core.lookup(keys, options)?;
        Ok(match start {
            Some(start) => core.counted(lookup, start),
            None => lookup,
        })
    }

    /// Looks up the missing rows again, because another thread may have computed them.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is not the one that was opened.
    pub fn lookup_again(&self, lookup: &mut Lookup) -> Result<()> {
        let core = self.reader()?;
        core.check()?;
        let before = lookup.counts();
        core.lookup_missing(lookup, &mut Destinations::default());
        core.recounted(&before, lookup);
        Ok(())
    }
}
