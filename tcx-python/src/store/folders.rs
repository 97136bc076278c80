//! The folders of a cache directory.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::interop::error::OrRaise;

/// The names of the module folders in a cache directory.
#[pyfunction]
pub(crate) fn modules(py: Python<'_>, cache: PathBuf) -> PyResult<Vec<String>> {
    py.detach(|| tcx_store::modules(&cache)).or_raise()
}

/// Whether a folder is that of a module.
#[pyfunction]
pub(crate) fn is_module(folder: PathBuf) -> bool {
    tcx_store::is_module(&folder)
}

/// Reads every byte of a folder, and lists what is damaged: the name of a file and what is wrong with it.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<String>> {
    let report = py.detach(|| tcx_store::verify(&folder, &mut |_, _| ())).or_raise()?;
    Ok(report.damage.iter().map(|damage| format!("{damage:?}")).collect())
}
