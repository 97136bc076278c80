//! The native part of the Python package `tcx_cache`: the engine, for Python code that knows tensors.
//!
//! Python code passes memory as an address and a number of bytes, because the buffer protocol is not part of the stable ABI of Python
//! 3.10. It keeps that memory alive and unchanged during the call. Every call that can wait releases the GIL.

#![expect(clippy::needless_pass_by_value, reason = "arguments from Python are extracted to values")]

mod arrow;
mod command;
mod contents;
mod interop;
mod rows;
mod schema;
mod store;
mod weights;

use pyo3::prelude::*;

/// The module `tcx_cache._native`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<schema::keys::Keys>()?;
    module.add_class::<schema::spec::Spec>()?;
    module.add_class::<arrow::incoming::ArrowColumn>()?;
    module.add_class::<arrow::incoming::ArrowTable>()?;
    module.add_class::<arrow::outgoing::ArrowBatch>()?;
    module.add_class::<rows::column::Column>()?;
    module.add_class::<rows::found::Rows>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<store::memory::Memory>()?;
    module.add_class::<store::object_store::ObjectStore>()?;
    module.add_class::<store::attestation::Attestation>()?;
    module.add_class::<store::sharing::JobWorker>()?;
    module.add_class::<weights::Fingerprint>()?;
    module.add_class::<contents::Contents>()?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(store::dropped::end_notices, module)?)?;
    module.add_function(wrap_pyfunction!(store::dropped::wait_for_dropped, module)?)?;
    module.add_function(wrap_pyfunction!(weights::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(weights::sample, module)?)?;
    module.add_function(wrap_pyfunction!(store::folders::modules, module)?)?;
    module.add_function(wrap_pyfunction!(store::folders::is_module, module)?)?;
    module.add_function(wrap_pyfunction!(store::object_store::directory_of, module)?)?;
    module.add_function(wrap_pyfunction!(store::folders::verify, module)?)?;
    module.add_function(wrap_pyfunction!(store::sharing::jobs, module)?)?;
    Ok(())
}
