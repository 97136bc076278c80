//! What a store has done since it was opened in this process.

pub(crate) mod batch_times;
pub(crate) mod causes;
pub(crate) mod display;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod prices;
pub(crate) mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stats::batch_times::{BatchClock, BatchTimes};
use crate::stats::causes::MissCauses;
use crate::stats::traffic::Traffic;

/// Counters of one store in this process.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.flush()?;
/// store.invalidate(&Keys::ints([2], 0))?;
/// store.lookup(Keys::ints([1, 2, 3], 0))?;
/// let stats = store.stats();
/// assert_eq!((stats.hits, stats.misses), (1, 4));
/// assert_eq!((stats.miss_causes.absent, stats.miss_causes.invalidated), (3, 1));
/// assert_eq!((stats.rows_sealed, stats.flush_times.count), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Rows that were served from the cache.
    pub hits: u64,
    /// Rows that had to be computed.
    pub misses: u64,
    /// The causes of the misses.
    pub miss_causes: MissCauses,
    /// Where rows were found.
    pub tiers: Tiers,
    /// Bytes of the rows that were served, texts left out.
    pub bytes_served: u64,
    /// Rows that were computed because they were missing, kept or not; reported by [`Store::computed`](crate::Store::computed).
    pub rows_computed: u64,
    /// Rows that were computed and accepted into the write buffer.
    pub rows_accepted: u64,
    /// Bytes of these rows, with their keys.
    pub bytes_accepted: u64,
    /// Rows that were computed but not stored: writing was off, the folder was full, or they were
    /// [superseded](Self::rows_superseded).
    pub rows_dropped: u64,
    /// Of [`rows_dropped`](Self::rows_dropped), those that died before they were written: by an invalidation, a newer row of the
    /// same sample, or the end of their time to live. [`flush`](crate::Store::flush) returns an error for values among them that cannot be
    /// computed again.
    pub rows_superseded: u64,
    /// Rows that wait in the write buffer now.
    pub buffered_rows: u64,
    /// Bytes of the rows that wait, at most [`write_buffer_bytes`](crate::Options::write_buffer_bytes).
    pub buffered_bytes: u64,
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
    /// Segments that are not served because they are damaged.
    pub damaged_segments: u64,
    /// Segments that are not served because another version of tcx wrote them, in an unknown format or with an unknown codec.
    pub unknown_segments: u64,
    /// Rows that were misses because the file system failed to read them.
    pub failed_reads: u64,
    /// How often a lookup or [`refresh`](crate::Store::refresh) could not list the folder: until one can, rows and
    /// invalidations of other processes are not seen.
    pub failed_listings: u64,
    /// The size of the memory cache in bytes.
    pub memory_cache_bytes: u64,
    /// The most bytes that the memory cache keeps now: [`Options::memory_cache_bytes`](crate::Options::memory_cache_bytes), or less
    /// as long as memory is short.
    pub memory_cache_limit: u64,
    /// How often the memory cache was made smaller because memory was short.
    pub memory_cache_shrinks: u64,
    /// Index runs that were rebuilt because they were damaged or missing.
    pub rebuilt_runs: u64,
    /// How often writing was turned off.
    pub write_failures: u64,
    /// Whether writing is off now.
    pub is_writing_off: bool,
    /// What was asked of the object store; nothing, if the rows are in a directory or in memory.
    pub traffic: Traffic,
    /// Lookups that found all of their rows: from the packed keys until the rows are found and verified, and copied if they have a
    /// [`Destination`](crate::Destination).
    pub hit_times: BatchTimes,
    /// Lookups that missed a row, without the time that it took to compute it.
    pub miss_times: BatchTimes,
    /// Computing missing rows, as reported by [`Store::computed`](crate::Store::computed). The times of threads that compute at once
    /// are added up.
    pub compute_times: Timings,
    /// Waiting for [`flush`](crate::Store::flush).
    pub flush_times: Timings,
    /// Writing segments from the write buffer, and making them durable.
    pub seal_times: Timings,
    /// Merging index runs.
    pub merge_times: Timings,
    /// Joining segments.
    pub compaction_times: Timings,
    /// Removing files that are no longer needed.
    pub collection_times: Timings,
    /// Rows that were computed with NaN or an infinity in them; counted by the crate `tcx`, for one handle.
    pub non_finite_rows: u64,
    /// Rows that were computed a second time as a check; counted by the crate `tcx`, for one handle.
    pub rows_rechecked: u64,
    /// Samples that had the id of an earlier sample of their batch and another input; counted by the crate `tcx`, for one handle.
    pub repeated_ids: u64,
}

/// Hits and misses by tier: the write buffer, which is searched first, and the segments.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.lookup(Keys::ints([1, 2], 0))?; // from the write buffer
/// store.flush()?;
/// store.lookup(Keys::ints([1, 3], 0))?; // from a segment
/// let tiers = store.stats().tiers;
/// assert_eq!((tiers.buffer.hits, tiers.buffer.misses), (2, 4));
/// assert_eq!((tiers.segments.hits, tiers.segments.misses), (1, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tiers {
    /// The write buffer. Its misses are looked up in the segments.
    pub buffer: TierCounts,
    /// The segments. Their misses have to be computed.
    pub segments: TierCounts,
    /// The memory cache. It counts parts of compressed or read segments, not rows. A hit was in memory; a miss was decompressed
    /// or read. Nothing is counted if [`memory_cache_bytes`](crate::Options::memory_cache_bytes) is 0.
    pub memory_cache: TierCounts,
}

/// Hits and misses of one of the [`Tiers`].
///
/// ```
/// let counts = tcx_store::TierCounts::default();
/// assert_eq!((counts.hits, counts.misses), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierCounts {
    /// Rows that were found there.
    pub hits: u64,
    /// Rows that were not.
    pub misses: u64,
}

/// The number and the duration of some kind of work.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.flush()?;
/// let flushes = store.stats().flush_times;
/// assert_eq!(flushes.count, 1);
/// assert!(flushes.longest <= flushes.total);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// The number of times.
    pub count: u64,
    /// The total time.
    pub total: Duration,
    /// The longest time.
    pub longest: Duration,
}

/// The size of a store's folder on disk, with the files of all processes, or in [memory](crate::Memory).
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let usage = store.disk_usage()?;
/// assert!(usage.files >= 2); // the identity and a segment
/// assert!(usage.bytes > 0 && usage.dead_bytes == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// Files of tcx.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// The part of these bytes that could be removed: dead rows, and files that are replaced, expired, damaged, or left by
    /// killed processes.
    pub dead_bytes: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) buffer_hits: Counter,
    /// By their cause.
    pub(crate) misses: [Counter; MissCauses::COUNT],
    pub(crate) bytes_served: Counter,
    pub(crate) rows_computed: Counter,
    pub(crate) rows_accepted: Counter,
    pub(crate) bytes_accepted: Counter,
    pub(crate) rows_dropped: Counter,
    pub(crate) rows_superseded: Counter,
    pub(crate) rows_sealed: Counter,
    pub(crate) bytes_sealed: Counter,
    pub(crate) damaged_segments: Counter,
    pub(crate) unknown_segments: Counter,
    pub(crate) failed_reads: Counter,
    pub(crate) failed_listings: Counter,
    pub(crate) rebuilt_runs: Counter,
    pub(crate) write_failures: Counter,
    pub(crate) hit_times: BatchClock,
    pub(crate) miss_times: BatchClock,
    /// By [`Work`].
    pub(crate) clocks: [Clock; Work::COUNT],
}

/// What takes time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Compute,
    Flush,
    Seal,
    Merge,
    Compaction,
    Collection,
}

impl Work {
    const COUNT: usize = 6;
}

impl Counters {
    /// Rows died before they were written.
    pub(crate) fn drop_superseded(&self, rows: usize) {
        self.rows_dropped.add(rows);
        self.rows_superseded.add(rows);
    }

    pub(crate) fn miss_causes(&self) -> MissCauses {
        MissCauses::of(std::array::from_fn(|cause| self.misses[cause].get()))
    }

    pub(crate) fn clock(&self, work: Work) -> &Clock {
        &self.clocks[work as usize]
    }
}

/// A number that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: usize) {
        if amount > 0 {
            self.0.fetch_add(amount as u64, Ordering::Relaxed);
        }
    }

    /// What was counted as `before` is `after` now.
    pub(crate) fn move_from(&self, before: usize, after: usize) {
        self.add(after.saturating_sub(before));
        let less = before.saturating_sub(after);
        if less > 0 {
            let take = |counted: u64| Some(counted.saturating_sub(less as u64));
            // It is never `None`.
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes the times of something that is done now and then.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    count: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
}

impl Clock {
    /// It was done since `start`.
    pub(crate) fn stop(&self, start: Instant) -> Duration {
        let took = start.elapsed();
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        took
    }

    pub(crate) fn times(&self) -> Timings {
        let nanoseconds = |number: &AtomicU64| Duration::from_nanos(number.load(Ordering::Relaxed));
        Timings {
            count: self.count.load(Ordering::Relaxed),
            total: nanoseconds(&self.nanoseconds),
            longest: nanoseconds(&self.longest),
        }
    }
}
