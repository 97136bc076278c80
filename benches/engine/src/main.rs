//! What finding a row costs in a large cache: disk, memory and time, one table.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin index            # ten million keys, two minutes
//! cargo run --release --package tcx-engine-benches --bin index -- 100000  # fewer
//! ```
//!
//! Rows are one i64 under string keys, so that nothing but the index and the keys is measured. Times are those of the best
//! of several rounds, since another program on the machine can only make a round slower; of lookups, the median of a
//! round's batches. The figures go to `target/bench/index.json` too.
//!
//! | figure | |
//! |---|---|
//! | `index.bytes_per_key` | the index run that leads to all keys, on disk |
//! | `merge.ns_per_key` | merging four runs into that one, from the last flush on |
//! | `open.ms`, `open.heap_mib` | opening the store in a new process; what it then holds outside the maps |
//! | `present.ns`, `absent.ns` | a key of a batch of 256: found, confirmed and verified, or known to be absent |
//! | `keys.ns` | packing and hashing such a key before |
//! | `runs.worst` and `….worst_runs.ns` | the most runs met while small segments were added, and lookups of keys in that number of runs |
//! | `flush.…` | a flush of 1,000 rows into a small and into the large store, and how much more the second costs |
//! | `readers.…` | 64 processes that read random keys of one store: their memory, maps shared, and what it is made of |

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
        ["opener", dir] => open::in_this_process(Path::new(dir)),
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
    open::measure(&mut figures, &large)?;
    probe::measure(&mut figures, &large, keys)?;
    readers::measure(&mut figures, &large, keys)?;
    flush::measure(&mut figures, &small, &large, keys)?;
    figures.write()
}
