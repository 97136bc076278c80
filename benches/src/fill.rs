//! Filling a cache, against writing the same bytes in order; what is filled is then read.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tcx::Cache;

use crate::read;
use crate::report::{ROUNDS, Report};
use crate::workload::{BATCH, Workload, ids, rows};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measures the fill, then the reads of what it left.
pub(crate) fn measure<W: Workload>(report: &mut Report) -> Result<()> {
    // On the disk of the checkout: a temporary folder may be in memory.
    let target = crate::machine::target()?;
    let mut fills = Vec::new();
    let mut raws = Vec::new();
    let mut filled = None;
    for _ in 0..ROUNDS {
        let dir = tempfile::tempdir_in(&target)?;
        raws.push(raw::<W>(&dir.path().join("raw"))?);
        fills.push(fill::<W>(dir.path())?);
        filled = Some(dir);
    }
    report.ratio(&format!("{}.fill.vs_raw_write_fsync", W::NAME), &raws, &fills);
    filled.map_or(Ok(()), |dir| read::measure::<W>(report, dir.path()))
}

fn fill<W: Workload>(dir: &Path) -> Result<Duration> {
    let cache = Cache::open(dir.join("cache"))?;
    let cached = cache.module(W::new())?;
    let inputs = rows::<W>(0, BATCH);
    let all: Vec<Vec<String>> =
        (0..W::ROWS).step_by(BATCH).map(|start| ids(start..W::ROWS.min(start + BATCH))).collect();
    let start = Instant::now();
    for (batch, ids) in all.iter().enumerate() {
        // The rows differ by their number, as in the raw file.
        let inputs = inputs.narrow(0, 0, ids.len() as i64) + (batch * BATCH) as f64;
        cached.fetch(ids, |_| Ok(inputs))?;
    }
    cache.flush()?;
    Ok(start.elapsed())
}

/// The same rows, one after the other, in one file.
fn raw<W: Workload>(path: &Path) -> Result<Duration> {
    let inputs = rows::<W>(0, BATCH);
    let mut bytes = vec![0_u8; BATCH * W::WIDTH * 4];
    let start = Instant::now();
    let mut file = std::fs::File::create(path)?;
    for batch in (0..W::ROWS).step_by(BATCH) {
        let inputs = &inputs + batch as f64;
        inputs.copy_data_u8(&mut bytes, BATCH * W::WIDTH);
        let count = BATCH.min(W::ROWS - batch);
        file.write_all(&bytes[..count * W::WIDTH * 4])?;
    }
    file.sync_all()?;
    Ok(start.elapsed())
}
