//! The bytes of tensors and of numbers. The facade's only unsafe code: every caller hands over what is
//! checked here, and gets a slice that cannot outlive the checked value.

#![expect(unsafe_code, reason = "libtorch gives addresses, the store takes slices")]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use tch::{Device, Kind, Tensor};
use tcx_store::{Destination, Lookup};

use crate::{Error, Result};

/// The bytes of a dense CPU tensor, in order, given to `use_bytes` for the time of a call.
///
/// A closure and no returned slice: the tensor's memory may be shared with tensors the caller holds, and
/// within the call nothing of this thread can write to them.
pub(crate) fn with_bytes<T>(tensor: &Tensor, use_bytes: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let Some((address, len)) = memory(tensor)? else { return Ok(use_bytes(&[])) };
    // SAFETY: `memory` gives the start and the length of the contiguous, initialised elements of a CPU
    // tensor, which `tensor` keeps alive; bytes have no alignment. No thread writes to them during the call:
    // this thread runs `use_bytes`, which has no access to the tensor, and a module that writes to its
    // output from another thread while `forward` has returned races with itself.
    let bytes = unsafe { slice::from_raw_parts(address.cast_const(), len) };
    Ok(use_bytes(bytes))
}

/// The number of bytes that are copied out of a tensor at a time.
const BLOCK: usize = 16 << 10;

/// The bytes of a dense CPU tensor in some ranges, block by block: of a tensor that another thread may write to.
///
/// # Panics
///
/// If a range does not lie in the tensor.
pub(crate) fn copy_ranges(
    tensor: &Tensor,
    ranges: impl Iterator<Item = Range<usize>>,
    mut use_block: impl FnMut(&[u8]),
) -> Result<()> {
    let (address, len) = memory(tensor)?.unwrap_or((std::ptr::null_mut(), 0));
    let mut block = [0; BLOCK];
    for Range { mut start, end } in ranges {
        assert!(start <= end && end <= len, "the range lies in the tensor");
        while start < end {
            let bytes = BLOCK.min(end - start);
            // SAFETY: `memory` gives the start and the length of the contiguous, initialised elements of a CPU tensor, which `tensor`
            // keeps alive, and the range lies in them; `block` is memory of this call. No reference to the tensor's bytes is made, since
            // another thread may write to them at the same time, as libtorch lets it: each byte copied is the old or the new one, any
            // byte is a `u8`, and only the copy is looked at.
            unsafe {
                std::ptr::copy_nonoverlapping(address.add(start).cast_const(), block.as_mut_ptr(), bytes);
            };
            use_block(&block[..bytes]);
            start += bytes;
        }
    }
    Ok(())
}

/// How many bytes [`copy_ranges`] finds in this tensor; `None` if they are not in plain memory of this machine.
pub(crate) fn plain_len(tensor: &Tensor) -> Option<usize> {
    memory(tensor).ok().map(|memory| memory.map_or(0, |(_, len)| len))
}

/// A tensor of which each row is one of a dense leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorLeaf {
    /// The number of the leaf.
    pub(crate) leaf: usize,
    /// The shape of a row.
    pub(crate) dims: &'static [usize],
    pub(crate) kind: Kind,
}

/// A new CPU tensor for the rows of a dense leaf, whose bytes may not have been written yet: no other code has it before
/// [`with_rows`](Self::with_rows) has written them all.
#[derive(Debug)]
pub(crate) struct NewTensor {
    pub(crate) leaf: usize,
    tensor: Tensor,
    was_lent: bool,
}

impl NewTensor {
    /// For `rows` rows.
    pub(crate) fn new(of: &TensorLeaf, rows: usize) -> Result<Self> {
        let size: Vec<i64> = std::iter::once(&rows).chain(of.dims).map(|&dim| dim as i64).collect();
        let tensor = Tensor::f_empty(size, (of.kind, Device::Cpu))?;
        Ok(Self { leaf: of.leaf, tensor, was_lent: false })
    }

    /// Gives the memory of these tensors to `look_up`, for the time of a call.
    pub(crate) fn lend<T>(
        tensors: &mut [Self],
        look_up: impl FnOnce(&mut [Destination<'_>]) -> T,
    ) -> Result<T> {
        let mut destinations = Vec::with_capacity(tensors.len());
        for Self { leaf, tensor, was_lent } in tensors {
            *was_lent = true;
            // SAFETY: `tensor` is borrowed mutably until `look_up` has returned, and cannot be dropped meanwhile.
            destinations.push(Destination { leaf: *leaf, bytes: unsafe { new_bytes(tensor) }? });
        }
        Ok(look_up(&mut destinations))
    }

    /// The tensor with all the rows: those that `rows`, for which it was [lent](Self::lend), has not copied into it are now.
    pub(crate) fn with_rows(self, rows: &Lookup) -> Result<Tensor> {
        // SAFETY: `tensor` is owned here, and dropped or returned after the bytes were used.
        let bytes = unsafe { new_bytes(&self.tensor) }?;
        // The memory of a tensor that was not lent may be that of one that was and is gone.
        if self.was_lent {
            rows.copy_rest(self.leaf, bytes);
        } else {
            rows.copy_dense(self.leaf, bytes);
        }
        Ok(self.tensor)
    }
}

/// The bytes of a new tensor.
///
/// # Safety
///
/// No other code has the tensor, and it outlives the slice.
unsafe fn new_bytes<'t>(tensor: &Tensor) -> Result<&'t mut [MaybeUninit<u8>]> {
    let Some((address, len)) = memory(tensor)? else { return Ok(&mut []) };
    // SAFETY: as in `with_bytes`, but the caller ensures that no other code has the tensor. Its bytes may be uninitialised, which
    // `MaybeUninit` allows; they are written before a user gets the tensor, by `NewTensor::with_rows` or `copy_rows`.
    Ok(unsafe { slice::from_raw_parts_mut(address.cast(), len) })
}

/// Some rows of leaf number `leaf`, one after the other in a new CPU tensor, which has room for exactly them.
pub(crate) fn rows(
    rows: &Lookup,
    leaf: usize,
    positions: Range<usize>,
    size: &[i64],
    kind: Kind,
) -> Result<Tensor> {
    let tensor = Tensor::f_empty(size, (kind, Device::Cpu))?;
    // SAFETY: it was made in the line before, and is returned after the bytes were used.
    rows.copy_rows(leaf, positions, unsafe { new_bytes(&tensor) }?);
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
    // SAFETY: the bytes of `values`, borrowed exclusively; `MaybeUninit<u8>` has the layout of `u8`, and
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
mod destination_tests;
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
