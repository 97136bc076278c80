//! Errors of the engine as exceptions of Python: the same texts, with all causes, and the kinds of the crate `tcx`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tcx_store::ErrorKind;

/// The kind that the crate `tcx` gives an error of the engine.
fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Corrupt => "Corrupt",
        ErrorKind::Incompatible => "Mismatch",
        ErrorKind::Replaced => "Replaced",
        ErrorKind::Forked => "Forked",
        ErrorKind::SourceChanged => "ModuleViolation",
        ErrorKind::Superseded => "Superseded",
        ErrorKind::Contended => "Contended",
        ErrorKind::InvalidOptions => "InvalidSettings",
        ErrorKind::InvalidPath => "InvalidPath",
        ErrorKind::InvalidId => "InvalidId",
        ErrorKind::InvalidColumns => "InvalidOutput",
        ErrorKind::Invalid => "InvalidBatch",
        _ => "Io",
    }
}

/// An exception of this kind. The classes are written in Python.
pub(crate) fn of_kind(kind: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let exception = py
            .import("tcx_cache.errors")
            .and_then(|errors| errors.getattr("of_kind"))
            .and_then(|make| make.call1((kind, message)));
        match exception {
            Ok(exception) => PyErr::from_value(exception),
            // The interpreter ends, or the package is not complete: the message is more important than its class.
            Err(_) => PyRuntimeError::new_err(message.to_owned()),
        }
    })
}

/// Errors of the engine, with `?`.
pub(crate) trait OrRaise<T> {
    /// # Errors
    ///
    /// Returns the error as an exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for tcx_store::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| of_kind(kind(error.kind()), &format!("{error:#}")))
    }
}

/// The exception of a call that breaks a rule of the interface between the two parts of the package.
pub(crate) fn invalid(message: impl AsRef<str>) -> PyErr {
    of_kind("InvalidBatch", message.as_ref())
}
