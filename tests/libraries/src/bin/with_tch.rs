//! The module with tch.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::sync::atomic::Ordering;

use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{CacheableOutput, Extractor, Frozen, Result, TensorLike, cached_module};
use tcx_library_tests::{COMPUTED, INPUTS, OUTPUTS, arguments, run, sample};

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [OUTPUTS])]
    projected: Tensor,
    #[tensor(f32, [_], store = f16)]
    nonzero: Vec<Tensor>,
    label: Vec<String>,
}

#[cached_module(id = "shared_projection_v1", key = i64)]
struct Projection {
    fc: Frozen<nn::Linear>,
    scale: f64,
}

impl Extractor for Projection {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, x: &Tensor) -> Result<Features> {
        COMPUTED.fetch_add(1, Ordering::Relaxed);
        let nonzero: Vec<Tensor> = (0..x.size()[0]).map(|at| x.get(at)).collect();
        let nonzero: Vec<_> = nonzero.iter().map(|row| row.masked_select(&row.not_equal(0.))).collect();
        let label = nonzero.iter().map(|row| format!("{:?}", row.size())).collect();
        Ok(Features { projected: self.fc.forward(x) * self.scale, nonzero, label })
    }
}

fn main() {
    let build = |p: &nn::Path<'_>| nn::linear(p, INPUTS as i64, OUTPUTS as i64, nn::LinearConfig::default());
    let fc = Frozen::load(Device::Cpu, arguments().1, build).unwrap();
    let inputs = |ids: &[i64]| {
        let rows: Vec<f32> = ids.iter().flat_map(|&id| sample(id)).collect();
        Tensor::from_slice(&rows).view([-1, INPUTS as i64])
    };
    run(Projection { fc, scale: 0.5 }, inputs, |found| {
        let tensors = std::iter::once(&found.projected).chain(&found.nonzero);
        let mut bytes: Vec<u8> =
            tensors.flat_map(|tensor| tensor.with_bytes(<[u8]>::to_vec).unwrap()).collect();
        bytes.extend(found.label.concat().bytes());
        bytes
    });
}
