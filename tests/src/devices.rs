//! What tests of devices share: the first GPU, and a layer on any device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::nn::{self, VarStore};
use tch::{Cuda, Device, Kind, Tensor};
use tcx::Frozen;

pub fn column(samples: &[i64], device: Device) -> Tensor {
    Tensor::from_slice(samples).to_kind(Kind::Float).unsqueeze(1).to_device(device)
}

pub fn linear(path: &nn::Path<'_>, outputs: i64) -> nn::Linear {
    let init = nn::LinearConfig { ws_init: nn::Init::Const(1.), bs_init: None, bias: false };
    nn::linear(path / "net", 1, outputs, init)
}

pub fn frozen(device: Device, outputs: i64) -> Frozen<nn::Linear> {
    Frozen::build(VarStore::new(device), |path| linear(path, outputs)).unwrap()
}

/// A GPU, of which a test uses up the memory: one test at a time.
pub struct Gpu {
    pub device: Device,
    _alone: MutexGuard<'static, ()>,
}

impl Gpu {
    /// All its free memory.
    pub fn hoard(&self) -> Vec<Tensor> {
        let mut hoard = Vec::new();
        let mut bytes = 1_i64 << 40;
        while bytes >= 1 << 20 {
            match Tensor::f_empty([bytes], (Kind::Uint8, self.device)) {
                Ok(tensor) => hoard.push(tensor),
                Err(_) => bytes /= 2,
            }
        }
        hoard
    }
}

/// The first GPU, or a skipped test.
pub fn gpu() -> Option<Gpu> {
    static ALONE: Mutex<()> = Mutex::new(());
    if !Cuda::is_available() {
        tcx_test_skips::skip("cuda", "libtorch finds no CUDA device");
        return None;
    }
    Some(Gpu { device: Device::Cuda(0), _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner) })
}
