//! Tests for implementations of [`TensorLike`]: call [`check_backend`] in a test of your own.

mod forms;
mod plain;

use tcx_store::DType;

use crate::ids::content::ContentId;
use crate::module::batch::Batch;
use crate::output::typed::{D0, D1, D2, D3, D4, D5, Shape};
use crate::tensor::{Element, TensorLike, TensorMemory};
use crate::testing::forms::{check_dense, check_varying};
use crate::testing::plain::Plain;
use crate::{Error, ErrorKind, Result};

/// Checks that tensors of type `T` go into a cache and come back bit for bit.
///
/// It makes tensors of every dtype that `T` can have, of samples with no to five dimensions, with arbitrary bits (which makes some
/// numbers NaN, with every payload), and without samples or elements. It looks at their bytes, selects and joins samples, and
/// compares content ids. It stores them as one tensor for the batch, as one for each sample, with sizes that differ, and with samples
/// that have none. It reads them again as `T` and without a library, and the other way round.
///
/// ```
/// # #[cfg(feature = "tch")]
/// tcx::testing::check_backend::<tch::Tensor>()?;
/// # Ok::<(), tcx::Error>(())
/// ```
///
/// # Errors
///
/// Returns an error that names the dtype, the shape and the first thing that is not as it has to be.
pub fn check_backend<T: TensorLike>() -> Result<()> {
    check_layouts::<T>(|tensor| vec![tensor])
}

/// As [`check_backend`], with tensors whose elements lie in memory in another way than one after the other: `layouts` makes such
/// tensors of one, with the same shape and the same elements.
///
/// ```
/// # #[cfg(feature = "tch")]
/// # {
/// use tch::Tensor;
///
/// tcx::testing::check_layouts::<Tensor>(|tensor| {
///     let last = tensor.dim() as i64 - 1;
///     let transposed = tensor.transpose(0, last).contiguous().transpose(0, last);
///     let every_second = Tensor::stack(&[&tensor, &tensor], 0).select(0, 1);
///     vec![tensor, transposed, every_second]
/// })?;
/// # }
/// # Ok::<(), tcx::Error>(())
/// ```
///
/// # Errors
///
/// As [`check_backend`].
pub fn check_layouts<T: TensorLike>(layouts: impl Fn(T) -> Vec<T>) -> Result<()> {
    use half::{bf16, f16};

    if T::DTYPES.is_empty() {
        return Err(failed("DTYPES", "is empty"));
    }
    check_elements::<T, f16>(&layouts)?;
    check_elements::<T, bf16>(&layouts)?;
    check_elements::<T, f32>(&layouts)?;
    check_elements::<T, f64>(&layouts)?;
    check_elements::<T, i8>(&layouts)?;
    check_elements::<T, i16>(&layouts)?;
    check_elements::<T, i32>(&layouts)?;
    check_elements::<T, i64>(&layouts)?;
    check_elements::<T, u8>(&layouts)?;
    check_elements::<T, bool>(&layouts)
}

fn check_elements<T: TensorLike, E: Element>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    if !T::DTYPES.contains(&E::DTYPE) {
        return Ok(());
    }
    check_shape::<T, E, D0>(layouts)?;
    check_shape::<T, E, D1<5>>(layouts)?;
    check_shape::<T, E, D2<3, 2>>(layouts)?;
    check_shape::<T, E, D3<2, 1, 33>>(layouts)?;
    check_shape::<T, E, D4<2, 3, 1, 2>>(layouts)?;
    check_shape::<T, E, D5<1, 2, 2, 3, 1>>(layouts)?;
    check_varying::<T, E>(layouts).map_err(|error| failed(&E::DTYPE.to_string(), &format!("{error:#}")))
}

fn check_shape<T: TensorLike, E: Element, S: Shape>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    let named = |error: Error| {
        failed(&format!("{} with samples of shape {:?}", E::DTYPE, S::DIMS), &format!("{error:#}"))
    };
    if is_rank::<T>(S::DIMS.len() + 1) {
        for samples in [0, 1, 7] {
            let shape = [&[samples], S::DIMS].concat();
            for tensor in layouts(tensor::<T>(E::DTYPE, &shape).map_err(named)?) {
                check_tensor(&tensor, E::DTYPE, &shape).map_err(named)?;
            }
        }
    }
    check_dense::<T, E, S>(layouts).map_err(named)
}

/// Whether a tensor of the type can have this many dimensions.
fn is_rank<T: TensorLike>(rank: usize) -> bool {
    T::RANK.is_none_or(|own| own == rank)
}

/// A tensor with arbitrary bits that depend on its shape.
fn tensor<T: TensorLike>(dtype: DType, shape: &[usize]) -> Result<T> {
    T::from_memory(TensorMemory::copied(dtype, &bits(dtype, shape.iter().product()))?, shape)
}

/// Arbitrary bits. The first numbers are a NaN with a payload, one that signals, and the least one of all.
fn bits(dtype: DType, elements: usize) -> Vec<u8> {
    let special: &[u64] = match dtype {
        DType::F16 => &[0x7e2a, 0xfc15, 1],
        DType::BF16 => &[0x7fc5, 0xff91, 1],
        DType::F32 => &[0x7fc1_2345, 0xff81_2345, 1],
        DType::F64 => &[0x7ff8_0000_1234_5678, 0xfff0_0000_1234_5678, 1],
        _ => &[],
    };
    let number = |at: u64| {
        let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        special
            .get(at as usize)
            .copied()
            .unwrap_or((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    };
    let mask = if dtype == DType::Bool { 1 } else { u64::MAX };
    (0..elements as u64).flat_map(|at| (number(at) & mask).to_le_bytes()[..dtype.size()].to_vec()).collect()
}

fn check_tensor<T: TensorLike>(tensor: &T, dtype: DType, shape: &[usize]) -> Result<()> {
    let plain = Plain::of(tensor)?;
    plain.check("the tensor", dtype, shape, &bits(dtype, shape.iter().product()))?;
    if ContentId::of_tensor(tensor)? != ContentId::of_tensor(&plain)? {
        return Err(failed(
            "the content id",
            "is another one than that of the same elements without a library",
        ));
    }
    let positions: Vec<usize> = (0..shape[0]).rev().chain((0..shape[0]).rev()).collect();
    let selected = Plain::of(&TensorLike::select_samples(tensor, &positions)?)?;
    selected.check_same("selected samples", &TensorLike::select_samples(&plain, &positions)?)?;
    if TensorLike::select_samples(tensor, &[shape[0]]).is_ok() {
        return Err(failed("`select_samples`", "accepts a position behind the last sample"));
    }
    let joined = Plain::of(&T::concat(&[tensor, tensor])?)?;
    joined.check_same("joined tensors", &Plain::concat(&[&plain, &plain])?)?;
    if Batch::rows(tensor)? != shape[0] {
        return Err(failed("the batch", "has another number of samples than the first dimension"));
    }
    for (a, b) in [(0, 0), (0, 1), (5, 6)] {
        if b < shape[0]
            && Batch::is_same(tensor, a, b).is_some_and(|same| Some(same) != Batch::is_same(&plain, a, b))
        {
            return Err(failed("the batch", "takes samples for equal that are not, or the other way round"));
        }
    }
    Ok(())
}

fn failed(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::TensorLibrary, format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_without_a_library_pass() {
        check_backend::<Plain>().unwrap();
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn arrays_pass_whatever_their_elements_and_their_layout() {
        use half::{bf16, f16};
        use ndarray::{Array, Array1, Array2, ArrayD, Axis, Dimension, Slice};

        fn check<E: Element + Default, D: Dimension + ndarray::RemoveAxis + 'static>() {
            let layouts = |array: Array<E, D>| {
                if array.ndim() == 0 {
                    return vec![array];
                }
                let mut turned = array.clone().reversed_axes();
                turned = turned.as_standard_layout().into_owned().reversed_axes();
                let mut flipped = array.clone();
                flipped.invert_axis(Axis(0));
                flipped = flipped.as_standard_layout().into_owned();
                flipped.invert_axis(Axis(0));
                let twice = ndarray::concatenate(Axis(0), &[array.view(), array.view()]);
                let half =
                    twice.map(|twice| twice.slice_axis_move(Axis(0), Slice::from(..array.len_of(Axis(0)))));
                [array, turned, flipped].into_iter().chain(half.ok()).collect()
            };
            check_layouts::<Array<E, D>>(layouts).unwrap();
        }

        check::<f16, ndarray::IxDyn>();
        check::<bf16, ndarray::Ix2>();
        check::<f64, ndarray::Ix3>();
        check_backend::<ArrayD<bool>>().unwrap();
        check_backend::<Array1<i64>>().unwrap();
        check_backend::<Array2<u8>>().unwrap();
        check_backend::<ArrayD<f32>>().unwrap();
    }

    #[test]
    fn a_row_passes() {
        check_backend::<crate::tensor::Row<f32>>().unwrap();
        check_backend::<crate::tensor::Row<bool>>().unwrap();
    }

    /// A tensor that is changed when it is made.
    struct Wrong<const HOW: usize>(Plain);

    impl<const HOW: usize> TensorLike for Wrong<HOW> {
        const DTYPES: &'static [DType] = &[DType::F32, DType::I64];
        const RANK: Option<usize> = None;

        fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
            let mut bytes = memory.bytes().to_vec();
            let mut shape = shape.to_vec();
            match HOW {
                // Signalling NaN become quiet, as in many conversions.
                0 if memory.dtype() == DType::F32 => {
                    for number in bytes.as_chunks_mut::<4>().0 {
                        let bits = u32::from_le_bytes(*number);
                        let quiet = if f32::from_bits(bits).is_nan() { bits | 1 << 22 } else { bits };
                        *number = quiet.to_le_bytes();
                    }
                }
                1 => shape.reverse(),
                _ => {}
            }
            let memory = TensorMemory::copied(memory.dtype(), &bytes)?;
            Plain::from_memory(memory, &shape).map(Self)
        }

        fn shape(&self) -> Vec<usize> {
            self.0.shape()
        }

        fn dtype(&self) -> Result<DType> {
            self.0.dtype()
        }

        fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
            self.0.with_bytes(use_bytes)
        }

        fn select_samples(&self, positions: &[usize]) -> Result<Self> {
            if HOW == 2 {
                self.0.select_samples(&positions.iter().rev().copied().collect::<Vec<_>>()).map(Self)
            } else {
                self.0.select_samples(positions).map(Self)
            }
        }
    }

    #[test]
    fn what_is_wrong_is_found_and_named() {
        let error = check_backend::<Wrong<0>>().unwrap_err().to_string();
        assert!(
            error.contains("f32 with samples of shape") && error.contains("is not what it was"),
            "{error}"
        );
        let error = check_backend::<Wrong<1>>().unwrap_err().to_string();
        assert!(error.contains("expected f32 [0, 5], found f32 [5, 0]"), "{error}");
        let error = check_backend::<Wrong<2>>().unwrap_err().to_string();
        assert!(error.contains("selected samples"), "{error}");
        check_backend::<Wrong<3>>().unwrap();
    }
}
