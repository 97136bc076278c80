//! Measures reading the same rows as tensors of tch, ndarray and candle.

use std::path::Path;

use candle_core::Tensor as CandleTensor;
use ndarray::Array2;
use tcx::{Cache, Cached, CachedModule, D1, Extractor, Typed, cached_module};

use super::read::in_turns;
use crate::data::rows::Batches;
use crate::data::workload::{W1, W2, Workload, shuffled};
use crate::report::Figures;
use crate::rivals::{Ours, Reader};
use crate::{Result, Settings};

/// A module that reads the rows of a workload as tensors of a library.
pub(crate) trait Library: CachedModule<Key = <W1 as CachedModule>::Key> {
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
    ($workload:ident, $id:literal, $width:literal, $ndarray:ident, $candle:ident) => {
        // Of the identity of the workload: an id, and no field.
        #[cached_module(id = $id)]
        pub(crate) struct $ndarray {}

        impl Extractor for $ndarray {
            type Input = Vec<f32>;
            type Output = Typed<f32, D1<$width>, Array2<f32>>;

            fn forward(&self, _: &Vec<f32>) -> tcx::Result<Self::Output> {
                Err(tcx::Error::loader("a row is missing"))
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

        #[cached_module(id = $id)]
        pub(crate) struct $candle {}

        impl Extractor for $candle {
            type Input = Vec<f32>;
            type Output = Typed<f32, D1<$width>, CandleTensor>;

            fn forward(&self, _: &Vec<f32>) -> tcx::Result<Self::Output> {
                Err(tcx::Error::loader("a row is missing"))
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

library!(W1, "w1_v1", 2048, W1Arrays, W1Candle);
library!(W2, "w2_v1", 64, W2Arrays, W2Candle);

/// Shuffled batches from memory, with each library in turn.
pub(crate) fn measure<W: Shared>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let dir = settings.dir.join(W::NAME);
    let batches = Batches::new(shuffled(W::rows(settings)));
    let mut torch = Ours::<W>::new(&dir)?;
    let (mut ndarray, mut candle) = (Read::<W::Ndarray>::new(&dir)?, Read::<W::Candle>::new(&dir)?);
    let times = in_turns(&mut [&mut torch, &mut ndarray, &mut candle], &batches)?;
    for (reader, times_of) in [&ndarray as &dyn Reader, &candle].into_iter().zip(&times[1..]) {
        let name = format!("{}.random_read.{}.vs_tch", W::NAME, reader.name());
        figures.ratio(name, &times[0], times_of);
    }
    Ok(())
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
