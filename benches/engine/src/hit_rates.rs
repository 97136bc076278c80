//! Prints the hit rates of each eviction policy of the disk and of the memory cache, in epochs that do not fit.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin hit_rates
//! ```
//!
//! 8,192 rows are read in batches of 256 by six epochs: in the same order, shuffled again each time, or drawn with the probabilities
//! of Zipf's law (the row of rank n with a probability of about 1 / n). Missing rows are computed and stored. The limit has room for
//! a fourth or for half of the rows. The hit rate is that of the last four epochs. Runs differ by a percent or two: names of segments
//! are random, and ages are those of the clock.

use std::fmt::Write;
use std::path::Path;

use tcx_store::{
    Column, ColumnType, Compression, DType, Identity, KeyType, Keys, MemoryCachePolicy, Options, Spec, Store,
    WhenFull,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROWS: usize = 8192;
const BATCH: usize = 256;
/// Bytes of a row.
const WIDTH: usize = 2048;
const EPOCHS: usize = 6;
/// Epochs before those that count.
const UNCOUNTED: usize = 2;

/// In which order an epoch reads its rows.
#[derive(Clone, Copy)]
enum Epoch {
    Sequential,
    Shuffled,
    Zipf,
}

const ALL: [(Epoch, &str); 3] =
    [(Epoch::Sequential, "sequential"), (Epoch::Shuffled, "shuffled"), (Epoch::Zipf, "Zipf")];
/// The parts of the rows for which there is room.
const ROOMS: [usize; 2] = [4, 2];

fn main() -> Result<()> {
    println!("{:<34}{:>30}{:>30}", "", "room for a fourth", "room for half");
    let names = ALL.map(|(_, name)| format!("{name:>10}")).concat();
    println!("{:<34}{names}{names}", "");
    let on_disk = [
        ("disk: StopWriting", WhenFull::StopWriting),
        ("disk: EvictOldest", WhenFull::EvictOldest),
        ("disk: EvictLeastUsed", WhenFull::EvictLeastUsed),
        ("disk: EvictRandom", WhenFull::EvictRandom),
    ];
    for (name, when_full) in on_disk {
        line(name, |epoch, room| disk(when_full, epoch, room))?;
    }
    let in_memory = [
        ("memory cache: Lru", MemoryCachePolicy::Lru),
        ("memory cache: ScanResistant", MemoryCachePolicy::ScanResistant),
    ];
    for (name, policy) in in_memory {
        line(name, |epoch, room| memory_cache(policy, epoch, room))?;
    }
    Ok(())
}

/// Prints the hit rates of a policy in percent.
fn line(name: &str, rate: impl Fn(Epoch, usize) -> Result<f64>) -> Result<()> {
    let mut line = format!("{name:<34}");
    for room in ROOMS {
        for (epoch, _) in ALL {
            write!(line, "{:>10.0}", 100. * rate(epoch, room)?)?;
        }
    }
    println!("{line}");
    Ok(())
}

fn open(dir: &Path, options: &Options) -> Result<std::sync::Arc<Store>> {
    let output = ColumnType::Dense { dtype: DType::U8, shape: &[WIDTH] };
    let spec = Spec::new("hit_rates_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    Ok(Store::open(dir, spec, options)?)
}

/// Computes the missing rows of a batch.
fn compute(store: &Store, rows: &[i64]) -> Result<()> {
    let mut lookup = store.lookup(Keys::ints(rows.iter().copied(), 0))?;
    let missing = lookup.distinct_missing_positions();
    if !missing.is_empty() {
        let values = vec![7; missing.len() * WIDTH];
        store.insert(&mut lookup, &missing, vec![Column::dense(&values)])?;
    }
    Ok(())
}

/// The share of the rows that a folder of limited size serves.
fn disk(when_full: WhenFull, epoch: Epoch, room: usize) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let max_bytes = Some((ROWS * (WIDTH + 40) / room) as u64);
    let options = Options { max_bytes, when_full, ..Options::default() };
    let (mut dice, mut hits, mut asked) = (Dice(7), 0, 0);
    for number in 0..EPOCHS {
        for batch in dice.epoch(epoch).chunks(BATCH) {
            // Closing a store waits until the folder is within its limit.
            let store = open(dir.path(), &options)?;
            compute(&store, batch)?;
            if number >= UNCOUNTED {
                hits += store.stats().hits;
                asked += batch.len();
            }
            store.flush()?;
        }
    }
    Ok(hits as f64 / asked as f64)
}

/// The share of the compressed parts that the memory cache has.
fn memory_cache(policy: MemoryCachePolicy, epoch: Epoch, room: usize) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let options = Options {
        compression: Compression::Lz4,
        memory_cache_bytes: ROWS * WIDTH / room,
        memory_cache_policy: policy,
        ..Options::default()
    };
    let store = open(dir.path(), &options)?;
    for batch in Dice(7).epoch(Epoch::Sequential).chunks(BATCH) {
        compute(&store, batch)?;
    }
    store.flush()?;
    let mut dice = Dice(7);
    let mut before = store.stats().tiers.memory_cache;
    for number in 0..EPOCHS {
        if number == UNCOUNTED {
            before = store.stats().tiers.memory_cache;
        }
        for batch in dice.epoch(epoch).chunks(BATCH) {
            compute(&store, batch)?;
        }
    }
    let after = store.stats().tiers.memory_cache;
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    Ok(hits as f64 / (hits + misses) as f64)
}

/// Random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    /// A number from 0 to 1.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The rows of an epoch in order.
    fn epoch(&mut self, epoch: Epoch) -> Vec<i64> {
        let mut rows: Vec<i64> = (0..ROWS as i64).collect();
        match epoch {
            Epoch::Sequential => {}
            Epoch::Shuffled => {
                (1..ROWS).for_each(|at| rows.swap(at, (self.roll() * (at + 1) as f64) as usize));
            }
            Epoch::Zipf => {
                let rank = |roll: f64| (((ROWS + 1) as f64).powf(roll) as i64 - 1).min(ROWS as i64 - 1);
                for row in &mut rows {
                    *row = rank(self.roll());
                }
            }
        }
        rows
    }
}
