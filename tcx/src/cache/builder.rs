//! The settings of a cache, before it is opened.

use std::path::Path;
use std::time::Duration;

use tcx_store::{Compression, Options, ReadMode, WhenFull};

use crate::cache::mode::Mode;
use crate::cache::{Cache, Shared};
use crate::{Error, Result};

/// The settings of a [`Cache`]. None of them is part of a module's identity.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # use std::time::Duration;
/// # use tcx::{Mode, WhenFull};
/// let cache = tcx::Cache::builder()
///     .seal_bytes(16 << 20)
///     .seal_after(Duration::from_secs(2))
///     .queue_bytes(1 << 30)
///     .refresh_every(Duration::from_millis(200))
///     .collect_after(Duration::from_secs(300))
///     .time_to_live(Duration::from_hours(24 * 30))
///     .max_bytes(100 << 30, WhenFull::EvictOldest)
///     .mode(Mode::ReadOnly)
///     .recheck(0.01)
///     .progress(false)
///     .open(dir.path())?;
/// assert_eq!(cache.path(), dir.path());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "`open` opens the cache"]
pub struct CacheBuilder {
    options: Options,
    mode: Mode,
    progress: bool,
    recheck: f64,
}

/// One sample of a thousand.
const RECHECK: f64 = 0.001;

impl CacheBuilder {
    pub(crate) fn new() -> Self {
        Self { options: Options::default(), mode: Mode::default(), progress: true, recheck: RECHECK }
    }

    /// Rows are written to disk when so many bytes have come together (64 MiB); more make fewer files.
    pub fn seal_bytes(mut self, bytes: usize) -> Self {
        self.options.seal_bytes = bytes;
        self
    }

    /// Rows are written to disk after so long at the latest (5 s): what a crash costs as long as the disk keeps up.
    pub fn seal_after(mut self, time: Duration) -> Self {
        self.options.seal_after = time;
        self
    }

    /// The most bytes of rows that wait to be written (256 MiB); beyond it `forward` waits.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.options.queue_bytes = bytes;
        self
    }

    /// How often to look for rows of other processes while nothing is missing (1 s).
    pub fn refresh_every(mut self, time: Duration) -> Self {
        self.options.refresh_every = time;
        self
    }

    /// Files that were replaced by others are removed when those are so old (1 min), and when the last handle is dropped: there at
    /// once, unless this is longer than a minute or the directory is on a network file system.
    pub fn collect_after(mut self, time: Duration) -> Self {
        self.options.collect_after = time;
        self
    }

    /// Samples are computed again when their rows are so old (never). A row is taken to be as old as the oldest in the same file,
    /// which is up to a sixteenth of this time.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.options.time_to_live = Some(time);
        self
    }

    /// The most bytes that each module's folder takes (no limit), temporary and replaced files included, and what happens then. It
    /// may be exceeded by 512 MiB at most for each process that writes at this moment.
    pub fn max_bytes(mut self, bytes: u64, when_full: WhenFull) -> Self {
        self.options.max_bytes = Some(bytes);
        self.options.when_full = when_full;
        self
    }

    /// How new files are compressed ([`Compression::None`]). Each process may choose its own: files of every kind are served
    /// side by side.
    ///
    /// ```
    /// use tcx::Compression;
    /// # let dir = tempfile::tempdir()?;
    /// let cache = tcx::Cache::builder().compression(Compression::Zstd).open(dir.path())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compression(mut self, compression: Compression) -> Self {
        self.options.compression = compression;
        self
    }

    /// How files are read ([`ReadMode::Auto`]: as the file system asks for).
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.options.read_mode = mode;
        self
    }

    /// The most bytes of decompressed and of read rows that are kept in memory, for each module (a sixteenth of the memory that the process
    /// may use); 0 keeps none.
    pub fn hot_bytes(mut self, bytes: usize) -> Self {
        self.options.hot_bytes = bytes;
        self
    }

    /// How modules use the cache ([`Mode::ReadWrite`]).
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether [`Cached::warm`](crate::Cached::warm) shows a bar, an epoch that computes what is missing for more than two seconds a line of how much, and
    /// each module one line when the cache is closed, if stderr is a terminal (`true`). With `tracing`, that line is an event of level INFO in any case.
    pub fn progress(mut self, shown: bool) -> Self {
        self.progress = shown;
        self
    }

    /// The part of the computed samples that is computed once more and compared (0.001), from 0 to 1. They are chosen at random
    /// while the cache is filled, some of a batch together and in another order, so that what shows only in some samples or
    /// batches is noticed: an augmentation that is rarely applied, padding that is not masked. A difference is an error, nothing
    /// of its batch is stored, and that handle computes no more. The first epoch takes longer by about this part;
    /// [`Stats::rows_rechecked`](crate::Stats::rows_rechecked) counts the samples.
    /// [`Cached::verify`](crate::Cached::verify) does the same with rows that are stored.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "rechecked_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// // Every sample twice: for a network that is not trusted yet.
    /// let cache = tcx::Cache::builder().recheck(1.).open(dir.path())?;
    /// let squares = cache.module(Squares {})?;
    /// squares.forward(&[1, 2, 3], &vec![1, 2, 3])?;
    /// assert_eq!(squares.stats().rows_rechecked, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recheck(mut self, fraction: f64) -> Self {
        self.recheck = fraction;
        self
    }

    /// Opens the cache in directory `dir`. A relative path is one from the current directory of this moment, wherever the program
    /// goes later.
    ///
    /// A module that this process has open there already is shared: its settings must be the same, but for the mode and what is
    /// shown.
    ///
    /// # Errors
    ///
    /// A path that exists and is no directory, an empty path, and a relative one where the current directory is gone; a part
    /// of the samples to [`recheck`](Self::recheck) that is not from 0 to 1.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Cache> {
        if !(0. ..=1.).contains(&self.recheck) {
            let error = Error::batch(format!("`recheck` is set to {}", self.recheck));
            let error = error.with_expected("a number from 0 to 1", self.recheck.to_string());
            return Err(
                error.with_remedy("give the part of the computed samples to compute once more, from 0 to 1")
            );
        }
        let dir = dir.as_ref();
        // Modules are opened later, perhaps from another current directory: all of them belong into this one.
        let dir = std::path::absolute(dir).map_err(|error| {
            let message = format!("cannot resolve the cache directory {}: {error}", dir.display());
            Error::directory(message, "name an absolute path")
        })?;
        if dir.exists() && !dir.is_dir() {
            let message = format!("{} is a file, and a cache is a directory", dir.display());
            return Err(Error::directory(message, "name another path"));
        }
        Ok(Cache::new(Shared::new(dir, self.options, self.progress, self.recheck), self.mode))
    }
}
