//! Measures the memory of many processes that read one store: they share the maps, the rest must stay small.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tcx_store::{LookupOptions, Store};

use crate::Result;
use crate::figures::Figures;
use crate::machine::memory;
use crate::workload::{BATCH, Dice, keys, open_to_read};

const READERS: usize = 64;
/// Random keys for each reader: enough to touch nearly every checksum block.
const READS: usize = 40_000;
/// The MiB that a reader may use beside the maps.
const OWN: f64 = 8.;

const MIB: f64 = (1 << 20) as f64;

pub(crate) fn measure(figures: &mut Figures, dir: &Path, count: usize) -> Result<()> {
    let mut readers = Vec::new();
    for seed in 1..=READERS {
        let reader = Command::new(std::env::current_exe()?)
            .args(["reader".as_ref(), dir.as_os_str(), count.to_string().as_ref(), seed.to_string().as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        readers.push(reader);
    }
    let (mut touched, mut total, mut anonymous) = (0., 0., 0.);
    // All readers keep their memory until the last one is measured.
    for reader in &mut readers {
        touched = f64::max(touched, said(reader)?);
    }
    for reader in &readers {
        let memory = memory::of(&reader.id().to_string())?;
        total += memory.proportional as f64 / MIB;
        anonymous += memory.anonymous as f64 / MIB;
    }
    for mut reader in readers {
        drop(reader.stdin.take());
        reader.wait()?;
    }
    let own = (total - 1.1 * touched) / READERS as f64;
    figures.add("readers.touched_mib", touched, "of the maps, by the one that touched most");
    figures.add("readers.total_mib", total, &format!("proportional, of {READERS} processes"));
    let copies = (total - anonymous) / touched;
    figures.add("readers.copies", copies, "of the maps, in the memory of all together; 1.1 at most");
    figures.add("readers.own_mib", own, &format!("each, beyond 1.1 x what was touched; {OWN} at most"));
    figures.add("readers.anonymous_mib", anonymous / READERS as f64, "each: heap and stacks");
    Ok(())
}

/// The MiB that the reader has touched.
fn said(reader: &mut Child) -> Result<f64> {
    let mut line = String::new();
    let output = reader.stdout.as_mut().ok_or("the reader has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok(line.trim().parse::<u64>()? as f64 / MIB)
}

/// Reads random keys, prints the bytes of the maps that it touched, and waits until standard input ends.
pub(crate) fn in_this_process(dir: &Path, count: usize, seed: u64) -> Result<()> {
    let store = open_to_read(dir)?;
    read(&store, count, seed)?;
    println!("{}", memory::mapped_below(dir)?.0);
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(store);
    Ok(())
}

/// Reads random keys of `count`.
pub(crate) fn read(store: &Store, count: usize, seed: u64) -> Result<()> {
    // Neighbouring seeds give neighbouring first numbers.
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for _ in 0..READS / BATCH {
        let rows =
            store.lookup_with(keys((0..BATCH).map(|_| dice.roll(count)))?, LookupOptions::uncounted())?;
        if rows.missing() > 0 {
            return Err("a row is missing".into());
        }
    }
    Ok(())
}
