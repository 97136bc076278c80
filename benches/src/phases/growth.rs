//! Measures figures that should stay the same as a cache grows from 10 thousand to 10 million small rows.

use std::time::Instant;

use tcx::Cache;

use crate::data::rows::Batches;
use crate::data::workload::{BATCH, Tiny, Workload, ids, rows, shuffled};
use crate::report::Figures;
use crate::rivals::read;
use crate::{Result, Settings, machine};

pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let sizes: &[usize] = if settings.quick {
        &[10_000, 100_000, 1_000_000]
    } else {
        &[10_000, 100_000, 1_000_000, 10_000_000]
    };
    for &size in sizes {
        grow(settings, size, figures)?;
    }
    Ok(())
}

fn grow(settings: &Settings, size: usize, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir_in(&settings.dir)?;
    let mut add = |what: &str, value: f64| figures.add(format!("growth.{what}.{size}"), value);
    let cache = Cache::open(dir.path())?;
    let cached = cache.module(Tiny::new())?;
    let inputs = rows::<Tiny>(0, BATCH);
    let start = Instant::now();
    for first in (0..size).step_by(BATCH) {
        let ids = ids(first..size.min(first + BATCH));
        let inputs = inputs.narrow(0, 0, ids.len() as i64) + first as f64;
        cached.fetch(&ids, |_| Ok(inputs))?;
    }
    cache.flush()?;
    add("fill_ns_per_row", start.elapsed().as_secs_f64() * 1e9 / size as f64);
    drop((cached, cache));
    let before = machine::resident_mib();
    let start = Instant::now();
    let cached = Cache::open(dir.path())?.module(Tiny::new())?;
    add("open_ms", start.elapsed().as_secs_f64() * 1e3);
    if let Some((before, after)) = before.zip(machine::resident_mib()) {
        add("open_mib", (after - before).max(0.));
    }
    let mut order = shuffled(size);
    order.truncate(100_000);
    let batches = Batches::new(order);
    // Twice: the first round verifies every checksum.
    for is_warm in [false, true] {
        let start = Instant::now();
        for (_, ids) in batches.iter() {
            drop(read(&cached, ids)?);
        }
        if is_warm {
            add("read_ns_per_row", start.elapsed().as_secs_f64() * 1e9 / batches.order.len() as f64);
        }
    }
    Ok(())
}
