//! The bytes of tensors and of numbers. The facade's only unsafe code: every caller hands over what is
//! checked here, and gets a slice that cannot outlive the checked value.

#![expect(unsafe_code, reason = "libtorch gives addresses, the store takes slices")]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use tch::{Device, Kind, Tensor};
use tcx_store::Lookup;

use crate::{Error, Result};

/// The bytes of a dense CPU tensor, in order, given to `use_bytes` for the time of a call.
///
/// A closure and no returned slice: the tensor's memory may be shared with tensors the caller holds, and
/// within the call nothing of this thread can write to them.
pub(crate) fn with_bytes<T>(tensor: &Tensor, use_bytes: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let Some((address, len)) = memory(tensor)? else { return Ok(use_bytes(&[])) };
    // SAFETY: `memory` gives the start and the length of the contiguous, initialised elements of a CPU
    // tensor, which `tensor` keeps alive; bytes have no alignment. Nobody writes to them during the call:
    // this thread runs `use_bytes`, which has no access to the tensor, and a module that writes to its
    // output from another thread while `forward` has returned races with itself.
    let bytes = unsafe { slice::from_raw_parts(address.cast_const(), len) };
    Ok(use_bytes(bytes))
}

/// The rows of dense leaf number `leaf`, gathered into a new CPU tensor.
pub(super) fn tensor(rows: &Lookup, leaf: usize, size: &[i64], kind: Kind) -> Result<Tensor> {
    filled(size, kind, |bytes| rows.copy_dense(leaf, bytes))
}

/// Some rows of leaf number `leaf`, one after the other in a new CPU tensor, which has room for exactly them.
pub(super) fn rows(
    rows: &Lookup,
    leaf: usize,
    positions: Range<usize>,
    size: &[i64],
    kind: Kind,
) -> Result<Tensor> {
    filled(size, kind, |bytes| rows.copy_rows(leaf, positions, bytes))
}

/// A new CPU tensor; `fill` writes every byte of it.
fn filled(size: &[i64], kind: Kind, fill: impl FnOnce(&mut [MaybeUninit<u8>])) -> Result<Tensor> {
    let tensor = Tensor::f_empty(size, (kind, Device::Cpu))?;
    if let Some((address, len)) = memory(&tensor)? {
        // SAFETY: as in `with_bytes`, but nobody else knows this tensor: it was made above. Its bytes are
        // uninitialised, which `MaybeUninit` allows and the two callers end: `copy_dense` and `copy_rows` write all
        // they are given.
        fill(unsafe { slice::from_raw_parts_mut(address.cast(), len) });
    }
    Ok(tensor)
}

/// The rows of dense leaf number `leaf`, each of one number; there are `len`.
pub(crate) fn numbers<E: bytemuck::Pod>(len: usize, rows: &Lookup, leaf: usize) -> Vec<E> {
    let mut values = vec![E::zeroed(); len];
    fill_numbers(&mut values, rows, leaf);
    values
}

/// Copies the rows of dense leaf number `leaf` to `values`, which has room for exactly them.
pub(crate) fn fill_numbers<E: bytemuck::Pod>(values: &mut [E], rows: &Lookup, leaf: usize) {
    let bytes = std::ptr::from_mut::<[u8]>(bytemuck::cast_slice_mut(values));
    // SAFETY: the bytes of `values`, borrowed by nobody else; `MaybeUninit<u8>` has the layout of `u8`, and
    // `copy_dense` only writes the initialised bytes of rows, so that `values` stays initialised.
    rows.copy_dense(leaf, unsafe { &mut *(bytes as *mut [MaybeUninit<u8>]) });
}

/// Where the elements of a dense, contiguous CPU tensor are, and their size in bytes; nothing for a tensor
/// without elements, whose address is null.
fn memory(tensor: &Tensor) -> Result<Option<(*mut u8, usize)>> {
    let dense = !tensor.is_sparse() && !tensor.is_mkldnn() && tensor.device() == Device::Cpu;
    if !dense || !tensor.is_contiguous() {
        return Err(Error::batch("expected a dense, contiguous tensor on the CPU"));
    }
    let len = tensor.numel() * tensor.f_kind()?.elt_size_in_bytes();
    if len == 0 {
        return Ok(None);
    }
    let address: *mut u8 = tensor.data_ptr().cast();
    if address.is_null() {
        // libtorch's "efficient zero tensors" have elements and no memory.
        return Err(Error::batch("expected a tensor with memory of its own"));
    }
    Ok(Some((address, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_tensor_are_its_elements_in_order() {
        let tensor = Tensor::from_slice(&[1i32, -2]);
        with_bytes(&tensor, |bytes| assert_eq!(bytes, [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff])).unwrap();
    }

    #[test]
    fn a_tensor_without_elements_has_no_bytes() {
        let empty = Tensor::zeros([0, 3], tch::kind::FLOAT_CPU);
        with_bytes(&empty, |bytes| assert!(bytes.is_empty())).unwrap();
    }

    #[test]
    fn what_has_no_plain_memory_is_refused() {
        let plain = Tensor::ones([2, 3], tch::kind::FLOAT_CPU);
        for odd in [plain.to_sparse(None::<tch::Layout>, None::<&[i64]>, 0), plain.to_mkldnn(), plain.tr()] {
            assert!(with_bytes(&odd, |_| ()).is_err());
        }
    }
}
