//! Filling a cache, against writing the same bytes in order; what is filled is then read.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tcx::Cache;

use crate::report::{Figures, ROUNDS};
use crate::workload::{BATCH, Workload, ids, rows};
use crate::{Result, Settings, machine};

/// Leaves a cache and a plain file of the rows.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    let (mut fills, mut plain, mut callers, mut copies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        machine::touch_memory(2 * rows * W::bytes());
        plain.push(raw::<W>(&dir.join("raw"), rows)?);
        copies.push(copy::<W>(rows));
        machine::touch_memory(2 * rows * W::bytes());
        let (whole, caller) = fill::<W>(&dir, rows)?;
        fills.push(whole);
        callers.push(caller);
    }
    figures.ratio(format!("{}.fill.vs_raw_write_fsync", W::NAME), &plain, &fills);
    figures.ratio(format!("{}.fill.caller_ms_vs_memcpy", W::NAME), &callers, &copies);
    Ok(())
}

/// The time until everything is durable, and the part of it that the calls which give rows took.
fn fill<W: Workload>(dir: &Path, rows_of_all: usize) -> Result<(Duration, Duration)> {
    let cache = Cache::open(dir.join("cache"))?;
    let cached = cache.module(W::new())?;
    let inputs = rows::<W>(0, BATCH);
    let all: Vec<Vec<String>> =
        (0..rows_of_all).step_by(BATCH).map(|start| ids(start..rows_of_all.min(start + BATCH))).collect();
    let start = Instant::now();
    let mut caller = Duration::ZERO;
    for (batch, ids) in all.iter().enumerate() {
        // The rows differ by their number, as in the raw file.
        let inputs = inputs.narrow(0, 0, ids.len() as i64) + (batch * BATCH) as f64;
        let call = Instant::now();
        cached.fetch(ids, |_| Ok(inputs))?;
        caller += call.elapsed();
    }
    cache.flush()?;
    Ok((start.elapsed(), caller))
}

/// Copying the same bytes once, from one buffer into new ones as large as a segment.
fn copy<W: Workload>(rows: usize) -> Duration {
    let batch = vec![1_u8; BATCH * W::bytes()];
    let mut segment = Vec::with_capacity(64 << 20);
    let mut time = Duration::ZERO;
    for start in (0..rows).step_by(BATCH) {
        let bytes = BATCH.min(rows - start) * W::bytes();
        if segment.len() + bytes > segment.capacity() {
            segment = Vec::with_capacity(64 << 20);
        }
        let call = Instant::now();
        segment.extend_from_slice(&batch[..bytes]);
        std::hint::black_box(&mut segment);
        time += call.elapsed();
    }
    time
}

/// The same rows, one after the other, in one file.
fn raw<W: Workload>(path: &Path, rows_of_all: usize) -> Result<Duration> {
    let inputs = rows::<W>(0, BATCH);
    let mut bytes = vec![0_u8; BATCH * W::bytes()];
    let start = Instant::now();
    let mut file = std::fs::File::create(path)?;
    for batch in (0..rows_of_all).step_by(BATCH) {
        let inputs = &inputs + batch as f64;
        inputs.copy_data_u8(&mut bytes, BATCH * W::WIDTH);
        let count = BATCH.min(rows_of_all - batch);
        file.write_all(&bytes[..count * W::bytes()])?;
    }
    file.sync_all()?;
    Ok(start.elapsed())
}
