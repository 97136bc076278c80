//! Lookups: from the keys of a batch to its rows.
//!
//! A lookup *probes* the index runs for the hashes of its keys, which gives candidates; it *confirms* that the row of a
//! candidate has the key; it *copies* the row, or remembers where it is. The fast path does so for rows of mapped segments, the
//! slow path for whatever the fast path leaves.

pub(crate) mod causes;
pub(crate) mod destination;
mod fast_path;
pub(crate) mod loaded;
pub(crate) mod lookup;
pub(crate) mod lookup_options;
pub(crate) mod read_ahead;
mod slow_path;
pub(crate) mod wide_rows;

use crate::live::damage::DamagedFiles;
use crate::live::snapshot::Snapshot;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::segment::memory_cache::MemoryCache;
use crate::storage::Storage;
use fast_path::{FastPath, Request};
use slow_path::SlowPath;

/// Looks the missing rows of `lookup` up in the segments of `snapshot`, one index run after the other. Returns the files that
/// turned out to be damaged: their rows stay missing.
pub(crate) fn lookup_stored(
    lookup: &mut Lookup,
    destinations: &mut Destinations<'_, '_>,
    snapshot: &Snapshot,
    memory_cache: &MemoryCache,
    storage: &dyn Storage,
) -> DamagedFiles {
    let mut rest = Vec::new();
    let mut slow = SlowPath::new(lookup, destinations, &snapshot.tombstones, memory_cache);
    // The largest run is the first: most rows are found in it, and the next ones are probed for few keys.
    for run in &snapshot.runs {
        if slow.lookup.missing() == 0 {
            break;
        }
        rest.clear();
        let mut request = Request { lookup: &mut *slow.lookup, destinations: &mut *slow.destinations };
        FastPath::new(run, &snapshot.tombstones).lookup(&mut request, &mut rest);
        // Before the next run: what the fast path leaves may be in this one.
        slow.lookup_rest(run, &rest);
    }
    slow.lookup_far(storage);
    slow.damaged
}
