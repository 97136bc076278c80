//! Tensors of tch that must not change any more: libtorch's version counter, the place and the form of each, and checksums.

use std::any::Any;

use tch::{Device, Kind, Tensor};

use super::{Sample, checksum};
use crate::Result;
use crate::tensor::{Elements, State, Watched, WatchedMemory};

/// A frozen tensor, and what it was when it was frozen.
#[derive(Debug)]
pub(crate) struct WatchedTensor {
    /// The one that the network has.
    tensor: Tensor,
    /// How often it had been written to.
    version: i64,
    memory: Memory,
    form: Form,
    sample: Sample,
}

impl WatchedTensor {
    /// With a sample of this many cache lines.
    pub(crate) fn freeze(tensor: Tensor, lines: usize) -> Result<Self> {
        // The version first: a write meanwhile is then noticed.
        let version = tensor.f_internal_version()?;
        let memory = Memory { tensor: tensor.f_detach()?, checksum: checksum(&tensor)? };
        let sample = Sample::of(&tensor, lines)?;
        Ok(Self { form: Form::of(&tensor)?, tensor, version, memory, sample })
    }
}

impl Watched for WatchedTensor {
    fn share(&self) -> Box<dyn Watched> {
        Box::new(Self {
            tensor: self.tensor.shallow_clone(),
            version: self.version,
            memory: self.memory.share(),
            form: self.form.clone(),
            sample: self.sample,
        })
    }

    fn state(&self) -> Result<State> {
        if self.tensor.f_internal_version()? != self.version {
            return Ok(State::Changed);
        }
        Ok(if Form::of(&self.tensor)? == self.form { State::Same } else { State::Replaced })
    }

    fn has_same_sample(&self) -> Result<bool> {
        self.sample.is_of(&self.tensor)
    }

    fn tracks_gradients(&self) -> bool {
        self.tensor.requires_grad()
    }

    fn is_on_cpu(&self) -> bool {
        self.tensor.device() == Device::Cpu
    }

    fn memory(&self) -> Box<dyn WatchedMemory> {
        Box::new(self.memory.share())
    }

    fn own(&self) -> &dyn Any {
        &self.tensor
    }

    fn elements(&self) -> Result<Elements> {
        Elements::of(&self.tensor)
    }
}

/// Where a tensor is, and how its elements lie there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    address: usize,
    kind: Kind,
    size: Vec<i64>,
    stride: Vec<i64>,
}

impl Form {
    fn of(tensor: &Tensor) -> Result<Self> {
        let (kind, size, stride) = (tensor.f_kind()?, tensor.size(), tensor.stride());
        Ok(Self { address: tensor.data_ptr().addr(), kind, size, stride })
    }
}

/// The memory of a weight, in a tensor that no one else has. As long as that is there, the memory is not freed, so that a
/// tensor which is given other memory has another address.
#[derive(Debug)]
struct Memory {
    tensor: Tensor,
    checksum: blake3::Hash,
}

impl Memory {
    fn share(&self) -> Self {
        Self { tensor: self.tensor.shallow_clone(), checksum: self.checksum }
    }
}

impl WatchedMemory for Memory {
    fn is_same(&self) -> Result<bool> {
        Ok(checksum(&self.tensor)? == self.checksum)
    }
}
