//! Looking rows up: in the write buffer, then in the segments.

use crate::buffer::generation::Newest;
use crate::buffer::wanted::Wanted;
use crate::changes::Seen;
use crate::engine::Core;
use crate::error::Result;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::read::lookup_options::LookupOptions;
use crate::read::lookup_stored;
use crate::schema::key::Keys;
use crate::stats::causes::Cause;

impl Core {
    /// Finds the rows of these keys; looks for new files if it is time to, or if some are missing.
    pub(crate) fn lookup(&self, keys: Keys, options: LookupOptions<'_, '_>) -> Result<Lookup> {
        let LookupOptions { leaves, destinations, recompute, uncounted: _ } = options;
        self.check_key_type(keys.key_type())?;
        keys.check_stamps(&self.leaves)?;
        self.refresh_if_due()?;
        // Before the rows are looked for: a change that comes later kills what is computed for those that are missing, though the search
        // may have been faster than the change.
        let seen = self.seen();
        let mut lookup = Lookup::new(keys, self.leaves.clone(), seen, recompute.cloned());
        // A number that changes with every lookup that finds rows.
        lookup.choose_sample(self.counters.hits.get());
        if let Some(leaves) = leaves {
            lookup = lookup.of_leaves(leaves);
        }
        let mut destinations = Destinations::new(destinations, lookup.len());
        self.lookup_missing(&mut lookup, &mut destinations);
        if lookup.missing() > 0 && self.refresh_before_computing(lookup.seen(), false)? {
            // Before the rows are looked for: what is still missing then is computed after these changes.
            self.renew(&mut lookup, &mut destinations);
            self.lookup_missing(&mut lookup, &mut destinations);
        }
        Ok(lookup.with_copied(destinations.into_copied()))
    }

    /// What a lookup knows that is made now.
    pub(super) fn seen(&self) -> Seen {
        // Before the buffer is searched: what is counted is found there.
        let (accepted, recomputed) = (self.buffer.accepted(), self.buffer.recomputed());
        let mut seen = self.snapshot().seen();
        (seen.accepted, seen.recomputed) = (accepted, recomputed);
        seen
    }

    /// Finds what it can of the missing rows: in the write buffer, then in the segments.
    ///
    /// In this order a row cannot slip through: it leaves the buffer only after the snapshot holds its segment.
    pub(crate) fn lookup_missing(&self, lookup: &mut Lookup, destinations: &mut Destinations<'_, '_>) {
        if lookup.missing() > 0 {
            lookup.forget_notes();
            self.lookup_missing_once(lookup, destinations);
            lookup.reject_outdated(destinations);
        }
    }

    fn lookup_missing_once(&self, lookup: &mut Lookup, destinations: &mut Destinations<'_, '_>) {
        // Before the buffer is searched: the tombstones that make way for buffered rows are shown under the buffer's lock, so a lookup
        // that has them finds the rows with the numbers by which they outlive them.
        let (tombstones, is_unread) = {
            let snapshot = self.snapshot();
            (snapshot.tombstones.clone(), snapshot.is_unread)
        };
        if is_unread {
            // It hides rows of the buffer, whatever the snapshot says in which the segments are searched.
            lookup.hide();
        }
        let (keys, recompute) = (lookup.keys(), lookup.recompute());
        let oldest_kept = self.retention.oldest_kept();
        let wanted = Wanted { keys, tombstones: &tombstones, recompute, oldest_kept };
        let (mut buffered, mut of_others) = (Vec::new(), Vec::new());
        self.buffer.find(&wanted, lookup.all_missing_positions(), |position, newest| match newest {
            Newest::Own(row) => buffered.push((position, row)),
            Newest::OfOthers => of_others.push(position),
        });
        for (position, row) in buffered {
            lookup.found_buffered(position, row);
        }
        self.lookup_sealed(lookup, destinations);
        // Sealed rows are older than buffered ones: the session's own has been replaced.
        for position in of_others {
            if !lookup.is_missing(position) {
                lookup.reopen(position, Cause::Recomputed);
                destinations.forget(position);
            }
        }
    }

    fn lookup_sealed(&self, lookup: &mut Lookup, destinations: &mut Destinations<'_, '_>) {
        // Each round takes at least one damaged file out of service.
        while lookup.missing() > 0 {
            // Loaded after the buffer was searched: a row that was sealed in between is in this snapshot.
            let snapshot = self.unexpired();
            let before = (&**snapshot, &*self.storage);
            let damaged = self.read_ahead.around(lookup, destinations, before, |lookup, destinations| {
                lookup_stored(lookup, destinations, &snapshot, &self.memory_cache, &*self.storage)
            });
            self.counters.failed_reads.add(damaged.unread);
            // A recompute session replaces what it did not find.
            if (damaged.unread > 0 || snapshot.is_partial)
                && lookup.recompute().is_none()
                && lookup.missing() > 0
            {
                lookup.doubt(&snapshot.tombstones);
            }
            if snapshot.is_unread {
                // This snapshot may be newer than what the lookup has seen.
                lookup.hide();
            }
            if damaged.is_empty() {
                return;
            }
            self.drop_damaged(&damaged);
        }
    }
}
