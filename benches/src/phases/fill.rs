//! Measures filling a cache, compared with writing the same bytes in order. Later phases read the cache.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tcx::Cache;

use crate::data::workload::{BATCH, Workload, ids, rows};
use crate::report::{Figures, ROUNDS};
use crate::{Result, Settings, machine};

/// Writes a cache and a plain file of the rows.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    std::fs::create_dir_all(&dir)?;
    let (file, cache) = (dir.join("raw"), dir.join("cache"));
    let ids: Vec<_> = (0..rows).step_by(BATCH).map(|start| ids(start..rows.min(start + BATCH))).collect();
    let (mut fills, mut plain, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    // Going first affects the state of the memory: each goes first in half of the rounds.
    for round in 0..ROUNDS.next_multiple_of(2) {
        for turn in [round % 2, (round + 1) % 2] {
            if turn == 0 {
                plain.push(raw::<W>(&file, rows)?);
            } else {
                fills.push(fill::<W>(&cache, &ids)?);
            }
        }
        copies.push(copy::<W>(rows));
    }
    let of = |part: fn(&Fill) -> Duration| fills.iter().map(part).collect::<Vec<_>>();
    figures.ratio(format!("{}.fill.vs_raw_write_fsync", W::NAME), &plain, &of(|fill| fill.whole));
    figures.ratio(format!("{}.fill.caller_ms_vs_memcpy", W::NAME), &of(|fill| fill.caller), &copies);
    figures.ratio(format!("{}.fill.caller_cpu_vs_memcpy", W::NAME), &of(|fill| fill.caller_cpu), &copies);
    Ok(())
}

/// The times of a fill.
struct Fill {
    /// Until all rows were durable.
    whole: Duration,
    /// In the calls that insert rows; they wait for the writer if it cannot follow.
    caller: Duration,
    /// The CPU time of the calling thread in them.
    caller_cpu: Duration,
}

fn fill<W: Workload>(dir: &Path, all: &[Vec<String>]) -> Result<Fill> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    let cache = Cache::open(dir)?;
    let cached = cache.module(W::new())?;
    let inputs = rows::<W>(0, BATCH);
    touch_memory::<W>(all.len());
    let start = Instant::now();
    let (mut caller, mut caller_cpu) = (Duration::ZERO, Duration::ZERO);
    for (batch, ids) in all.iter().enumerate() {
        // The rows differ by their number, as in the raw file.
        let inputs = inputs.narrow(0, 0, ids.len() as i64) + (batch * BATCH) as f64;
        let (cpu, call) = (machine::thread_time(), Instant::now());
        cached.fetch(ids, |_| Ok(inputs))?;
        caller += call.elapsed();
        caller_cpu += machine::thread_time().saturating_sub(cpu);
    }
    cache.flush()?;
    Ok(Fill { whole: start.elapsed(), caller, caller_cpu })
}

/// Touches the amount of memory that a fill uses.
fn touch_memory<W: Workload>(batches: usize) {
    machine::touch_memory(2 * batches * BATCH * W::bytes());
}

/// Copies the same bytes once, from one buffer into new buffers of the size of a segment.
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

/// Writes the same rows in order into one file.
fn raw<W: Workload>(path: &Path, rows_of_all: usize) -> Result<Duration> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let inputs = rows::<W>(0, BATCH);
    let mut bytes = vec![0_u8; BATCH * W::bytes()];
    touch_memory::<W>(rows_of_all.div_ceil(BATCH));
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

/// Removes the files of a workload.
pub(crate) fn clear<W: Workload>(settings: &Settings, _: &mut Figures) -> Result<()> {
    Ok(std::fs::remove_dir_all(settings.dir.join(W::NAME))?)
}
