//! Files of weights, read without a tensor library.

use std::path::Path;

use ::safetensors::{Dtype, SafeTensors};

use super::{enter, named, unusable};
use crate::{Error, Result};

/// The fingerprint of the tensors of these names in a file.
///
/// # Errors
///
/// Returns an error if the file has another format, or has a tensor whose dtype has no name in tcx.
pub(super) fn fingerprint(file: &Path, used: impl Fn(&str) -> bool) -> Result<String> {
    let bytes = std::fs::read(file).map_err(|error| unusable(file, "cannot be read").with_source(error))?;
    of_bytes(file, &bytes, used)
}

/// As [`fingerprint`], of the bytes of a file.
pub(super) fn of_bytes(file: &Path, bytes: &[u8], used: impl Fn(&str) -> bool) -> Result<String> {
    let tensors = SafeTensors::deserialize(bytes);
    let tensors = tensors.map_err(|error| {
        unusable(file, "cannot be read as a file of tensors in the format `.safetensors`").with_source(error)
    })?;
    let mut tensors: Vec<_> = tensors.iter().filter(|(name, _)| used(name)).collect();
    tensors.sort_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tensors {
        let dtype = dtype_name(tensor.dtype()).ok_or_else(|| {
            Error::weights(
                format!("weight `{name}`"),
                format!("has the dtype {:?}, which tcx cannot read", tensor.dtype()),
            )
        })?;
        enter(&mut hasher, [name, dtype], tensor.shape(), tensor.data());
    }
    Ok(named(&hasher))
}

/// The name of a dtype in fingerprints.
fn dtype_name(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F16 => "f16",
        Dtype::BF16 => "bf16",
        Dtype::F32 => "f32",
        Dtype::F64 => "f64",
        Dtype::I8 => "i8",
        Dtype::I16 => "i16",
        Dtype::I32 => "i32",
        Dtype::I64 => "i64",
        Dtype::U32 => "u32",
        Dtype::U8 => "u8",
        Dtype::BOOL => "bool",
        _ => return None,
    })
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;
    use crate::Weights;

    #[test]
    fn a_file_has_the_fingerprint_that_libtorch_finds() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.safetensors");
        let kinds = [Kind::Half, Kind::BFloat16, Kind::Float, Kind::Double, Kind::Int8, Kind::Int16];
        let kinds = kinds.into_iter().chain([Kind::Int, Kind::Int64, Kind::Uint8, Kind::Bool]);
        let tensors: Vec<_> = kinds
            .map(|kind| {
                (
                    format!("{kind:?}"),
                    Tensor::arange(6, (Kind::Float, tch::Device::Cpu)).view([2, 3]).to_kind(kind),
                )
            })
            .collect();
        Tensor::write_safetensors(&tensors, &file).unwrap();
        let expected = Weights::of_file(&file).unwrap();
        assert_eq!(fingerprint(&file, |_| true).unwrap(), expected.fingerprint());
        let some = Weights::of_part(&file, |name| name.starts_with('I')).unwrap();
        assert_eq!(fingerprint(&file, |name| name.starts_with('I')).unwrap(), some.fingerprint());
    }
}
