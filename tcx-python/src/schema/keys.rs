//! Sample ids, packed and hashed.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use tcx_store::KeyType;

use crate::interop::error::{OrRaise, invalid};
use crate::interop::memory::Readable;

/// The ids of a batch.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Keys(tcx_store::Keys);

impl Keys {
    pub(crate) fn get(&self) -> &tcx_store::Keys {
        &self.0
    }
}

#[pymethods]
impl Keys {
    /// Strings.
    #[staticmethod]
    fn text(ids: &Bound<'_, PyList>, view: u32) -> PyResult<Self> {
        let strings: Vec<Bound<'_, PyString>> =
            ids.iter().map(|id| Ok(id.cast_into()?)).collect::<PyResult<_>>()?;
        let texts: Vec<&str> = strings.iter().map(|id| id.to_str()).collect::<PyResult<_>>()?;
        tcx_store::Keys::text(texts, view).or_raise().map(Self)
    }

    /// Integers of 64 bits.
    #[staticmethod]
    fn ints(ids: Vec<i64>, view: u32) -> Self {
        Self(tcx_store::Keys::ints(ids, view))
    }

    /// Integers of 64 bits, `bytes / 8` of them at an address.
    #[staticmethod]
    fn ints_at(address: usize, bytes: usize, view: u32) -> PyResult<Self> {
        let memory = Readable { address, bytes };
        let (chunks, _) = memory.get()?.as_chunks();
        Ok(Self(tcx_store::Keys::ints(chunks.iter().map(|id| i64::from_le_bytes(*id)), view)))
    }

    /// Bytes.
    #[staticmethod]
    fn bytes(ids: &Bound<'_, PyList>, view: u32) -> PyResult<Self> {
        let ids: Vec<Bound<'_, PyBytes>> =
            ids.iter().map(|id| Ok(id.cast_into()?)).collect::<PyResult<_>>()?;
        tcx_store::Keys::bytes(ids.iter().map(PyBytesMethods::as_bytes), view).or_raise().map(Self)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The ids at these positions.
    fn select(&self, positions: Vec<usize>) -> PyResult<Self> {
        if positions.iter().any(|&position| position >= self.0.len()) {
            return Err(invalid("a position is not one of the batch"));
        }
        Ok(Self(self.0.select(&positions)))
    }

    /// A number that is the same for the same ids in the same order, and seldom for others.
    fn digest_all(&self) -> u64 {
        self.0.digest_all()
    }

    /// A number for each id that is the same for equal ids, and seldom for others.
    fn digests(&self) -> Vec<u64> {
        (0..self.0.len()).map(|position| self.0.digest(position)).collect()
    }
}

/// The key type of this name.
pub(crate) fn key_type(name: &str) -> PyResult<KeyType> {
    match name {
        "str" => Ok(KeyType::Text),
        "int" => Ok(KeyType::Int),
        "bytes" => Ok(KeyType::Bytes),
        other => Err(invalid(format!("ids of type `{other}`: expected `str`, `int` or `bytes`"))),
    }
}

/// The name of a key type.
pub(crate) fn key_name(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::Int => "int",
        KeyType::Bytes => "bytes",
        _ => "str",
    }
}

/// An id as Python has it, from its bytes.
pub(crate) fn id_of<'py>(py: Python<'py>, key_type: KeyType, key: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match (key_type, key.first_chunk()) {
        (KeyType::Int, Some(int)) => Ok(i64::from_le_bytes(*int).into_pyobject(py)?.into_any()),
        (KeyType::Text, _) => Ok(PyString::new(py, &String::from_utf8_lossy(key)).into_any()),
        _ => Ok(PyBytes::new(py, key).into_any()),
    }
}
