//! Shows: features come from the cache, random augmentations are applied after them, and are other ones in each epoch.
//! Run: `cargo run --example augment`
//! Look at: three epochs read each picture once, no two see the same batch, and the cached rows stay as they are.

use std::cell::Cell;
use std::path::Path;

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Typed, cached_module};

const SAMPLES: i64 = 64;
const EPOCHS: usize = 3;

#[cached_module(id = "augment_stem_v1", key = i64)]
struct Stem {
    net: Frozen<nn::Linear>,
}

impl Extractor for Stem {
    type Input = Tensor;
    type Output = Typed<f32, D1<32>>;

    fn forward(&self, pictures: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.forward(&pictures.f_flatten(1, -1)?).into())
    }
}

/// A picture: bright on the left or on the right.
fn picture(id: i64) -> Tensor {
    let bright = Tensor::full([8, 4], 1., (Kind::Float, Device::Cpu)) + (id as f64 / 100.);
    let dark = bright.zeros_like();
    let halves = if id % 2 == 0 { [&bright, &dark] } else { [&dark, &bright] };
    Tensor::cat(&halves, 1)
}

/// Mixes each row with another one and adds noise, in place: the tensor that a cache returns is the caller's own.
fn augment(features: &mut Tensor) -> tcx::Result<()> {
    let order = Tensor::f_randperm(features.size()[0], (Kind::Int64, Device::Cpu))?;
    let others = features.f_index_select(0, &order)?;
    let noise = features.f_randn_like()? * 0.05;
    let _ = features.f_mul_(&Tensor::from(0.9))?.f_add_(&(others * 0.1))?.f_add_(&noise)?;
    Ok(())
}

/// The rows of the cache, and how many pictures had to be read for that.
fn features(stem: &Cached<Stem>, ids: &[i64]) -> tcx::Result<(Tensor, usize)> {
    let read = Cell::new(0);
    let found = stem.fetch(ids, |missing| {
        let pictures: Vec<Tensor> = missing.ids().map(|id| picture(*id)).collect();
        read.set(pictures.len());
        Ok(Tensor::f_stack(&pictures, 0)?)
    })?;
    Ok((found.into(), read.get()))
}

fn open(dir: &Path) -> tcx::Result<Cached<Stem>> {
    tch::manual_seed(7); // the same weights in each run
    let build = |p: &nn::Path<'_>| nn::linear(p, 64, 32, nn::LinearConfig::default());
    Cache::open(dir)?.module(Stem { net: Frozen::build(nn::VarStore::new(Device::Cpu), build)? })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let ids: Vec<i64> = (0..SAMPLES).collect();
    let sides = Tensor::from_slice(&ids).f_remainder(2)?;
    let weights = nn::VarStore::new(Device::Cpu);
    let head = nn::linear(weights.root(), 32, 2, nn::LinearConfig::default());
    let mut optimizer = nn::Adam::default().build(&weights, 0.05)?;

    let stem = open(dir.path())?;
    let (mut as_computed, mut augmented, mut read) = (Vec::new(), Vec::new(), 0);
    for epoch in 0..EPOCHS {
        let (mut batch, new) = features(&stem, &ids)?;
        as_computed.push(batch.copy());
        augment(&mut batch)?;
        let loss = head.forward(&batch).cross_entropy_for_logits(&sides);
        optimizer.backward_step(&loss);
        println!("epoch {epoch}: {new} pictures read, loss {:.3}", f64::try_from(&loss)?);
        augmented.push(batch);
        read += new;
    }
    assert_eq!(read, ids.len(), "only the first epoch reads pictures");
    assert!(
        augmented[0] != augmented[1] && augmented[1] != augmented[2],
        "each epoch has augmentations of its own"
    );
    assert!(as_computed[0] == as_computed[1] && as_computed[1] == as_computed[2], "and the same cached rows");
    stem.flush()?;
    drop(stem);
    let (stored, new) = features(&open(dir.path())?, &ids)?;
    assert!(new == 0 && stored == as_computed[0], "the rows on disk are not augmented either");
    Ok(())
}
