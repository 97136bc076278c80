//! The bytes of tensors: every caller hands over what is checked here, and gets a slice that cannot outlive the checked value.

#![expect(unsafe_code, reason = "libtorch gives addresses, the store takes slices")]

use std::ops::Range;
use std::slice;

use tch::{Device, Kind, Tensor};
use tcx_store::DType;

use crate::tensor::NewMemory;
use crate::{Error, ErrorKind, Result};

/// The bytes of a dense CPU tensor, in order, given to `use_bytes` for the time of a call.
///
/// A closure and no returned slice: the tensor's memory may be shared with tensors the caller holds, and
/// within the call nothing of this thread can write to them. So `use_bytes` is code of this crate that writes to no tensor, and never
/// a closure of the caller.
pub(crate) fn with_bytes<T>(tensor: &Tensor, use_bytes: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let Some((address, len)) = memory(tensor)? else { return Ok(use_bytes(&[])) };
    // SAFETY: `memory` gives the start and the length of the contiguous, initialised elements of a CPU
    // tensor, which `tensor` keeps alive; bytes have no alignment. No thread writes to them during the call:
    // this thread runs `use_bytes`, which writes to no tensor, and a module that writes to its
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

/// The memory of a new CPU tensor, whose bytes were not written yet.
pub(super) fn new_memory(dtype: DType, kind: Kind, shape: &[usize]) -> Result<NewMemory> {
    let size: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
    let tensor = Tensor::f_empty(size, (kind, Device::Cpu))?;
    let (address, len) = memory(&tensor)?.unwrap_or((std::ptr::null_mut(), 0));
    // SAFETY: `memory` gives the start and the length of the elements of the tensor that was made above. No other code has that
    // tensor, and it frees them when it is dropped.
    Ok(unsafe { NewMemory::of_object(dtype, address, len, tensor) })
}

/// A new CPU tensor of these elements.
///
/// # Errors
///
/// Returns an error if the elements do not have this size, or if there is no memory.
pub(super) fn copy_of(bytes: &[u8], kind: Kind, size: &[i64]) -> Result<Tensor> {
    let tensor = Tensor::f_empty(size, (kind, Device::Cpu))?;
    let (address, len) = memory(&tensor)?.unwrap_or((std::ptr::null_mut(), 0));
    if bytes.len() != len {
        let message =
            format!("a tensor of {size:?} has {len} bytes, found {} bytes of elements", bytes.len());
        return Err(Error::new(ErrorKind::TensorLibrary, message));
    }
    if len > 0 {
        // SAFETY: `memory` gives the start and the length of the elements of the tensor that was made above, which no other code has,
        // so that they do not overlap `bytes`; the lengths were compared.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, len) };
    }
    Ok(tensor)
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
