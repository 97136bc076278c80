//! Lookups that learn of changes which came after they began, before rows are computed.

use crate::engine::Core;
use crate::error::Result;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::stats::causes::Cause;

impl Core {
    /// From here on the lookup knows what is known now. The rows that it found before are looked for again if something was invalidated
    /// or replaced since: what is computed because one of them is rejected outlives that change, and must not undo it.
    pub(super) fn renew(&self, lookup: &mut Lookup, destinations: &mut Destinations<'_, '_>) {
        let now = self.seen();
        if !lookup.seen().is_as_of(&now) {
            for position in 0..lookup.len() {
                if !lookup.is_missing(position) {
                    lookup.reopen(position, Cause::Absent);
                    destinations.forget(position);
                }
            }
        }
        lookup.see(now);
    }

    /// Looks for changes, and returns whether this lookup knows all of them: what is computed for its rows then outlives them.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is not the one that was opened.
    pub(crate) fn is_current(&self, lookup: &Lookup) -> Result<bool> {
        self.refresh_before_computing(lookup.seen(), true)?;
        Ok(lookup.seen().is_as_of(&self.seen()))
    }

    /// Looks for all rows as they are now, as far as there are changes that the lookup did not know.
    pub(crate) fn look_up_again(&self, lookup: &mut Lookup) {
        let mut destinations = Destinations::default();
        self.renew(lookup, &mut destinations);
        self.lookup_missing(lookup, &mut destinations);
    }
}
