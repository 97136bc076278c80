//! Measures what finding a row in a large cache takes of disk, memory and time.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin index            # ten million keys, two minutes
//! cargo run --release --package tcx-engine-benches --bin index -- 100000  # fewer
//! ```
//!
//! Rows are one i64 under string keys, so that only the index and the keys are measured. A time is that of the fastest round,
//! since other programs can only slow a round down; the time of a lookup is the median of a round's batches. The figures are
//! also written to `target/bench/index.json`.
//!
//! | figure | |
//! |---|---|
//! | `index.bytes_per_key` | the index run of all keys, on disk |
//! | `merge.ns_per_key` | the last merge of four runs into one, from the last flush to its end |
//! | `open.ms`, `open.heap_mib` | opening the store in a new process; its memory outside the maps |
//! | `heap.bytes_per_key` | that memory after reading, beyond the memory with few keys, for each key more |
//! | `present.ns`, `absent.ns` | a key of a batch of 256: found, confirmed and verified, or known to be absent |
//! | `keys.ns` | packing and hashing such a key before the lookup |
//! | `runs.worst` and `….worst_runs.ns` | the maximum of runs while small segments are added, and a lookup in that number of runs |
//! | `flush.…` | a flush of 1,000 rows into a small and into the large store, and how much more the second costs |
//! | `readers.…` | the memory of 64 processes that read random keys of one store: in total, and its parts |

mod figures;
mod machine;
mod phases;
mod settings;
mod workload;

use std::path::Path;

use figures::Figures;
use phases::{fill, flush, open, probe, readers};
use settings::{FEW_KEYS, KEYS, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => measure(KEYS),
        ["opener", dir, keys] => open::in_this_process(Path::new(dir), keys.parse()?),
        ["reader", dir, keys, seed] => readers::in_this_process(Path::new(dir), keys.parse()?, seed.parse()?),
        [keys] => match keys.parse() {
            Ok(keys) if keys >= FEW_KEYS => measure(keys),
            _ => Err(format!("expected a number of keys, {FEW_KEYS} or more, found `{keys}`").into()),
        },
        _ => Err("usage: index [KEYS]".into()),
    }
}

fn measure(keys: usize) -> Result<()> {
    // On the disk of the checkout: a temporary folder may be in memory.
    let dir = tempfile::tempdir_in(machine::target()?)?;
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    let mut figures = Figures::new(keys);
    fill::measure(&mut figures, &large, keys)?;
    fill::fill(&small, FEW_KEYS)?;
    open::measure(&mut figures, &small, &large, keys)?;
    probe::measure(&mut figures, &large, keys)?;
    readers::measure(&mut figures, &large, keys)?;
    flush::measure(&mut figures, &small, &large, keys)?;
    figures.write()
}
