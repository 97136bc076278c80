//! Measures a cache in each of some folders, to compare disks and file systems.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin disks -- DIR…
//! ```
//!
//! Rows are 2048 f32, 8 KiB. A fill inserts 256 MiB and flushes once. A flush of 64 rows is repeated 200 times. The reads are
//! shuffled batches of 256 rows, 64 MiB in total: from the disk after the system was asked to drop the pages of the files, then
//! from memory. Each folder needs 1 GiB; what is written there is removed at the end.

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ID: &str = "disk_v1";
const WIDTH: usize = 2048;
const ROW: usize = WIDTH * 4;
const BATCH: usize = 256;
/// Rows of the fill, and of those the part that is read.
const ROWS: usize = 32_768;
const READ: usize = 8_192;
/// Flushes, and the rows of each.
const FLUSHES: usize = 200;
const FLUSHED: usize = 64;
/// Rounds of reads from memory; the median counts.
const ROUNDS: usize = 5;
const NEEDED: u64 = 1 << 30;

fn main() -> Result<()> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        return Err("usage: disks DIR…".into());
    }
    println!(
        "| folder | file system | fill, MiB/s | flush, ms: median | p99 | cold read, MiB/s | warm read, MiB/s |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for folder in folders {
        println!("{}", line(&folder).map_err(|error| format!("{}: {error:#}", folder.display()))?);
    }
    Ok(())
}

/// The line of the table for one folder.
fn line(folder: &Path) -> Result<String> {
    let disk = rustix::fs::statvfs(folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < NEEDED {
        return Err(format!("{} MiB are free, {} are needed", free >> 20, NEEDED >> 20).into());
    }
    let dir = tempfile::tempdir_in(folder)?;
    let bytes = random_bytes();
    let (fill, flushes) = (fill(dir.path(), &bytes)?, flushes(dir.path(), &bytes)?);
    let (cold, warm) = reads(dir.path())?;
    let rate = |rows: usize, time: Duration| format!("{:.0}", mib(rows) / time.as_secs_f64());
    let quantile = |share: f64| flushes[(flushes.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    Ok(format!(
        "| {} | {} | {} | {:.1} | {:.1} | {} | {} |",
        folder.display(),
        file_system(&folder.canonicalize()?),
        rate(ROWS, fill),
        quantile(0.5),
        quantile(0.99),
        cold.map_or_else(|| "in memory".to_owned(), |time| rate(READ, time)),
        rate(READ, warm),
    ))
}

fn mib(rows: usize) -> f64 {
    (rows * ROW) as f64 / f64::from(1 << 20)
}

fn open(dir: &Path, read_only: bool) -> Result<Arc<Store>> {
    let output = ColumnType::Dense { dtype: DType::F32, shape: &[WIDTH] };
    let spec = Spec::new(ID, KeyType::Int, &output, Identity::default(), Vec::new())?;
    // Only flushes of this program seal.
    let options = Options { flush_interval: Duration::from_hours(1), read_only, ..Options::default() };
    Ok(Store::open(dir, spec, &options)?)
}

/// Random bytes: the rows from number `first` on begin at byte 8 × `first`. No disk can compress them, and to make them is no
/// part of a fill.
fn random_bytes() -> Vec<u8> {
    let mut state = 1;
    let words = ROWS + FLUSHES * FLUSHED + BATCH * ROW / 8;
    (0..words).flat_map(|_| random(&mut state).to_le_bytes()).collect()
}

fn insert(store: &Store, bytes: &[u8], first: usize, rows: usize) -> Result<()> {
    let keys = Keys::ints((first..first + rows).map(|row| row as i64), 0);
    let mut found = store.lookup_with(keys, LookupOptions::uncounted())?;
    let positions: Vec<usize> = (0..rows).collect();
    let values = &bytes[8 * first..][..rows * ROW];
    Ok(store.insert(&mut found, &positions, vec![Column::dense(values)])?)
}

/// xorshift64*
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// The time in which all rows are inserted and durable.
fn fill(dir: &Path, bytes: &[u8]) -> Result<Duration> {
    let store = open(dir, false)?;
    let start = Instant::now();
    for first in (0..ROWS).step_by(BATCH) {
        insert(&store, bytes, first, BATCH)?;
    }
    store.flush()?;
    Ok(start.elapsed())
}

/// The times of flushes, the shortest first.
fn flushes(dir: &Path, bytes: &[u8]) -> Result<Vec<Duration>> {
    let store = open(dir, false)?;
    let mut times = Vec::new();
    for flush in 0..FLUSHES {
        insert(&store, bytes, ROWS + flush * FLUSHED, FLUSHED)?;
        let start = Instant::now();
        store.flush()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times)
}

/// The time of reads from the disk, unless the system had all pages in memory, and of reads from memory.
fn reads(dir: &Path) -> Result<(Option<Duration>, Duration)> {
    let mut order: Vec<i64> = (0..ROWS as i64).collect();
    let mut state = 7;
    for last in (1..ROWS).rev() {
        order.swap(last, (random(&mut state) % (last as u64 + 1)) as usize);
    }
    order.truncate(READ);
    drop_pages(&dir.join(ID))?;
    let store = open(dir, true)?;
    let faults = major_faults()?;
    let cold = read(&store, &order)?;
    let is_cold = major_faults()? > faults;
    let mut warm = (0..ROUNDS).map(|_| read(&store, &order)).collect::<Result<Vec<_>>>()?;
    warm.sort();
    Ok((is_cold.then_some(cold), warm[ROUNDS / 2]))
}

fn read(store: &Store, order: &[i64]) -> Result<Duration> {
    let mut rows = vec![MaybeUninit::new(0); BATCH * ROW];
    let start = Instant::now();
    for batch in order.chunks_exact(BATCH) {
        let found = store.lookup(Keys::ints(batch.iter().copied(), 0))?;
        if found.missing() > 0 {
            return Err("a row is missing".into());
        }
        found.copy_dense(0, &mut rows);
        std::hint::black_box(&mut rows);
    }
    Ok(start.elapsed())
}

/// Asks the system to drop the pages of all files; no process has them mapped.
fn drop_pages(folder: &Path) -> Result<()> {
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.is_file() {
            let file = File::open(path)?;
            file.sync_all()?;
            fadvise(file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// The faults of this process so far that had to wait for a disk.
fn major_faults() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program is in parentheses, and may have spaces.
    let after_name = stat.rsplit_once(") ").ok_or("/proc/self/stat has no name")?.1;
    Ok(after_name.split(' ').nth(9).ok_or("/proc/self/stat is too short")?.parse()?)
}

/// The name of the file system that a folder is on: the mount point with the longest path above it.
fn file_system(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_line = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.to_owned();
        folder
            .starts_with(&point)
            .then(|| (point.len(), kind.split(' ').next().unwrap_or_default().to_owned()))
    };
    let found = mounts.lines().filter_map(of_line).max_by_key(|(length, _)| *length);
    found.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}
