//! Measures opening the store, each time in a new process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::figures::{Figures, best};
use crate::machine::memory;
use crate::workload::open_to_read;

const ROUNDS: usize = 7;

pub(crate) fn measure(figures: &mut Figures, dir: &Path) -> Result<()> {
    let (mut times, mut heap) = (Vec::new(), 0.);
    for _ in 0..ROUNDS {
        let output = Command::new(std::env::current_exe()?).arg("opener").arg(dir).output()?;
        let output = String::from_utf8(output.stdout)?;
        let (nanoseconds, bytes) = output.trim().split_once(' ').ok_or("the opener printed nothing")?;
        times.push(Duration::from_nanos(nanoseconds.parse()?));
        heap = f64::max(heap, bytes.parse()?);
    }
    figures.add("open.ms", best(&times) * 1e3, "20 at most");
    figures.add("open.heap_mib", heap / f64::from(1 << 20), "a few; the most of all rounds");
    Ok(())
}

/// Opens the store, and prints the time and the memory outside the maps.
pub(crate) fn in_this_process(dir: &Path) -> Result<()> {
    let before = memory::of("self")?.anonymous;
    let start = Instant::now();
    let store = open_to_read(dir)?;
    let time = start.elapsed();
    let heap = memory::of("self")?.anonymous.saturating_sub(before);
    drop(store);
    println!("{} {heap}", time.as_nanos());
    Ok(())
}
