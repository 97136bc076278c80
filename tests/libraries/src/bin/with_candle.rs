//! The module with candle.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::sync::atomic::Ordering;

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::Linear;
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
    fc: Frozen<Linear>,
    scale: f64,
}

impl Extractor for Projection {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, x: &Tensor) -> Result<Features> {
        COMPUTED.fetch_add(1, Ordering::Relaxed);
        let (mut nonzero, mut label) = (Vec::new(), Vec::new());
        for row in x.to_vec2::<f32>()? {
            let kept: Vec<f32> = row.into_iter().filter(|number| *number != 0.).collect();
            label.push(format!("{:?}", [kept.len()]));
            nonzero.push(Tensor::new(kept, &Device::Cpu)?);
        }
        Ok(Features { projected: (self.fc.forward(x)? * self.scale)?, nonzero, label })
    }
}

fn main() {
    let fc =
        Frozen::candle(&Device::Cpu, DType::F32, arguments().1, |vb| candle_nn::linear(INPUTS, OUTPUTS, vb));
    let inputs = |ids: &[i64]| {
        let rows: Vec<f32> = ids.iter().flat_map(|&id| sample(id)).collect();
        Tensor::from_vec(rows, (ids.len(), INPUTS), &Device::Cpu).unwrap()
    };
    run(Projection { fc: fc.unwrap(), scale: 0.5 }, inputs, |found| {
        let tensors = std::iter::once(&found.projected).chain(&found.nonzero);
        let mut bytes: Vec<u8> =
            tensors.flat_map(|tensor| tensor.with_bytes(<[u8]>::to_vec).unwrap()).collect();
        bytes.extend(found.label.concat().bytes());
        bytes
    });
}
