//! Measures how even the times of warm batches are while another thread fills, seals and compacts the same cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tcx::{BackgroundPriority, Cache, Cached, Tuning};

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
    let stored = W::rows(settings);
    let batches = Batches::new(shuffled(stored));
    let whole: Vec<&[String]> =
        batches.iter().filter(|(rows, _)| rows.len() == BATCH).map(|(_, ids)| ids).collect();
    let measured = settings.rows(MEASURED);
    let mut first = stored;
    for (priority, beside) in [
        (BackgroundPriority::Low, "warm_batch.beside_fill"),
        (BackgroundPriority::Idle, "warm_batch.beside_idle_fill"),
    ] {
        let cache = Cache::builder().tuning(Tuning::new().background_priority(priority));
        let cache = cache.open(settings.dir.join(W::NAME).join("cache"))?;
        let cached = cache.module(W::new())?;
        let round = || times(whole.iter().copied().cycle().take(measured), &cached);
        // The first verifies every checksum.
        times(whole.iter().copied(), &cached)?;
        if priority == BackgroundPriority::Low {
            add::<W>(figures, "warm_batch", &round()?);
        }
        let rounds;
        (rounds, first) = beside_fill::<W>(&cache, first, round)?;
        add::<W>(figures, beside, &rounds);
        // The part of the engine, of all rounds.
        let lookups = cached.stats().hit_times;
        let unevenness = lookups.p999().as_secs_f64() / lookups.p50().as_secs_f64();
        figures.add(format!("{}.{}.p999_vs_p50", W::NAME, beside.replace("batch", "lookup")), unevenness);
    }
    Ok(())
}

/// The round in the middle, and the first row that the other thread has not added.
fn beside_fill<W: Workload>(
    cache: &Cache,
    first: usize,
    round: impl Fn() -> Result<Vec<Duration>>,
) -> Result<(Vec<Duration>, usize)> {
    let is_over = AtomicBool::new(false);
    let (mut rounds, end) = std::thread::scope(|scope| {
        let filler = scope.spawn(|| fill::<W>(cache, first, &is_over).map_err(|error| format!("{error:#}")));
        let rounds: Result<Vec<_>> = (0..ROUNDS).map(|_| round()).collect();
        is_over.store(true, Ordering::Relaxed);
        let end = filler.join().map_err(|_| "the thread that fills panicked")??;
        Ok::<_, Box<dyn std::error::Error>>((rounds?, end))
    })?;
    rounds.sort_by(|a, b| unevenness(a).total_cmp(&unevenness(b)));
    Ok((rounds.swap_remove(ROUNDS / 2), end))
}

fn unevenness(times: &[Duration]) -> f64 {
    quantile(times, 0.999) / quantile(times, 0.5)
}

fn add<W: Workload>(figures: &mut Figures, name: &str, times: &[Duration]) {
    for (what, share) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
        figures.add(format!("{}.{name}.{what}", W::NAME), quantile(times, share) * 1e6);
    }
    figures.add(format!("{}.{name}.p999_vs_p50", W::NAME), unevenness(times));
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

/// Adds rows from `first` on and flushes them, until the other thread has measured enough; returns the first that was not added. The
/// store joins their segments in the background.
fn fill<W: Workload>(cache: &Cache, first: usize, is_over: &AtomicBool) -> Result<usize> {
    let cached = cache.module(W::new())?;
    let mut next = first;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..FILLED {
            if next < first + MOST_FILLED * BATCH {
                cached.fetch(&ids(next..next + BATCH), |_| Ok(rows::<W>(next, BATCH)))?;
                next += BATCH;
            }
        }
        cached.flush()?;
    }
    Ok(next)
}
