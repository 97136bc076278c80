//! Measures opening the store and reading from it, each time in a new process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::figures::{Figures, best};
use crate::machine::memory;
use crate::workload::open_to_read;
use crate::{FEW_KEYS, phases::readers};

const ROUNDS: usize = 7;

/// What the openers of a store have measured.
#[derive(Default)]
struct Opened {
    times: Vec<Duration>,
    /// The most bytes of memory outside the maps, after opening and after reading.
    heap: f64,
    heap_used: f64,
}

pub(crate) fn measure(figures: &mut Figures, small: &Path, large: &Path, keys: usize) -> Result<()> {
    let (few, many) = (opened(small, FEW_KEYS)?, opened(large, keys)?);
    figures.add("open.ms", best(&many.times) * 1e3, "20 at most");
    figures.add("open.heap_mib", many.heap / f64::from(1 << 20), "a few; the most of all rounds");
    let more = (many.heap_used - few.heap_used).max(0.) / (keys - FEW_KEYS).max(1) as f64;
    figures.add("heap.bytes_per_key", more, &format!("after reading, beyond the heap with {FEW_KEYS} keys"));
    Ok(())
}

fn opened(dir: &Path, keys: usize) -> Result<Opened> {
    let mut opened = Opened::default();
    for _ in 0..ROUNDS {
        let mut process = Command::new(std::env::current_exe()?);
        let output = process.arg("opener").arg(dir).arg(keys.to_string()).output()?;
        let output = String::from_utf8(output.stdout)?;
        let words: Vec<&str> = output.split_whitespace().collect();
        let [nanoseconds, heap, heap_used] = words[..] else { return Err("the opener failed".into()) };
        opened.times.push(Duration::from_nanos(nanoseconds.parse()?));
        opened.heap = opened.heap.max(heap.parse()?);
        opened.heap_used = opened.heap_used.max(heap_used.parse()?);
    }
    Ok(opened)
}

/// Opens the store and reads random keys. Prints the time of opening, and the memory outside the maps after each of the two.
pub(crate) fn in_this_process(dir: &Path, keys: usize) -> Result<()> {
    let before = memory::of("self")?.anonymous;
    let start = Instant::now();
    let store = open_to_read(dir)?;
    let time = start.elapsed();
    let heap = memory::of("self")?.anonymous.saturating_sub(before);
    readers::read(&store, keys, 1)?;
    let heap_used = memory::of("self")?.anonymous.saturating_sub(before);
    drop(store);
    println!("{} {heap} {heap_used}", time.as_nanos());
    Ok(())
}
