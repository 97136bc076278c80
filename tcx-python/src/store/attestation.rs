//! The question, before rows become durable, whether what they were computed from is unchanged.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

/// A function without arguments that returns `None`, or what has changed. The writer thread calls it.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Attestation {
    asked: Arc<tcx_store::Attestation>,
    /// What `asked` calls, for the garbage collector.
    ask: Arc<Py<PyAny>>,
}

impl Attestation {
    pub(crate) fn get(&self) -> &Arc<tcx_store::Attestation> {
        &self.asked
    }
}

#[pymethods]
impl Attestation {
    #[new]
    fn new(ask: Py<PyAny>) -> Self {
        let ask = Arc::new(ask);
        let called = ask.clone();
        let asked = tcx_store::Attestation::new(move || {
            // Python has flushed its tables before it ends: only rows of a thread that computed later are refused here.
            Python::try_attach(|py| {
                match called.call0(py).and_then(|answer| answer.extract::<Option<String>>(py)) {
                    Ok(None) => Ok(()),
                    Ok(Some(why)) => Err(why),
                    Err(error) => Err(format!("the check that the weights are unchanged failed: {error}")),
                }
            })
            .unwrap_or_else(|| {
                Err("Python ended before the check that the weights are unchanged: flush the cache before"
                    .to_owned())
            })
        });
        Self { asked, ask }
    }

    /// A module that holds its own handle is in a cycle, which the garbage collector frees. Rows that wait to be written hold the
    /// function too: it is then needed, and not shown as a part of a cycle. `__clear__` is not needed, as for a tuple: there is no cycle
    /// without an object that can be changed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Rows are given it only during a call, whose arguments hold this object.
        if Arc::strong_count(&self.asked) == 1 { visit.call(&*self.ask) } else { Ok(()) }
    }

    /// Why rows of this source are refused, if they are.
    fn refused(&self) -> Option<String> {
        self.asked.refused().map(|why| format!("{why:#}"))
    }
}
