//! Measures reading equal rows as tensors of tch, ndarray and candle. One program has each id once, so each library fills a cache of
//! its own.

use std::path::Path;

use candle_core::{Device, Tensor as CandleTensor};
use ndarray::Array2;
use tcx::{Cache, Cached, CachedModule, D1, Extractor, Typed, cached_module};

use super::read::in_turns;
use crate::data::rows::Batches;
use crate::data::workload::{BATCH, W1, W2, Workload, ids, shuffled};
use crate::report::Figures;
use crate::rivals::{Ours, Reader};
use crate::{Result, Settings};

/// A module that has the rows of a workload as tensors of a library.
pub(crate) trait Library:
    CachedModule<Input = Vec<Vec<f32>>, Key = <W1 as CachedModule>::Key>
{
    const NAME: &'static str;
    fn new() -> Self;
    /// The first number of a row.
    fn first(output: &Self::Output, row: usize) -> Result<f32>;
}

/// A workload that other libraries read, too.
pub(crate) trait Shared: Workload {
    type Ndarray: Library;
    type Candle: Library;
}

macro_rules! library {
    ($workload:ident, $width:literal, $ndarray:ident = $ndarray_id:literal, $candle:ident = $candle_id:literal) => {
        #[cached_module(id = $ndarray_id)]
        pub(crate) struct $ndarray {}

        impl Extractor for $ndarray {
            type Input = Vec<Vec<f32>>;
            type Output = Typed<f32, D1<$width>, Array2<f32>>;

            fn forward(&self, rows: &Vec<Vec<f32>>) -> tcx::Result<Self::Output> {
                let shape = (rows.len(), $width);
                Ok(Array2::from_shape_vec(shape, rows.concat()).map_err(tcx::Error::loader)?.into())
            }
        }

        impl Library for $ndarray {
            const NAME: &'static str = "ndarray";

            fn new() -> Self {
                Self {}
            }

            fn first(output: &Self::Output, row: usize) -> Result<f32> {
                output.get((row, 0)).copied().ok_or_else(|| "the batch has fewer rows".into())
            }
        }

        #[cached_module(id = $candle_id)]
        pub(crate) struct $candle {}

        impl Extractor for $candle {
            type Input = Vec<Vec<f32>>;
            type Output = Typed<f32, D1<$width>, CandleTensor>;

            fn forward(&self, rows: &Vec<Vec<f32>>) -> tcx::Result<Self::Output> {
                let shape = (rows.len(), $width);
                Ok(CandleTensor::from_vec(rows.concat(), shape, &Device::Cpu)
                    .map_err(tcx::Error::loader)?
                    .into())
            }
        }

        impl Library for $candle {
            const NAME: &'static str = "candle";

            fn new() -> Self {
                Self {}
            }

            fn first(output: &Self::Output, row: usize) -> Result<f32> {
                Ok(output.get(row)?.get(0)?.to_scalar()?)
            }
        }

        impl Shared for $workload {
            type Ndarray = $ndarray;
            type Candle = $candle;
        }
    };
}

library!(W1, 2048, W1Arrays = "w1_ndarray_v1", W1Candle = "w1_candle_v1");
library!(W2, 64, W2Arrays = "w2_ndarray_v1", W2Candle = "w2_candle_v1");

/// Shuffled batches from memory, with each library in turn.
pub(crate) fn measure<W: Shared>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let dir = settings.dir.join(W::NAME);
    let batches = Batches::new(shuffled(W::rows(settings)));
    fill::<W, W::Ndarray>(&dir, settings)?;
    fill::<W, W::Candle>(&dir, settings)?;
    let mut torch = Ours::<W>::new(&dir)?;
    let (mut ndarray, mut candle) = (Read::<W::Ndarray>::new(&dir)?, Read::<W::Candle>::new(&dir)?);
    let times = in_turns(&mut [&mut torch, &mut ndarray, &mut candle], &batches)?;
    for (reader, times_of) in [&ndarray as &dyn Reader, &candle].into_iter().zip(&times[1..]) {
        let name = format!("{}.random_read.{}.vs_tch", W::NAME, reader.name());
        figures.ratio(name, &times[0], times_of);
    }
    Ok(())
}

/// Fills a cache with the rows of the workload, in the same order and batches.
fn fill<W: Workload, M: Library>(dir: &Path, settings: &Settings) -> Result<()>
where
    String: tcx::Id<M::Key>,
{
    let cache = Cache::open(dir.join("cache"))?;
    let cached = cache.module(M::new())?;
    let rows = W::rows(settings);
    for start in (0..rows).step_by(BATCH) {
        let end = rows.min(start + BATCH);
        let values = (start..end).map(|row| vec![row as f32; W::WIDTH]).collect();
        cached.fetch(&ids(start..end), |_| Ok(values))?;
    }
    Ok(cache.flush()?)
}

struct Read<M: CachedModule> {
    cached: Cached<M>,
    batch: Option<M::Output>,
}

impl<M: Library> Read<M> {
    fn new(dir: &Path) -> Result<Self> {
        Ok(Self { cached: Cache::open(dir.join("cache"))?.module(M::new())?, batch: None })
    }
}

impl<M: Library> Reader for Read<M>
where
    String: tcx::Id<M::Key>,
{
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn read(&mut self, _: &[usize], ids: &[String]) -> Result<()> {
        self.batch = None;
        self.batch = Some(self.cached.fetch(ids, |_| Err(tcx::Error::loader("a row is missing")))?);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        let first = self.batch.as_ref().and_then(|batch| M::first(batch, rows - 1).ok());
        first.unwrap_or(f32::NAN)
    }
}
