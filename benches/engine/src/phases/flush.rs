//! Measures flushes of a few rows into a small and into a large store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcx_store::Store;

use super::probe;
use crate::figures::{Figures, mean, median};
use crate::workload::{files, insert, open};
use crate::{FEW_KEYS, Result};

/// Rows of a flush.
const ROWS: usize = 1_000;
/// Flushes of a round: one fewer than would merge all their runs, so that a round leaves the maximum of runs.
const FLUSHES: usize = 63;
const ROUNDS: usize = 3;

/// A store that grows.
struct Growing {
    store: Arc<Store>,
    next: usize,
    /// The times of the flushes, which include waiting for merges before them.
    times: Vec<Duration>,
}

impl Growing {
    /// Joins and merges everything first, so that only the flushes cause work for the writer.
    fn new(dir: &Path, keys: usize) -> Result<Self> {
        let store = open(dir)?;
        store.compact()?;
        store.collect(Duration::ZERO)?;
        Ok(Self { store, next: keys, times: Vec::new() })
    }

    fn grow(&mut self) -> Result<()> {
        let end = self.next + ROWS;
        insert(&self.store, self.next..end)?;
        self.next = end;
        let start = Instant::now();
        self.store.flush()?;
        self.times.push(start.elapsed());
        Ok(())
    }
}

/// The stores take turns and get the same rows, so that other load on the machine affects both.
pub(crate) fn measure(figures: &mut Figures, small_dir: &Path, large_dir: &Path, keys: usize) -> Result<()> {
    let mut small = Growing::new(small_dir, FEW_KEYS)?;
    let mut large = Growing::new(large_dir, keys)?;
    let mut worst = 0;
    let (mut single, mut merged) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..FLUSHES {
            small.grow()?;
            large.grow()?;
            worst = worst.max(files(large_dir, "run-")?.len());
        }
        single.push((median(&small.times), median(&large.times)));
        merged.push((mean(&small.times), mean(&large.times)));
        small.times.clear();
        large.times.clear();
    }
    for (name, rounds, limit) in [("flush", single, 1.2), ("flush.with_merges", merged, 2.)] {
        let (small, large) = rounds.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
        figures.add(&format!("{name}.small.ms"), small * 1e3, &format!("{ROWS} rows more than {FEW_KEYS}"));
        figures.add(&format!("{name}.large.ms"), large * 1e3, &format!("{ROWS} rows more than {keys}"));
        figures.add(&format!("{name}.ratio"), large / small, &format!("{limit} at most"));
    }
    let runs = files(large_dir, "run-")?.len();
    figures.add("runs.worst", worst as f64, "met while the large store grew");
    probe::measure_worst(figures, &large.store, keys, runs)
}
