//! The settings of a cache that seldom need another value.

use std::time::Duration;

use tcx_store::{BackgroundPriority, MemoryCachePolicy, Options, ReadMode};

/// The settings that seldom need another value, for [`CacheBuilder::tuning`](crate::CacheBuilder::tuning) and
/// [`Settings::tuning`](crate::Settings::tuning). None of them is part of a module's identity.
///
/// | setting | default |
/// |---|---|
/// | [`flush_bytes`](Self::flush_bytes) | 64 MiB |
/// | [`flush_interval`](Self::flush_interval) | 5 s |
/// | [`write_buffer_bytes`](Self::write_buffer_bytes) | 256 MiB |
/// | [`refresh_every`](Self::refresh_every) | 1 s |
/// | [`gc_grace`](Self::gc_grace) | 1 min |
/// | [`read_mode`](Self::read_mode) | [`ReadMode::Auto`] |
/// | [`memory_cache_policy`](Self::memory_cache_policy) | [`MemoryCachePolicy::Lru`] |
/// | [`background_priority`](Self::background_priority) | [`BackgroundPriority::Low`] |
///
/// ```
/// # use std::time::Duration;
/// use tcx::{Cache, Tuning};
///
/// # let dir = tempfile::tempdir()?;
/// // For a small container: little memory, and little to lose when it is killed.
/// let tuning = Tuning::new()
///     .flush_bytes(8 << 20)
///     .write_buffer_bytes(32 << 20)
///     .flush_interval(Duration::from_secs(1));
/// let cache = Cache::builder().tuning(tuning).open(dir.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "`CacheBuilder::tuning` takes it"]
pub struct Tuning {
    flush_bytes: usize,
    flush_interval: Duration,
    write_buffer_bytes: usize,
    refresh_every: Duration,
    gc_grace: Duration,
    read_mode: ReadMode,
    memory_cache_policy: MemoryCachePolicy,
    background_priority: BackgroundPriority,
}

impl Tuning {
    /// The defaults, to change some of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// The writer writes the buffered rows to a file when they reach this size (64 MiB). A larger size makes fewer files.
    pub fn flush_bytes(mut self, bytes: usize) -> Self {
        self.flush_bytes = bytes;
        self
    }

    /// The writer writes the buffered rows when the oldest has waited this long (5 s). A killed process loses the rows of at
    /// most this time, if the disk is fast enough.
    pub fn flush_interval(mut self, time: Duration) -> Self {
        self.flush_interval = time;
        self
    }

    /// The maximum size in bytes of rows that wait to be written (256 MiB). Above it, `forward` waits for the writer.
    pub fn write_buffer_bytes(mut self, bytes: usize) -> Self {
        self.write_buffer_bytes = bytes;
        self
    }

    /// How often a process that misses nothing looks for rows and invalidations of other processes (1 s). Until then it may
    /// serve a row that another process has invalidated. Lookups that miss rows look for new rows at most every 100 ms, and for
    /// invalidations every time, so that computed rows outlive earlier invalidations.
    pub fn refresh_every(mut self, time: Duration) -> Self {
        self.refresh_every = time;
        self
    }

    /// How long a file stays on disk after compaction has replaced it (1 min), for processes that still read it. When the last
    /// handle is dropped, replaced files are deleted at once, unless this is longer than a minute or the directory is on a
    /// network file system.
    pub fn gc_grace(mut self, time: Duration) -> Self {
        self.gc_grace = time;
        self
    }

    /// How files are read ([`ReadMode::Auto`]: the file system decides).
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// What the memory cache keeps when it is full ([`MemoryCachePolicy::Lru`]: what was used last).
    pub fn memory_cache_policy(mut self, policy: MemoryCachePolicy) -> Self {
        self.memory_cache_policy = policy;
        self
    }

    /// How much the background threads yield to those of the program ([`BackgroundPriority::Low`]). With
    /// [`BackgroundPriority::Idle`], a program that answers requests finds rows in even times while others are written, but a
    /// `flush` may wait for minutes as long as all processors are busy.
    pub fn background_priority(mut self, priority: BackgroundPriority) -> Self {
        self.background_priority = priority;
        self
    }

    /// Those of these options.
    pub(super) fn of(options: &Options) -> Self {
        Self {
            flush_bytes: options.flush_bytes,
            flush_interval: options.flush_interval,
            write_buffer_bytes: options.write_buffer_bytes,
            refresh_every: options.refresh_every,
            gc_grace: options.gc_grace,
            read_mode: options.read_mode,
            memory_cache_policy: options.memory_cache_policy,
            background_priority: options.background_priority,
        }
    }

    pub(super) fn apply(self, options: &mut Options) {
        // A new setting has to be named here.
        let Self {
            flush_bytes,
            flush_interval,
            write_buffer_bytes,
            refresh_every,
            gc_grace,
            read_mode,
            memory_cache_policy,
            background_priority,
        } = self;
        options.flush_bytes = flush_bytes;
        options.flush_interval = flush_interval;
        options.write_buffer_bytes = write_buffer_bytes;
        options.refresh_every = refresh_every;
        options.gc_grace = gc_grace;
        options.read_mode = read_mode;
        options.memory_cache_policy = memory_cache_policy;
        options.background_priority = background_priority;
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::of(&Options::default())
    }
}
