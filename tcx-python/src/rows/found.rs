//! The rows that a lookup has found, to be copied.

use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tcx_store::{DType, Leaf, LeafKind, Lookup};

use crate::arrow::elements::failed;
use crate::arrow::outgoing::ArrowBatch;
use crate::interop::error::invalid;
use crate::interop::memory::Writable;
use crate::schema::keys::Keys;

/// The rows of a batch of ids, each found or missing.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Rows {
    lookup: Mutex<Lookup>,
    leaves: Vec<Leaf>,
}

impl Rows {
    pub(crate) fn new(lookup: Lookup, leaves: Vec<Leaf>) -> Self {
        Self { lookup: Mutex::new(lookup), leaves }
    }

    /// Only to be taken without the GIL, or for a moment: a thread that holds it may be copying.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lookup> {
        self.lookup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes a moment only, with the GIL unless a thread is copying: one that lets go of it may wait for it long.
    fn peek<T: Send>(&self, py: Python<'_>, peek: impl FnOnce(&Lookup) -> T + Send) -> T {
        match self.lookup.try_lock() {
            Ok(rows) => peek(&rows),
            Err(TryLockError::Poisoned(rows)) => peek(&rows.into_inner()),
            Err(TryLockError::WouldBlock) => self.read(py, peek),
        }
    }

    fn read<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&Lookup) -> T + Send) -> T {
        py.detach(|| read(&self.lock()))
    }

    /// The rows of a leaf, copied: no lock is held while Python allocates.
    fn pieces(&self, py: Python<'_>, leaf: usize) -> Vec<Vec<u8>> {
        self.read(py, |rows| (0..rows.len()).map(|row| rows.bytes(leaf, row).to_vec()).collect())
    }

    /// The leaf, when every row is found.
    fn complete(&self, py: Python<'_>, leaf: usize) -> PyResult<&Leaf> {
        let missing = self.peek(py, Lookup::missing);
        if missing > 0 {
            return Err(invalid(format!("{missing} rows are missing: they cannot be copied")));
        }
        self.leaves.get(leaf).ok_or_else(|| invalid(format!("there is no column {leaf}")))
    }
}

fn check_room(found: usize, expected: usize, leaf: &Leaf) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    let name = &leaf.name;
    Err(invalid(format!("column `{name}`: the memory for its rows has {found} bytes, expected {expected}")))
}

#[pymethods]
impl Rows {
    fn __len__(&self, py: Python<'_>) -> usize {
        self.peek(py, Lookup::len)
    }

    /// How many rows are missing, repeated ids counted each time.
    fn missing(&self, py: Python<'_>) -> usize {
        self.peek(py, Lookup::missing)
    }

    /// The positions of the missing rows, each id once.
    fn distinct_missing(&self, py: Python<'_>) -> Vec<usize> {
        self.read(py, Lookup::distinct_missing_positions)
    }

    /// The positions of the missing rows.
    fn all_missing(&self, py: Python<'_>) -> Vec<usize> {
        self.read(py, |rows| rows.all_missing_positions().collect())
    }

    /// Copies the rows of a dense column to an address. With `rest`, the memory was a destination of the lookup, and only the rows that
    /// are not there yet are copied.
    fn copy_dense(
        &self,
        py: Python<'_>,
        leaf: usize,
        address: usize,
        bytes: usize,
        rest: bool,
    ) -> PyResult<()> {
        let of = self.complete(py, leaf)?;
        let LeafKind::Dense { .. } = of.kind else {
            return Err(invalid(format!("column `{}` has rows of different lengths", of.name)));
        };
        check_room(bytes, self.peek(py, Lookup::len) * of.kind.width().unwrap_or(0), of)?;
        self.read(py, |rows| {
            let mut memory = Writable { address, bytes };
            if rest { rows.copy_rest(leaf, memory.get()) } else { rows.copy_dense(leaf, memory.get()) }
        });
        Ok(())
    }

    /// The positions behind each row of a column, in bytes, if its rows follow one another.
    fn ends(&self, py: Python<'_>, leaf: usize) -> PyResult<Vec<usize>> {
        self.complete(py, leaf)?;
        Ok(self.read(py, |rows| {
            let lengths = (0..rows.len()).map(|row| rows.bytes(leaf, row).len());
            lengths
                .scan(0, |end, bytes| {
                    *end += bytes;
                    Some(*end)
                })
                .collect()
        }))
    }

    /// Copies the rows of a column, one after the other, to an address.
    fn copy_varying(&self, py: Python<'_>, leaf: usize, address: usize, bytes: usize) -> PyResult<()> {
        let of = self.complete(py, leaf)?;
        let expected =
            self.read(py, |rows| (0..rows.len()).map(|row| rows.bytes(leaf, row).len()).sum::<usize>());
        check_room(bytes, expected, of)?;
        self.read(py, |rows| rows.copy_rows(leaf, 0..rows.len(), Writable { address, bytes }.get()));
        Ok(())
    }

    /// Which rows of a column have a value.
    fn present(&self, py: Python<'_>, leaf: usize) -> PyResult<Vec<bool>> {
        self.complete(py, leaf)?;
        Ok(self.read(py, |rows| (0..rows.len()).map(|row| rows.is_present(leaf, row)).collect()))
    }

    /// The rows, behind a column of their ids, as a batch of Arrow.
    fn to_arrow(&self, py: Python<'_>, keys: &Keys, id_column: &str) -> PyResult<ArrowBatch> {
        self.complete(py, 0)?;
        self.read(py, |rows| ArrowBatch::of(rows, keys.get(), &self.leaves, id_column)).map_err(failed)
    }

    /// The numbers of a dense column of `i64`, `f64` or truth values, one after the other.
    fn numbers<'py>(&self, py: Python<'py>, leaf: usize) -> PyResult<Bound<'py, PyList>> {
        let of = self.complete(py, leaf)?;
        let bytes: Vec<u8> = self.pieces(py, leaf).concat();
        let chunks = bytes.as_chunks().0.iter();
        match of.kind.dtype() {
            Some(DType::I64) => {
                PyList::new(py, chunks.map(|bytes| i64::from_le_bytes(*bytes)).collect::<Vec<_>>())
            }
            Some(DType::F64) => {
                PyList::new(py, chunks.map(|bytes| f64::from_le_bytes(*bytes)).collect::<Vec<_>>())
            }
            Some(DType::Bool) => PyList::new(py, bytes.iter().map(|byte| *byte != 0).collect::<Vec<_>>()),
            _ => Err(invalid(format!("column `{}` is {}, which has no numbers of Python", of.name, of.kind))),
        }
    }

    /// The strings of a column.
    fn texts<'py>(&self, py: Python<'py>, leaf: usize) -> PyResult<Bound<'py, PyList>> {
        self.complete(py, leaf)?;
        let texts = self.pieces(py, leaf);
        PyList::new(py, texts.iter().map(|text| String::from_utf8_lossy(text)).collect::<Vec<_>>())
    }

    /// The byte strings of a column.
    fn blobs<'py>(&self, py: Python<'py>, leaf: usize) -> PyResult<Bound<'py, PyList>> {
        self.complete(py, leaf)?;
        let blobs = self.pieces(py, leaf);
        PyList::new(py, blobs.iter().map(|blob| PyBytes::new(py, blob)).collect::<Vec<_>>())
    }
}

/// The destinations of a lookup, from addresses.
pub(crate) struct Targets {
    memory: Vec<(usize, Writable)>,
}

impl Targets {
    pub(crate) fn new(into: Vec<(usize, usize, usize)>) -> Self {
        let memory = into.into_iter().map(|(leaf, address, bytes)| (leaf, Writable { address, bytes }));
        Self { memory: memory.collect() }
    }

    pub(crate) fn destinations(&mut self) -> Vec<tcx_store::Destination<'_>> {
        let destination = |(leaf, memory)| {
            let (leaf, memory): (&mut usize, &mut Writable) = (leaf, memory);
            let bytes: &mut [MaybeUninit<u8>] = memory.get();
            tcx_store::Destination { leaf: *leaf, bytes }
        };
        self.memory.iter_mut().map(|(leaf, memory)| destination((leaf, memory))).collect()
    }
}
