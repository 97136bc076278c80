//! Fills a store with the number of flushes after which all index runs are merged into one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::figures::Figures;
use crate::workload::{files, insert, open};

/// A power of the number of runs that one merge joins, so that one run is left.
pub(crate) const FLUSHES: usize = 64;
/// Rows inserted together.
const ROWS: usize = 1 << 16;
/// Fills the large store; measures its index on disk.
pub(crate) fn measure(figures: &mut Figures, dir: &Path, keys: usize) -> Result<()> {
    let start = Instant::now();
    let merging = fill(dir, keys)?;
    figures.add("fill.s", start.elapsed().as_secs_f64(), "all keys, flushed and merged");
    let bytes: u64 = files(dir, "run-")?.iter().map(|(_, bytes)| bytes).sum();
    figures.add("index.bytes_per_key", bytes as f64 / keys as f64, "18 at most");
    // After the last flush the last sixteenth of the keys is merged, then the last fourth, then all.
    let merged = keys as f64 * (1. + 1. / 4. + 1. / 16.);
    figures.add("merge.ns_per_key", merging.as_secs_f64() * 1e9 / merged, "of each merge that a key is in");
    Ok(())
}

/// Fills a store; returns the time that the writer continues to merge after the last flush.
pub(crate) fn fill(dir: &Path, keys: usize) -> Result<Duration> {
    let store = open(dir)?;
    for flush in 0..FLUSHES {
        let end = keys * (flush + 1) / FLUSHES;
        for start in (keys * flush / FLUSHES..end).step_by(ROWS) {
            insert(&store, start..end.min(start + ROWS))?;
        }
        store.flush()?;
    }
    let start = Instant::now();
    // Waits for the writer.
    drop(store);
    Ok(start.elapsed())
}
