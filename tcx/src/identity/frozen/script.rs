//! TorchScript: networks that come with their code, in one file.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;

use tch::{CModule, Device};

use super::{Frozen, unusable};
use crate::Result;
use crate::tensor::torch as tensor;

/// A TorchScript network, which [`Frozen::script`] reads. It dereferences to the network of tch.
///
/// One thread at a time uses it: tch declares its networks `Sync`, but the code of one may write to its own buffers while it
/// computes. So a handle of a module with a `Frozen<Script>` computes one batch at a time, and two handles in two threads need a
/// network each.
///
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<tcx::Frozen<tcx::Script>>();
/// ```
#[derive(Debug)]
pub struct Script {
    network: CModule,
    /// Not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl Deref for Script {
    type Target = CModule;

    fn deref(&self) -> &CModule {
        &self.network
    }
}

impl Frozen<Script> {
    /// Reads a TorchScript network onto `device`, in evaluation mode.
    ///
    /// ```
    /// use tcx::Frozen;
    /// use tch::{CModule, Device, Tensor, nn::Module};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let file = dir.path().join("network.pt");
    /// # let x = [Tensor::ones([3, 4], tch::kind::FLOAT_CPU)];
    /// # CModule::create_by_tracing("Net", "forward", &x, &mut |x| vec![&x[0] * 2])?.save(&file)?;
    /// let network = Frozen::script(Device::Cpu, &file)?;
    /// assert_eq!(network.forward(&Tensor::ones([3, 4], tch::kind::FLOAT_CPU)).size(), [3, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The fingerprint is the BLAKE3 hash of the file: it covers the code, the parameters and the buffers. The same
    /// network, saved again by another version of PyTorch, is another one.
    ///
    /// Evaluation mode affects a script only where it reads `self.training`. A network that was *traced* repeats what it did
    /// then: call `.eval()` before `torch.jit.trace`. Otherwise its dropout stays random, and its batch norm updates its
    /// statistics. The check of the first batch detects dropout. tcx watches the parameters for writes, as it does all frozen
    /// weights. It does not watch buffers, because libtorch gives no access to them.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is not TorchScript, or if libtorch does not have the device.
    pub fn script(device: Device, file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        tensor::check_device(device)?;
        let bytes =
            std::fs::read(file).map_err(|error| unusable(file, "cannot be read").with_source(error))?;
        // What is hashed is what is loaded, also if another process replaces the file.
        let mut network = CModule::load_data_on_device(&mut bytes.as_slice(), device).map_err(|error| {
            unusable(file, "cannot be read as TorchScript").with_source(tensor::brief(error))
        })?;
        network.f_set_eval()?;
        let mut parameters = network.named_parameters()?;
        for (_, parameter) in &mut parameters {
            let _ = parameter.f_set_requires_grad(false)?;
        }
        let mut frozen = Self::from_parts(Script { network, _one_thread: PhantomData }, parameters, device)?;
        frozen.fingerprint = format!("blake3:{}", blake3::hash(&bytes));
        frozen.complete = false;
        Ok(frozen)
    }
}
