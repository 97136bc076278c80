//! Shows: two models use one frozen backbone and share its cache; a third run, as another program would, computes nothing.
//! Run: `cargo run --example shared_backbone`
//! Look at: the second model computes no image that the first one has seen.

use std::path::Path;

use tch::nn::{self, Module};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, CacheableOutput, Cached, Extractor, Frozen, cached_module};

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [32])]
    pooled: Tensor,
    #[tensor(f16, [4, 8])]
    tokens: Tensor, // half the room on disk
}

#[cached_module(id = "shared_backbone_v1")]
struct Backbone {
    net: Frozen<nn::Linear>,
}

impl Extractor for Backbone {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, images: &Tensor) -> tcx::Result<Features> {
        let pooled = self.net.forward(&images.f_flatten(1, -1)?);
        let tokens = pooled.f_view([-1, 4, 8])?.f_to_kind(Kind::Half)?;
        Ok(Features { pooled, tokens })
    }
}

fn open(dir: &Path) -> tcx::Result<Cached<Backbone>> {
    tch::manual_seed(7); // stands for a file of weights: every program loads the same
    let build = |p: &nn::Path<'_>| nn::linear(p, 64, 32, nn::LinearConfig::default());
    let net = Frozen::build(nn::VarStore::new(Device::Cpu), build)?;
    Cache::open(dir)?.module(Backbone { net })
}

fn features(backbone: &Cached<Backbone>, ids: &[String]) -> tcx::Result<Features> {
    backbone.fetch(ids, |missing| {
        let images: Vec<Tensor> = missing
            .ids()
            .map(|id| Tensor::full([8, 8], id.len() as f64, (Kind::Float, Device::Cpu)))
            .collect();
        Ok(Tensor::f_stack(&images, 0)?)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let ids: Vec<String> = (0..64).map(|i| format!("photos/{i}.jpg")).collect();
    let backbone = open(dir.path())?;
    let weights = nn::VarStore::new(Device::Cpu);
    let classifier = nn::linear(weights.root() / "classifier", 32, 10, nn::LinearConfig::default());
    let detector = nn::linear(weights.root() / "detector", 8, 4, nn::LinearConfig::default());

    let scores = classifier.forward(&features(&backbone, &ids)?.pooled);
    println!("classifier: {:?}, {} images computed", scores.size(), backbone.stats().misses);
    // Another model, on other images too.
    let more: Vec<String> = (32..80).map(|i| format!("photos/{i}.jpg")).collect();
    let boxes = detector.forward(&features(&backbone, &more)?.tokens.to_kind(Kind::Float));
    println!("detector: {:?}, {} images computed in all", boxes.size(), backbone.stats().misses);
    assert_eq!(backbone.stats().misses, 80);
    backbone.flush()?;
    drop(backbone);

    let backbone = open(dir.path())?;
    features(&backbone, &more)?;
    println!("opened again: {} images computed", backbone.stats().misses);
    assert_eq!(backbone.stats().misses, 0);
    Ok(())
}
