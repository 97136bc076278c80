//! Shows: the smallest use of tcx: a network, the annotation, a cache.
//! Run: `cargo run --example quickstart`
//! Look at: the second epoch loads no image and computes nothing.

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
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    tch::manual_seed(7); // stands for `Frozen::load(Device::Cpu, "net.safetensors", |path| …)`: the same weights in every run
    let conv = Frozen::build(nn::VarStore::new(Device::Cpu), |p| {
        nn::conv2d(p, 3, 16, 3, nn::ConvConfig::default())
    })?;
    // A new directory for each run, to show both epochs. With one that stays, the next run computes nothing at all.
    let dir = std::env::temp_dir().join(format!("tcx-quickstart-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(tcx::Error::loader)?;
    let cache = Cache::open(&dir)?;
    let net = cache.module(SmallNet { conv, scale: 1. / 255. })?;
    let ids: Vec<String> = (0..128).map(|i| format!("image {i}")).collect();
    for epoch in 0..2 {
        for batch in ids.chunks(32) {
            let features = net.fetch(batch, |missing| {
                println!("epoch {epoch}: loading {} images", missing.len()); // only those that are not in the cache
                Ok(Tensor::f_stack(&missing.ids().map(|id| load(id)).collect::<Vec<_>>(), 0)?)
            })?;
            assert_eq!((features.pooled.size(), features.brightness.len()), (vec![32, 16], 32));
        }
    }
    cache.flush()?; // durable when this returns
    let stats = net.stats();
    println!("{} served, {} computed, all in {}", stats.hits, stats.misses, cache.path().display());
    assert_eq!((stats.hits, stats.misses), (128, 128), "the first epoch is computed, the second is served");
    drop(net);
    cache.close()?;
    std::fs::remove_dir_all(&dir).map_err(tcx::Error::loader)
}
