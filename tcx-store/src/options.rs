//! The settings of a store. None of them is part of a cache's identity.

use std::fmt;
use std::time::Duration;

use crate::sys::memory::memory;

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
    /// Buffered rows are sealed when the oldest has waited so long (5 s): what a crash costs as long as the disk keeps up.
    pub flush_interval: Duration,
    /// The most bytes of rows that wait to be sealed (256 MiB). Beyond it the caller is slowed down.
    pub write_buffer_bytes: usize,
    /// How often a reader that misses nothing looks for rows of other processes (1 s).
    pub refresh_every: Duration,
    /// Segments that were joined into another are removed when that one is so old (60 s), and when the store is closed: there at
    /// once, unless this is longer than 60 s or the folder is on a network file system.
    pub gc_grace: Duration,
    /// Rows are not served any more when they are so old, and are removed; `None` keeps them for ever. A row is taken to be as
    /// old as the oldest that is stored in the same segment, which is up to a sixteenth of this time.
    pub time_to_live: Option<Duration>,
    /// The most bytes that the folder of a module takes, temporary and replaced files included; `None` is no limit. It may be
    /// exceeded by a segment (512 MiB at most) for each process that writes at this moment, and by what it writes while files are
    /// joined or removed.
    pub max_bytes: Option<u64>,
    /// What happens when the folder has [`max_bytes`](Self::max_bytes).
    pub when_full: WhenFull,
    /// How new segments are compressed; those that are there stay readable, whatever they are.
    pub compression: Compression,
    /// The most bytes of decompressed and of read rows that are kept in memory, by all handles of the module together (a sixteenth of the
    /// memory that the process may use, as the machine and its control groups say). 0 keeps none.
    pub memory_cache_bytes: usize,
    /// How files are read.
    pub read_mode: ReadMode,
    /// Nothing is written, no index run either: rows are looked up and that is all (`false`). A store that the process has
    /// open to read only is opened to write by the next open that asks for it: this alone may differ where a process opens a store again.
    pub read_only: bool,
}

impl Options {
    /// The settings in which these differ, and both values. A process has one store per folder, which has one value of each.
    pub(crate) fn difference(&self, other: &Self) -> Vec<Difference> {
        let pairs = self.settings().into_iter().zip(other.settings());
        let all = pairs.map(|((name, own), (_, other))| Difference { name, own, other });
        all.filter(|difference| difference.own != difference.other).collect()
    }

    fn settings(&self) -> [(&'static str, String); 11] {
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
            read_mode,
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
            ("read_mode", format!("{read_mode:?}")),
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

/// What happens when a folder takes as much room as it may.
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
    /// Nothing more is kept. Right for epochs that do not fit: the stored rows are found in each of them.
    #[default]
    StopWriting,
    /// The oldest rows make room for new ones. Files that cannot be removed so (damaged ones, and those of another cache or a newer
    /// version) are counted only as long as the newest rows have room beside them.
    EvictOldest,
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
    /// As the file system asks for: [`Pread`](Self::Pread) where files come over a network or from another program (NFS, SMB,
    /// FUSE, Lustre, 9p and others), [`Map`](Self::Map) everywhere else.
    #[default]
    Auto,
    /// Files are mapped into memory, and rows are copied straight from there. On a network file system a page of a file that
    /// another machine has removed kills the process (SIGBUS).
    Map,
    /// The parts that are wanted are read, and kept in the memory cache. What cannot be read is a miss.
    Pread,
}

/// How the rows of new segments are compressed. Keys never are.
///
/// Rows of random access are fastest as they are: they are copied straight from the files. Compressed ones are
/// decompressed 64 KiB or so at a time, and kept in the memory cache.
///
/// ```
/// # use tcx_store::{Column, ColumnType, Compression, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[65_536] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let options = Options { compression: Compression::Zstd, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// let mut rows = store.lookup(Keys::ints([1], 0))?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[7; 65_536])])?;
/// store.flush()?;
/// assert!(store.stats().bytes < 65_536);
/// assert_eq!(store.lookup(Keys::ints([1], 0))?.bytes(0, 0), [7; 65_536]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: fast, and less small.
    Lz4,
    /// Zstandard: smaller, and slower.
    Zstd,
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
            read_mode: ReadMode::Auto,
            read_only: false,
        }
    }
}
