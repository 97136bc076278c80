//! How a handle uses the cache: the four modes, in one place.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tcx_store::{Attestation, Column, Destination, Keys, Lookup, Options, Replacer, Spec, Stats, Store};

use crate::{Error, Result};

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
/// // Another text under the same id: only who computes anew notices.
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
    /// What is found is served, what is missing is computed and kept.
    #[default]
    ReadWrite,
    /// What is found is served, what is missing is computed and not kept. Nothing is written into the directory.
    ReadOnly,
    /// Each sample is computed once by each handle, whatever is in the cache, and takes the place of what was there.
    Recompute,
    /// The module is called; the directory is neither read nor written.
    Off,
}

/// A module's store, used in a mode.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    ReadWrite(Arc<Store>),
    ReadOnly(Arc<Store>),
    Recompute(Arc<Store>, Arc<Replacer>),
    Off(Spec),
}

impl Rows {
    pub(crate) fn open(dir: &Path, spec: Spec, options: &Options, mode: Mode) -> Result<Self> {
        let read_only = mode == Mode::ReadOnly;
        let open = |spec| Store::open(dir, spec, &Options { read_only, ..options.clone() });
        Ok(match mode {
            Mode::ReadWrite => Self::ReadWrite(open(spec)?),
            Mode::ReadOnly => Self::ReadOnly(open(spec)?),
            Mode::Recompute => Self::Recompute(open(spec)?, Replacer::new()),
            Mode::Off => Self::Off(spec),
        })
    }

    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        match self {
            Self::ReadWrite(store) | Self::ReadOnly(store) | Self::Recompute(store, _) => Some(store),
            Self::Off(_) => None,
        }
    }

    pub(crate) fn lookup(&self, keys: Keys) -> Result<Lookup> {
        Ok(match self {
            Self::ReadWrite(store) | Self::ReadOnly(store) => store.lookup(keys)?,
            Self::Recompute(store, replacer) => store.lookup_replacing(keys, replacer)?,
            Self::Off(spec) => spec.lookup_nothing(keys),
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
        match self {
            Self::ReadWrite(store) | Self::ReadOnly(store) => {
                Ok(store.lookup_into(keys, leaves, destinations)?)
            }
            Self::Recompute(..) | Self::Off(_) => self.lookup(keys),
        }
    }

    /// Whether rows may be copied while they are looked up.
    pub(crate) fn copies_what_it_finds(&self) -> bool {
        matches!(self, Self::ReadWrite(_) | Self::ReadOnly(_))
    }

    /// As [`lookup`](Self::lookup), without counting.
    pub(crate) fn peek(&self, keys: Keys) -> Result<Lookup> {
        Ok(match self {
            Self::ReadWrite(store) | Self::ReadOnly(store) => store.peek(keys)?,
            Self::Recompute(store, replacer) => store.peek_replacing(keys, replacer)?,
            Self::Off(spec) => spec.lookup_nothing(keys),
        })
    }

    pub(crate) fn lookup_again(&self, rows: &mut Lookup) -> Result<()> {
        Ok(self.store().map_or(Ok(()), |store| store.lookup_again(rows))?)
    }

    /// The rows at `positions` are not to be served: what completes the lookup takes their place.
    pub(crate) fn reject(&self, rows: &mut Lookup, positions: &[usize]) {
        if let Some(store) = self.store() {
            store.reject(rows, positions);
        }
    }

    /// Counts rows that were computed since `start`.
    pub(crate) fn computed(&self, rows: usize, start: Instant) {
        if let Some(store) = self.store() {
            store.computed(rows, start);
        }
    }

    /// Completes the lookup with computed rows, and keeps them if the mode does.
    pub(crate) fn complete(
        &self,
        rows: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
    ) -> Result<()> {
        match self {
            Self::ReadWrite(store) | Self::Recompute(store, _) => store.insert(rows, positions, columns)?,
            Self::ReadOnly(_) | Self::Off(_) => rows.complete(positions, columns)?,
        }
        Ok(())
    }

    /// As [`complete`](Self::complete); the rows become durable only if `attestation` still holds.
    pub(crate) fn complete_attested(
        &self,
        rows: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
        attestation: &Arc<Attestation>,
    ) -> Result<()> {
        match self {
            Self::ReadWrite(store) | Self::Recompute(store, _) => {
                Ok(store.insert_attested(rows, positions, columns, attestation)?)
            }
            Self::ReadOnly(_) | Self::Off(_) => self.complete(rows, positions, columns),
        }
    }

    /// The store, to change what is in it.
    pub(crate) fn writable(&self, id: &str) -> Result<&Arc<Store>> {
        let mode = match self {
            Self::ReadWrite(store) | Self::Recompute(store, _) => return Ok(store),
            Self::ReadOnly(_) => "ReadOnly",
            Self::Off(_) => "Off",
        };
        let message = format!("this handle has mode {mode} and changes nothing");
        Err(Error::module(id, message, "open the module in mode ReadWrite"))
    }

    /// The store, to look at what is in it.
    pub(crate) fn readable(&self, id: &str) -> Result<&Arc<Store>> {
        let off = || {
            Error::module(id, "this handle has mode Off and reads nothing", "open the module in another mode")
        };
        self.store().ok_or_else(off)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.store().map(|store| store.stats()).unwrap_or_default()
    }
}
