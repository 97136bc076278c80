//! Measures reading shuffled batches from the disk, where nothing of the cache is in memory: beside threads that read the same
//! rows with `pread`, each its own, from a plain file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tcx::Cache;

use crate::data::rows::Batches;
use crate::data::workload::{BATCH, Workload, ids, shuffled};
use crate::report::{Figures, median};
use crate::rivals::{first_of, read};
use crate::{Result, Settings, machine};

/// Alternating rounds of each reader.
const ROUNDS: usize = 3;
/// Rows of a round, at most; few enough that the rows between them stay on the disk.
const MOST_BYTES: usize = 256 << 20;
/// A page of memory, in which the system reads.
const PAGE: usize = 4096;

/// Rows of one size.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let dir = settings.dir.join(W::NAME);
    let open = || -> Result<Opened> {
        let cached = Arc::new(Cache::open(dir.join("cache"))?.module(W::new())?);
        let epoch = cached.clone();
        Ok(Opened {
            fetch: Box::new(move |rows, ids| {
                check(first_of(&read(&cached, ids)?, rows.len() - 1), rows[rows.len() - 1])
            }),
            epoch: Box::new(move |batches| {
                let order = ids(batches.order.iter().copied());
                let epoch = epoch.epoch(&order).batch_size(BATCH).into_iter();
                epoch.zip(batches.order.chunks(BATCH)).try_for_each(|(batch, rows)| {
                    check(first_of(&W::tensor(batch?.1), rows.len() - 1), rows[rows.len() - 1])
                })
            }),
        })
    };
    let place = |row| row * W::bytes()..(row + 1) * W::bytes();
    Stored { name: W::NAME, dir: &dir, rows: W::rows(settings), place: &place, open: &open }.measure(figures)
}

/// A cache and a plain file of the same rows.
pub(crate) struct Stored<'a> {
    pub(crate) name: &'a str,
    /// Of both.
    pub(crate) dir: &'a Path,
    pub(crate) rows: usize,
    /// Where a row is in the plain file.
    pub(crate) place: &'a (dyn Fn(usize) -> Range<usize> + Sync),
    pub(crate) open: &'a dyn Fn() -> Result<Opened>,
}

type Fetch = dyn Fn(&[usize], &[String]) -> Result<()> + Sync;
type Epoch = dyn Fn(&Batches) -> Result<()>;

/// An open cache.
pub(crate) struct Opened {
    /// Reads a batch, and fails if its last row is wrong.
    pub(crate) fetch: Box<Fetch>,
    /// The same for all batches, ahead of the loop.
    pub(crate) epoch: Box<Epoch>,
}

impl Stored<'_> {
    pub(crate) fn measure(&self, figures: &mut Figures) -> Result<()> {
        let mut order = shuffled(self.rows);
        let mut room = MOST_BYTES;
        order.retain(|&row| {
            room = room.saturating_sub((self.place)(row).len().max(PAGE));
            room > 0
        });
        let batches = Batches::new(order);
        let mut times: [Vec<Round>; READERS.len()] = Default::default();
        for _ in 0..ROUNDS {
            for ((_, reads), times) in READERS.iter().zip(&mut times) {
                if !machine::forget(self.dir)? {
                    figures
                        .skip(format!("{}.cold_read: `dd` with `iflag=nocache` is not available", self.name));
                    return Ok(());
                }
                times.push(self.round(*reads, &batches)?);
            }
        }
        let pages: usize =
            batches.order.iter().map(|&row| (self.place)(row).len().div_ceil(PAGE) * PAGE).sum();
        let time = |rounds: &[Round]| rounds.iter().map(|round| round.time).collect::<Vec<_>>();
        for ((name, _), rounds) in READERS.iter().zip(&times) {
            let name = |what: &str| format!("{}.cold_read.{name}.{what}", self.name);
            figures
                .add(name("rows_per_second"), (batches.order.len() as f64 / median(&time(rounds))).round());
            let read: u64 = rounds.iter().map(|round| round.bytes).sum();
            figures.add(name("bytes_vs_pages"), read as f64 / (ROUNDS * pages) as f64);
            figures.ratio(name("vs_64_preads"), &time(&times[LIMIT]), &time(rounds));
        }
        Ok(())
    }

    /// Opens the cache, too, as a process that begins an epoch does.
    fn round(&self, reads: Reads, batches: &Batches) -> Result<Round> {
        let (start, before) = (Instant::now(), machine::bytes_read()?);
        match reads {
            Reads::Preads(threads) => self.preads(threads, &batches.order)?,
            Reads::Fetches(threads) => {
                let (opened, all) = ((self.open)()?, batches.iter().collect::<Vec<_>>());
                share(threads, all.len(), |number| (opened.fetch)(all[number].0, all[number].1))?;
            }
            Reads::Epoch => ((self.open)()?.epoch)(batches)?,
        }
        Ok(Round { time: start.elapsed(), bytes: machine::bytes_read()? - before })
    }

    fn preads(&self, threads: usize, order: &[usize]) -> Result<()> {
        let file = File::open(self.dir.join("raw"))?;
        share(threads, order.len(), |number| {
            let place = (self.place)(order[number]);
            let mut row = vec![0; place.len()];
            file.read_exact_at(&mut row, place.start as u64)?;
            std::hint::black_box(row);
            Ok(())
        })
    }
}

/// What reads, and by how many threads.
#[derive(Clone, Copy)]
enum Reads {
    Preads(usize),
    Fetches(usize),
    /// Reads ahead of its loop.
    Epoch,
}

const READERS: [(&str, Reads); 6] = [
    ("preads_1", Reads::Preads(1)),
    ("preads_16", Reads::Preads(16)),
    ("preads_64", Reads::Preads(64)),
    ("fetch", Reads::Fetches(1)),
    ("fetch_4", Reads::Fetches(4)),
    ("epoch", Reads::Epoch),
];
/// In [`READERS`]: what the disk is able to.
const LIMIT: usize = 2;

struct Round {
    time: Duration,
    /// What was read from the disk.
    bytes: u64,
}

/// Calls `work` on this many threads until there is no number below `end` left.
fn share(threads: usize, end: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let one = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return Ok(());
            }
            work(number).map_err(|error| format!("{error:#}"))?;
        }
    };
    let done: Vec<std::result::Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let panicked = |_| Err("a reader panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    done.into_iter().try_for_each(|done| done.map_err(Into::into))
}

/// Fails if the first number of a row is not the row's.
fn check(found: f32, row: usize) -> Result<()> {
    // Numbers of rows are below 2^24.
    if found as usize == row { Ok(()) } else { Err(format!("row {row} is {found}").into()) }
}
