//! Shows: a frozen network in the format ONNX, which ONNX Runtime computes, and features as arrays of ndarray, without libtorch.
//! Run: `cargo xtask setup --onnxruntime`, then `cargo run -p tcx-library-examples --features ort --example onnx`
//! Look at: the network runs in the first epoch only, the second program does not load ONNX Runtime, and other weights are refused.

use std::path::Path;

use ndarray::Array2;
use ort::value::TensorRef;
use tcx::{
    Cache, CacheableOutput, Device, Error, Extractor, Frozen, Identity, OnnxOptions, OnnxSession, Result,
    Weights, cached_module,
};
use tcx_library_examples::onnx::Layer;

const INPUTS: usize = 16;
const WIDTH: usize = 32;

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [WIDTH])]
    pooled: Array2<f32>, // [N, WIDTH]
}

#[cached_module(id = "onnx_features_v1", key = i64)]
struct Extract {
    encoder: Frozen<OnnxSession>, // the file, and all files that it names, are part of the identity
    scale: f32,
}

impl Extractor for Extract {
    type Input = Array2<f32>;
    type Output = Features;

    fn forward(&self, x: &Array2<f32>) -> Result<Features> {
        let scaled = x * self.scale;
        let mut outputs = self.encoder.run(ort::inputs!["x" => TensorRef::from_array_view(&scaled)?])?;
        Ok(Features { pooled: outputs.take("pooled")? })
    }
}

/// In place of a download: a layer, with its weights in a file beside it.
fn write_network(file: &Path, seed: f32) -> std::io::Result<()> {
    let numbers = |len: usize| (0..len).map(|at| (at as f32 * seed).sin() * 0.3).collect();
    let mut layer = Layer::new(numbers(INPUTS * WIDTH), numbers(WIDTH));
    layer.weight_file = Some("encoder.weights".to_owned());
    for (name, bytes) in layer.files() {
        std::fs::write(file.with_file_name(name), bytes)?;
    }
    std::fs::write(file, layer.to_bytes())
}

/// In place of reading images: numbers that depend on the id.
fn inputs<'a>(ids: impl ExactSizeIterator<Item = &'a i64>) -> Array2<f32> {
    let ids: Vec<i64> = ids.copied().collect();
    Array2::from_shape_fn((ids.len(), INPUTS), |(row, at)| (ids[row] as f32 * 0.1 + at as f32).sin())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let (cache, network) = (dir.path().join("cache"), dir.path().join("encoder.onnx"));
    write_network(&network, 1.)?;

    let options = OnnxOptions::new();
    let encoder = Frozen::onnx(&network, &options)?;
    let extract = Cache::open(&cache)?.module(Extract { encoder, scale: 0.5 })?;
    let ids: Vec<i64> = (0..64).collect();
    let mut loaded = 0;
    for _ in 0..20 {
        extract.fetch(&ids, |missing| {
            loaded += missing.ids().len();
            Ok(inputs(missing.ids()))
        })?;
    }
    println!("{loaded} inputs loaded in 20 epochs");
    assert_eq!(loaded, 64, "the network has run in the first epoch only");
    extract.flush()?;
    drop(extract);

    // Another program, later: it hashes the files, and builds no network as long as nothing is missing.
    let mut identity = Identity::default();
    identity.type_name("Extract");
    identity.field("encoder", &Weights::onnx(&network, &options)?);
    identity.field("scale", &0.5_f32);
    let build = || Err(Error::loader("nothing is missing"));
    let extract = Cache::open(&cache)?.lazy_module::<Extract>(identity, Device::CPU, build)?;
    let found = extract.fetch(&ids, |_| Err(Error::loader("nothing is missing")))?;
    println!("found {:?} without the network", found.pooled.dim());
    drop(extract);

    // The network is the same file, but its weights are not.
    write_network(&network, 2.)?;
    let encoder = Frozen::onnx(&network, &options)?;
    let refused = Cache::open(&cache)?.module(Extract { encoder, scale: 0.5 });
    println!("other weights: {}", refused.err().ok_or("the cache took other weights")?);
    Ok(())
}
