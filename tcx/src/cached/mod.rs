//! A cached module: looks up a batch, computes what is missing, gathers the rest.

pub(crate) mod asynchronous;
pub(crate) mod chain;
pub(crate) mod checks;
pub(crate) mod compute;
pub(crate) mod concurrency;
pub(crate) mod coverage;
pub(crate) mod describe;
pub(crate) mod epoch;
pub(crate) mod fields;
pub(crate) mod holder;
pub(crate) mod invalidate;
pub(crate) mod keyed;
pub(crate) mod loading;
pub(crate) mod open;
pub(crate) mod panicked;
pub(crate) mod prefetch;
pub(crate) mod repeated;
pub(crate) mod turns;
pub(crate) mod upkeep;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod warm;

use std::fmt;
use std::sync::Arc;

use tcx_store::{Keys, Store};

use crate::cache::alone::Alone;
use crate::cache::gather::{Found, Gather};
use crate::cache::mode::Rows;
use crate::cache::progress::Computing;
use crate::cache::{Cache, Shared};
use crate::cached::checks::Recheck;
use crate::cached::checks::finite::FiniteWatch;
use crate::cached::checks::passed::Record;
use crate::cached::compute::Shown;
use crate::cached::holder::Holder;
use crate::cached::repeated::RepeatWatch;
use crate::cached::turns::Turns;
use crate::identity::sources::Sources;
use crate::ids::{Id, KeyKind};
use crate::module::batch::Batch;
use crate::module::extractor::CachedModule;
use crate::module::inputs::select;
use crate::output::CacheableOutput;
use crate::tensor::Device;
use crate::{Error, Result};

/// The number of samples that are computed together if the caller passes many.
const BATCH_SIZE: usize = 64;

/// A module whose outputs are computed once per sample. Made by [`Cache::module`](crate::Cache::module).
///
/// ```
/// # use tch::{Device, Tensor};
/// # use tcx::{Cache, Cached, Extractor, cached_module};
/// #[cached_module(id = "squares_v1", key = i64)]
/// struct Squares {}
///
/// impl Extractor for Squares {
///     type Input = Vec<i64>;
///     type Output = Vec<i64>;
///
///     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
///         Ok(x.iter().map(|x| x * x).collect())
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let squares: Cached<Squares> = Cache::open(dir.path())?.module(Squares {})?.output_device(Device::Cpu);
/// assert_eq!(squares.forward(&[1, 2], &vec![1, 2])?, [1, 4]);
/// assert_eq!(squares.fetch(&[2, 3], |missing| Ok(missing.ids().copied().collect()))?, [4, 9]);
/// squares.flush()?; // durable
/// squares.refresh()?; // looks for rows of other processes
/// let stats = squares.stats();
/// assert_eq!((stats.hits, stats.misses), (1, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Threads share it by reference. Found rows take no lock. One thread at a time computes missing rows, or
/// [several](Self::concurrency) do, each sample once. Several handles of a module share the work of [`fetch`](Self::fetch).
pub struct Cached<M> {
    shared: Arc<Shared>,
    rows: Rows,
    holder: Alone<Holder<M>>,
    turns: Turns,
    shown: Shown,
    /// What the module is, for those that take its outputs.
    entries: Vec<(String, String)>,
    /// The weights behind its rows, for the same.
    sources: Arc<Sources>,
    pub(crate) finite: FiniteWatch,
    pub(crate) recheck: Recheck,
    pub(crate) repeated: RepeatWatch,
    pub(crate) computing: Computing,
    gather: Gather,
    output_device: Device,
    pub(crate) batch_size: usize,
}

impl<M: CachedModule> Cached<M> {
    pub(crate) fn new(
        cache: &Cache,
        rows: Rows,
        holder: Holder<M>,
        sources: Arc<Sources>,
        entries: Vec<(String, String)>,
        output_device: Device,
    ) -> Self {
        let (shared, settings) = (cache.shared().clone(), cache.settings());
        let recheck = Recheck::new(settings.recheck_fraction());
        let repeated = RepeatWatch::new(settings.refuses_repeated());
        let shown = Shown::new(Record::of(&rows, &output_device));
        Self {
            shared,
            rows,
            holder: Alone::new(holder),
            turns: Turns::default(),
            shown,
            entries,
            sources,
            finite: FiniteWatch::default(),
            recheck,
            repeated,
            computing: Computing::default(),
            gather: Gather::default(),
            output_device,
            batch_size: BATCH_SIZE,
        }
    }

    /// What the module is.
    pub(crate) fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    /// The weights behind its rows.
    pub(crate) fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }

    /// Puts outputs on this device. The default is the device of the module's weights, or the CPU if it has none. Rows are stored
    /// without their device: caches that were filled on a GPU serve processes without one.
    ///
    /// If outputs cannot be copied there, the call that makes them returns an error; their rows are stored all the same.
    #[must_use]
    pub fn output_device(mut self, device: impl Into<Device>) -> Self {
        self.output_device = device.into();
        self
    }

    /// The number of samples that [`warm`](Self::warm) and [`verify`](Self::verify) load and compute together (64).
    #[must_use]
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.batch_size = rows.max(1);
        self
    }

    /// The outputs for a batch whose inputs are in memory: one id per sample, in the same order. Only the samples
    /// that are missing from the cache are computed.
    ///
    /// It returns the stored values in new tensors. They are the same for a computed and for a found sample.
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers of ids and inputs differ, if an id is malformed, if the module fails or its outputs are
    /// not as declared, if weights have changed, or if the cache is closed. In a process that was forked after the cache was
    /// opened, a missing sample is an error. So is a `forward` that uses this handle to compute missing samples on the same
    /// thread; on another thread, it may wait forever. Disk failures are not returned as errors: unreadable rows are computed,
    /// unwritten ones are counted in [`stats`](Self::stats).
    ///
    /// # Panics
    ///
    /// If the module panics. The cache is as it was.
    pub fn forward<I: Id<M::Key>>(&self, ids: &[I], inputs: &M::Input) -> Result<M::Output> {
        self.forward_view(ids, 0, inputs)
    }

    pub(crate) fn forward_view<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        inputs: &M::Input,
    ) -> Result<M::Output> {
        let found = self.forward_rows(ids, view, &self.gather, inputs)?;
        self.output(&self.gather, found)
    }

    /// The rows of a batch, for the leaves that `gather` reads.
    pub(crate) fn forward_rows<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        gather: &Gather,
        inputs: &M::Input,
    ) -> Result<Found> {
        let _span = tracing::debug_span!("forward", module = M::ID, rows = ids.len(), view).entered();
        let samples = inputs.rows().map_err(|error| error.in_module(M::ID))?;
        if samples != ids.len() {
            let (expected, found) = (format!("one id per sample, {samples} in all"), ids.len().to_string());
            let error = Error::batch(format!("expected {expected}, found {found}"));
            let error = error.with_expected(expected, found);
            return Err(error.in_module(M::ID).with_remedy("pass one id per sample"));
        }
        let mut rows = self.lookup(ids, view, gather)?;
        if rows.missing() > 0 {
            let _claim = self.claim_free(&rows)?;
            let missing = rows.missing();
            self.complete(&self.rows, &mut rows, None, |positions| {
                // Only a repeated id makes them fewer, or another thread, which costs one comparison of the keys.
                if positions.len() < missing {
                    self.repeated.check(M::ID, &self.pack(ids, view)?, positions, inputs)?;
                }
                select(inputs, samples, positions)
            })?;
        }
        Ok(rows)
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn lookup<I: Id<M::Key>>(&self, ids: &[I], view: u32, gather: &Gather) -> Result<Found> {
        self.lookup_keys(self.pack(ids, view)?, gather)
    }

    fn lookup_keys(&self, keys: Keys, gather: &Gather) -> Result<Found> {
        let _span = tracing::debug_span!("lookup", module = M::ID, rows = keys.len()).entered();
        let rows = gather.look_up(&self.rows, keys)?;
        if rows.missing() == 0 {
            self.computing.found_all();
        }
        Ok(rows)
    }

    /// As [`lookup`](Self::lookup), of whole outputs.
    pub(crate) fn look_up(&self, keys: Keys) -> Result<Found> {
        self.lookup_keys(keys, &self.gather)
    }

    /// The ids as keys of the store.
    pub(crate) fn pack<I: Id<M::Key>>(&self, ids: &[I], view: u32) -> Result<Keys> {
        self.pack_as::<M::Key, I>(ids, view)
    }

    pub(crate) fn pack_as<K: KeyKind, I: Id<K>>(&self, ids: &[I], view: u32) -> Result<Keys> {
        self.shared.check_open()?;
        K::pack(ids, view).map_err(|error| error.in_module(M::ID))
    }

    /// The store, to change what is in it.
    pub(crate) fn writable(&self) -> Result<&Arc<Store>> {
        self.shared.check_usable()?;
        self.rows.writable(M::ID)
    }

    /// The store, to look at what is in it.
    pub(crate) fn readable(&self) -> Result<&Arc<Store>> {
        self.shared.check_open()?;
        self.rows.readable(M::ID)
    }

    /// The whole output of the rows.
    pub(crate) fn output_of(&self, found: Found) -> Result<M::Output> {
        self.output(&self.gather, found)
    }

    /// The output that `gather` makes of the rows.
    pub(crate) fn output<O: CacheableOutput>(&self, gather: &Gather, found: Found) -> Result<O> {
        gather.read::<M::Output, O>(found, &self.output_device).map_err(|error| error.in_module(M::ID))
    }
}

impl<M: CachedModule> fmt::Debug for Cached<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("id", &M::ID).field("rows", &self.rows).finish_non_exhaustive()
    }
}
