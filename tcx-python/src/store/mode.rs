//! How a handle uses its table: the modes of the crate `tcx`.

use std::sync::Arc;

use tcx_store::{
    Attestation, Column, KeyType, Keys, Lookup, LookupOptions, Losses, Options, RecomputeSession, Result,
    Spec, Store,
};

use crate::interop::error::of_kind;
use crate::store::memory::Place;

/// How a handle uses its table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    ReadWrite,
    ReadOnly,
    Recompute,
    Off,
}

impl Mode {
    pub(crate) fn of(name: &str) -> pyo3::PyResult<Self> {
        match name {
            "read_write" => Ok(Self::ReadWrite),
            "read_only" => Ok(Self::ReadOnly),
            "recompute" => Ok(Self::Recompute),
            "off" => Ok(Self::Off),
            other => Err(of_kind(
                "InvalidSettings",
                &format!(
                    "there is no mode `{other}`: expected `read_write`, `read_only`, `recompute` or `off`"
                ),
            )),
        }
    }
}

/// An open table.
pub(crate) struct Opened {
    mode: Mode,
    spec: Spec,
    store: Option<Arc<Store>>,
    recompute: Option<Arc<RecomputeSession>>,
    losses: Arc<Losses>,
    max_bytes: Option<u64>,
}

impl Opened {
    pub(crate) fn new(place: &Place, spec: Spec, options: &Options, mode: Mode) -> Result<Self> {
        let read_only = matches!(mode, Mode::ReadOnly);
        let options = Options { read_only, ..options.clone() };
        let store = match mode {
            Mode::Off => None,
            _ => Some(place.open(spec.clone(), &options)?),
        };
        let recompute = matches!(mode, Mode::Recompute).then(RecomputeSession::new);
        let max_bytes = options.max_bytes;
        Ok(Self { mode, spec, store, recompute, losses: Arc::new(Losses::new()), max_bytes })
    }

    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    pub(crate) fn recompute(&self) -> Option<&Arc<RecomputeSession>> {
        self.recompute.as_ref()
    }

    pub(crate) fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    pub(crate) fn max_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    pub(crate) fn key_type(&self) -> KeyType {
        self.spec.key_type()
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self.mode, Mode::ReadWrite | Mode::Recompute)
    }

    /// As messages name it.
    pub(crate) fn mode(&self) -> &'static str {
        match self.mode {
            Mode::ReadWrite => "read_write",
            Mode::ReadOnly => "read_only",
            Mode::Recompute => "recompute",
            Mode::Off => "off",
        }
    }

    pub(crate) fn lookup(&self, keys: Keys, options: LookupOptions<'_, '_>) -> Result<Lookup> {
        match &self.store {
            // Destinations of a session that recomputes would be written, and again for the computed rows.
            Some(store) => {
                store.lookup_with(keys, LookupOptions { recompute: self.recompute.as_ref(), ..options })
            }
            None => Ok(self.spec.empty_lookup(keys)),
        }
    }

    pub(crate) fn lookup_again(&self, rows: &mut Lookup) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.lookup_again(rows))
    }

    pub(crate) fn complete(
        &self,
        rows: &mut Lookup,
        positions: &[usize],
        columns: Vec<Column>,
        attestation: Option<&Arc<Attestation>>,
    ) -> Result<bool> {
        match self.store.as_ref().filter(|_| self.writes()) {
            Some(store) => store.insert_for(&self.losses, rows, positions, columns, attestation),
            None => rows.complete(positions, columns).map(|()| false),
        }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.flush_for(&self.losses))
    }

    pub(crate) fn flush_at_exit(&self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.flush_at_exit_for(&self.losses))
    }

    pub(crate) fn flush_local(&self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.flush_local_for(&self.losses))
    }
}
