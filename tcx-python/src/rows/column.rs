//! The rows of one column that enter the cache.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::interop::error::invalid;
use crate::interop::memory::Readable;

/// The rows of one column. Inserting it uses it up.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Column {
    rows: Mutex<Option<tcx_store::Column>>,
}

impl Column {
    fn of(rows: tcx_store::Column) -> Self {
        Self { rows: Mutex::new(Some(rows)) }
    }

    /// The rows, which are then gone from here.
    pub(crate) fn take(&self) -> PyResult<tcx_store::Column> {
        let taken = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| invalid("the rows of a column were inserted before"))
    }
}

#[pymethods]
impl Column {
    /// Rows of equal width, one after the other at an address.
    #[staticmethod]
    fn dense(py: Python<'_>, address: usize, bytes: usize) -> PyResult<Self> {
        let memory = Readable { address, bytes };
        py.detach(|| Ok(Self::of(tcx_store::Column::dense(memory.get()?))))
    }

    /// Integers of 64 bits.
    #[staticmethod]
    fn ints(rows: Vec<i64>) -> Self {
        let bytes: Vec<u8> = rows.into_iter().flat_map(i64::to_le_bytes).collect();
        Self::of(tcx_store::Column::dense(&bytes))
    }

    /// Floating-point numbers of 64 bits.
    #[staticmethod]
    fn floats(rows: Vec<f64>) -> Self {
        let bytes: Vec<u8> = rows.into_iter().flat_map(f64::to_le_bytes).collect();
        Self::of(tcx_store::Column::dense(&bytes))
    }

    /// Truth values.
    #[staticmethod]
    fn bools(rows: Vec<bool>) -> Self {
        let bytes: Vec<u8> = rows.into_iter().map(u8::from).collect();
        Self::of(tcx_store::Column::dense(&bytes))
    }

    /// One piece of memory for each row: its address and its length in bytes.
    #[staticmethod]
    fn varying(py: Python<'_>, rows: Vec<(usize, usize)>) -> PyResult<Self> {
        py.detach(|| {
            let mut values = Vec::with_capacity(rows.iter().map(|(_, bytes)| bytes).sum());
            let mut ends = Vec::with_capacity(rows.len());
            for (address, bytes) in rows {
                values.extend_from_slice(Readable { address, bytes }.get()?);
                ends.push(values.len());
            }
            Ok(Self::of(tcx_store::Column::varying(values, ends)))
        })
    }

    /// One piece of memory of `width` bytes for each row; zeros for a row whose piece is empty.
    #[staticmethod]
    fn dense_rows(py: Python<'_>, rows: Vec<(usize, usize)>, width: usize) -> PyResult<Self> {
        py.detach(|| {
            let mut values = Vec::with_capacity(rows.len() * width);
            for (address, bytes) in rows {
                let end = values.len() + width;
                values.extend_from_slice(Readable { address, bytes }.get()?);
                if bytes == 0 {
                    values.resize(end, 0);
                }
                if values.len() != end {
                    return Err(invalid(format!("a row has {bytes} bytes, expected {width}")));
                }
            }
            Ok(Self::of(tcx_store::Column::dense(&values)))
        })
    }

    /// The rows of a batch that follow one another at an address; `ends` are the positions behind each, in bytes.
    #[staticmethod]
    fn packed(py: Python<'_>, address: usize, bytes: usize, ends: Vec<usize>) -> PyResult<Self> {
        if ends.last().copied().unwrap_or(0) != bytes || !ends.is_sorted() {
            return Err(invalid("the ends of packed rows do not divide their memory"));
        }
        let memory = Readable { address, bytes };
        py.detach(|| Ok(Self::of(tcx_store::Column::varying(memory.get()?.to_vec(), ends))))
    }

    /// Strings.
    #[staticmethod]
    fn texts(rows: &Bound<'_, PyList>) -> PyResult<Self> {
        let strings: Vec<Bound<'_, PyString>> =
            rows.iter().map(|row| Ok(row.cast_into()?)).collect::<PyResult<_>>()?;
        let texts: Vec<&str> = strings.iter().map(|row| row.to_str()).collect::<PyResult<_>>()?;
        Ok(Self::of(tcx_store::Column::text(texts)))
    }

    /// Byte strings.
    #[staticmethod]
    fn blobs(rows: &Bound<'_, PyList>) -> PyResult<Self> {
        let (mut values, mut ends) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            values.extend_from_slice(row.cast::<PyBytes>()?.as_bytes());
            ends.push(values.len());
        }
        Ok(Self::of(tcx_store::Column::varying(values, ends)))
    }

    /// The same rows, of which only some have a value.
    fn optional(&self, present: Vec<bool>) -> PyResult<Self> {
        Ok(Self::of(self.take()?.optional(present)))
    }
}
