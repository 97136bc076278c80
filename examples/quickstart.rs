//! The smallest use of tcx: a network, the annotation, a cache. Run it twice: the second run computes nothing.

use tch::{Device, Kind, Tensor, nn};
use tcx::{Cache, CacheableOutput, Extractor, Frozen, cached_module};

/// Outputs for a batch of N images; shapes are per image.
#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [16])]
    pooled: Tensor, // [N, 16]
    brightness: Vec<f32>, // one per image
}

#[cached_module(id = "quickstart_v1")] // another id: another cache
struct SmallNet {
    conv: Frozen<nn::Conv2D>, // a bare nn::Conv2D here does not compile
    scale: f64,               // configuration: part of the cache's identity
}

impl Extractor for SmallNet {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, images: &Tensor) -> tcx::Result<Features> {
        let pixels = images * self.scale;
        let brightness = pixels.f_mean_dim([1i64, 2, 3].as_slice(), false, Kind::Float)?.try_into()?;
        let pooled = pixels.apply(&*self.conv).f_relu()?.f_amax([2i64, 3], false)?;
        Ok(Features { pooled, brightness })
    }
}

/// Stands for a decoder: a grey image of 64 by 64 pixels.
fn load(id: &str) -> Tensor {
    Tensor::full([3, 64, 64], id.len() as f64 * 20., (Kind::Float, Device::Cpu))
}

fn main() -> tcx::Result<()> {
    // Stands for `Frozen::load(Device::Cpu, "net.safetensors", |path| …)`: the same weights in every run.
    tch::manual_seed(7);
    let weights = nn::VarStore::new(Device::Cpu);
    let conv = Frozen::build(weights, |path| nn::conv2d(path / "conv", 3, 16, 3, nn::ConvConfig::default()))?;

    let cache = Cache::open("target/quickstart-cache")?;
    let net = cache.module(SmallNet { conv, scale: 1. / 255. })?;
    for batch in 0..4 {
        let ids: Vec<String> = (batch * 32..batch * 32 + 32).map(|i| format!("image {i}")).collect();
        let features = net.fetch(&ids, |missing| {
            println!("loading {} images", missing.len()); // only those that are not in the cache
            Ok(Tensor::f_stack(&missing.ids().map(|id| load(id)).collect::<Vec<_>>(), 0)?)
        })?;
        println!("batch {batch}: {:?}, first brightness {}", features.pooled, features.brightness[0]);
    }
    cache.flush()?; // durable when this returns
    let stats = net.stats();
    println!(
        "{} hits, {} misses, {} bytes in {}",
        stats.hits,
        stats.misses,
        stats.bytes,
        cache.path().display()
    );
    Ok(())
}
