//! The settings of a store. None of them is part of a cache's identity.

mod compression;
mod eviction;

use std::fmt;
use std::time::Duration;

pub use compression::Compression;
pub use eviction::{Eviction, EvictionCandidate, EvictionPolicy};

use crate::sys::memory::memory;
use crate::sys::priority::Background;

/// The default of [`Options::gc_grace`].
pub(crate) const GC_GRACE: Duration = Duration::from_mins(1);

/// How a store writes and refreshes.
///
/// ```
/// let options = tcx_store::Options { flush_bytes: 16 << 20, ..Default::default() };
/// assert_eq!(options.write_buffer_bytes, 256 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Buffered rows are sealed into a segment when they reach this number of bytes (64 MiB).
    pub flush_bytes: usize,
    /// Buffered rows are sealed when the oldest has waited this long (5 s). If the disk is fast enough, a crash loses the rows
    /// of at most this time.
    pub flush_interval: Duration,
    /// The maximum size in bytes of rows that wait to be sealed (256 MiB). Above it, an insert waits for the writer.
    pub write_buffer_bytes: usize,
    /// How often a reader that misses nothing looks for rows of other processes (1 s).
    pub refresh_every: Duration,
    /// Replaced segments are removed when the segment that replaced them is this old (60 s). Closing the store removes them at
    /// once, unless this is longer than 60 s or the folder is on a network file system.
    pub gc_grace: Duration,
    /// Rows that are older than this are no longer served, and are removed; `None` keeps them forever.
    ///
    /// The age of a row is that of the oldest row in its segment, so a row may go early. If every process that joins segments of the
    /// folder has this setting, a row goes at most a sixteenth of this time early. If another process has a longer one, or none, a
    /// row goes no earlier than after half of this time, or at most 131 seconds early if this is shorter than 5 minutes.
    pub time_to_live: Option<Duration>,
    /// The maximum size of a module's folder in bytes, including temporary and replaced files; `None` is no limit. Each process
    /// that is writing may exceed it by a segment (at most 512 MiB), and by what it writes while files are joined or removed.
    ///
    /// With [`WhenFull::EvictOldest`], segments have at most an eighth of this size, because they are evicted whole.
    pub max_bytes: Option<u64>,
    /// What happens when the folder has [`max_bytes`](Self::max_bytes).
    pub when_full: WhenFull,
    /// The compression of new segments. Existing segments stay readable, whatever their codec is.
    pub compression: Compression,
    /// The maximum size in bytes of the memory cache, for all handles of the module together (a sixteenth of the memory of the
    /// machine or the control group). It contains decompressed rows and read rows. 0 turns it off.
    ///
    /// The cache keeps less as long as memory is short, on Linux: if less than a 32nd of the memory of the machine or the control
    /// group is available, it lets go of half of its parts, and of all of them below a 128th. It looks at most once a second, and
    /// only when it loads something.
    pub memory_cache_bytes: usize,
    /// What the memory cache keeps.
    pub memory_cache_policy: MemoryCachePolicy,
    /// How files are read.
    pub read_mode: ReadMode,
    /// How much the background threads yield to the threads of the program.
    pub background_priority: BackgroundPriority,
    /// What happens if the folder of the module belongs to another identity. It may differ between opens of a folder.
    pub on_mismatch: OnMismatch,
    /// The store only looks rows up, and writes nothing, not even an index run (`false`). If a process opens a store again,
    /// this setting may differ: the next open for writing makes a read-only store writable.
    pub read_only: bool,
}

impl Options {
    /// The settings in which these differ, and both values. A process has one store per folder, which has one value of each.
    pub(crate) fn difference(&self, other: &Self) -> Vec<Difference> {
        let pairs = self.settings().into_iter().zip(other.settings());
        let all = pairs.map(|((name, own), (_, other))| Difference { name, own, other });
        all.filter(|difference| difference.own != difference.other).collect()
    }

    fn settings(&self) -> [(&'static str, String); 13] {
        // A new setting has to be named here.
        let Self {
            flush_bytes,
            flush_interval,
            write_buffer_bytes,
            refresh_every,
            gc_grace,
            time_to_live,
            max_bytes,
            when_full,
            compression,
            memory_cache_bytes,
            memory_cache_policy,
            read_mode,
            background_priority,
            on_mismatch: _,
            read_only: _,
        } = self;
        let when_full = max_bytes.map(|_| when_full);
        [
            ("flush_bytes", flush_bytes.to_string()),
            ("flush_interval", format!("{flush_interval:?}")),
            ("write_buffer_bytes", write_buffer_bytes.to_string()),
            ("refresh_every", format!("{refresh_every:?}")),
            ("gc_grace", format!("{gc_grace:?}")),
            ("time_to_live", or_none(time_to_live.map(|time| format!("{time:?}")))),
            ("max_bytes", or_none(max_bytes.map(|bytes| bytes.to_string()))),
            ("when_full", or_none(when_full.map(|action| format!("{action:?}")))),
            ("compression", format!("{compression:?}")),
            ("memory_cache_bytes", memory_cache_bytes.to_string()),
            ("memory_cache_policy", format!("{memory_cache_policy:?}")),
            ("read_mode", format!("{read_mode:?}")),
            ("background_priority", format!("{background_priority:?}")),
        ]
    }
}

fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| "none".to_owned())
}

/// A setting that has two values.
pub(crate) struct Difference {
    name: &'static str,
    own: String,
    other: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, requested {}", self.name, self.own, self.other)
    }
}

/// What happens when a folder has reached its limit.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store, WhenFull};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let options = Options { max_bytes: Some(0), when_full: WhenFull::StopWriting, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// let mut rows = store.lookup(Keys::ints([1], 0))?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
/// assert_eq!(rows.bytes(0, 0), [10]);
/// store.flush()?;
/// assert_eq!((store.stats().rows_sealed, store.stats().rows_dropped), (0, 1)); // there is no room
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// New rows are not stored. Use it for epochs that do not fit on the disk: the stored rows are found in each epoch.
    #[default]
    StopWriting,
    /// The oldest rows are removed to make room for new ones. Eviction cannot remove damaged files and those of another cache
    /// or a newer version. They count against the limit only as long as the newest rows still fit.
    EvictOldest,
    /// As [`EvictOldest`](Self::EvictOldest), but the rows are removed whose segments were used least for their size, without the
    /// newest eighth of the limit. [`EvictionCandidate::uses`] says what counts as a use. Use it if some samples are used more often
    /// than others, or if epochs that do not fit on the disk come again and again and new samples have to be stored all the same.
    EvictLeastUsed,
    /// As [`EvictOldest`](Self::EvictOldest), but rows of random segments are removed, without the newest eighth of the limit. It needs
    /// no records of other processes, and no order of the samples makes it useless.
    EvictRandom,
    /// As [`EvictOldest`](Self::EvictOldest), but the rows are removed that a policy of your own chooses.
    EvictBy(Eviction),
}

impl WhenFull {
    /// Whether rows make room for new ones.
    pub(crate) fn evicts(self) -> bool {
        self != Self::StopWriting
    }

    /// Whether it matters how often segments were used.
    pub(crate) fn counts_uses(self) -> bool {
        matches!(self, Self::EvictLeastUsed | Self::EvictBy(_))
    }
}

/// What the memory cache keeps when it is full.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, MemoryCachePolicy, Options, ReadMode, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let memory_cache_policy = MemoryCachePolicy::ScanResistant;
/// let options = Options { memory_cache_policy, read_mode: ReadMode::Pread, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// assert_eq!(store.lookup(Keys::ints([2], 0))?.bytes(0, 0), [20]);
/// assert!(store.stats().memory_cache_bytes <= store.stats().memory_cache_limit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryCachePolicy {
    /// What was used last. It has the most hits if everything fits, or if some samples are used much more often than others.
    #[default]
    Lru,
    /// What is used again soonest, as far as that is known. An epoch larger than the cache displaces nothing that is used more often
    /// than once in an epoch. If such epochs come in the same order again and again, a part of each is found, while
    /// [`Lru`](Self::Lru) finds nothing.
    ScanResistant,
}

/// How much the background threads of a store, which write, join and remove files, yield to the threads of the program while all
/// processors are busy. It has an effect on Linux only, where each thread has a priority of its own.
///
/// ```
/// # use tcx_store::{BackgroundPriority, Options};
/// let options = Options { background_priority: BackgroundPriority::Idle, ..Default::default() };
/// assert_eq!(Options::default().background_priority, BackgroundPriority::Low);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackgroundPriority {
    /// The thread that writes has a tenth of the share of a thread of the program (nice 10), the one that joins files a sixtieth
    /// (nice 19): a `flush` takes longer, but it ends.
    #[default]
    Low,
    /// They run only where a processor has nothing else to do (`SCHED_IDLE`). This is for a program that answers requests and writes
    /// little: rows are found in even times while others are written. As long as all processors are busy, a `flush`, the
    /// closing of the store, and a caller for which the write buffer is full may wait for minutes.
    Idle,
}

impl BackgroundPriority {
    /// The priority of a thread, which has this one by default.
    pub(crate) fn of(self, thread: Background) -> Background {
        match self {
            Self::Low => thread,
            Self::Idle => Background::Idle,
        }
    }
}

/// What happens if the folder of a module belongs to another identity: other weights, settings or outputs under the same id.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, OnMismatch, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let options = Options { on_mismatch: OnMismatch::Separate, ..Default::default() };
/// for size in ["224", "336", "224"] {
///     let identity = Identity::from_iter([("size".to_owned(), size.to_owned())]);
///     let spec = Spec::new("m_v1", KeyType::Int, &output, identity, Vec::new())?;
///     let store = Store::open(dir.path(), spec, &options)?;
///     let mut rows = store.lookup(Keys::ints([1], 0))?;
///     if rows.missing() > 0 {
///         store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
///     }
///     store.flush()?;
/// }
/// assert_eq!(tcx_store::modules(dir.path())?.len(), 2); // m_v1+…, twice
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMismatch {
    /// Opening the module is an error that names both sides.
    #[default]
    Refuse,
    /// Each identity has a cache of its own, in a folder `ID+DIGEST` beside that of the module, where the digest is that of the
    /// identity. The folder of the module stays that of the identity which has it already. The same identity gets the same folder
    /// again, in every process.
    ///
    /// All programs that use a module in one directory at the same time have the same setting. Otherwise one that opens the module
    /// before it has a folder may begin one of its own while another program writes that of the module, and neither sees the rows and
    /// invalidations of the other.
    Separate,
}

/// How files are read.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, ReadMode, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let options = Options { read_mode: ReadMode::Pread, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.flush()?;
/// assert_eq!(store.lookup(Keys::ints([2], 0))?.bytes(0, 0), [20]);
/// assert!(store.stats().memory_cache_bytes > 0); // what was read is kept
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadMode {
    /// The file system decides: [`Pread`](Self::Pread) on network file systems and those of other programs (NFS, SMB, FUSE,
    /// Lustre, 9p and others), [`Map`](Self::Map) on all others.
    #[default]
    Auto,
    /// Files are mapped into memory, and rows are copied straight from there. On a network file system, reading a page of a
    /// file that another machine has removed ends the process (SIGBUS).
    Map,
    /// The needed parts are read, and kept in the memory cache. Unreadable rows are misses.
    Pread,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flush_bytes: 64 << 20,
            flush_interval: Duration::from_secs(5),
            write_buffer_bytes: 256 << 20,
            refresh_every: Duration::from_secs(1),
            gc_grace: GC_GRACE,
            time_to_live: None,
            max_bytes: None,
            when_full: WhenFull::StopWriting,
            compression: Compression::None,
            memory_cache_bytes: memory() / 16,
            memory_cache_policy: MemoryCachePolicy::Lru,
            read_mode: ReadMode::Auto,
            background_priority: BackgroundPriority::Low,
            on_mismatch: OnMismatch::Refuse,
            read_only: false,
        }
    }
}
