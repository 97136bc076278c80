//! Measures whole epochs of a frozen network that takes about 5 ms for a batch of 64: without a cache, filling one, and
//! from the cache.

use std::time::{Duration, Instant};

use tch::nn::{self, Module};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, CachedModule, D1, Extractor, Frozen, Typed, cached_module};

use crate::data::workload::ids;
use crate::report::{Figures, ROUNDS, median};
use crate::{Result, Settings, machine};

const BATCH: usize = 64;
/// More than an epoch needs.
const MEMORY: usize = 1 << 30;
const HIDDEN: i64 = 1024;
/// The time that the network takes for a batch.
const TARGET: Duration = Duration::from_millis(5);

/// Layers of equal width.
type Layers = Vec<nn::Linear>;

macro_rules! network {
    ($module:ident, $id:literal, $outputs:literal) => {
        /// A frozen network.
        #[cached_module(id = $id)]
        struct $module {
            layers: Frozen<Layers>,
        }

        impl Extractor for $module {
            type Input = Tensor;
            type Output = Typed<f32, D1<$outputs>>;

            fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
                Ok(forward(&self.layers, inputs).into())
            }
        }

        impl Network for $module {
            const OUTPUTS: i64 = $outputs;

            fn new(layers: Frozen<Layers>) -> Self {
                Self { layers }
            }
        }
    };
}

trait Network: CachedModule<Input = Tensor, Key = <Wide as CachedModule>::Key> {
    const OUTPUTS: i64;
    fn new(layers: Frozen<Layers>) -> Self;
}

network!(Wide, "wide_v1", 2048);
network!(Narrow, "narrow_v1", 512);

fn forward(layers: &Layers, inputs: &Tensor) -> Tensor {
    layers.iter().fold(inputs.shallow_clone(), |x, layer| layer.forward(&x).relu())
}

/// A network of `depth` hidden layers, with the same weights in every call.
fn build(depth: usize, outputs: i64) -> Result<Frozen<Layers>> {
    tch::manual_seed(1);
    Ok(Frozen::build(nn::VarStore::new(Device::Cpu), |p| {
        let hidden =
            (0..depth).map(|layer| nn::linear(p / layer, HIDDEN, HIDDEN, nn::LinearConfig::default()));
        let mut layers: Layers = hidden.collect();
        layers.push(nn::linear(p / "last", HIDDEN, outputs, nn::LinearConfig::default()));
        layers
    })?)
}

/// The number of layers with which a batch takes the time.
fn depth(outputs: i64) -> Result<usize> {
    let inputs = Tensor::ones([BATCH as i64, HIDDEN], (Kind::Float, Device::Cpu));
    let _no_grad = tch::no_grad_guard();
    for depth in 0..200 {
        let layers = build(depth, outputs)?;
        let times: Vec<Duration> = (0..9)
            .map(|_| {
                let start = Instant::now();
                drop(std::hint::black_box(forward(&layers, &inputs)));
                start.elapsed()
            })
            .collect();
        if median(&times) >= TARGET.as_secs_f64() {
            return Ok(depth);
        }
    }
    Err("200 layers take less than 5 ms".into())
}

pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    epochs::<Wide>(settings, "e2e", figures)?;
    epochs::<Narrow>(settings, "e2e.512_outputs", figures)
}

fn epochs<N: Network>(settings: &Settings, name: &str, figures: &mut Figures) -> Result<()> {
    let depth = depth(N::OUTPUTS)?;
    let batches = settings.rows(200);
    let input = |batch: usize| {
        Tensor::full([BATCH as i64, HIDDEN], 1. + batch as f64 / 1e3, (Kind::Float, Device::Cpu))
    };
    let all: Vec<(Vec<String>, Tensor)> =
        (0..batches).map(|batch| (ids(batch * BATCH..(batch + 1) * BATCH), input(batch))).collect();
    let (mut plain, mut first, mut flushed, mut second) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let network = N::new(build(depth, N::OUTPUTS)?);
        machine::touch_memory(MEMORY);
        plain.push(timed(|| {
            let _no_grad = tch::no_grad_guard();
            all.iter().try_for_each(|(_, inputs)| network.forward(inputs).map(drop))
        })?);
        let dir = tempfile::tempdir_in(&settings.dir)?;
        machine::touch_memory(MEMORY);
        let cache = Cache::open(dir.path())?;
        let cached = cache.module(network)?;
        let epoch = || all.iter().try_for_each(|(ids, inputs)| cached.forward(ids, inputs).map(drop));
        let time = timed(epoch)?;
        first.push(time);
        flushed.push(time + timed(|| cache.flush())?);
        second.push(timed(epoch)?);
    }
    figures.add(format!("{name}.ms_per_batch"), median(&plain) * 1e3 / batches as f64);
    figures.ratio(format!("{name}.first_epoch_overhead"), &first, &plain);
    figures.ratio(format!("{name}.first_epoch_and_flush_overhead"), &flushed, &plain);
    figures.ratio(format!("{name}.second_epoch_speedup"), &plain, &second);
    Ok(())
}

fn timed(run: impl FnOnce() -> tcx::Result<()>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}
