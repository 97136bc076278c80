//! The fingerprint of a file of weights, without the network.

#[cfg(feature = "safetensors")]
use std::path::Path;

#[cfg(feature = "safetensors")]
use super::safetensors;
#[cfg(feature = "safetensors")]
use crate::Result;
use crate::identity::Identity;
use crate::identity::stateless::Stateless;

/// The fingerprint that [`Frozen::load`](crate::Frozen::load) takes, computed from the file alone; `Frozen::candle` has the same one
/// with the dtype of the file. It replaces a [`Frozen`](crate::Frozen) network in the identity of a module that is not built yet,
/// or whose program has no network.
///
/// ```
/// # use tch::{Device, nn};
/// # use tcx::Frozen;
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("head.safetensors");
/// # Frozen::build(nn::VarStore::new(Device::Cpu), |p| nn::linear(p, 4, 2, Default::default()))?.save(&file)?;
/// let weights = tcx::Weights::of_file(&file)?;
/// let network = Frozen::load(Device::Cpu, &file, |p| nn::linear(p, 4, 2, Default::default()))?;
/// assert_eq!(weights.fingerprint(), network.fingerprint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    fingerprint: String,
}

impl Weights {
    /// The weights of a network that uses every tensor in the file. With the feature `tch`, the file may have any format that
    /// `Frozen::load` reads; otherwise it is a `.safetensors` file. Needs the feature `safetensors`, which `tch` and `candle` have.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    #[cfg(feature = "safetensors")]
    pub fn of_file(file: impl AsRef<Path>) -> Result<Self> {
        Self::of_part(file, |_| true)
    }

    /// The weights of a network that uses the tensors of these names; a file may hold others. Needs the feature `safetensors`, as
    /// [`of_file`](Self::of_file) does.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    #[cfg(feature = "safetensors")]
    pub fn of_part(file: impl AsRef<Path>, used: impl Fn(&str) -> bool) -> Result<Self> {
        let file = file.as_ref();
        let fingerprint = fingerprint_of(file, used)?;
        Ok(Self { fingerprint })
    }

    #[cfg(feature = "ort")]
    pub(super) fn named(fingerprint: String) -> Self {
        Self { fingerprint }
    }

    /// The hash of all weights: names, dtypes, shapes, values.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl Stateless for Weights {
    fn identity(&self, identity: &mut Identity) {
        identity.unbuilt_weights(&self.fingerprint);
    }
}

/// A `.safetensors` file is read without a library; tch reads other formats too.
#[cfg(feature = "safetensors")]
fn fingerprint_of(file: &Path, used: impl Fn(&str) -> bool) -> Result<String> {
    #[cfg(feature = "tch")]
    if !safetensors::is_safetensors(file) {
        let tensors = super::torch::read(file)?;
        let tensors = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        return super::fingerprint(tensors.filter(|(name, _)| used(name)));
    }
    safetensors::fingerprint(file, used)
}
