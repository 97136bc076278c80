//! What a store has done since it was opened in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one store in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Rows that were served from the cache.
    pub hits: u64,
    /// Rows that had to be computed.
    pub misses: u64,
    /// Rows that were computed and accepted into the write buffer.
    pub rows_accepted: u64,
    /// Rows that were computed but not kept: writing was off, an invalidation killed them, or the folder was full.
    pub rows_dropped: u64,
    /// Rows that this process has made durable.
    pub rows_sealed: u64,
    /// Bytes of the segments that this process has sealed.
    pub bytes_sealed: u64,
    /// Segments that are served.
    pub segments: u64,
    /// Rows in these segments.
    pub rows: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Segments that are not served because their bytes are not what was written.
    pub damaged_segments: u64,
    /// Segments that are not served because another version of tcx has written them, in a format or with a codec that this
    /// one does not know.
    pub unknown_segments: u64,
    /// Rows that were taken for missing because the file system failed when they were read.
    pub failed_reads: u64,
    /// Bytes of decompressed and of read rows that are kept in memory.
    pub hot_bytes: u64,
    /// Index runs that were made again because they were damaged or missing.
    pub rebuilt_runs: u64,
    /// Rows that were computed with NaN or an infinity in them; counted by the crate `tcx`, for one handle.
    pub non_finite_rows: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) rows_accepted: Counter,
    pub(crate) rows_dropped: Counter,
    pub(crate) rows_sealed: Counter,
    pub(crate) bytes_sealed: Counter,
    pub(crate) damaged_segments: Counter,
    pub(crate) unknown_segments: Counter,
    pub(crate) failed_reads: Counter,
    pub(crate) rebuilt_runs: Counter,
}

/// A number that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn take_back(&self, amount: usize) {
        self.0.fetch_sub(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
