//! Shows: the program of the README, word for word (a test compares them), on small pictures and random weights.
//! Run: `cargo run --example readme`
//! Look at: after an epoch every row is served, and no picture is needed.

use tch::nn::{self, ModuleT};
use tch::{Device, Tensor, vision::resnet::resnet50_no_final_layer};
use tcx::{Cache, CacheableOutput, Extractor, Frozen, cached_module};

/// Outputs for a batch of N images.
#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [2048])] // per sample: the batch dimension is left out
    pooled: Tensor,
}

#[cached_module(id = "resnet50_v1")] // bump the id: a new cache
struct ResNet50 {
    backbone: Frozen<nn::FuncT<'static>>, // a bare `nn::FuncT` here does not compile
    size: i64,                            // configuration: part of the cache's identity
}

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, images: &Tensor) -> tcx::Result<Features> {
        Ok(Features { pooled: self.backbone.forward_t(images, false) })
    }
}

fn train(loader: impl Iterator<Item = (Vec<String>, Tensor)>) -> tcx::Result<()> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let backbone = Frozen::load(Device::Cpu, "resnet50.safetensors", |p| {
        let net = resnet50_no_final_layer(p);
        nn::func_t(move |images, train| net.forward_t(images, train))
    })?;
    let cache = Cache::open("./cache")?;
    let resnet = cache.module(ResNet50 { backbone, size: 224 })?;
    for (ids, images) in loader {
        let features = resnet.forward(&ids, &images)?; // computes what is missing, serves the rest
        println!("train on {:?}", features.pooled);
    }
    cache.flush() // durable when this returns
}

/// An epoch: two batches of two small images.
fn batches() -> impl Iterator<Item = (Vec<String>, Tensor)> {
    (0..2).map(|batch| {
        let ids = (0..2).map(|image| format!("{batch}/{image}.jpg")).collect();
        let steps = Tensor::arange(2 * 3 * 64 * 64, (tch::Kind::Float, Device::Cpu)).view([2, 3, 64, 64]);
        (ids, (steps * (0.01 * f64::from(batch + 1))).sin())
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    std::env::set_current_dir(dir.path())?;
    let weights = nn::VarStore::new(Device::Cpu);
    resnet50_no_final_layer(&weights.root());
    weights.save("resnet50.safetensors")?;

    train(batches())?;
    let backbone = Frozen::load(Device::Cpu, "resnet50.safetensors", |p| {
        let net = resnet50_no_final_layer(p);
        nn::func_t(move |images, train| net.forward_t(images, train))
    })?;
    let resnet = Cache::open("./cache")?.module(ResNet50 { backbone, size: 224 })?;
    for (ids, _) in batches() {
        resnet.fetch(&ids, |_| Err(tcx::Error::loader("no picture is wanted")))?;
    }
    assert_eq!((resnet.stats().hits, resnet.stats().misses), (4, 0));
    Ok(())
}
