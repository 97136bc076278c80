//! Memory that Python code owns, as an address and a length. Beside `arrow::capsules`, this is the only file with `unsafe`.
//!
//! The Python part of the package is the only caller. It passes contiguous memory of the CPU whose owner it holds until the call
//! returns: tensors that it has just allocated, inputs that the caller has handed over, or weights. The program promises not to write
//! to inputs and weights during the call.

#![expect(unsafe_code, reason = "memory of tensors and arrays, which Rust does not own")]

use std::mem::MaybeUninit;
use std::slice;

use pyo3::PyResult;

use crate::interop::error::invalid;

/// Memory to read, of the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readable {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Readable {
    /// Its bytes.
    ///
    /// # Errors
    ///
    /// Fails where there are bytes but no address: the values of such a tensor are elsewhere.
    pub(crate) fn get(&self) -> PyResult<&[u8]> {
        match (self.bytes, self.address) {
            // A tensor without elements has the address 0, which is not dereferenced.
            (0, _) => Ok(&[]),
            (bytes, 0) => Err(invalid(format!("{bytes} bytes have no address"))),
            // SAFETY: see above: the memory is readable for this number of bytes, and unchanged, until the call returns; `self` does
            // not outlive the call.
            (bytes, address) => Ok(unsafe { slice::from_raw_parts(address as *const u8, bytes) }),
        }
    }
}

/// Memory to write, of the caller.
#[derive(Debug)]
pub(crate) struct Writable {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Writable {
    /// Its bytes, which may not be initialized.
    pub(crate) fn get(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.bytes == 0 || self.address == 0 {
            return &mut [];
        }
        // SAFETY: see above: the memory is writable for this number of bytes until the call returns, and no one else uses it; the borrow
        // of `self` keeps it from being lent twice through one value, and a lookup has each destination once.
        unsafe { slice::from_raw_parts_mut(self.address as *mut MaybeUninit<u8>, self.bytes) }
    }
}
