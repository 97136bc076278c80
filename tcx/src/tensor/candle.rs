//! Tensors of candle.

use candle_core::{
    CpuStorage, DType as CandleDType, Device as CandleDevice, DeviceLocation, Storage, Tensor,
};
use tcx_store::DType;

use super::{Device, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

impl TensorLike for Tensor {
    // candle has neither truth values nor signed bytes.
    const DTYPES: &'static [DType] =
        &[DType::F16, DType::BF16, DType::F32, DType::F64, DType::I16, DType::I32, DType::I64, DType::U8];
    const RANK: Option<usize> = None;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        fn of<E: crate::Element + candle_core::WithDType>(
            memory: TensorMemory,
            shape: &[usize],
        ) -> Result<Tensor> {
            Ok(Tensor::from_vec(memory.into_vec::<E>()?, shape, &CandleDevice::Cpu)?)
        }
        match memory.dtype() {
            DType::F16 => of::<half::f16>(memory, shape),
            DType::BF16 => of::<half::bf16>(memory, shape),
            DType::F32 => of::<f32>(memory, shape),
            DType::F64 => of::<f64>(memory, shape),
            DType::I16 => of::<i16>(memory, shape),
            DType::I32 => of::<i32>(memory, shape),
            DType::I64 => of::<i64>(memory, shape),
            DType::U8 => of::<u8>(memory, shape),
            other => Err(Error::new(ErrorKind::TensorLibrary, format!("candle has no dtype `{other}`"))),
        }
    }

    fn shape(&self) -> Vec<usize> {
        self.dims().to_vec()
    }

    fn dtype(&self) -> Result<DType> {
        Ok(match self.dtype() {
            CandleDType::F16 => DType::F16,
            CandleDType::BF16 => DType::BF16,
            CandleDType::F32 => DType::F32,
            CandleDType::F64 => DType::F64,
            CandleDType::I16 => DType::I16,
            CandleDType::I32 => DType::I32,
            CandleDType::I64 => DType::I64,
            CandleDType::U8 => DType::U8,
            other => return Err(Error::batch(format!("{} {:?}", other.as_str(), self.dims()))),
        })
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let here = self.to_device(&CandleDevice::Cpu)?.contiguous()?;
        let (storage, layout) = here.storage_and_layout();
        let (Storage::Cpu(elements), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
            return Err(Error::batch("a tensor whose elements cannot be copied to the CPU"));
        };
        Ok(match elements {
            CpuStorage::F16(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::BF16(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::F32(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::F64(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::I16(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::I32(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::I64(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::U32(elements) => use_bytes(bytemuck::cast_slice(&elements[start..end])),
            CpuStorage::U8(elements) => use_bytes(&elements[start..end]),
            _ => return Err(Error::batch(format!("elements of {}", self.dtype().as_str()))),
        })
    }

    fn select_samples(&self, positions: &[usize]) -> Result<Self> {
        let samples = self.samples()?;
        if let Some(found) = positions.iter().find(|&&position| position >= samples) {
            let message =
                format!("sample of the input batch: expected a number below {samples}, found {found}");
            return Err(Error::batch(message));
        }
        let index: Vec<i64> = positions.iter().map(|&position| position as i64).collect();
        Ok(self.contiguous()?.index_select(&Self::from_vec(index, positions.len(), self.device())?, 0)?)
    }

    fn concat(parts: &[&Self]) -> Result<Self> {
        Ok(Self::cat(parts, 0)?)
    }

    fn device(&self) -> Device {
        self.device().into()
    }

    fn move_to(self, device: &Device) -> Result<Self> {
        let own = if device.is_cpu() { Some(&CandleDevice::Cpu) } else { device.get() };
        Ok(self.to_device(own.ok_or_else(|| device.unknown("candle"))?)?)
    }

    fn tracks_gradients(&self) -> bool {
        self.track_op()
    }

    fn dtype_name(&self) -> Result<String> {
        // Also those that cannot be cached.
        Ok(self.dtype().as_str().to_owned())
    }
}

impl From<CandleDevice> for Device {
    fn from(device: CandleDevice) -> Self {
        match device.location() {
            DeviceLocation::Cpu => Self::CPU,
            DeviceLocation::Cuda { gpu_id } => Self::new(format!("cuda:{gpu_id}"), device),
            DeviceLocation::Metal { gpu_id } => Self::new(format!("metal:{gpu_id}"), device),
        }
    }
}

impl From<&CandleDevice> for Device {
    fn from(device: &CandleDevice) -> Self {
        device.clone().into()
    }
}
