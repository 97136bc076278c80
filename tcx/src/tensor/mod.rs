//! Tensors as bytes: their elements in row-major order, read and written in place, and checksums of them.

mod checksum;
mod device;
mod raw;

use tch::{Device, Kind, TchError, Tensor};
use tcx_store::DType;

pub(crate) use checksum::{Sample, checksum};
pub(crate) use device::{check_device, device_name, to_device};
pub(crate) use raw::{NewTensor, TensorLeaf, fill_numbers, numbers, rows, with_bytes};

use crate::{Error, Result};

const _: () = assert!(cfg!(target_endian = "little"), "tensors enter the cache as little-endian bytes");

/// The dtype as it is written in `#[tensor(..)]`, or libtorch's name if it cannot be written there.
pub(crate) fn kind_name(kind: Kind) -> String {
    let dtype = match kind {
        Kind::Half => DType::F16,
        Kind::BFloat16 => DType::BF16,
        Kind::Float => DType::F32,
        Kind::Double => DType::F64,
        Kind::Int8 => DType::I8,
        Kind::Int16 => DType::I16,
        Kind::Int => DType::I32,
        Kind::Int64 => DType::I64,
        Kind::Uint8 => DType::U8,
        Kind::Bool => DType::Bool,
        other => return format!("{other:?}"),
    };
    dtype.name().to_owned()
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
