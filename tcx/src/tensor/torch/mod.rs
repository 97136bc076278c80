//! Tensors of tch: their elements in row-major order, read and written in place, and checksums of them.

mod checksum;
mod device;
mod like;
mod raw;
mod watched;

use tch::{Device, Kind, TchError, Tensor};
use tcx_store::DType;

pub(crate) use checksum::{Sample, checksum};
pub(crate) use device::{check_device, device_name};
pub(crate) use raw::with_bytes;
pub(crate) use watched::WatchedTensor;

use crate::{Error, Result};

/// The dtypes as libtorch knows them.
const KINDS: [(DType, Kind); 10] = [
    (DType::F16, Kind::Half),
    (DType::BF16, Kind::BFloat16),
    (DType::F32, Kind::Float),
    (DType::F64, Kind::Double),
    (DType::I8, Kind::Int8),
    (DType::I16, Kind::Int16),
    (DType::I32, Kind::Int),
    (DType::I64, Kind::Int64),
    (DType::U8, Kind::Uint8),
    (DType::Bool, Kind::Bool),
];

/// The dtype, if a tensor of this kind can be cached.
fn dtype(kind: Kind) -> Option<DType> {
    KINDS.iter().find(|(_, own)| *own == kind).map(|(dtype, _)| *dtype)
}

/// The dtype as it is written in `#[tensor(..)]`, or libtorch's name if it cannot be written there.
pub(crate) fn kind_name(kind: Kind) -> String {
    dtype(kind).map_or_else(|| format!("{kind:?}"), |dtype| dtype.name().to_owned())
}

/// The same values as a contiguous tensor on the CPU, with nothing lazy left in it. Copies only what is not
/// like that yet.
///
/// # Errors
///
/// Returns a description of the tensor, if it does not have plain values.
pub(crate) fn dense(tensor: &Tensor) -> Result<Tensor, String> {
    check_dense(tensor)?;
    plain(tensor).map_err(|error| compressed(tensor).map_or_else(|| first_line(&error), str::to_owned))
}

/// What a tensor in a compressed sparse layout is instead of dense. To be asked after libtorch has failed: it throws an exception for
/// every other tensor, which takes long.
pub(crate) fn compressed(tensor: &Tensor) -> Option<&'static str> {
    (tensor.f_crow_indices().is_ok() || tensor.f_ccol_indices().is_ok()).then_some(SPARSE)
}

const SPARSE: &str = "a sparse or MKL-DNN layout: call `to_dense` in `forward`";

/// Checks that the bytes of its elements describe the tensor completely.
///
/// # Errors
///
/// Returns a description of the tensor, if it does not have plain values.
pub(crate) fn check_dense(tensor: &Tensor) -> Result<(), String> {
    if tensor.is_sparse() || tensor.is_mkldnn() {
        return Err(SPARSE.to_owned());
    }
    // Their numbers depend on a scale and a zero point, which are beside the elements.
    if matches!(tensor.f_kind(), Ok(Kind::QInt8 | Kind::QUInt8 | Kind::QInt32)) {
        return Err("a quantized tensor: call `dequantize`".to_owned());
    }
    Ok(())
}

fn plain(tensor: &Tensor) -> Result<Tensor, TchError> {
    // `contiguous` alone would leave the bits that say "conjugate" or "negate when read".
    let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?;
    let tensor = tensor.f_resolve_conj()?.f_resolve_neg()?.f_contiguous()?;
    match tensor.f_kind()? {
        // A view of bytes as bools may hold any byte; a stored one is 0 or 1.
        Kind::Bool => tensor.f_view_dtype(Kind::Uint8)?.f_ne(0),
        _ => Ok(tensor),
    }
}

/// What libtorch says; the lines after the first are a backtrace of C++.
pub(crate) fn first_line(error: &TchError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The same error without a backtrace of C++.
pub(crate) fn brief(error: TchError) -> TchError {
    match error {
        TchError::Torch(text) => TchError::Torch(text.lines().next().unwrap_or_default().to_owned()),
        other => other,
    }
}

/// How many samples lie along the first dimension of an input.
///
/// # Errors
///
/// Returns an error if the tensor is undefined or has no dimensions.
pub(crate) fn samples(tensor: &Tensor) -> Result<usize> {
    if !tensor.defined() {
        return Err(Error::batch("the input tensor is undefined"));
    }
    match tensor.size().first() {
        Some(&rows) => Ok(rows as usize),
        None => Err(Error::batch(
            "the input tensor has no dimensions: expected the samples along its first dimension",
        )),
    }
}

/// Whether two tensors have the same dtype, shape and bytes; `None` if they have no plain values.
pub(crate) fn same_tensors(a: &Tensor, b: &Tensor) -> Option<bool> {
    if a.f_kind().ok()? != b.f_kind().ok()? || a.size() != b.size() || a.device() != b.device() {
        return Some(false);
    }
    if a.is_sparse() || b.is_sparse() {
        return None;
    }
    if a.data_ptr() == b.data_ptr() && a.stride() == b.stride() {
        return Some(true);
    }
    let (a, b) = (dense(a).ok()?, dense(b).ok()?);
    with_bytes(&a, |a| with_bytes(&b, |b| a == b)).ok()?.ok()
}

#[cfg(test)]
mod tests {
    use tch::kind;

    use super::*;

    #[test]
    fn tensors_of_another_shape_or_dtype_differ() {
        let ones = Tensor::ones([2, 3], kind::FLOAT_CPU);
        assert_eq!(same_tensors(&ones, &ones.copy()), Some(true));
        assert_eq!(same_tensors(&ones.tr(), &Tensor::ones([3, 2], kind::FLOAT_CPU)), Some(true));
        assert_eq!(same_tensors(&ones, &ones.tr()), Some(false));
        assert_eq!(same_tensors(&ones, &ones.to_kind(tch::Kind::Int64)), Some(false));
        let nan = &ones * f64::NAN;
        assert_eq!(same_tensors(&nan, &nan.copy()), Some(true));
    }
}
