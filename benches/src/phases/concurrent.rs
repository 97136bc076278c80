//! Measures computing with one and with two threads at once, by a module that uses one core for each batch.

use std::time::{Duration, Instant};

use tcx::{Cache, Extractor, cached_module};

use crate::report::{Figures, ROUNDS};
use crate::{Result, Settings};

const BATCH: usize = 64;

/// A network that uses one core: for each sample, hashes of hashes.
#[cached_module(id = "bench_hashes_v1", key = i64)]
struct Hashes {}

impl Extractor for Hashes {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        let mix = |x: i64| (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        Ok(inputs.iter().map(|&x| (0..20_000).fold(x, |x, _| std::hint::black_box(mix(x)))).collect())
    }
}

/// Two threads fill a cache with disjoint batches, one after the other and at once.
pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        figures.skip("concurrency: this machine has one core");
        return Ok(());
    }
    let batches = if settings.quick { 40 } else { 400 };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(fill(batches, 1)?);
        two.push(fill(batches, 2)?);
    }
    figures.ratio("concurrency.two_vs_one", &one, &two);
    Ok(())
}

fn fill(batches: usize, concurrency: usize) -> Result<Duration> {
    let hashes = Cache::in_memory().module(Hashes {})?.concurrency(concurrency)?;
    let fill = |first: usize| -> tcx::Result<()> {
        for batch in (first..batches).step_by(2) {
            let ids: Vec<i64> = (batch * BATCH..(batch + 1) * BATCH).map(|id| id as i64).collect();
            hashes.forward(&ids, &ids)?;
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| fill(1));
        fill(0)?;
        Ok(other.join().map_err(|_| "a thread of the bench panicked")??)
    })?;
    Ok(start.elapsed())
}
