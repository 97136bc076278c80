//! Writing frozen weights into a file, in any library.

use std::borrow::Cow;
use std::path::Path;

use ::safetensors::{Dtype, View};

use super::safetensors::{dtype_of_name, is_safetensors};
use super::{Frozen, unusable};
use crate::identity::watch::Weight;
use crate::tensor::Elements;
use crate::{Error, Result};

impl<M> Frozen<M> {
    /// Writes the weights into a `.safetensors` file, which `Frozen::load` of tch and `Frozen::candle` read. Weights of tch are also
    /// written as `.pt`, `.bin`, or libtorch's own format (any other ending). Needs the feature `safetensors`, which `tch` and `candle` have.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let file = dir.path().join("mean.safetensors");
    /// # #[cfg(feature = "ndarray")]
    /// # {
    /// let mean = tcx::Frozen::constant(&ndarray::arr1(&[0.485_f32, 0.456, 0.406]))?;
    /// mean.save(&file)?;
    /// assert_eq!(tcx::Weights::of_file(&file)?.fingerprint(), mean.fingerprint());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, if its format cannot hold the weights, or if this is a network in the format
    /// TorchScript or ONNX, whose file exists already.
    pub fn save(&self, file: impl AsRef<Path>) -> Result<()> {
        let file = file.as_ref();
        if !self.complete {
            let message = "contains code besides its weights: copy the file that it was loaded from";
            return Err(Error::weights("a network in the format TorchScript or ONNX", message));
        }
        #[cfg(feature = "tch")]
        if let Some(written) = super::torch::save(&self.weights, file) {
            return written;
        }
        if !is_safetensors(file) {
            let message = "cannot be written: only tch has other formats than `.safetensors`";
            return Err(
                unusable(file, message).with_remedy("give the file a name that ends with `.safetensors`")
            );
        }
        let tensors = self.weights.iter().map(|weight| Ok((&weight.name, Plain::of(weight)?)));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        ::safetensors::serialize_to_file(tensors, None, file)
            .map_err(|error| unusable(file, "cannot be written").with_source(error))
    }
}

/// A weight as the format has it.
struct Plain {
    dtype: Dtype,
    elements: Elements,
}

impl Plain {
    fn of(weight: &Weight) -> Result<Self> {
        let refused = |found: &str| {
            Error::weights(format!("weight `{}`", weight.name), format!("cannot be written: it is {found}"))
        };
        let elements = weight.tensor().elements().map_err(|error| refused(&error.to_string()))?;
        let dtype = dtype_of_name(&elements.dtype).ok_or_else(|| refused(&elements.dtype))?;
        Ok(Self { dtype, elements })
    }
}

impl View for Plain {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.elements.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.elements.bytes)
    }

    fn data_len(&self) -> usize {
        self.elements.bytes.len()
    }
}
