//! The settings that a module or a table may have for itself, in place of those of its cache.

use std::time::Duration;

use tcx_store::{Compression, Memory, OnMismatch, Options, WhenFull};

use crate::cache::tuning::Tuning;
use crate::{Error, ErrorKind, Result};

/// The settings of some modules and tables of a cache, for [`Cache::with_settings`](crate::Cache::with_settings). They begin as
/// those of the cache; each method changes one of them. None is part of an identity.
///
/// ```
/// use std::time::Duration;
/// use tcx::{Compression, Settings, WhenFull};
///
/// /// For answers that become outdated.
/// fn short_lived(settings: Settings) -> Settings {
///     settings.time_to_live(Duration::from_hours(24)).max_bytes(1 << 30, WhenFull::EvictOldest)
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let cache = tcx::Cache::builder().compression(Compression::Zstd).open(dir.path())?;
/// let weather = cache.with_settings(short_lived).table::<Vec<f32>>("weather_v1")?;
/// let forecasts = cache.with_settings(short_lived).table::<Vec<f32>>("forecasts_v1")?;
/// let norms = cache.table::<Vec<f32>>("norms_v1")?; // kept forever
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "`Cache::with_settings` takes them back"]
pub struct Settings {
    pub(super) options: Options,
    pub(super) recheck: f64,
    pub(super) refuses_repeated: bool,
}

/// One sample of a thousand.
const RECHECK: f64 = 0.001;

impl Settings {
    /// As [`CacheBuilder::time_to_live`](crate::CacheBuilder::time_to_live).
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.options.time_to_live = Some(time);
        self
    }

    /// Rows are kept however old they are, although the cache has a time to live.
    pub fn no_time_to_live(mut self) -> Self {
        self.options.time_to_live = None;
        self
    }

    /// As [`CacheBuilder::max_bytes`](crate::CacheBuilder::max_bytes).
    pub fn max_bytes(mut self, bytes: u64, when_full: WhenFull) -> Self {
        self.options.max_bytes = Some(bytes);
        self.options.when_full = when_full;
        self
    }

    /// No limit, although the cache has one. In memory, the default limit of
    /// [`open_in_memory`](crate::CacheBuilder::open_in_memory).
    pub fn no_max_bytes(mut self) -> Self {
        let Options { when_full, .. } = Options::default();
        (self.options.max_bytes, self.options.when_full) = (None, when_full);
        self
    }

    /// As [`CacheBuilder::on_mismatch`](crate::CacheBuilder::on_mismatch).
    pub fn on_mismatch(mut self, action: OnMismatch) -> Self {
        self.options.on_mismatch = action;
        self
    }

    /// As [`CacheBuilder::compression`](crate::CacheBuilder::compression).
    pub fn compression(mut self, compression: Compression) -> Self {
        self.options.compression = compression;
        self
    }

    /// As [`CacheBuilder::memory_cache_bytes`](crate::CacheBuilder::memory_cache_bytes).
    pub fn memory_cache_bytes(mut self, bytes: usize) -> Self {
        self.options.memory_cache_bytes = bytes;
        self
    }

    /// Changes some of the settings that seldom need another value; the others stay those of the cache.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let cache = tcx::Cache::in_memory();
    /// let often = cache.with_settings(|own| own.tuning(|own| own.flush_interval(Duration::from_millis(100))));
    /// let events = often.table::<Vec<i64>>("events_v1")?;
    /// # Ok::<(), tcx::Error>(())
    /// ```
    pub fn tuning(mut self, change: impl FnOnce(Tuning) -> Tuning) -> Self {
        change(Tuning::of(&self.options)).apply(&mut self.options);
        self
    }

    /// As [`CacheBuilder::recheck`](crate::CacheBuilder::recheck).
    pub fn recheck(mut self, fraction: f64) -> Self {
        self.recheck = fraction;
        self
    }

    /// As [`CacheBuilder::refuse_repeated_ids`](crate::CacheBuilder::refuse_repeated_ids).
    pub fn refuse_repeated_ids(mut self, refuses: bool) -> Self {
        self.refuses_repeated = refuses;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if (0. ..=1.).contains(&self.recheck) {
            return Ok(());
        }
        let error = Error::new(
            ErrorKind::InvalidSettings,
            format!("`recheck`: expected a number from 0 to 1, found {}", self.recheck),
        );
        let error = error.with_expected("a number from 0 to 1", self.recheck.to_string());
        Err(error.with_remedy("pass the fraction of computed samples to compute a second time"))
    }

    /// The settings of a cache in memory.
    pub(super) fn in_memory(mut self) -> Self {
        self.options.max_bytes.get_or_insert(Memory::default_max_bytes());
        // No other process still reads what was replaced.
        self.options.gc_grace = Duration::ZERO;
        self
    }

    /// The bytes that a folder may take.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.options.max_bytes
    }

    /// The part of the computed samples that is computed again.
    pub(crate) fn recheck_fraction(&self) -> f64 {
        self.recheck
    }

    /// Whether an id that is twice in a batch with different inputs is an error.
    pub(crate) fn refuses_repeated(&self) -> bool {
        self.refuses_repeated
    }
}

impl Default for Settings {
    fn default() -> Self {
        let (options, refuses_repeated) = (Options::default(), cfg!(debug_assertions));
        Self { options, recheck: RECHECK, refuses_repeated }
    }
}
