//! Shows: a frozen network of candle, and a probe that is trained on its cached features, without libtorch.
//! Run: `cargo run -p tcx-library-examples --features candle --example candle`
//! Look at: the network runs in the first epoch only, and the loss falls.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{Linear, Optimizer, SGD, VarBuilder, VarMap, linear, loss};
use tcx::{Cache, CacheableOutput, Error, Extractor, Frozen, Result, cached_module};

const INPUTS: usize = 16;
const WIDTH: usize = 32;

/// A network of two layers.
struct Encoder {
    first: Linear,
    second: Linear,
}

impl Encoder {
    fn new(vb: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let first = linear(INPUTS, WIDTH, vb.pp("first"))?;
        Ok(Self { first, second: linear(WIDTH, WIDTH, vb.pp("second"))? })
    }
}

impl Module for Encoder {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.second.forward(&self.first.forward(x)?.tanh()?)?.tanh()
    }
}

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [WIDTH])]
    pooled: Tensor, // [N, WIDTH]
}

#[cached_module(id = "candle_features_v1", key = i64)]
struct Extract {
    encoder: Frozen<Encoder>, // a bare layer of candle does not compile
    scale: f64,
}

impl Extractor for Extract {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, x: &Tensor) -> Result<Features> {
        Ok(Features { pooled: self.encoder.forward(&(x * self.scale)?)? })
    }
}

/// In place of a download: random weights under the names that the network asks for.
fn write_weights(file: &Path) -> candle_core::Result<()> {
    let random = |shape: &[usize]| Tensor::randn(0_f32, 0.3, shape, &Device::Cpu);
    let tensors = HashMap::from([
        ("first.weight", random(&[WIDTH, INPUTS])?),
        ("first.bias", random(&[WIDTH])?),
        ("second.weight", random(&[WIDTH, WIDTH])?),
        ("second.bias", random(&[WIDTH])?),
    ]);
    candle_core::safetensors::save(&tensors, file)
}

/// In place of reading images: numbers that depend on the id.
fn inputs<'a>(ids: impl Iterator<Item = &'a i64>) -> Result<Tensor> {
    let rows: Vec<Vec<f32>> =
        ids.map(|&id| (0..INPUTS).map(|at| (id as f32 * 0.1 + at as f32).sin()).collect()).collect();
    Ok(Tensor::new(rows, &Device::Cpu)?)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let weights = dir.path().join("encoder.safetensors");
    write_weights(&weights)?;

    let encoder = Frozen::candle(&Device::Cpu, DType::F32, &weights, |vb| Encoder::new(&vb))?;
    let extract = Cache::open(dir.path().join("cache"))?.module(Extract { encoder, scale: 0.5 })?;
    let ids: Vec<i64> = (0..64).collect();
    let labels: Vec<f32> = ids.iter().map(|&id| (id as f32 * 0.1).sin()).collect();
    let labels = Tensor::new(labels, &Device::Cpu)?.unsqueeze(1)?;

    let variables = VarMap::new();
    let probe = linear(WIDTH, 1, VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
    let mut optimizer = SGD::new(variables.all_vars(), 0.05)?;
    let (mut losses, mut loaded) = (Vec::new(), 0);
    for _ in 0..20 {
        let features = extract.fetch(&ids, |missing| {
            loaded += missing.ids().count();
            inputs(missing.ids())
        })?;
        let loss = loss::mse(&probe.forward(&features.pooled)?, &labels)?;
        optimizer.backward_step(&loss)?;
        losses.push(loss.to_scalar::<f32>()?);
    }
    println!("{loaded} inputs loaded in 20 epochs; loss {:.4}, then {:.4}", losses[0], losses[19]);
    assert_eq!(loaded, 64, "the network has run in the first epoch only");
    assert!(losses[19] < losses[0]);
    extract.flush()?;
    drop(extract);

    // Another program, later: it finds all samples, with the same weights only.
    let encoder = Frozen::candle(&Device::Cpu, DType::F32, &weights, |vb| Encoder::new(&vb))?;
    let extract = Cache::open(dir.path().join("cache"))?.module(Extract { encoder, scale: 0.5 })?;
    extract.fetch(&ids, |_| Err(Error::loader("nothing is missing")))?;
    write_weights(&weights)?;
    let encoder = Frozen::candle(&Device::Cpu, DType::F32, &weights, |vb| Encoder::new(&vb))?;
    let refused = Cache::open(dir.path().join("cache"))?.module(Extract { encoder, scale: 0.5 });
    println!("other weights: {}", refused.err().ok_or("the cache took other weights")?);
    Ok(())
}
