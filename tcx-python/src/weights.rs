//! Fingerprints of weights, and checksums that show whether memory was written to.

use std::sync::Mutex;
use std::sync::PoisonError;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interop::memory::Readable;

/// The bytes that are read at each place of a sample: a cache line.
const LINE: usize = 64;

/// The canonical hash of weights, as `tcx::Frozen` makes it: each part is preceded by its length.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Fingerprint(Mutex<blake3::Hasher>);

impl Fingerprint {
    fn add(&self, part: &[u8]) {
        let mut hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
}

#[pymethods]
impl Fingerprint {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(blake3::Hasher::new()))
    }

    /// Adds a name.
    fn part(&self, part: &[u8]) {
        self.add(part);
    }

    /// Adds the bytes at an address.
    fn memory(&self, py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
        let memory = Readable { address, bytes };
        py.detach(|| {
            self.add(memory.get()?);
            Ok(())
        })
    }

    /// `blake3:` and 64 hex digits.
    fn digest(&self) -> String {
        let hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("blake3:{}", hasher.finalize())
    }
}

/// The checksum of the bytes at an address.
#[pyfunction]
pub(crate) fn checksum(py: Python<'_>, address: usize, bytes: usize) -> PyResult<Bound<'_, PyBytes>> {
    let memory = Readable { address, bytes };
    let hash = py.detach(|| PyResult::Ok(blake3::hash(memory.get()?)))?;
    Ok(PyBytes::new(py, hash.as_bytes()))
}

/// The bytes of a few cache lines of each of some pieces of memory, from the first to the last at equal distances: `lines` of each, or all
/// of it where there are no more. They are compared as they are: a hash of so few bytes takes longer than reading them.
#[pyfunction]
pub(crate) fn sample(
    py: Python<'_>,
    memory: Vec<(usize, usize)>,
    lines: usize,
) -> PyResult<Bound<'_, PyBytes>> {
    let sampled = py.detach(|| {
        let most = |bytes: usize| bytes.min(lines * LINE);
        let mut sampled = Vec::with_capacity(memory.iter().map(|(_, bytes)| most(*bytes)).sum());
        for (address, bytes) in memory {
            let memory = Readable { address, bytes };
            spread(memory.get()?, lines).for_each(|line| sampled.extend_from_slice(line));
        }
        PyResult::Ok(sampled)
    })?;
    Ok(PyBytes::new(py, &sampled))
}

fn spread(memory: &[u8], lines: usize) -> impl Iterator<Item = &[u8]> {
    let all = memory.len() <= lines * LINE;
    let last = memory.len().saturating_sub(LINE);
    let line = move |place: usize| {
        let start = (last as u128 * place as u128 / (lines.max(2) as u128 - 1)) as usize;
        &memory[start..start + LINE]
    };
    let (whole, places) = if all { (Some(memory), 0..0) } else { (None, 0..lines) };
    whole.into_iter().chain(places.map(line))
}
