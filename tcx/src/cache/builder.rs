//! The settings of a cache, before it is opened.

use std::path::Path;
use std::time::Duration;

use tcx_store::{Compression, Memory, OnMismatch, WhenFull, url_scheme};

use crate::Result;
use crate::cache::mode::Mode;
use crate::cache::place::{Place, check_directory, report_absent};
use crate::cache::progress::Shown;
use crate::cache::remote::RemoteSettings;
use crate::cache::settings::Settings;
use crate::cache::tuning::Tuning;
use crate::cache::{Cache, Shared};

/// The settings of a [`Cache`]. None of them is part of a module's identity.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # use std::time::Duration;
/// # use tcx::{Mode, WhenFull};
/// let cache = tcx::Cache::builder()
///     .max_bytes(100 << 30, WhenFull::EvictOldest)
///     .time_to_live(Duration::from_hours(24 * 30))
///     .memory_cache_bytes(1 << 30)
///     .mode(Mode::ReadOnly)
///     .recheck(0.01)
///     .progress(true)
///     .open(dir.path())?;
/// assert_eq!(cache.path(), dir.path());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Tuning`] contains the settings that seldom need another value. Modules and tables have the settings of their cache, unless
/// [`Cache::with_settings`] gives them others.
#[derive(Clone, Debug)]
#[must_use = "`open` and `open_in_memory` open the cache"]
pub struct CacheBuilder {
    settings: Settings,
    mode: Mode,
    shown: Shown,
    pub(super) remote: RemoteSettings,
}

impl CacheBuilder {
    pub(crate) fn new() -> Self {
        let (settings, remote) = (Settings::default(), RemoteSettings::default());
        Self { settings, mode: Mode::default(), shown: Shown::default(), remote }
    }

    /// Rows that are older than this are computed again (default: never).
    ///
    /// The age of a row is that of the oldest row in its file, so a row may go early. If every process that writes to the cache has
    /// this setting, a row goes at most a sixteenth of this time early. If another process has a longer one, or none, a row goes no
    /// earlier than after half of this time, or at most 131 seconds early if this is shorter than 5 minutes.
    ///
    /// A value that is too old for one process, which computes it again, is left out for the others too, in time: give all processes that
    /// open a table one setting if values are [put](crate::Table::put) into it that no process can compute.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.settings = self.settings.time_to_live(time);
        self
    }

    /// The maximum size of each module's folder in bytes (no limit), including temporary and replaced files, and what happens
    /// at that size. Each process that is writing may exceed it by at most 512 MiB.
    pub fn max_bytes(mut self, bytes: u64, when_full: WhenFull) -> Self {
        self.settings = self.settings.max_bytes(bytes, when_full);
        self
    }

    /// What happens if the folder of a module or table belongs to another identity: other weights, settings or outputs under the same
    /// id ([`OnMismatch::Refuse`]). With [`OnMismatch::Separate`] each identity has a cache of its own, so a sweep over weights or
    /// settings needs no new id for each value.
    ///
    /// A separate cache is the folder `ID+DIGEST` beside that of the module; the digest is that of the identity. The same identity
    /// finds its folder again, in every process with this setting. A process without it looks into the folder of the module only. The
    /// setting hides mistakes that `Refuse` reports: if a module changes by accident, its rows are computed again. `tcx ls` lists the
    /// folders, and `tcx prune --unused-for 30d` removes those that no process has used for a while.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// use tcx::{Cache, OnMismatch};
    ///
    /// #[cached_module(id = "scaled_ids_v1", key = i64)]
    /// struct Scaled {
    ///     factor: i64,
    /// }
    /// # impl Extractor for Scaled {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| self.factor * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// let cache = Cache::builder().on_mismatch(OnMismatch::Separate).open(dir.path())?;
    /// for factor in [2, 3, 2] {
    ///     let scaled = cache.module(Scaled { factor })?;
    ///     assert_eq!(scaled.forward(&[7], &vec![7])?, [7 * factor]);
    ///     // The third has the rows of the first.
    ///     assert_eq!(scaled.stats().rows_computed, 1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_mismatch(mut self, action: OnMismatch) -> Self {
        self.settings = self.settings.on_mismatch(action);
        self
    }

    /// The compression of new files ([`Compression::None`]). Each process may choose its own, because one cache may contain
    /// files with every codec.
    ///
    /// ```
    /// use tcx::Compression;
    /// # let dir = tempfile::tempdir()?;
    /// let cache = tcx::Cache::builder().compression(Compression::Zstd).open(dir.path())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compression(mut self, compression: Compression) -> Self {
        self.settings = self.settings.compression(compression);
        self
    }

    /// The maximum size in bytes of the memory cache of each module: decompressed rows, and rows that were read instead of
    /// mapped (a sixteenth of the memory that the process may use). 0 turns it off. While the machine or the control group is short
    /// of memory, the memory cache keeps less; [`Stats::memory_cache_limit`](crate::Stats::memory_cache_limit) is what it may keep.
    pub fn memory_cache_bytes(mut self, bytes: usize) -> Self {
        self.settings = self.settings.memory_cache_bytes(bytes);
        self
    }

    /// The settings that seldom need another value. Another call replaces all of them: settings that it does not name get their
    /// defaults again.
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.settings = self.settings.tuning(|_| tuning);
        self
    }

    /// How modules use the cache ([`Mode::ReadWrite`]).
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What is printed on stderr if it is a terminal. Otherwise only notices are printed.
    ///
    /// - `true`: a bar in [`Cached::warm`](crate::Cached::warm), one line of progress while an epoch computes for longer than two
    ///   seconds, and one line for each module when the cache is closed.
    /// - `false`: nothing, not even notices.
    /// - If it is not set: only the bar of `warm`.
    ///
    /// In all three cases the same is reported as events of `tracing`, with level INFO.
    ///
    /// *Notices* are lines about damage, files that cannot be read, failed writing, and rows that are lost or not kept. They are events
    /// of `tracing` with level WARN or ERROR. If no subscriber of `tracing` is set up, the first notice of each kind in a process is
    /// written to stderr instead, with the path and what to do, unless every cache of the process was opened with `progress(false)`.
    pub fn progress(mut self, shown: bool) -> Self {
        self.shown = if shown { Shown::Everything } else { Shown::Nothing };
        self
    }

    /// The fraction of computed samples that is computed a second time and compared (0.001), from 0 to 1. tcx chooses them at
    /// random while it fills the cache, several of a batch together and in another order. So it detects mistakes that affect
    /// only some samples or batches: an augmentation that is rarely applied, or padding that is not masked. A difference is an
    /// error: tcx stores nothing of that batch, and the handle computes no more. The first epoch takes longer by about this
    /// fraction; [`Stats::rows_rechecked`](crate::Stats::rows_rechecked) counts the samples.
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
        self.settings = self.settings.recheck(fraction);
        self
    }

    /// Whether [`forward`](crate::Cached::forward) returns an error if one id is at two positions of its batch with different
    /// inputs (`true` in debug builds, `false` in release builds). One row cannot hold both: without the error, both samples get
    /// the output of the first. File names without their folders are the usual reason. In both cases
    /// [`Stats::repeated_ids`](crate::Stats::repeated_ids) counts the samples, and the first is an event of `tracing` with level
    /// WARN.
    ///
    /// tcx compares the inputs of an id when it computes its row, and only those of one call of `forward`: it compares nothing
    /// if all rows are stored, or if every id is in the batch once, and `fetch` and `warm` load the input of an id once.
    /// [`Batch::is_same`](crate::Batch::is_same) lists the types of inputs that are compared.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "repeated_v1")]
    /// # struct Lengths {}
    /// # impl Extractor for Lengths {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// let cache = tcx::Cache::builder().refuse_repeated_ids(true).open(dir.path())?;
    /// let lengths = cache.module(Lengths {})?;
    /// let texts = vec!["a cat".to_owned(), "a black cat".to_owned()];
    /// // `train/cat.txt` and `test/cat.txt`, by their file names.
    /// let error = lengths.forward(&["cat.txt", "cat.txt"], &texts).unwrap_err();
    /// assert!(error.to_string().contains("positions 0 and 1"));
    /// assert_eq!(lengths.stats().repeated_ids, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse_repeated_ids(mut self, refuses: bool) -> Self {
        self.settings = self.settings.refuse_repeated_ids(refuses);
        self
    }

    /// Opens the cache in directory `dir`. A relative path is resolved now, so a later change of the current directory has no
    /// effect.
    ///
    /// With the feature `remote`, `dir` may be the URL of a prefix in an object store, such as `s3://bucket/prefix`, `gs://…` or
    /// `az://…`: any number of machines then share one cache. No request is made before a module is opened. `docs/remote.md` describes
    /// what differs.
    ///
    /// Several caches of one directory share the modules that this process has open. Their settings must be the same, except
    /// for the mode and the progress. So must those of two caches only if both open one module: a second cache may have another
    /// [`time_to_live`](Self::time_to_live) or another limit for other modules and tables.
    ///
    /// A directory that does not exist is created with the first rows. In [`Mode::ReadOnly`] it is not, and a warning says so.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is empty or is not a directory, if it is relative and the current directory is gone, or if
    /// the fraction to [`recheck`](Self::recheck) is not from 0 to 1. Returns an error that names the directory to open if the
    /// path is the folder of a module or inside one, or is a new directory inside another cache; and if it begins with `~`, which only
    /// a shell replaces by the home directory. Returns an error if the URL of an object store contains credentials or cannot be read, and
    /// if its near tier cannot be made.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Cache> {
        self.settings.check()?;
        let dir = dir.as_ref();
        check_directory(dir)?;
        let place = if url_scheme(dir).is_some() { self.remote.place(dir)? } else { Place::directory(dir)? };
        Ok(self.cache(place))
    }

    /// Opens a new cache in memory, as [`Cache::in_memory`] does, with these settings. [`max_bytes`](Self::max_bytes) limits what each
    /// module takes; without it, the limit is an eighth of the memory that the process may use, and
    /// [`WhenFull::StopWriting`] holds. Compaction needs up to 512 MiB more for a moment. `gc_grace` and `read_mode` have no effect.
    ///
    /// ```
    /// use tcx::WhenFull;
    ///
    /// let cache = tcx::Cache::builder().max_bytes(1 << 30, WhenFull::EvictOldest).open_in_memory()?;
    /// let lengths = cache.table::<Vec<i64>>("text_lengths_v1")?;
    /// lengths.put(&["a"], &vec![1])?;
    /// cache.flush()?;
    /// assert!(lengths.stats().bytes > 0); // in memory
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the fraction to [`recheck`](Self::recheck) is not from 0 to 1.
    pub fn open_in_memory(self) -> Result<Cache> {
        self.settings.check()?;
        Ok(self.in_memory())
    }

    /// The settings are right.
    pub(super) fn in_memory(self) -> Cache {
        let settings = self.settings.in_memory();
        Self { settings, ..self }.cache(Place::Memory(Memory::new()))
    }

    fn cache(self, place: Place) -> Cache {
        if self.shown.has_notices() {
            tcx_store::notices_on_stderr();
        }
        let Self { settings, shown, mode, .. } = self;
        if let Place::Directory(dir) = &place
            && mode == Mode::ReadOnly
            && !dir.exists()
        {
            report_absent(dir);
        }
        Cache::new(Shared::new(place, shown), settings, mode)
    }
}
