//! Tensors of ONNX Runtime.

pub(crate) mod runtime;

use std::fmt::Debug;

use ort::value::{DynTensor, PrimitiveTensorElementType, Tensor, TensorElementType};
use tcx_store::DType;

use super::{Element, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

/// The memory of these tensors is that of this machine, or of a device that copies it.
impl TensorLike for DynTensor {
    const DTYPES: &'static [DType] = &[
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Bool,
    ];
    const RANK: Option<usize> = None;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        fn of<E>(memory: TensorMemory, shape: &[usize]) -> Result<DynTensor>
        where
            E: Element + PrimitiveTensorElementType + Debug,
        {
            Ok(Tensor::from_array((shape.to_vec(), memory.into_vec::<E>()?))?.upcast())
        }
        runtime::load()?;
        match memory.dtype() {
            DType::F16 => of::<half::f16>(memory, shape),
            DType::BF16 => of::<half::bf16>(memory, shape),
            DType::F32 => of::<f32>(memory, shape),
            DType::F64 => of::<f64>(memory, shape),
            DType::I8 => of::<i8>(memory, shape),
            DType::I16 => of::<i16>(memory, shape),
            DType::I32 => of::<i32>(memory, shape),
            DType::I64 => of::<i64>(memory, shape),
            DType::U8 => of::<u8>(memory, shape),
            DType::Bool => of::<bool>(memory, shape),
            other => {
                Err(Error::new(ErrorKind::TensorLibrary, format!("ONNX Runtime has no dtype `{other}`")))
            }
        }
    }

    fn shape(&self) -> Vec<usize> {
        // The method of the value itself, not of this trait. The sizes of an existing tensor are not negative.
        Self::shape(self).iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect()
    }

    fn dtype(&self) -> Result<DType> {
        Ok(match self.data_type() {
            TensorElementType::Float16 => DType::F16,
            TensorElementType::Bfloat16 => DType::BF16,
            TensorElementType::Float32 => DType::F32,
            TensorElementType::Float64 => DType::F64,
            TensorElementType::Int8 => DType::I8,
            TensorElementType::Int16 => DType::I16,
            TensorElementType::Int32 => DType::I32,
            TensorElementType::Int64 => DType::I64,
            TensorElementType::Uint8 => DType::U8,
            TensorElementType::Bool => DType::Bool,
            other => return Err(Error::batch(format!("{other} {:?}", TensorLike::shape(self)))),
        })
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        fn of<E, R>(tensor: &DynTensor, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R>
        where
            E: Element + PrimitiveTensorElementType,
        {
            let (_, elements) = tensor.try_extract_tensor::<E>()?;
            Ok(use_bytes(bytemuck::cast_slice(elements)))
        }
        match TensorLike::dtype(self)? {
            DType::F16 => of::<half::f16, R>(self, use_bytes),
            DType::BF16 => of::<half::bf16, R>(self, use_bytes),
            DType::F32 => of::<f32, R>(self, use_bytes),
            DType::F64 => of::<f64, R>(self, use_bytes),
            DType::I8 => of::<i8, R>(self, use_bytes),
            DType::I16 => of::<i16, R>(self, use_bytes),
            DType::I32 => of::<i32, R>(self, use_bytes),
            DType::I64 => of::<i64, R>(self, use_bytes),
            DType::U8 => of::<u8, R>(self, use_bytes),
            DType::Bool => of::<bool, R>(self, use_bytes),
            other => Err(Error::batch(format!("elements of {other}"))),
        }
    }
}
