//! Networks of candle: built from a file of weights that no other code can write to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::safetensors::BufferedSafetensors;
use candle_core::{DType, Device, Result as CandleResult, Shape, Tensor, Var};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use super::{Frozen, refuse, unusable};
use crate::Result;
use crate::tensor::WatchedElements;

impl<M> Frozen<M> {
    /// Builds a network of candle from a `.safetensors` file, on `device`, with weights of `dtype`.
    ///
    /// The file is read once, so the network has exactly the weights that the fingerprint covers, whatever happens to the file
    /// later. The fingerprint covers the weights that the network asks for. If `dtype` is that of the file, the fingerprint is the
    /// one that the same network has in tch, and that of [`Weights::of_file`](crate::Weights::of_file) if the network uses
    /// everything in the file.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use tcx::Frozen;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let file = dir.path().join("fc.safetensors");
    /// # let weight = Tensor::ones((2, 4), DType::F32, &Device::Cpu)?;
    /// # candle_core::safetensors::save(&std::collections::HashMap::from([("fc.weight", weight)]), &file)?;
    /// let fc = Frozen::candle(&Device::Cpu, DType::F32, &file, |vb| candle_nn::linear_no_bias(4, 2, vb.pp("fc")))?;
    /// assert_eq!(fc.weight().dims(), [2, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if `build` fails: if the file lacks a weight, say. Refuses a network
    /// that asks for no weights, because its identity would not depend on them. Refuses a network that contains a `Var`, a
    /// `Cell`, a `Mutex` or the like, if the name of its type shows it. A `Var` that the name does not show is an error of the
    /// first batch for which `forward` returns a tensor that tracks its gradients. tcx does not detect it in a detached tensor, or
    /// in a `Vec` of numbers: load it with the builder, or make what distinguishes it a field of the module.
    pub fn candle(
        device: &Device,
        dtype: DType,
        file: impl AsRef<Path>,
        build: impl FnOnce(VarBuilder<'_>) -> CandleResult<M>,
    ) -> Result<Self> {
        refuse::check::<M>()?;
        let file = file.as_ref();
        let bytes =
            std::fs::read(file).map_err(|error| unusable(file, "cannot be read").with_source(error))?;
        let held = BufferedSafetensors::new(bytes).map_err(|error| {
            unusable(file, "cannot be read as a file of tensors in the format `.safetensors`")
                .with_source(error)
        })?;
        let source = Source { held, taken: Mutex::default() };
        let module = build(VarBuilder::from_backend(Box::new(&source), dtype, device.clone()));
        let module = module.map_err(|error| {
            unusable(file, "does not fit the network, or building the network failed").with_source(error)
        })?;
        let mut taken = source.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        for tensor in taken.values_mut() {
            *tensor = tensor.detach();
        }
        if taken.is_empty() {
            let message =
                "the network asks for none of its weights, so its identity would not depend on them";
            return Err(
                unusable(file, message).with_remedy("get the weights from the builder that the closure gets")
            );
        }
        Self::of(module, taken.into_iter().collect(), device.into(), WatchedElements::freeze)
    }
}

/// A file of weights, as a builder sees it.
struct Source {
    held: BufferedSafetensors,
    /// The weights that the network has asked for: it has the memory that is watched.
    taken: Mutex<BTreeMap<String, Tensor>>,
}

impl Source {
    /// One tensor for each name, however often the network asks for it.
    fn take(&self, name: &str, dtype: DType, device: &Device, is_variable: bool) -> CandleResult<Tensor> {
        // Without the lock while it is loaded: a network may be built by several threads.
        let taken = self.taken().get(name).cloned();
        let tensor = if let Some(taken) = taken {
            taken
        } else {
            let mut loaded = self.held.load(name, device)?.to_dtype(dtype)?;
            if is_variable {
                loaded = Var::from_tensor(&loaded)?.into_inner();
            }
            self.taken().entry(name.to_owned()).or_insert(loaded).clone()
        };
        if tensor.dtype() != dtype || !tensor.device().same_device(device) {
            candle_core::bail!(
                "weight `{name}`: another part of the network has it in another dtype, or on another device"
            );
        }
        // What is computed with it tracks no gradients.
        Ok(if is_variable { tensor } else { tensor.detach() })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, Tensor>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is the running variance that `candle_nn::batch_norm` asks for. `BatchNorm` keeps a `Var`: of another tensor it makes a
/// copy, which is not watched; of one that is a variable it keeps that. Training changes both running statistics, so one is enough.
fn is_running_variance(name: &str, init: Init) -> bool {
    name.rsplit('.').next() == Some("running_var") && matches!(init, Init::Const(1.))
}

/// A reference, so that the builder cannot be kept: its lifetime ends when the network is built.
impl SimpleBackend for &Source {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> CandleResult<Tensor> {
        let tensor = self.take(name, dtype, device, is_running_variance(name, init))?;
        if tensor.shape() != &shape {
            let (expected, found) = (shape.dims(), tensor.dims());
            candle_core::bail!("weight `{name}`: expected shape {expected:?}, found {found:?}");
        }
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> CandleResult<Tensor> {
        self.take(name, dtype, device, false)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.held.get(name).is_ok()
    }
}
