//! Ids made from the content of samples, for data without stable names.

use std::fmt;
use std::path::Path;

use crate::ids::{BytesId, BytesIds, StringId, StringIds};
use crate::tensor::{AsTensor, TensorLike, lend_bytes};
use crate::{Error, ErrorKind, Result};

/// An id derived from the content of a sample: a BLAKE3 hash. Samples with the same content share it. An edited sample gets
/// another id, so it is a miss.
///
/// It is an id of modules whose ids are strings (64 hex digits) or bytes (`key = bytes`, 32 bytes).
///
/// ```
/// use tcx::ContentId;
///
/// let id = ContentId::of_text("a cat");
/// assert_eq!(id, ContentId::of_bytes(b"a cat"));
/// assert_eq!(id.as_str().len(), 64);
///
/// // One for each sample of a batch:
/// let images = tch::Tensor::ones([2, 3, 8, 8], tch::kind::FLOAT_CPU);
/// let ids = ContentId::of_samples(&images)?;
/// assert_eq!(ids[0], ids[1]);
/// # Ok::<(), tcx::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId {
    hash: [u8; 32],
    hex: [u8; 64],
}

/// Distinguishes tensors from the bytes that describe them.
const TENSOR: &str = "tcx 2026-11-21 the content of a tensor: dtype, shape, values";

impl ContentId {
    /// The id of bytes: their BLAKE3 hash, as `b3sum` prints it.
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::new(blake3::hash(bytes.as_ref()))
    }

    /// The id of a text: that of its UTF-8 bytes.
    pub fn of_text(text: impl AsRef<str>) -> Self {
        Self::of_bytes(text.as_ref())
    }

    /// The id of a file: that of its bytes. Its name has no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn of_file(file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        let hash = || {
            let mut hasher = blake3::Hasher::new();
            std::io::copy(&mut std::fs::File::open(file)?, &mut hasher)?;
            Ok(Self::new(hasher.finalize()))
        };
        hash().map_err(|error: std::io::Error| {
            let message = format!("cannot read `{}` to compute its content id", file.display());
            Error::new(ErrorKind::Io, message).with_source(error)
        })
    }

    /// The id of a tensor: its dtype, shape and values. Its device and its memory layout have no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor is sparse, quantized or undefined: it has no plain values.
    pub fn of_tensor(tensor: &(impl AsTensor + ?Sized)) -> Result<Self> {
        let tensor = tensor.as_tensor();
        let content = |bytes: &[u8]| Ok(of_values(tensor.dtype_number()?, &tensor.shape(), bytes));
        lend_bytes(tensor, content).flatten().map_err(|found| no_content(&found))
    }

    /// The id of each sample of a batch, along the first dimension.
    ///
    /// # Errors
    ///
    /// As [`of_tensor`](Self::of_tensor). Also returns an error if the tensor has no dimensions.
    pub fn of_samples(batch: &(impl AsTensor + ?Sized)) -> Result<Vec<Self>> {
        let batch = batch.as_tensor();
        let (samples, shape) = (batch.samples()?, batch.shape());
        let contents = |bytes: &[u8]| {
            let (dtype, width) = (batch.dtype_number()?, bytes.len().checked_div(samples).unwrap_or(0));
            let sample = |sample| of_values(dtype, &shape[1..], &bytes[sample * width..][..width]);
            Ok((0..samples).map(sample).collect())
        };
        lend_bytes(batch, contents).flatten().map_err(|found| no_content(&found))
    }

    /// The 64 hex digits.
    ///
    /// # Panics
    ///
    /// Never: hex digits are text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.hex).expect("hex digits are text")
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.hash
    }

    fn new(hash: blake3::Hash) -> Self {
        let mut hex = [0; 64];
        hex.copy_from_slice(hash.to_hex().as_bytes());
        Self { hash: *hash.as_bytes(), hex }
    }
}

/// The id of these values, with the number of their dtype and this shape. Every part has a length of its own or is
/// preceded by it.
fn of_values(dtype: u8, shape: &[usize], values: &[u8]) -> ContentId {
    let mut hasher = blake3::Hasher::new_derive_key(TENSOR);
    hasher.update(&[dtype, shape.len() as u8]);
    for dim in shape {
        hasher.update(&(*dim as i64).to_le_bytes());
    }
    hasher.update(values);
    ContentId::new(hasher.finalize())
}

fn no_content(found: &Error) -> Error {
    Error::batch(format!("the content id of a tensor: expected a dense tensor, found {found}"))
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({})", self.as_str())
    }
}

impl StringId<ContentId> for StringIds {
    fn read(id: &ContentId) -> &str {
        id.as_str()
    }
}

impl BytesId<ContentId> for BytesIds {
    fn read(id: &ContentId) -> &[u8] {
        id.as_bytes()
    }
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    fn floats(values: &[f32], size: &[i64]) -> Tensor {
        Tensor::from_slice(values).view(size)
    }

    #[test]
    fn the_id_of_bytes_is_their_blake3_hash() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(ContentId::of_bytes([]).as_str(), empty);
        assert_eq!(ContentId::of_text("").to_string(), empty);
        assert_eq!(ContentId::of_bytes([]).as_bytes()[..2], [0xaf, 0x13]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a cat").unwrap();
        assert_eq!(ContentId::of_file(file.path()).unwrap(), ContentId::of_text("a cat"));
        assert!(ContentId::of_file("no such file").unwrap_err().to_string().contains("no such file"));
    }

    #[test]
    fn what_a_tensor_holds_decides_and_not_how_it_lies_in_memory() {
        let id = |tensor: &Tensor| ContentId::of_tensor(tensor).unwrap();
        let matrix = floats(&[1., 2., 3., 4.], &[2, 2]);
        assert_eq!(id(&matrix), id(&matrix.tr().contiguous().tr()));
        let others = [
            matrix.tr(),
            matrix.flatten(0, 1),
            matrix.unsqueeze(0),
            matrix.view_dtype(Kind::Int),
            matrix.to_kind(Kind::Double),
            matrix.narrow(0, 0, 1),
            Tensor::zeros([2, 0], (Kind::Float, Device::Cpu)),
            Tensor::zeros([0, 2], (Kind::Float, Device::Cpu)),
        ];
        let mut ids: Vec<_> = others.iter().chain([&matrix]).map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), others.len() + 1, "each has its own");
    }

    #[test]
    fn truth_values_are_not_bytes() {
        let bytes = Tensor::from_slice(&[1u8, 0]);
        assert_ne!(
            ContentId::of_tensor(&bytes).unwrap(),
            ContentId::of_tensor(&bytes.to_kind(Kind::Bool)).unwrap()
        );
    }

    #[test]
    fn a_sample_of_a_batch_is_what_it_is_alone() {
        let batch = floats(&[1., 2., 3., 4., 1., 2.], &[3, 2]);
        let ids = ContentId::of_samples(&batch.tr().contiguous().tr()).unwrap();
        let alone: Vec<_> = (0..3).map(|row| ContentId::of_tensor(&batch.get(row)).unwrap()).collect();
        assert_eq!(ids, alone);
        assert_eq!(ids[0], ids[2]);
        assert!(ContentId::of_samples(&Tensor::zeros([0, 2], tch::kind::FLOAT_CPU)).unwrap().is_empty());
        assert!(ContentId::of_samples(&Tensor::from(1.)).is_err());
        assert!(ContentId::of_tensor(&Tensor::new()).is_err());
    }
}
