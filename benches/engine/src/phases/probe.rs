//! Measures looking up random keys in batches.

use std::path::Path;
use std::time::{Duration, Instant};

use tcx_store::{Keys, LookupOptions, Store};

use crate::Result;
use crate::figures::{Figures, best, median};
use crate::machine::memory;
use crate::workload::{BATCH, Dice, files, keys, open_to_read};

const ROUNDS: usize = 9;
/// Batches of a round.
const BATCHES: usize = 2_000;
/// Added to the number of a key, this gives an absent key.
const STRANGERS: usize = 1_000_000_000_000;

/// The time of the median batch of every round.
#[derive(Default)]
struct Times {
    present: Vec<Duration>,
    absent: Vec<Duration>,
    keys: Vec<Duration>,
}

/// All keys in one run; every checksum is verified before.
pub(crate) fn measure(figures: &mut Figures, dir: &Path, count: usize) -> Result<()> {
    let store = open_to_read(dir)?;
    warm(&store, count)?;
    let (mapped, huge) = memory::mapped_below(dir)?;
    let times = lookups(&store, count)?;
    let note = |times: &[Duration], limit: &str| {
        format!("{limit}; the best of {ROUNDS} rounds, the median of all is {:.1}", each(median(times)))
    };
    figures.add("present.ns", each(best(&times.present)), &note(&times.present, "110 at most"));
    figures.add("absent.ns", each(best(&times.absent)), &note(&times.absent, "40 at most"));
    figures.add("keys.ns", each(best(&times.keys)), &note(&times.keys, "before each of them"));
    let (runs, segments) = (files(dir, "run-")?.len(), files(dir, "seg-")?.len());
    let note = format!("of {runs} run and {segments} segments; {} MiB are in huge pages", huge >> 20);
    figures.add("maps.mib", mapped as f64 / f64::from(1 << 20), &note);
    Ok(())
}

/// The same with the current number of runs.
pub(crate) fn measure_worst(figures: &mut Figures, store: &Store, count: usize, runs: usize) -> Result<()> {
    warm(store, count)?;
    let times = lookups(store, count)?;
    let note = format!("with {runs} runs");
    figures.add("present.worst_runs.ns", each(best(&times.present)), &note);
    figures.add("absent.worst_runs.ns", each(best(&times.absent)), &note);
    Ok(())
}

/// Nanoseconds for each key of a batch, from its seconds.
fn each(seconds: f64) -> f64 {
    seconds * 1e9 / BATCH as f64
}

/// Looks up every key once.
fn warm(store: &Store, count: usize) -> Result<()> {
    for start in (0..count).step_by(1 << 14) {
        let rows =
            store.lookup_with(keys(start..count.min(start + (1 << 14)))?, LookupOptions::uncounted())?;
        if rows.missing() > 0 {
            return Err(format!("{} rows from {start} on are missing", rows.missing()).into());
        }
    }
    Ok(())
}

fn lookups(store: &Store, count: usize) -> Result<Times> {
    let (mut times, mut dice) = (Times::default(), Dice(7));
    for _ in 0..ROUNDS {
        let mut round = Times::default();
        for _ in 0..BATCHES {
            batch(store, &mut dice, count, &mut round)?;
        }
        let middle = |times: &[Duration]| Duration::from_secs_f64(median(times));
        times.present.push(middle(&round.present));
        times.absent.push(middle(&round.absent));
        times.keys.push(middle(&round.keys));
    }
    Ok(times)
}

/// A batch of present keys, and one of absent keys.
fn batch(store: &Store, dice: &mut Dice, count: usize, times: &mut Times) -> Result<()> {
    let numbers: Vec<usize> = (0..BATCH).map(|_| dice.roll(count)).collect();
    let ids: Vec<String> = numbers.iter().map(|number| format!("sample_{number}")).collect();
    let start = Instant::now();
    let packed = Keys::text(&ids, 0)?;
    times.keys.push(start.elapsed());
    let start = Instant::now();
    let rows = store.lookup_with(packed, LookupOptions::uncounted())?;
    times.present.push(start.elapsed());
    if rows.missing() > 0 {
        return Err("a row is missing".into());
    }
    let mut right = (0..BATCH).map(|i| rows.bytes(0, i) == (numbers[i] as i64).to_le_bytes());
    if !right.all(|right| right) {
        return Err("a wrong row".into());
    }
    let strangers = keys(numbers.iter().map(|number| number + STRANGERS))?;
    let start = Instant::now();
    let rows = store.lookup_with(strangers, LookupOptions::uncounted())?;
    times.absent.push(start.elapsed());
    if rows.missing() < BATCH {
        return Err("a row that was never written".into());
    }
    Ok(())
}
