//! Measures how even the times of warm batches are while another thread fills, seals and compacts the same cache.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tcx::{Cache, Cached};

use crate::data::rows::Batches;
use crate::data::workload::{BATCH, Workload, ids, rows, shuffled};
use crate::report::{Figures, quantile};
use crate::rivals::read;
use crate::{Result, Settings};

/// Batches of a round; a thousandth of them is enough for the last quantile.
const MEASURED: usize = 20_000;
/// Rounds beside the other thread. The one in the middle counts: what else runs on the machine shows in few of them.
const ROUNDS: usize = 3;
/// Batches between two flushes of the other thread.
const FILLED: usize = 4;
/// The most batches that it writes, so that the disk does not fill.
const MOST_FILLED: usize = 2_000;

pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, stored) = (settings.dir.join(W::NAME).join("cache"), W::rows(settings));
    let cached = Cache::open(&dir)?.module(W::new())?;
    let batches = Batches::new(shuffled(stored));
    let whole: Vec<&[String]> =
        batches.iter().filter(|(rows, _)| rows.len() == BATCH).map(|(_, ids)| ids).collect();
    for &ids in &whole {
        // The first round verifies every checksum.
        drop(read(&cached, ids)?);
    }
    let measured = settings.rows(MEASURED);
    let alone = times(whole.iter().copied().cycle().take(measured), &cached)?;
    let is_over = AtomicBool::new(false);
    let mut rounds = std::thread::scope(|scope| {
        let filler = scope.spawn(|| fill::<W>(&dir, stored, &is_over).map_err(|error| format!("{error:#}")));
        let round = |_| times(whole.iter().copied().cycle().take(measured), &cached);
        let rounds: Result<Vec<_>> = (0..ROUNDS).map(round).collect();
        is_over.store(true, Ordering::Relaxed);
        filler.join().map_err(|_| "the thread that fills panicked")??;
        rounds
    })?;
    let unevenness = |times: &[Duration]| quantile(times, 0.999) / quantile(times, 0.5);
    rounds.sort_by(|a, b| unevenness(a).total_cmp(&unevenness(b)));
    let beside = rounds.swap_remove(ROUNDS / 2);
    for (name, times) in [("warm_batch", &alone), ("warm_batch.beside_fill", &beside)] {
        let of = |share| quantile(times, share);
        let name = |what: &str| format!("{}.{name}.{what}", W::NAME);
        figures.add(name("p50_us"), of(0.5) * 1e6);
        figures.add(name("p99_us"), of(0.99) * 1e6);
        figures.add(name("p999_us"), of(0.999) * 1e6);
        figures.add(name("p999_vs_p50"), unevenness(times));
    }
    // The part of the engine, of both rounds.
    let lookups = cached.stats().hit_times;
    figures.add(
        format!("{}.warm_lookup.p999_vs_p50", W::NAME),
        lookups.p999().as_secs_f64() / lookups.p50().as_secs_f64(),
    );
    Ok(())
}

fn times<'b, W: Workload>(
    batches: impl Iterator<Item = &'b [String]>,
    cached: &Cached<W>,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for ids in batches {
        let start = Instant::now();
        let batch = read(cached, ids)?;
        times.push(start.elapsed());
        // A caller drops a batch before it reads the next one.
        drop(batch);
    }
    Ok(times)
}

/// Adds rows behind those that are stored and flushes them, until the other thread has measured enough. The store joins their
/// segments in the background.
fn fill<W: Workload>(dir: &Path, stored: usize, is_over: &AtomicBool) -> Result<()> {
    let cached = Cache::open(dir)?.module(W::new())?;
    let mut first = stored;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..FILLED {
            if first < stored + MOST_FILLED * BATCH {
                cached.fetch(&ids(first..first + BATCH), |_| Ok(rows::<W>(first, BATCH)))?;
                first += BATCH;
            }
        }
        cached.flush()?;
    }
    Ok(())
}
