//! The cache: a directory, memory or an object store, and the stores of the modules in it.

pub(crate) mod alone;
pub(crate) mod blocking;
pub(crate) mod builder;
pub(crate) mod claims;
pub(crate) mod coverage;
pub(crate) mod gather;
pub(crate) mod mode;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod provenance;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(not(feature = "remote"))]
#[path = "without_remote.rs"]
pub(crate) mod remote;
pub(crate) mod settings;
pub(crate) mod stop;
pub(crate) mod stores;
pub(crate) mod summary;
pub(crate) mod tuning;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tcx_store::{Process, Spec, Store};

use crate::cache::alone::Alone;
use crate::cache::builder::CacheBuilder;
use crate::cache::mode::{Mode, Rows};
use crate::cache::place::Place;
use crate::cache::progress::Shown;
use crate::cache::provenance::provenance;
use crate::cache::settings::Settings;
use crate::cache::stores::Stores;
use crate::identity::Identity;
use crate::identity::sources::Origin;
use crate::ids::KeyKind;
use crate::output::CacheableOutput;
use crate::tensor::Device;
use crate::{Error, ErrorKind, Result};

/// A directory with the caches of any number of modules, shared by every process that opens it; or [memory](Self::in_memory); or a
/// prefix of an object store, shared by every machine.
///
/// Clones are handles of the same cache. Nothing is created on disk before the first rows are written. Dropping the last handle
/// of the cache and of its modules writes the buffered rows. For handles that are never dropped, as in a `static`, tcx writes
/// them when the program ends normally (on Unix). Only [`flush`](Self::flush) and [`close`](Self::close) return an error if
/// writing fails.
///
/// ```
/// # use tch::Tensor;
/// # use tcx::{D1, Extractor, Typed, cached_module};
/// # #[cached_module(id = "sums_v1")]
/// # struct Sums {}
/// # impl Extractor for Sums {
/// #     type Input = Tensor;
/// #     type Output = Typed<f32, D1<1>>;
/// #     fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
/// #         Ok(x.f_sum_dim_intlist([1i64].as_slice(), true, tch::Kind::Float)?.into())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let cache = tcx::Cache::open(path)?;
/// let sums = cache.module(Sums {})?;
/// let x = Tensor::ones([2, 8], tch::kind::FLOAT_CPU);
/// let first = sums.forward(&["a", "b"], &x)?; // computed
/// let again = sums.forward(&["a", "b"], &x)?; // served
/// assert!(first.equal(&again));
/// cache.flush()?; // durable when this returns
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    mode: Mode,
}

/// What the handles of a cache share.
#[derive(Debug)]
pub(crate) struct Shared {
    place: Place,
    stores: Stores,
    process: Process,
    closed: AtomicBool,
    shown: Shown,
    /// The weights behind the rows of each module, in whatever mode its handles are.
    origins: Alone<HashMap<OriginKey, Arc<Origin>>>,
}

/// The id of a module, and its identity: each may have rows of its own. Handles of one identity share their rows, whatever their
/// settings and modes.
type OriginKey = (&'static str, Vec<(String, String)>);

impl Shared {
    pub(crate) fn new(place: Place, shown: Shown) -> Self {
        let (stores, process, closed) = (Stores::default(), Process::current(), AtomicBool::new(false));
        let origins = Alone::default();
        Self { place, stores, process, closed, shown, origins }
    }
}

impl Cache {
    /// Opens the cache in directory `dir`, with the default settings. With the feature `remote`, it may be a URL, such as
    /// `s3://bucket/prefix`.
    ///
    /// # Errors
    ///
    /// As [`CacheBuilder::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(dir)
    }

    /// A cache in the memory of this process: for tests, notebooks and runs whose results are thrown away.
    ///
    /// Modules and tables have the same types, checks and errors as on disk. No file is written, and no other process sees the
    /// rows. All clones and modules of this value share them, and they are gone with the last one. Each module may take an eighth of
    /// the memory that the process may use; then it computes more rows without keeping them. For another limit or other settings, call
    /// [`CacheBuilder::open_in_memory`].
    ///
    /// ```
    /// let cache = tcx::Cache::in_memory();
    /// let lengths = cache.table::<Vec<i64>>("text_lengths_v1")?;
    /// let compute = |missing: tcx::Missing<'_, &str>| Ok(missing.ids().map(|id| id.len() as i64).collect());
    /// assert_eq!(lengths.get_or_compute(&["a", "bb"], compute)?, [1, 2]);
    /// assert_eq!(cache.table::<Vec<i64>>("text_lengths_v1")?.get(&["bb"])?, Some(vec![2]));
    /// assert!(tcx::Cache::in_memory().table::<Vec<i64>>("text_lengths_v1")?.get(&["bb"])?.is_none());
    /// # Ok::<(), tcx::Error>(())
    /// ```
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    pub(crate) fn new(shared: Shared, settings: Settings, mode: Mode) -> Self {
        Self { shared: Arc::new(shared), settings: Arc::new(settings), mode }
    }

    /// The settings, to change some of them.
    pub fn builder() -> CacheBuilder {
        CacheBuilder::new()
    }

    /// A handle of this cache that opens modules in another mode. Open modules keep their mode.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// A handle of this cache that opens modules and tables with other settings: limits, a time to live or a compression for some of
    /// them. `change` gets the settings of this handle. Open modules and tables keep theirs.
    ///
    /// A process has one set of settings for each module or table. To open one with other settings, drop its handles and this
    /// cache first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tcx::{Cache, WhenFull};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let cache = Cache::builder().max_bytes(100 << 30, WhenFull::StopWriting).open(dir.path())?;
    /// let daily = cache.with_settings(|own| own.time_to_live(Duration::from_hours(24)));
    /// let weather = daily.table::<Vec<f32>>("weather_v1")?; // at most 100 GiB of one day
    /// let lengths = cache.table::<Vec<i64>>("text_lengths_v1")?; // at most 100 GiB
    /// let error = cache.table::<Vec<f32>>("weather_v1").unwrap_err();
    /// assert!(error.to_string().contains("`time_to_live` is 86400s, requested none"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_settings(&self, change: impl FnOnce(Settings) -> Settings) -> Self {
        let settings = change(Settings::clone(&self.settings));
        let settings = match &self.shared.place {
            Place::Directory(_) | Place::Store(_) => settings,
            Place::Memory(_) => settings.in_memory(),
        };
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens the rows of a module or a table with these outputs and ids.
    pub(crate) fn open_rows<O: CacheableOutput, K: KeyKind>(
        &self,
        id: &str,
        identity: &Identity,
        device: &Device,
    ) -> Result<Rows> {
        self.shared.check_usable()?;
        self.settings.check().map_err(|error| error.in_module(id))?;
        identity.check_names(id)?;
        let mut provenance = provenance(device);
        provenance.extend(Identity::long_lists(O::describe));
        let spec = Spec::new(id, K::KEY_TYPE, &O::COLUMN, identity.to_store(O::describe), provenance);
        let spec = spec.map_err(|error| Error::from(error).in_module(id))?;
        let spec = K::STAMPS.into_iter().fold(spec, Spec::with_stamps);
        let Shared { place, stores, .. } = &*self.shared;
        let rows = Rows::open(place, spec, &self.settings.options, self.mode, stores.losses());
        let rows = rows.map_err(|error| error.in_module(id))?;
        rows.store().into_iter().try_for_each(|store| stores.add(store))?;
        Ok(rows)
    }

    /// The weights behind the rows of a module: the same ones for all its handles of one identity.
    ///
    /// # Errors
    ///
    /// Returns an error in a process that was forked from the one that opened the cache.
    pub(crate) fn origin(&self, id: &'static str, identity: &Identity) -> Result<Arc<Origin>> {
        let mut origins = self.shared.origins.lock().map_err(|_| self.shared.forked())?;
        Ok(origins.entry((id, identity.all_entries())).or_default().clone())
    }

    /// Waits until every row computed so far, of every module opened here, is durable: it survives kill -9
    /// and power loss. The rows of a cache in an object store are in the store then.
    ///
    /// # Errors
    ///
    /// Returns an error if accepted rows cannot be written, or if rows were computed while writing was off. The rows of the
    /// other modules are durable in any case. Of several errors, `flush` returns the first and logs the others.
    pub fn flush(&self) -> Result<()> {
        self.shared.check_usable()?;
        self.shared.stores.flush(Store::flush_for)
    }

    /// As [`flush`](Self::flush), for a cache in an object store that may be away: it is enough if the rows are durable on this machine.
    /// They are sent as soon as the store can be reached, by this process or the next one. For other caches it does the same as `flush`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flush_local(&self) -> Result<()> {
        self.shared.check_usable()?;
        self.shared.stores.flush(Store::flush_local_for)
    }

    /// Flushes, and closes the cache: every later use of it and of its modules is an error.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). The cache is closed even then, unless it was opened before this process was forked. Rows that
    /// are not yet written are tried again when another handle of the cache is closed. Lost rows are an error of every close.
    pub fn close(self) -> Result<()> {
        self.shared.check_process()?;
        self.shared.closed.store(true, Ordering::Release);
        self.shared.stores.close(self.shared.shown)
    }

    /// The directory, as an absolute path, or the URL of an object store. `memory://` for a cache [in memory](Self::in_memory), which has
    /// neither.
    pub fn path(&self) -> &Path {
        self.shared.place.path()
    }
}

impl Shared {
    /// What people at a terminal are shown.
    pub(crate) fn shown(&self) -> Shown {
        self.shown
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            let message = format!("the cache {} was closed", self.place);
            return Err(Error::new(ErrorKind::Closed, message).with_remedy("open it again to use it"));
        }
        Ok(())
    }

    /// Whether the locks and the threads of this cache can be waited for.
    ///
    /// # Errors
    ///
    /// Returns an error in a process that was forked from the one that opened the cache.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(self.forked()) }
    }

    /// Whether more than lookups is possible.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.check_open()?;
        self.check_process()
    }

    #[cold]
    pub(crate) fn forked(&self) -> Error {
        Error::forked(format!("the cache {}", self.place))
    }
}

/// When the last handle of the cache and of its modules goes.
impl Drop for Shared {
    fn drop(&mut self) {
        self.stores.sum_up(self.shown);
    }
}
