//! Where tables are: in a directory, in memory, or in an object store.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use tcx_remote::RemoteCache;
use tcx_store::{Options, Result, Spec};

use crate::store::object_store::ObjectStore;

/// Memory that holds tables as a cache directory does, until the last handle is gone.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Memory(tcx_store::Memory);

#[pymethods]
impl Memory {
    #[new]
    fn new() -> Self {
        Self(tcx_store::Memory::new())
    }
}

/// Where tables are.
pub(crate) enum Place {
    Directory(PathBuf),
    Memory(tcx_store::Memory),
    ObjectStore(Box<RemoteCache>),
}

impl Place {
    pub(crate) fn of(place: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(memory) = place.cast::<Memory>() {
            return Ok(Self::Memory(memory.get().0.clone()));
        }
        if let Ok(store) = place.cast::<ObjectStore>() {
            return Ok(Self::ObjectStore(Box::new(store.get().get().clone())));
        }
        Ok(Self::Directory(place.extract()?))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Directory(dir) => dir.clone(),
            Self::Memory(memory) => memory.path().to_owned(),
            Self::ObjectStore(store) => store.url().to_string().into(),
        }
    }

    pub(crate) fn open(&self, spec: Spec, options: &Options) -> Result<Arc<tcx_store::Store>> {
        match self {
            Self::Directory(dir) => tcx_store::Store::open(dir, spec, options),
            Self::Memory(memory) => tcx_store::Store::open_in_memory(memory, spec, options),
            Self::ObjectStore(store) => store.open(spec, options),
        }
    }
}
