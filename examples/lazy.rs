//! Shows: a probe is trained on cached features without ever loading the extractor, and a network that comes and goes.
//! Run: `cargo run --example lazy`
//! Look at: the extractor is built once, for the new samples; before and after that it takes no memory.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Identity, Typed, Weights, cached_module};

static BUILT: AtomicUsize = AtomicUsize::new(0);

#[cached_module(id = "lazy_extractor_v1", key = i64)]
struct Large {
    net: Frozen<nn::Linear>,
    size: i64,
}

impl Extractor for Large {
    type Input = Tensor;
    type Output = Typed<f32, D1<16>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.forward(&x.f_narrow(1, 0, self.size)?).into())
    }
}

fn net(p: &nn::Path<'_>) -> nn::Linear {
    nn::linear(p, 32, 16, nn::LinearConfig::default())
}

/// The identity is read from the file of weights; the network is built when a sample is missing.
fn open(dir: &Path) -> tcx::Result<Cached<Large>> {
    let file = dir.join("large.safetensors");
    let mut identity = Identity::default();
    identity.type_name("Large");
    identity.field("net", &Weights::of_file(&file)?);
    identity.field("size", &32i64);
    Cache::open(dir.join("cache"))?.lazy_module(identity, Device::Cpu, move || {
        BUILT.fetch_add(1, Ordering::Relaxed);
        Ok(Large { net: Frozen::load(Device::Cpu, &file, net)?, size: 32 })
    })
}

fn inputs<'a>(ids: impl Iterator<Item = &'a i64>) -> tcx::Result<Tensor> {
    let rows = ids.map(|id| Tensor::full([32], *id as f64 / 100., (Kind::Float, Device::Cpu)));
    Ok(Tensor::f_stack(&rows.collect::<Vec<_>>(), 0)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    Frozen::build(nn::VarStore::new(Device::Cpu), net)?.save(dir.path().join("large.safetensors"))?;
    let ids: Vec<i64> = (0..80).collect();
    open(dir.path())?.warm(&ids, |missing| inputs(missing.ids()))?;
    println!("filled: the network was built {} time", BUILT.swap(0, Ordering::Relaxed));

    // Another program, later.
    let large = open(dir.path())?;
    assert!(large.coverage(&ids)?.is_complete());
    let labels = Tensor::arange(80, (Kind::Float, Device::Cpu)) / 80.;
    let weights = nn::VarStore::new(Device::Cpu);
    let probe = nn::linear(weights.root(), 16, 1, nn::LinearConfig::default());
    let mut optimizer = nn::Adam::default().build(&weights, 0.02)?;
    for epoch in 0..20 {
        let features = large.fetch(&ids, |missing| inputs(missing.ids()))?;
        let loss = probe.forward(&features).squeeze_dim(1).f_mse_loss(&labels, tch::Reduction::Mean)?;
        optimizer.backward_step(&loss);
        if epoch % 10 == 9 {
            println!("epoch {epoch}: loss {:.4}", f64::try_from(&loss)?);
        }
    }
    assert_eq!(BUILT.load(Ordering::Relaxed), 0, "trained without the network");

    // New samples need it; then it can go again.
    large.fetch(&[80, 81], |missing| inputs(missing.ids()))?;
    assert_eq!(BUILT.load(Ordering::Relaxed), 1);
    println!("for two new samples it was built; released: {}", large.release());
    Ok(())
}
