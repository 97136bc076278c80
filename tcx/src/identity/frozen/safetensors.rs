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
    let tensors = SafeTensors::deserialize(&bytes);
    let tensors = tensors.map_err(|error| {
        unusable(file, "cannot be read as a file of tensors in the format `.safetensors`").with_source(error)
    })?;
    let mut tensors: Vec<_> = tensors.iter().filter(|(name, _)| used(name)).collect();
    tensors.sort_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tensors {
        let dtype = name_of_dtype(tensor.dtype()).ok_or_else(|| {
            Error::weights(
                format!("weight `{name}`"),
                format!("has the dtype {:?}, which tcx cannot read", tensor.dtype()),
            )
        })?;
        enter(&mut hasher, [name, dtype], tensor.shape(), tensor.data());
    }
    Ok(named(&hasher))
}

/// Dtypes, and their names in fingerprints.
const DTYPES: [(Dtype, &str); 11] = [
    (Dtype::F16, "f16"),
    (Dtype::BF16, "bf16"),
    (Dtype::F32, "f32"),
    (Dtype::F64, "f64"),
    (Dtype::I8, "i8"),
    (Dtype::I16, "i16"),
    (Dtype::I32, "i32"),
    (Dtype::I64, "i64"),
    (Dtype::U8, "u8"),
    (Dtype::U32, "u32"),
    (Dtype::BOOL, "bool"),
];

fn name_of_dtype(dtype: Dtype) -> Option<&'static str> {
    DTYPES.iter().find(|(own, _)| *own == dtype).map(|(_, name)| *name)
}

pub(super) fn dtype_of_name(name: &str) -> Option<Dtype> {
    DTYPES.iter().find(|(_, own)| *own == name).map(|(dtype, _)| *dtype)
}

pub(super) fn is_safetensors(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "safetensors")
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests {
    use std::path::Path;

    use tch::{Kind, Tensor};

    use crate::Weights;
    use crate::identity::frozen::{fingerprint, torch};

    fn by_libtorch(file: &Path, used: impl Fn(&str) -> bool) -> String {
        let tensors = torch::read(file).unwrap();
        let tensors = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        fingerprint(tensors.filter(|(name, _)| used(name))).unwrap()
    }

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
        assert_eq!(Weights::of_file(&file).unwrap().fingerprint(), by_libtorch(&file, |_| true));
        let some = Weights::of_part(&file, |name| name.starts_with('I')).unwrap();
        assert_eq!(some.fingerprint(), by_libtorch(&file, |name| name.starts_with('I')));
    }
}
