//! What tcx asks of a tensor library, by tch.

use tch::{Device as TchDevice, Kind, Tensor};
use tcx_store::DType;

use super::device::to_device;
use super::raw::{copy_of, new_memory};
use super::{KINDS, dense, device_name, dtype, samples, with_bytes};
use crate::tensor::like::{Lend, lend_bytes};
use crate::tensor::{Device, NewMemory, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

impl TensorLike for Tensor {
    const DTYPES: &'static [DType] = &{
        let mut dtypes = [DType::F16; KINDS.len()];
        let mut i = 0;
        while i < KINDS.len() {
            dtypes[i] = KINDS[i].0;
            i += 1;
        }
        dtypes
    };
    const RANK: Option<usize> = None;
    const SWITCHES_GRADIENTS: bool = true;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        let size: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        match memory.into_object::<Self>() {
            Ok(tensor) if tensor.size() == size => Ok(tensor),
            Ok(tensor) => Ok(tensor.f_view(size.as_slice())?),
            Err(other) => copy_of(other.bytes(), kind(other.dtype())?, &size),
        }
    }

    fn shape(&self) -> Vec<usize> {
        self.size().into_iter().map(|dim| dim as usize).collect()
    }

    fn dtype(&self) -> Result<DType> {
        if !self.defined() {
            return Err(Error::batch("an undefined tensor"));
        }
        match self.f_kind() {
            Ok(kind) => dtype(kind).ok_or_else(|| Error::batch(format!("{kind:?} {:?}", self.size()))),
            Err(_) => Err(Error::batch(format!("a dtype unknown to tch, {:?}", self.size()))),
        }
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        // Code that has a clone of the tensor may write to its memory, `use_bytes` too.
        let copy = lend_bytes(self, <[u8]>::to_vec)?;
        Ok(use_bytes(&copy))
    }

    fn lend_bytes<R>(&self, _: Lend, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if !self.defined() {
            return Err(Error::batch("an undefined tensor"));
        }
        with_bytes(&dense(self).map_err(Error::batch)?, use_bytes)
    }

    fn select_samples(&self, positions: &[usize]) -> Result<Self> {
        let positions: Vec<i64> = positions.iter().map(|&position| position as i64).collect();
        let positions = Self::from_slice(&positions).f_to_device(self.device())?;
        Ok(self.f_index_select(0, &positions)?)
    }

    fn concat(parts: &[&Self]) -> Result<Self> {
        Ok(Self::f_cat(parts, 0)?)
    }

    fn device(&self) -> Device {
        self.device().into()
    }

    fn move_to(self, device: &Device) -> Result<Self> {
        let kind = self.f_kind()?;
        to_device(&self, own(device)?, kind)
    }

    fn tracks_gradients(&self) -> bool {
        self.requires_grad()
    }

    fn dtype_name(&self) -> Result<String> {
        Ok(super::kind_name(self.f_kind()?))
    }

    fn dtype_number(&self) -> Result<u8> {
        // Those of complex numbers, too. The elements of the enum have these numbers by their order.
        Ok(self.f_kind()? as u8)
    }

    fn samples(&self) -> Result<usize> {
        samples(self)
    }

    fn same_samples(&self, a: usize, b: usize) -> Option<bool> {
        let sample = |position: usize| self.f_select(0, position as i64).ok();
        super::same_tensors(&sample(a)?, &sample(b)?)
    }

    fn allocate(dtype: DType, shape: &[usize]) -> Result<NewMemory> {
        new_memory(dtype, kind(dtype)?, shape)
    }

    fn from_stored(memory: TensorMemory, shape: &[usize], dtype: DType, device: &Device) -> Result<Self> {
        // Converted on the device: fewer bytes are copied.
        to_device(&Self::from_memory(memory, shape)?, own(device)?, kind(dtype)?)
    }
}

/// The dtype as libtorch knows it.
fn kind(dtype: DType) -> Result<Kind> {
    let kind = KINDS.iter().find(|(own, _)| *own == dtype).map(|(_, kind)| *kind);
    kind.ok_or_else(|| Error::new(ErrorKind::Libtorch, format!("libtorch has no dtype `{dtype}`")))
}

/// The device as tch knows it.
fn own(device: &Device) -> Result<TchDevice> {
    if device.is_cpu() {
        return Ok(TchDevice::Cpu);
    }
    device.get().copied().ok_or_else(|| device.unknown("libtorch"))
}

impl From<TchDevice> for Device {
    fn from(device: TchDevice) -> Self {
        match device {
            TchDevice::Cpu => Self::CPU,
            other => Self::new(device_name(other), other),
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::Element;

    /// The bits of all numbers of 16 bits, widened by libtorch.
    fn widened<E: Element>(numbers: Vec<E>) -> Vec<u8> {
        let shape = [numbers.len()];
        let tensor = Tensor::from_stored(numbers.into(), &shape, DType::F32, &Device::CPU).unwrap();
        with_bytes(&tensor, <[u8]>::to_vec).unwrap()
    }

    #[test]
    fn libtorch_widens_as_every_other_library() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        assert!(widened(halves.clone()) == TensorMemory::from(halves).widened().unwrap().bytes());
        let halves: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        assert!(widened(halves.clone()) == TensorMemory::from(halves).widened().unwrap().bytes());
    }

    #[test]
    fn a_dtype_has_the_number_of_libtorch_in_content_ids() {
        /// A tensor of another library.
        struct Other(DType);

        impl TensorLike for Other {
            const DTYPES: &'static [DType] = Tensor::DTYPES;
            const RANK: Option<usize> = None;

            fn from_memory(memory: TensorMemory, _: &[usize]) -> Result<Self> {
                Ok(Self(memory.dtype()))
            }

            fn shape(&self) -> Vec<usize> {
                vec![0]
            }

            fn dtype(&self) -> Result<DType> {
                Ok(self.0)
            }

            fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
                Ok(use_bytes(&[]))
            }
        }

        for (dtype, kind) in KINDS {
            assert_eq!(Other(dtype).dtype_number().unwrap(), kind as u8, "{dtype}");
        }
    }

    #[test]
    fn memory_of_any_owner_becomes_a_tensor() {
        let tensor = Tensor::from_memory(TensorMemory::from(vec![1_i16, 2, 3, 4, 5, 6]), &[2, 3]).unwrap();
        assert_eq!((tensor.size(), tensor.kind()), (vec![2, 3], Kind::Int16));
        assert_eq!(Vec::<i16>::try_from(tensor.flatten(0, -1)).unwrap(), [1, 2, 3, 4, 5, 6]);
    }
}
