//! The question, before rows become durable, whether what they were computed from is unchanged.

use std::sync::Arc;

use pyo3::prelude::*;

/// A function without arguments that returns `None`, or what has changed. The writer thread calls it.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Attestation(Arc<tcx_store::Attestation>);

impl Attestation {
    pub(crate) fn get(&self) -> &Arc<tcx_store::Attestation> {
        &self.0
    }
}

#[pymethods]
impl Attestation {
    #[new]
    fn new(ask: Py<PyAny>) -> Self {
        Self(tcx_store::Attestation::new(move || {
            // Python has flushed its tables before it ends: only rows of a thread that computed later are refused here.
            Python::try_attach(|py| {
                match ask.call0(py).and_then(|answer| answer.extract::<Option<String>>(py)) {
                    Ok(None) => Ok(()),
                    Ok(Some(why)) => Err(why),
                    Err(error) => Err(format!("the check that the weights are unchanged failed: {error}")),
                }
            })
            .unwrap_or_else(|| {
                Err("Python ended before the check that the weights are unchanged: flush the cache before"
                    .to_owned())
            })
        }))
    }

    /// Why rows of this source are refused, if they are.
    fn refused(&self) -> Option<String> {
        self.0.refused().map(|why| format!("{why:#}"))
    }
}
