//! The module with ndarray, whose programs make networks themselves: the fingerprint of the file stands for the weights.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::sync::atomic::Ordering;

use ndarray::{Array1, Array2, ArrayD};
use safetensors::SafeTensors;
use tcx::{CacheableOutput, Extractor, Result, TensorLike, Weights, cached_module};
use tcx_library_tests::{COMPUTED, INPUTS, OUTPUTS, arguments, run, sample};

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [OUTPUTS])]
    projected: Array2<f32>,
    #[tensor(f32, [_], store = f16)]
    nonzero: Vec<Array1<f32>>,
    label: Vec<String>,
}

#[cached_module(id = "shared_projection_v1", key = i64)]
struct Projection {
    fc: Weights,
    scale: f64,
    #[tcx(not_identity)]
    weight: Array2<f32>,
    #[tcx(not_identity)]
    bias: Array1<f32>,
}

impl Extractor for Projection {
    type Input = Array2<f32>;
    type Output = Features;

    fn forward(&self, x: &Array2<f32>) -> Result<Features> {
        COMPUTED.fetch_add(1, Ordering::Relaxed);
        let nonzero: Vec<Array1<f32>> = x
            .rows()
            .into_iter()
            .map(|row| row.iter().copied().filter(|number| *number != 0.).collect())
            .collect();
        let label = nonzero.iter().map(|row| format!("{:?}", row.shape())).collect();
        let projected = (x.dot(&self.weight.t()) + &self.bias) * self.scale as f32;
        Ok(Features { projected, nonzero, label })
    }
}

fn main() {
    let file = arguments().1;
    let bytes = std::fs::read(&file).unwrap();
    let held = SafeTensors::deserialize(&bytes).unwrap();
    let array = |name: &str| {
        let tensor = held.tensor(name).unwrap();
        let numbers = tensor.data().as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
        ArrayD::from_shape_vec(tensor.shape(), numbers.collect()).unwrap()
    };
    let module = Projection {
        fc: Weights::of_file(&file).unwrap(),
        scale: 0.5,
        weight: array("weight").into_dimensionality().unwrap(),
        bias: array("bias").into_dimensionality().unwrap(),
    };
    let inputs = |ids: &[i64]| Array2::from_shape_fn((ids.len(), INPUTS), |(row, at)| sample(ids[row])[at]);
    run(module, inputs, |found| {
        let mut bytes = found.projected.with_bytes(<[u8]>::to_vec).unwrap();
        bytes.extend(found.nonzero.iter().flat_map(|row| row.with_bytes(<[u8]>::to_vec).unwrap()));
        bytes.extend(found.label.concat().bytes());
        bytes
    });
}
