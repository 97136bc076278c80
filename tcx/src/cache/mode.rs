//! How a handle uses the cache: the four modes, in one place.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use tcx_store::{
    Attestation, Column, Destination, Keys, Lookup, LookupOptions, Losses, Options, RecomputeSession, Spec,
    Stats, Store,
};

use crate::cache::claims::Claims;
use crate::cache::place::Place;
use crate::{Error, ErrorKind, Result};

/// How the modules of a cache use it. Chosen with [`CacheBuilder::mode`](crate::CacheBuilder::mode), or for some modules with
/// [`Cache::with_mode`](crate::Cache::with_mode).
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "modes_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// use tcx::Mode;
///
/// let cache = tcx::Cache::open(dir.path())?;
/// let words = cache.module(Words {})?;
/// words.forward(&["a"], &vec!["one".to_owned()])?;
///
/// // Another text under the same id: only a new computation notices.
/// let text = vec!["three".to_owned()];
/// assert_eq!(words.forward(&["a"], &text)?, [3]);
/// assert_eq!(cache.with_mode(Mode::Off).module(Words {})?.forward(&["a"], &text)?, [5]);
/// assert_eq!(words.forward(&["a"], &text)?, [3]);
/// assert_eq!(cache.with_mode(Mode::Recompute).module(Words {})?.forward(&["a"], &text)?, [5]);
/// cache.flush()?;
/// assert_eq!(words.forward(&["a"], &text)?, [5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Found rows are served; missing rows are computed and stored.
    #[default]
    ReadWrite,
    /// Found rows are served; missing rows are computed but not stored. Nothing is written to the directory or the object store.
    ReadOnly,
    /// Each handle computes each sample once, even if a row exists, and replaces that row.
    Recompute,
    /// The module is called; the directory is neither read nor written.
    Off,
}

/// A module's store, used in a mode by one handle.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    used: Used,
    /// The lost rows of this handle.
    losses: Arc<Losses>,
    /// The samples that are being computed for rows that other requests then find. Of all handles of the store, unless each of
    /// them computes for itself.
    claims: Option<Arc<Claims>>,
}

/// The rows as one call uses them that answers for what it stores: it learns of its own losses, whatever other threads flush by the
/// same handle. What it has not learned when it returns is a loss of the handle.
pub(crate) struct Call<'a> {
    rows: Rows,
    handle: &'a Arc<Losses>,
}

impl Call<'_> {
    /// The call returns an error of its own for rows that were not kept.
    pub(crate) fn forget_losses(&self) {
        let _ = self.rows.losses.take();
    }
}

impl Deref for Call<'_> {
    type Target = Rows;

    fn deref(&self) -> &Rows {
        &self.rows
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.rows.losses.hand_over(self.handle);
    }
}

#[derive(Clone, Debug)]
enum Used {
    ReadWrite(Arc<Store>),
    ReadOnly(Arc<Store>),
    Recompute(Arc<Store>, Arc<RecomputeSession>),
    Off(Spec),
}

impl Rows {
    /// `losses` also counts the lost rows of this handle.
    pub(crate) fn open(
        place: &Place,
        spec: Spec,
        options: &Options,
        mode: Mode,
        losses: &Arc<Losses>,
    ) -> Result<Self> {
        let read_only = mode == Mode::ReadOnly;
        let open = |spec| place.open(spec, &Options { read_only, ..options.clone() });
        let used = match mode {
            Mode::ReadWrite => Used::ReadWrite(open(spec)?),
            Mode::ReadOnly => Used::ReadOnly(open(spec)?),
            Mode::Recompute => Used::Recompute(open(spec)?, RecomputeSession::new()),
            Mode::Off => Used::Off(spec),
        };
        let claims = match &used {
            Used::ReadWrite(store) => store.companion(),
            Used::Recompute(..) => Some(Arc::default()),
            // No other request finds what is computed.
            Used::ReadOnly(_) | Used::Off(_) => None,
        };
        Ok(Self { used, losses: Losses::new().within(losses), claims })
    }

    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        match &self.used {
            Used::ReadWrite(store) | Used::ReadOnly(store) | Used::Recompute(store, _) => Some(store),
            Used::Off(_) => None,
        }
    }

    /// The samples that are being computed, if other requests find what is computed: not while the folder is full.
    pub(crate) fn claims(&self) -> Option<&Arc<Claims>> {
        self.claims.as_ref().filter(|_| !self.store().is_some_and(|store| store.is_full()))
    }

    /// Whether computed rows are stored.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.used, Used::ReadWrite(_) | Used::Recompute(..))
    }

    /// Whether each handle computes each sample, whatever is stored.
    pub(crate) fn recomputes(&self) -> bool {
        matches!(self.used, Used::Recompute(..))
    }

    pub(crate) fn lookup(&self, keys: Keys) -> Result<Lookup> {
        Ok(match &self.used {
            Used::ReadWrite(store) | Used::ReadOnly(store) => store.lookup(keys)?,
            Used::Recompute(store, recompute) => store.lookup_with(
                keys,
                LookupOptions { recompute: Some(recompute), ..LookupOptions::default() },
            )?,
            Used::Off(spec) => spec.empty_lookup(keys),
        })
    }

    /// As [`lookup`](Self::lookup); only these leaves are going to be read, if any are said, and rows that are found are copied to
    /// their destinations, as many as can be.
    pub(crate) fn lookup_into(
        &self,
        keys: Keys,
        leaves: Option<&Arc<[usize]>>,
        destinations: &mut [Destination<'_>],
    ) -> Result<Lookup> {
        match &self.used {
            Used::ReadWrite(store) | Used::ReadOnly(store) => Ok(store
                .lookup_with(keys, LookupOptions { leaves, destinations, ..LookupOptions::default() })?),
            Used::Recompute(..) | Used::Off(_) => self.lookup(keys),
        }
    }

    /// Whether rows may be copied while they are looked up.
    pub(crate) fn copies_what_it_finds(&self) -> bool {
        matches!(self.used, Used::ReadWrite(_) | Used::ReadOnly(_))
    }

    /// As [`lookup`](Self::lookup), without counting.
    pub(crate) fn peek(&self, keys: Keys) -> Result<Lookup> {
        Ok(match &self.used {
            Used::ReadWrite(store) | Used::ReadOnly(store) => {
                store.lookup_with(keys, LookupOptions::uncounted())?
            }
            Used::Recompute(store, recompute) => store.lookup_with(
                keys,
                LookupOptions { recompute: Some(recompute), uncounted: true, ..LookupOptions::default() },
            )?,
            Used::Off(spec) => spec.empty_lookup(keys),
        })
    }

    /// As [`peek`](Self::peek), before values are put for what is missing: after whatever other processes have done until now.
    pub(crate) fn lookup_to_put(&self, keys: Keys) -> Result<Lookup> {
        Ok(match &self.used {
            Used::ReadWrite(store) => store.lookup_to_put(keys, None)?,
            Used::Recompute(store, recompute) => store.lookup_to_put(keys, Some(recompute))?,
            Used::ReadOnly(_) | Used::Off(_) => self.peek(keys)?,
        })
    }

    /// A lookup that finds nothing: its rows are computed and kept nowhere.
    pub(crate) fn empty_lookup(&self, keys: Keys) -> Lookup {
        match &self.used {
            Used::ReadWrite(store) | Used::ReadOnly(store) | Used::Recompute(store, _) => {
                store.empty_lookup(keys)
            }
            Used::Off(spec) => spec.empty_lookup(keys),
        }
    }

    pub(crate) fn lookup_again(&self, rows: &mut Lookup) -> Result<()> {
        Ok(self.store().map_or(Ok(()), |store| store.lookup_again(rows))?)
    }

    /// Rejects the rows at `positions`: the rows that complete the lookup replace them. `false` if the lookup is another one now, whose
    /// rows have to be judged.
    pub(crate) fn reject(&self, rows: &mut Lookup, positions: &[usize]) -> Result<bool> {
        Ok(self.store().map_or(Ok(true), |store| store.reject(rows, positions))?)
    }

    /// Counts rows that were computed since `start`.
    pub(crate) fn computed(&self, rows: usize, start: Instant) {
        if let Some(store) = self.store() {
            store.computed(rows, start);
        }
    }

    /// Completes the lookup with computed rows, and stores them if the mode does. If there is an `attestation`, they are stored
    /// only as long as it holds. Returns whether they are stored.
    pub(crate) fn complete(
        &self,
        rows: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
        attestation: Option<&Arc<Attestation>>,
    ) -> Result<bool> {
        match &self.used {
            Used::ReadWrite(store) | Used::Recompute(store, _) => {
                Ok(store.insert_for(&self.losses, rows, positions, columns, attestation)?)
            }
            Used::ReadOnly(_) | Used::Off(_) => {
                rows.complete(positions, columns)?;
                Ok(false)
            }
        }
    }

    /// Waits until every row is durable.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be written, or if rows of this handle were lost since the last call.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.store().map_or(Ok(()), |store| store.flush_for(&self.losses))?)
    }

    /// As [`flush`](Self::flush); durable on this machine is enough.
    pub(crate) fn flush_local(&self) -> Result<()> {
        Ok(self.store().map_or(Ok(()), |store| store.flush_local_for(&self.losses))?)
    }

    /// These, for one call that answers for the rows it stores.
    pub(crate) fn for_call(&self) -> Call<'_> {
        let (used, claims) = (self.used.clone(), self.claims.clone());
        Call { rows: Self { used, losses: self.losses.for_call(), claims }, handle: &self.losses }
    }

    /// The store, to change what is in it.
    pub(crate) fn writable(&self, id: &str) -> Result<&Arc<Store>> {
        let mode = match &self.used {
            Used::ReadWrite(store) | Used::Recompute(store, _) => return Ok(store),
            Used::ReadOnly(_) => "ReadOnly",
            Used::Off(_) => "Off",
        };
        let message = format!("cannot change rows: this handle has mode {mode}");
        Err(wrong_mode(id, message, "open the module in mode ReadWrite"))
    }

    /// The store, to look at what is in it.
    pub(crate) fn readable(&self, id: &str) -> Result<&Arc<Store>> {
        let off = || {
            wrong_mode(id, "cannot read rows: this handle has mode Off", "open the module in another mode")
        };
        self.store().ok_or_else(off)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.store().map(|store| store.stats()).unwrap_or_default()
    }
}

fn wrong_mode(id: &str, message: impl Into<Box<str>>, remedy: &str) -> Error {
    Error::new(ErrorKind::WrongMode, message).in_module(id).with_remedy(remedy)
}
