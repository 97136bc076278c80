//! Shows: the folds of a cross-validation share one cache, since rows belong to samples.
//! Run: `cargo run --example kfold`
//! Look at: each image is computed once, whatever the number of folds; only the probes are trained five times.

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, D1, Extractor, Frozen, Missing, Typed, cached_module};

#[cached_module(id = "kfold_backbone_v1", key = i64)]
struct Backbone {
    net: Frozen<nn::Linear>,
}

impl Extractor for Backbone {
    type Input = Tensor;
    type Output = Typed<f32, D1<16>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.forward(&images.f_flatten(1, -1)?).f_relu()?.into())
    }
}

/// Stands for decoding: an image that depends on its id.
fn decode(missing: Missing<'_, i64>) -> tcx::Result<Tensor> {
    let images: Vec<Tensor> = missing.ids().map(|&id| image(id)).collect();
    Ok(Tensor::f_stack(&images, 0)?)
}

fn image(id: i64) -> Tensor {
    (Tensor::arange(64, (Kind::Float, Device::Cpu)) * (0.1 + id as f64 / 100.)).sin().view([8, 8])
}

/// Trains a linear probe; returns its error on the other part.
fn probe(train: (&Tensor, &Tensor), test: (&Tensor, &Tensor)) -> tcx::Result<f64> {
    let weights = nn::VarStore::new(Device::Cpu);
    let head = nn::linear(weights.root(), 16, 1, nn::LinearConfig::default());
    let mut optimizer = nn::Adam::default().build(&weights, 0.05)?;
    for _ in 0..100 {
        let loss = head.forward(train.0).squeeze_dim(1).f_mse_loss(train.1, tch::Reduction::Mean)?;
        optimizer.backward_step(&loss);
    }
    let loss =
        tch::no_grad(|| head.forward(test.0).squeeze_dim(1)).f_mse_loss(test.1, tch::Reduction::Mean)?;
    Ok(f64::try_from(loss)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    tch::manual_seed(7);
    let build = |p: &nn::Path<'_>| nn::linear(p, 64, 16, nn::LinearConfig::default());
    let net = Frozen::build(nn::VarStore::new(Device::Cpu), build)?;
    let backbone = Cache::open(dir.path())?.module(Backbone { net })?;

    let ids: Vec<i64> = (0..100).collect();
    for fold in 0..5 {
        let (test, train): (Vec<i64>, Vec<i64>) = ids.iter().partition(|id| *id % 5 == fold);
        let label =
            |ids: &[i64]| Tensor::from_slice(&ids.iter().map(|&id| id as f32 / 100.).collect::<Vec<_>>());
        let x = [backbone.fetch(&train, decode)?, backbone.fetch(&test, decode)?];
        let error = probe((&x[0], &label(&train)), (&x[1], &label(&test)))?;
        println!("fold {fold}: error {error:.4}, {} images computed so far", backbone.stats().misses);
    }
    assert_eq!(backbone.stats().misses, 100);
    Ok(())
}
