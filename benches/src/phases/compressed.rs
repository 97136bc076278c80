//! Compressed caches of rows that compress well: what is in the hot tier against what is decompressed, and both against a
//! cache that is not compressed.

use std::time::{Duration, Instant};

use tcx::{Cache, Cached, Compression};

use crate::data::rows::Batches;
use crate::data::workload::{BATCH, W1, Workload, ids, rows, shuffled};
use crate::report::{Figures, ROUNDS, median};
use crate::rivals::{first_of, read};
use crate::{Result, Settings};

/// Rows of each cache: decompressed they have room in the hot tier.
const ROWS: usize = 20_000;
/// Of the hot tier.
const ROOM: usize = 1 << 30;

pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let batches = Batches::new(shuffled(settings.rows(ROWS)));
    let plain = median(&rounds(settings, Compression::None, 0, &batches)?);
    for (name, codec) in [("lz4", Compression::Lz4), ("zstd", Compression::Zstd)] {
        let cold = median(&rounds(settings, codec, 0, &batches)?);
        let hot = median(&rounds(settings, codec, ROOM, &batches)?);
        figures.add(format!("w1.{name}.random_read.vs_uncompressed"), plain / cold);
        figures.add(format!("w1.{name}.random_read.hot.vs_uncompressed"), plain / hot);
    }
    Ok(())
}

/// Reads all batches of a new cache; the round before the first is not counted.
fn rounds(settings: &Settings, codec: Compression, hot: usize, batches: &Batches) -> Result<Vec<Duration>> {
    let dir = tempfile::tempdir_in(&settings.dir)?;
    let open = || Cache::builder().compression(codec).memory_cache_bytes(hot).open(dir.path());
    fill(&open()?, batches.order.len())?;
    let cached = open()?.module(W1::new())?;
    (0..=ROUNDS).map(|_| round(&cached, batches)).skip(1).collect()
}

fn fill(cache: &Cache, count: usize) -> Result<()> {
    let cached = cache.module(W1::new())?;
    let inputs = rows::<W1>(0, BATCH);
    for first in (0..count).step_by(BATCH) {
        let ids = ids(first..count.min(first + BATCH));
        let inputs = inputs.narrow(0, 0, ids.len() as i64) + first as f64;
        cached.fetch(&ids, |_| Ok(inputs))?;
    }
    Ok(cache.flush()?)
}

fn round(cached: &Cached<W1>, batches: &Batches) -> Result<Duration> {
    let start = Instant::now();
    for (rows, ids) in batches.iter() {
        let last = rows.len() - 1;
        assert_eq!(first_of(&read(cached, ids)?, last) as usize, rows[last], "the right row");
    }
    Ok(start.elapsed())
}
