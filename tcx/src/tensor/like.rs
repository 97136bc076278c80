//! What tcx asks of a tensor library: one trait of its tensor type.

use std::rc::Rc;
use std::sync::Arc;

use tcx_store::DType;

use super::{Device, NewMemory, TensorMemory};
use crate::{Error, Result};

/// The tensor type of a library, so that outputs, inputs and content ids can be of it.
///
/// `tch::Tensor` is one with the feature `tch`. For another library, implement the six items without a body; the others have one that
/// works by way of the elements, and can be replaced by what the library does better.
///
/// Rows are stored without a trace of the library that made them. So a cache that was filled with one library serves all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor",
    label = "not a tensor of a library that tcx knows",
    note = "tensors are `tch::Tensor` (feature `tch`), `candle_core::Tensor` (`candle`), `ndarray::Array` (`ndarray`), `ort::value::DynTensor` (`ort`), and every type that implements `tcx::TensorLike`"
)]
pub trait TensorLike: Sized + 'static {
    /// The dtypes that a tensor can have. A declaration of another one does not compile.
    const DTYPES: &'static [DType];

    /// The number of dimensions, if the type fixes it. A declaration that needs another number does not compile.
    const RANK: Option<usize>;

    /// Whether the library can switch gradients off, so that no tensor tracks any from then on.
    #[doc(hidden)]
    const SWITCHES_GRADIENTS: bool = false;

    /// A tensor in the memory of this machine, of this shape, with the elements of `memory` in row-major order. Its dtype is that of the
    /// memory, which is one of [`DTYPES`](Self::DTYPES) and has room for exactly these elements.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot make the tensor.
    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self>;

    /// The sizes of the dimensions.
    fn shape(&self) -> Vec<usize>;

    /// The dtype.
    ///
    /// # Errors
    ///
    /// Returns an error for a tensor that cannot be cached. Its message says what the tensor is instead (`u32 [2, 3]`): it goes on
    /// "expected f32 [2, 3], found".
    fn dtype(&self) -> Result<DType>;

    /// Calls `use_bytes` with the elements in row-major order, little-endian, a truth value as a byte of 0 or 1. It may get the tensor's
    /// own memory if the elements lie there like that and nothing can write to them during the call; otherwise it gets a copy, as of
    /// every `tch::Tensor`.
    ///
    /// # Errors
    ///
    /// Returns an error for a tensor without plain elements. Its message says what the tensor is instead: it goes on "expected a
    /// dense tensor, found".
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// As [`with_bytes`](Self::with_bytes), without a copy that only code of others needs: `use_bytes` writes to no tensor.
    #[doc(hidden)]
    fn lend_bytes<R>(&self, _: Lend, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.with_bytes(use_bytes)
    }

    /// The samples at these positions of the first dimension, in this order.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor has no dimensions, or no sample at one of the positions.
    fn select_samples(&self, positions: &[usize]) -> Result<Self> {
        let (dtype, shape) = (self.dtype()?, self.shape());
        let Some((&samples, dims)) = shape.split_first() else { return Err(no_dimensions()) };
        if let Some(found) = positions.iter().find(|&&position| position >= samples) {
            let message =
                format!("sample of the input batch: expected a number below {samples}, found {found}");
            return Err(Error::batch(message));
        }
        let width = dims.iter().product::<usize>() * dtype.size();
        let gathered = lend_bytes(self, |bytes| {
            let samples = positions.iter().map(|&position| &bytes[position * width..][..width]);
            TensorMemory::gathered(dtype, positions.len() * width, samples)
        })??;
        let selected: Vec<usize> = std::iter::once(&positions.len()).chain(dims).copied().collect();
        Self::from_memory(gathered, &selected)
    }

    /// These tensors, joined along their first dimension.
    ///
    /// # Errors
    ///
    /// Returns an error if there are none, if one has no dimensions, or if they differ in their dtypes or in other dimensions than the
    /// first.
    fn concat(parts: &[&Self]) -> Result<Self> {
        let mut joined: Option<(DType, Vec<usize>)> = None;
        let mut bytes = Vec::new();
        for part in parts {
            let (dtype, shape) = (part.dtype()?, part.shape());
            let Some((&samples, dims)) = shape.split_first() else { return Err(no_dimensions()) };
            let (of, whole) = joined.get_or_insert_with(|| (dtype, [&[0], dims].concat()));
            if *of != dtype || whole[1..] != *dims {
                let message =
                    format!("tensors to join: expected {of} [_, {:?}], found {dtype} {shape:?}", &whole[1..]);
                return Err(Error::batch(message));
            }
            whole[0] += samples;
            lend_bytes(*part, |part| bytes.extend_from_slice(part))?;
        }
        let Some((dtype, shape)) = joined else { return Err(Error::batch("there are no tensors to join")) };
        Self::from_memory(TensorMemory::copied(dtype, &bytes)?, &shape)
    }

    /// Where the tensor is.
    fn device(&self) -> Device {
        Device::CPU
    }

    /// The tensor on another device.
    ///
    /// # Errors
    ///
    /// Returns an error if the library has no such device, or if the device has no free memory.
    fn move_to(self, device: &Device) -> Result<Self> {
        if device.is_cpu() { Ok(self) } else { Err(device.unknown("the tensor library of this output")) }
    }

    /// Whether the tensor depends on something that can be trained. An output that does is refused.
    fn tracks_gradients(&self) -> bool {
        false
    }

    /// The name of the dtype in fingerprints of weights.
    #[doc(hidden)]
    fn dtype_name(&self) -> Result<String> {
        Ok(self.dtype()?.name().to_owned())
    }

    /// The number of the dtype in content ids: that of libtorch.
    #[doc(hidden)]
    fn dtype_number(&self) -> Result<u8> {
        Ok(match self.dtype()? {
            DType::U8 => 0,
            DType::I8 => 1,
            DType::I16 => 2,
            DType::I32 => 3,
            DType::I64 => 4,
            DType::F16 => 5,
            DType::F32 => 6,
            DType::F64 => 7,
            DType::Bool => 11,
            DType::BF16 => 15,
            other => return Err(Error::batch(format!("elements of {other}"))),
        })
    }

    /// The number of samples along the first dimension of an input.
    #[doc(hidden)]
    fn samples(&self) -> Result<usize> {
        self.shape().first().copied().ok_or_else(no_dimensions)
    }

    /// Whether the samples at two positions are equal; `None` if that cannot be found out.
    #[doc(hidden)]
    fn same_samples(&self, a: usize, b: usize) -> Option<bool> {
        let samples = self.samples().ok()?;
        lend_bytes(self, |bytes| {
            let width = bytes.len().checked_div(samples)?;
            Some(bytes.get(a * width..)?.get(..width)? == bytes.get(b * width..)?.get(..width)?)
        })
        .ok()?
    }

    /// Memory for a tensor, which a lookup writes.
    #[doc(hidden)]
    fn allocate(dtype: DType, shape: &[usize]) -> Result<NewMemory> {
        NewMemory::new(dtype, shape.iter().product())
    }

    /// A tensor of `dtype` on `device`, with elements that may be stored narrower.
    #[doc(hidden)]
    fn from_stored(memory: TensorMemory, shape: &[usize], dtype: DType, device: &Device) -> Result<Self> {
        let memory = if memory.dtype() == dtype { memory } else { memory.widened()? };
        Self::from_memory(memory, shape)?.move_to(device)
    }
}

/// Shows that the caller of [`TensorLike::lend_bytes`] is this crate: nothing else can make one, or name its type.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lend(());

/// Calls `use_bytes`, which writes to no tensor, with the elements as [`TensorLike::with_bytes`] has them, in their own memory if they
/// lie there like that.
pub(crate) fn lend_bytes<T: TensorLike, R>(tensor: &T, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
    tensor.lend_bytes(Lend(()), use_bytes)
}

/// A tensor, or a pointer to one.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor",
    label = "not a tensor of a library that tcx knows",
    note = "tensors are `tch::Tensor` (feature `tch`), `candle_core::Tensor` (`candle`), `ndarray::Array` (`ndarray`), `ort::value::DynTensor` (`ort`), and every type that implements `tcx::TensorLike`"
)]
pub trait AsTensor {
    /// Its type.
    type Tensor: TensorLike;

    /// The tensor.
    fn as_tensor(&self) -> &Self::Tensor;
}

impl<T: TensorLike> AsTensor for T {
    type Tensor = T;

    fn as_tensor(&self) -> &T {
        self
    }
}

/// What derefs to a tensor.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: TensorLike> AsTensor for $pointer {
            type Tensor = T;

            fn as_tensor(&self) -> &T {
                self
            }
        }
    )*};
}

pointers!(Arc<T>, Rc<T>);

fn no_dimensions() -> Error {
    Error::batch("the input tensor has no dimensions: expected the samples along its first dimension")
}
