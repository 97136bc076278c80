//! Measures reading shuffled batches of wide rows from the disk by one thread, beside 64 threads that read the same rows with
//! `pread` from a plain file.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin cold -- DIR [ROUNDS] [dense|ragged]
//! ```
//!
//! `dense` has rows of 300 KiB, which are read to memory that is allocated for each batch, as tensors are. `ragged` has rows of 7 to
//! 150 KiB, which are copied to such memory one after the other. A round reads 256 MiB of 300 MiB or 1 GiB, which stay in the folder
//! for the next run.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use tcx_store::{
    Column, ColumnType, DType, DYNAMIC_DIM, Destination, Identity, KeyType, Keys, LookupOptions, Options,
    Spec, Store,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BATCH: usize = 256;
const THREADS: usize = 64;
const DENSE: usize = 76_800 * 4;
const TOKEN: usize = 384 * 2;

/// Rows of one kind.
struct Rows {
    name: &'static str,
    output: ColumnType,
    lens: Vec<usize>,
    ends: Vec<usize>,
}

impl Rows {
    fn new(name: &'static str, output: ColumnType, lens: Vec<usize>) -> Self {
        let mut end = 0;
        let ends = lens
            .iter()
            .map(|len| {
                end += len;
                end
            })
            .collect();
        Self { name, output, lens, ends }
    }

    fn place(&self, row: usize) -> Range<usize> {
        self.ends[row] - self.lens[row]..self.ends[row]
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: cold DIR [ROUNDS] [dense|ragged]")?);
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let only = arguments.next();
    let dense =
        Rows::new("dense", ColumnType::Dense { dtype: DType::F32, shape: &[76_800] }, vec![DENSE; 1000]);
    let lens = (0..12_500).map(|row| (10 + row * 7919 % 191) * TOKEN).collect();
    let ragged =
        Rows::new("ragged", ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 384] }, lens);
    for rows in [dense, ragged] {
        if only.as_ref().is_none_or(|only| only == rows.name) {
            measure(&dir, &rows, rounds)?;
        }
    }
    Ok(())
}

fn open(dir: &Path, rows: &Rows, read_only: bool) -> Result<Arc<Store>> {
    let spec = Spec::new(rows.name, KeyType::Text, &rows.output, Identity::default(), Vec::new())?;
    let options = Options { flush_interval: Duration::from_hours(1), read_only, ..Options::default() };
    Ok(Store::open(dir, spec, &options)?)
}

fn keys(rows: &[usize]) -> Result<Keys> {
    Ok(Keys::text(rows.iter().map(|row| format!("sample_{row}")), 0)?)
}

fn fill(dir: &Path, rows: &Rows) -> Result<()> {
    fs::create_dir_all(dir)?;
    let store = open(dir, rows, false)?;
    let mut raw = BufWriter::new(File::create(dir.join("raw"))?);
    let all: Vec<usize> = (0..rows.lens.len()).collect();
    for batch in all.chunks(64) {
        let mut found = store.lookup_with(keys(batch)?, LookupOptions::uncounted())?;
        let positions: Vec<usize> = (0..batch.len()).collect();
        let bytes: Vec<u8> =
            batch.iter().flat_map(|&row| std::iter::repeat_n((row % 251) as u8, rows.lens[row])).collect();
        raw.write_all(&bytes)?;
        let column = if rows.name == "dense" {
            Column::dense(&bytes)
        } else {
            let mut end = 0;
            let ends: Vec<usize> = batch
                .iter()
                .map(|&row| {
                    end += rows.lens[row];
                    end
                })
                .collect();
            Column::varying(bytes, ends)
        };
        store.insert(&mut found, &positions, vec![column])?;
    }
    raw.flush()?;
    store.flush()?;
    Ok(())
}

fn measure(dir: &Path, rows: &Rows, rounds: usize) -> Result<()> {
    let dir = dir.join(rows.name);
    if !dir.exists() {
        fill(&dir, rows)?;
    }
    let mut order: Vec<usize> = (0..rows.lens.len()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        order.swap(last, (state.wrapping_mul(0x2545_f491_4f6c_dd1d) % (last as u64 + 1)) as usize);
    }
    let mut room = 256_usize << 20;
    order.retain(|&row| {
        room = room.saturating_sub(rows.lens[row]);
        room > 0
    });
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        drop_pages(&dir)?;
        let (limit, limit_cpu) = timed(|| preads(&dir, rows, &order))?;
        drop_pages(&dir)?;
        let before = bytes_read()?;
        let (fetch, cpu) = timed(|| fetch(&dir, rows, &order))?;
        let read = bytes_read()? - before;
        let ratio = limit.as_secs_f64() / fetch.as_secs_f64();
        println!(
            "{}: preads {:.0} ms (cpu {:.0}), fetch {:.0} ms (cpu {:.0}), ratio {ratio:.2}, bytes read {:.3} of the rows",
            rows.name,
            ms(limit),
            ms(limit_cpu),
            ms(fetch),
            ms(cpu),
            read as f64 / order.iter().map(|&row| rows.lens[row]).sum::<usize>() as f64
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "{}: median ratio {:.2}, warm {:.1} ms",
        rows.name,
        ratios[rounds / 2],
        ms(warm(&dir, rows, &order[..BATCH])?)
    );
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<(Duration, Duration)> {
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (start, before) = (Instant::now(), cpu());
    work()?;
    Ok((start.elapsed(), cpu().saturating_sub(before)))
}

fn bytes_read() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("/proc/self/io does not say what was read")?.trim().parse()?)
}

fn preads(dir: &Path, rows: &Rows, order: &[usize]) -> Result<()> {
    let (file, next) = (File::open(dir.join("raw"))?, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(&row) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let place = rows.place(row);
                    let mut bytes = vec![0; place.len()];
                    file.read_exact_at(&mut bytes, place.start as u64).expect("the row is there");
                    std::hint::black_box(bytes);
                }
            });
        }
    });
    Ok(())
}

fn fetch(dir: &Path, rows: &Rows, order: &[usize]) -> Result<()> {
    let store = open(dir, rows, true)?;
    for batch in order.chunks(BATCH) {
        read(&store, rows, batch)?;
    }
    Ok(())
}

fn read(store: &Store, rows: &Rows, batch: &[usize]) -> Result<()> {
    let last = batch[batch.len() - 1];
    let total = batch.iter().map(|&row| rows.lens[row]).sum();
    let mut memory: Vec<u8> = Vec::with_capacity(total);
    let bytes = &mut memory.spare_capacity_mut()[..total];
    let found = if rows.name == "dense" {
        let destinations = &mut [Destination { leaf: 0, bytes }];
        let options = LookupOptions { destinations, ..LookupOptions::default() };
        let found = store.lookup_with(keys(batch)?, options)?;
        found.copy_rest(0, &mut memory.spare_capacity_mut()[..total]);
        found
    } else {
        let found = store.lookup(keys(batch)?)?;
        found.copy_rows(0, 0..batch.len(), bytes);
        found
    };
    std::hint::black_box(&mut memory);
    let row = found.bytes(0, batch.len() - 1)[0];
    if usize::from(row) == last % 251 { Ok(()) } else { Err(format!("row {last} is {row}").into()) }
}

fn warm(dir: &Path, rows: &Rows, batch: &[usize]) -> Result<Duration> {
    let store = open(dir, rows, true)?;
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        read(&store, rows, batch)?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[4])
}

fn drop_pages(dir: &Path) -> Result<()> {
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        if path.is_dir() {
            drop_pages(&path)?;
        } else {
            let file = File::open(path)?;
            file.sync_all()?;
            fadvise(file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
