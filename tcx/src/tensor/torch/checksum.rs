//! Checksums that show whether the memory of a tensor was written to: of all of it, and of a few places.
//!
//! They are compared within one process only: how they are made may change with any release. The hash is BLAKE3, since it is as fast
//! in a build without optimization, where xxh3 takes a hundred times as long.

use blake3::{Hash, Hasher};
use tch::{Device, Kind, TchError, Tensor};

use super::raw::{copy_ranges, plain_len};
use super::{dense, with_bytes};
use crate::Result;
use crate::tensor::spread;

/// The elements read of a tensor that is not in plain memory of this machine.
const ELEMENTS: i64 = 32;

/// Numbers that are added up together on another device.
const WIDTH: i64 = 1024;

/// Numbers that are added up at a time on another device, which needs 32 MiB there.
const BLOCK: i64 = 1 << 22;

/// The checksum of all elements. It reads them where they are: what leaves another device is two sums for each kibi of
/// numbers, the one over neighbours and the other over those at the same place of all kibis of a block.
pub(crate) fn checksum(tensor: &Tensor) -> Result<Hash> {
    let mut hasher = Hasher::new();
    if let Some(len) = plain_len(tensor) {
        copy_ranges(tensor, std::iter::once(0..len), |block| {
            hasher.update(block);
        })?;
        return Ok(hasher.finalize());
    }
    let Some(bits) = bits(tensor)? else {
        let read = dense(tensor).map_err(crate::Error::batch)?;
        with_bytes(&read, |bytes| {
            hasher.update(bytes);
        })?;
        return Ok(hasher.finalize());
    };
    let len = bits.numel() as i64;
    for start in (0..len).step_by(BLOCK as usize) {
        let block = bits.f_narrow(0, start, BLOCK.min(len - start))?;
        // A device without free memory must not look like a change of the weights. The sums are the same on the CPU.
        let sums = sums(&block).or_else(|_| sums(&block.f_to_device(Device::Cpu)?))?;
        with_bytes(&sums.f_to_device(Device::Cpu)?, |bytes| {
            hasher.update(bytes);
        })?;
    }
    Ok(hasher.finalize())
}

/// The elements' bits as integers, one after the other; nothing if libtorch has no integers of that size.
fn bits(tensor: &Tensor) -> Result<Option<Tensor>, TchError> {
    let bits = match tensor.f_kind()?.elt_size_in_bytes() {
        1 => Kind::Uint8,
        2 => Kind::Int16,
        4 => Kind::Int,
        8 if !matches!(tensor.f_kind()?, Kind::ComplexFloat) => Kind::Int64,
        _ => return Ok(None),
    };
    let bits = tensor.f_detach()?.f_view_dtype(bits)?;
    // In the order of memory: `flatten` then copies nothing if the elements lie close together, transposed ones too.
    let strides = bits.stride();
    let mut order: Vec<i64> = (0..strides.len() as i64).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse(strides[dim as usize]));
    bits.f_permute(order)?.f_flatten(0, -1).map(Some)
}

/// Sums of integers, which are exact in any order. libtorch allocates eight bytes for each integer.
fn sums(bits: &Tensor) -> Result<Tensor, TchError> {
    let len = bits.numel() as i64;
    let whole = len / WIDTH * WIDTH;
    let rows = bits.f_narrow(0, 0, whole)?.f_view([whole / WIDTH, WIDTH])?;
    let sum = |dim: i64| rows.f_sum_dim_intlist([dim].as_slice(), false, Kind::Int64);
    let rest = bits.f_narrow(0, whole, len - whole)?.f_to_kind(Kind::Int64)?;
    Tensor::f_cat(&[sum(0)?, sum(1)?, rest], 0)
}

/// A few places of a tensor, spread over all of it, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    places: usize,
    checksum: Hash,
}

impl Sample {
    /// Of at most this many cache lines; the whole tensor, if it has no more.
    pub(crate) fn of(tensor: &Tensor, places: usize) -> Result<Self> {
        Ok(Self { places, checksum: sampled(tensor, places)? })
    }

    /// Whether the tensor still is the same at those places.
    pub(crate) fn is_of(&self, tensor: &Tensor) -> Result<bool> {
        Ok(sampled(tensor, self.places)? == self.checksum)
    }
}

fn sampled(tensor: &Tensor, places: usize) -> Result<Hash> {
    let mut hasher = Hasher::new();
    if let Some(len) = plain_len(tensor) {
        copy_ranges(tensor, spread(len, places), |line| {
            hasher.update(line);
        })?;
        return Ok(hasher.finalize());
    }
    let len = tensor.numel() as i64;
    let count = ELEMENTS.min(len);
    let index: Vec<i64> = (0..count).map(|place| place * (len - 1) / (count - 1).max(1)).collect();
    let index = Tensor::from_slice(&index).f_to_device(tensor.device())?;
    let read = tensor.f_detach()?.f_take(&index)?.f_to_device(Device::Cpu)?;
    with_bytes(&read, |bytes| {
        hasher.update(bytes);
    })?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: i64) -> Tensor {
        Tensor::arange(count, (Kind::Float, Device::Cpu))
    }

    /// The same numbers in memory that is read through libtorch.
    fn strided(count: i64) -> Tensor {
        Tensor::stack(&[numbers(count), numbers(count)], 1).select(1, 0)
    }

    #[test]
    fn every_element_is_in_the_checksum() {
        for make in [numbers, strided] {
            for count in [0, 1, 1023, 1024, 5000] {
                let tensor = make(count);
                let before = checksum(&tensor).unwrap();
                assert_eq!(checksum(&tensor.copy()).unwrap() == before, plain_len(&tensor).is_some());
                for place in
                    [0, 1, count / 2, count - 1].into_iter().filter(|place| (0..count).contains(place))
                {
                    let number = tensor.narrow(0, place, 1);
                    let old = number.copy();
                    let _ = number.shallow_clone().fill_(-1.);
                    assert_ne!(checksum(&tensor).unwrap(), before, "{count}: {place}");
                    number.shallow_clone().copy_(&old);
                    assert_eq!(checksum(&tensor).unwrap(), before);
                }
            }
        }
    }

    #[test]
    fn every_block_is_in_the_checksum() {
        let tensor = strided(BLOCK + 5000);
        let before = checksum(&tensor).unwrap();
        for place in [0, BLOCK - 1, BLOCK, BLOCK + 4999] {
            let number = tensor.narrow(0, place, 1);
            let old = number.copy();
            let _ = number.shallow_clone().fill_(-1.);
            assert_ne!(checksum(&tensor).unwrap(), before, "{place}");
            number.shallow_clone().copy_(&old);
        }
        assert_eq!(checksum(&tensor).unwrap(), before);
    }

    #[test]
    fn a_transposed_tensor_is_read_in_place() {
        let matrix = numbers(6000).view([10, 20, 30]).permute([2, 0, 1]);
        assert!(plain_len(&matrix).is_none());
        let read = bits(&matrix).unwrap().unwrap();
        assert_eq!((read.data_ptr(), read.size()), (matrix.data_ptr(), vec![6000]));
        let before = checksum(&matrix).unwrap();
        for place in [0, 1, 3333, 5999] {
            let mut number = read.narrow(0, place, 1);
            let old = number.copy();
            let _ = number.fill_(-1);
            assert_ne!(checksum(&matrix).unwrap(), before, "{place}");
            number.copy_(&old);
        }
    }

    #[test]
    fn two_numbers_that_change_places_are_another_checksum() {
        let tensor = strided(5000);
        let before = checksum(&tensor).unwrap();
        for (a, b) in [(0, 1), (0, 1024), (3, 2051)] {
            let (mut first, mut second) = (tensor.narrow(0, a, 1), tensor.narrow(0, b, 1));
            let kept = first.copy();
            first.copy_(&second);
            second.copy_(&kept);
            assert_ne!(checksum(&tensor).unwrap(), before, "{a} and {b}");
            second.copy_(&first);
            first.copy_(&kept);
        }
    }

    #[test]
    fn elements_of_every_size_have_a_checksum() {
        for kind in [
            Kind::Bool,
            Kind::Half,
            Kind::BFloat16,
            Kind::Double,
            Kind::Int64,
            Kind::ComplexFloat,
            Kind::ComplexDouble,
        ] {
            let tensor = Tensor::stack(&[numbers(3), numbers(3)], 1).to_kind(kind).select(1, 0);
            let before = checksum(&tensor).unwrap();
            let _ = tensor.narrow(0, 0, 1).fill_(1.);
            assert_ne!(checksum(&tensor).unwrap(), before, "{kind:?}");
        }
    }

    #[test]
    fn a_sample_reaches_from_the_first_element_to_the_last() {
        for make in [numbers, strided] {
            let tensor = make(100_000);
            let sample = Sample::of(&tensor, 4).unwrap();
            for place in [0, 99_999] {
                let number = tensor.narrow(0, place, 1);
                let old = number.copy();
                let _ = number.shallow_clone().fill_(-1.);
                assert!(!sample.is_of(&tensor).unwrap(), "{place}");
                number.shallow_clone().copy_(&old);
                assert!(sample.is_of(&tensor).unwrap());
            }
        }
    }
}
