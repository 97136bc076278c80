//! Where tables are: in a directory, or in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use tcx_store::{Options, Result, Spec};

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
}

impl Place {
    pub(crate) fn of(place: &Bound<'_, PyAny>) -> PyResult<Self> {
        match place.cast::<Memory>() {
            Ok(memory) => Ok(Self::Memory(memory.get().0.clone())),
            Err(_) => Ok(Self::Directory(place.extract()?)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir,
            Self::Memory(memory) => memory.path(),
        }
    }

    pub(crate) fn open(&self, spec: Spec, options: &Options) -> Result<Arc<tcx_store::Store>> {
        match self {
            Self::Directory(dir) => tcx_store::Store::open(dir, spec, options),
            Self::Memory(memory) => tcx_store::Store::open_in_memory(memory, spec, options),
        }
    }
}
