//! Loading the inputs of what is missing: by one request of the process, while others wait for the rows.

use std::collections::HashSet;

use tcx_store::{Keys, Lookup};

use crate::cache::claims::{Claim, Claimant, Claimed, Wait};
use crate::cache::gather::{Found, Gather};
use crate::cache::mode::Rows;
use crate::cached::Cached;
use crate::ids::Id;
use crate::ids::name::text;
use crate::module::extractor::CachedModule;
use crate::module::inputs::{check_loaded, select, taken};
use crate::module::missing::Missing;
use crate::{LoadFailure, Result};

/// What fails if a loader does.
pub(crate) const LOADING: &str = "loading the inputs";

/// Who loads what is missing of a lookup.
pub(crate) enum Loads {
    /// Nothing is missing any more.
    None,
    /// This request, which keeps others waiting as long as it has the claim. `None` if rows are not shared.
    Own(Option<Claim>),
    /// Another request loads some of it: first, it is waited for.
    Other(Wait),
}

impl<M: CachedModule> Cached<M> {
    /// The outputs for a batch whose inputs are loaded for missing samples only. If samples are missing, `load` is called once,
    /// and returns their inputs in the order of [`Missing`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tcx::{D1, Extractor, Typed, cached_module};
    /// # #[cached_module(id = "keyed_lengths_v1", key = i64)]
    /// # struct Lengths {}
    /// # impl Extractor for Lengths {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("7.txt"), "seven")?;
    /// # let cache = tcx::Cache::open(dir.path().join("cache"))?;
    /// let lengths = cache.module(Lengths {})?;
    /// let read = |id: &i64| std::fs::read_to_string(dir.path().join(format!("{id}.txt")));
    /// for epoch in 0..2 {
    ///     let found = lengths.fetch(&[7], |missing| {
    ///         assert_eq!(epoch, 0, "nothing is read twice");
    ///         missing.ids().map(|id| Ok(read(id)?)).collect()
    ///     })?;
    ///     assert_eq!(found, [5]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Equal requests at once
    ///
    /// The first request that misses a sample loads and computes it. Requests of other threads and tasks wait for it, through
    /// any handle of this module in the process. A request that misses samples of other requests waits for these first. Then it
    /// calls its loader once, with all samples that are still missing. A sample is still missing if the other loader failed or
    /// panicked, or if the row was not stored. All requests that waited then load it themselves, at the same time.
    ///
    /// - [`forward`](Self::forward) has its inputs and does not wait for loaders. It computes next, and requests that load the
    ///   same samples find its rows.
    /// - Handles in the modes [`ReadOnly`](crate::Mode::ReadOnly) and [`Off`](crate::Mode::Off) store nothing, so they share
    ///   nothing. Each handle in mode [`Recompute`](crate::Mode::Recompute) computes each sample once.
    /// - `load` may use this handle and others. If two requests would wait for each other by way of their loaders, one of them
    ///   loads the samples itself. tcx does not recognise requests that `load` makes in other threads. If one of these waits
    ///   for a sample of its own `load`, it loads that sample after a minute. So does a request that waits for a future which
    ///   nothing polls.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward). Also returns the errors of `load`.
    pub fn fetch<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnOnce(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<M::Output> {
        self.fetch_view(ids, 0, load)
    }

    pub(crate) fn fetch_view<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        load: impl FnOnce(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<M::Output> {
        let found = self.fetch_rows(ids, view, &self.gather, load)?;
        self.output(&self.gather, found)
    }

    /// As [`forward_rows`](Self::forward_rows), with inputs that are loaded.
    pub(crate) fn fetch_rows<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        gather: &Gather,
        load: impl FnOnce(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<Found> {
        let _span = tracing::debug_span!("forward", module = M::ID, rows = ids.len(), view).entered();
        let mut rows = self.lookup(ids, view, gather)?;
        if rows.missing() > 0 {
            self.load_missing(&mut rows, |asked| load(Missing::new(ids, asked)))?;
        }
        Ok(rows)
    }

    /// Loads the inputs of what is missing, computes it and stores it.
    pub(crate) fn load_missing(
        &self,
        rows: &mut Lookup,
        load: impl FnOnce(&[usize]) -> Result<M::Input>,
    ) -> Result<()> {
        let mut claimant = Claimant::blocking();
        let _claim = loop {
            match self.who_loads(rows, &mut claimant)? {
                Loads::None => return Ok(()),
                Loads::Own(claim) => break claim,
                Loads::Other(wait) => claimant.wait(wait),
            }
        };
        // Loaded before the lock is taken: threads load side by side, and a loader may use this module.
        let asked = rows.distinct_missing_positions();
        let entered = claimant.request().enter();
        let loaded = load(&asked);
        drop(entered);
        self.complete_loaded(&self.rows, rows, &asked, loaded).map(drop)
    }

    /// Computes what is missing of the rows from the inputs of the positions `asked`, and stores it in `store`. If some of them
    /// could not be loaded, the others are computed first. Returns how many rows this thread has computed.
    pub(crate) fn complete_loaded(
        &self,
        store: &Rows,
        rows: &mut Lookup,
        asked: &[usize],
        loaded: Result<M::Input>,
    ) -> Result<usize> {
        let mut error = match loaded {
            Err(error) if error.is_partial() => error,
            loaded => {
                let loaded = loaded.map_err(|error| error.returned_by(|| loading_failed(rows.keys(), asked)));
                let loaded = check_loaded::<M>(asked.len(), loaded)?;
                let inputs =
                    |positions: &[usize]| select(&loaded, asked.len(), &taken::<M>(asked, positions)?);
                return self.complete(store, rows, None, inputs);
            }
        };
        let failed: HashSet<usize> = error.load_failures().iter().map(LoadFailure::place).collect();
        let others = error.take_loaded::<M::Input>();
        let remedy = if others.is_some() {
            "the others were computed: repair these, or leave them out"
        } else {
            "the others were not computed, because the `Partial` has inputs of another type than the module: pass it those of the module"
        };
        if let Some(others) = others {
            let is_loaded = |(place, _): &(usize, &usize)| !failed.contains(place);
            let kept: Vec<usize> =
                asked.iter().enumerate().filter(is_loaded).map(|(_, position)| *position).collect();
            let others = check_loaded::<M>(kept.len(), Ok(others))?;
            let inputs = |positions: &[usize]| select(&others, kept.len(), &taken::<M>(&kept, positions)?);
            self.complete(store, rows, Some(&kept), inputs)?;
        }
        let id = |place: usize| asked.get(place).map_or_else(String::new, |&at| text(rows.keys(), at));
        Err(error.naming(LOADING, asked.len(), id, remedy).in_module(M::ID))
    }

    /// Claims what is missing of the rows, unless another request has some of it.
    pub(crate) fn who_loads(&self, rows: &mut Lookup, claimant: &mut Claimant) -> Result<Loads> {
        if rows.missing() > 0 && claimant.has_waited() {
            // Those that were waited for may have stored them.
            self.rows().lookup_again(rows)?;
        }
        if rows.missing() == 0 {
            return Ok(Loads::None);
        }
        self.shared().check_process()?;
        let Some(claims) = self.rows().claims() else { return Ok(Loads::Own(None)) };
        let claimed = claimant.claim(claims, &digests(rows)).map_err(|_| self.shared().forked())?;
        let claim = match claimed {
            Claimed::Held(wait) => return Ok(Loads::Other(wait)),
            Claimed::All(claim) => claim,
        };
        // One that had them until now has stored them before that.
        self.rows().lookup_again(rows)?;
        Ok(if rows.missing() == 0 { Loads::None } else { Loads::Own(Some(claim)) })
    }

    /// Claims what is missing and no other request has, for one that has the inputs.
    pub(crate) fn claim_free(&self, rows: &Lookup) -> Result<Option<Claim>> {
        let claim = self.rows().claims().map(|claims| claims.claim_free(&digests(rows))).transpose();
        claim.map_err(|_| self.shared().forked())
    }
}

/// What a loader that fails for the samples at these positions has not done.
pub(crate) fn loading_failed(keys: &Keys, asked: &[usize]) -> String {
    match asked {
        [] => format!("{LOADING} failed"),
        [one] => format!("loading the input of `{}` failed", text(keys, *one)),
        [first, ..] => {
            let (samples, first) = (asked.len(), text(keys, *first));
            format!("{LOADING} of {samples} samples failed, the first of which is `{first}`")
        }
    }
}

/// Which samples are missing, as they are claimed.
fn digests(rows: &Lookup) -> Vec<u64> {
    rows.all_missing_positions().map(|position| rows.keys().digest(position)).collect()
}
