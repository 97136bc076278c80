//! Reading shuffled batches by id from a cache, against a copy loop that knows the rows.

use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use tcx::Cache;

use crate::report::{ROUNDS, Report};
use crate::workload::{BATCH, Workload, ids, shuffled};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// `dir` holds the cache and the raw file with the same rows.
pub(crate) fn measure<W: Workload>(report: &mut Report, dir: &Path) -> Result<()> {
    let order = shuffled(W::ROWS);
    let batches: Vec<Vec<String>> = order.chunks(BATCH).map(|batch| ids(batch.iter().copied())).collect();
    let file = std::fs::File::open(dir.join("raw"))?;
    #[expect(unsafe_code, reason = "mapping a file is unsafe")]
    // SAFETY: the file was written by this process and is not changed any more.
    let map = unsafe { Mmap::map(&file)? };
    let cached = Cache::open(dir.join("cache"))?.module(W::new())?;
    // Both are warm, and every checksum is verified, before the first round.
    read::<W>(&cached, &order, &batches)?;
    gather::<W>(&map, &order);
    let (mut reads, mut gathers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gathers.push(gather::<W>(&map, &order));
        reads.push(read::<W>(&cached, &order, &batches)?);
    }
    report.ratio(&format!("{}.random_read.vs_raw_gather", W::NAME), &gathers, &reads);
    Ok(())
}

/// Reads every batch by its ids.
fn read<W: Workload>(cached: &tcx::Cached<W>, order: &[usize], batches: &[Vec<String>]) -> Result<Duration> {
    let mut time = Duration::ZERO;
    for (rows, ids) in order.chunks(BATCH).zip(batches) {
        let start = Instant::now();
        let output = W::tensor(cached.fetch(ids, |_| Err(tcx::Error::loader("a row is missing")))?);
        time += start.elapsed();
        let last = rows.len() - 1;
        assert_eq!(output.double_value(&[last as i64, 0]) as usize, rows[last], "the right row");
    }
    Ok(time)
}

/// Copies every batch into one buffer that is used again and again, by row number.
fn gather<W: Workload>(map: &[u8], order: &[usize]) -> Duration {
    let width = W::WIDTH * 4;
    let mut buffer = vec![0_u8; BATCH * width];
    let mut time = Duration::ZERO;
    for rows in order.chunks(BATCH) {
        let start = Instant::now();
        for (to, &row) in buffer.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(&map[row * width..][..width]);
        }
        std::hint::black_box(&mut buffer);
        time += start.elapsed();
    }
    time
}
