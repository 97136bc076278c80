//! One pass over the samples.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tcx::{Cached, CachedModule, TensorLike};

use crate::progress::Progress;

/// Set by the first Ctrl-C: the epoch ends after the current batch.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C end the epoch after the current batch, and a second one end the process.
pub fn stop_on_ctrl_c() -> anyhow::Result<()> {
    let stop = || {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    };
    ctrlc::set_handler(stop).context("cannot watch for Ctrl-C")
}

/// The exit code that a shell expects of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// Ended by Ctrl-C. The rows computed so far are on disk.
#[derive(Debug, thiserror::Error)]
#[error("stopped; the rows computed so far are kept: start again to go on from there")]
pub struct Stopped;

/// The figures of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// Rows of all samples.
    pub rows: u64,
    /// Rows from the cache.
    pub hits: u64,
    /// Rows that were computed.
    pub misses: u64,
    /// Spent in the cache, the loader and the network, until every row was durable; without what the caller did with
    /// the rows.
    pub seconds: f64,
    /// The hash of all rows, bit for bit.
    pub digest: String,
}

/// Fetches the rows of all samples and hands them, batch by batch, to `each`. `what` names the samples.
pub fn epoch<M: CachedModule, T, R: TensorLike>(
    cached: &Cached<M>,
    what: &str,
    samples: &[T],
    batch: usize,
    fetch: impl Fn(&[T]) -> anyhow::Result<R>,
    mut each: impl FnMut(R),
) -> anyhow::Result<Epoch> {
    let before = cached.stats();
    let mut progress = Progress::of(samples.len() as u64, what);
    let mut took = Duration::ZERO;
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    for samples in samples.chunks(batch) {
        if STOPPED.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let rows = fetch(samples)?;
        took += start.elapsed();
        rows.with_bytes(|bytes| hasher.update(bytes).count())?;
        each(rows);
        done += samples.len();
        progress.add(samples.len() as u64);
    }
    let start = Instant::now();
    cached.flush()?;
    took += start.elapsed();
    progress.end();
    if done < samples.len() {
        eprintln!("{done} of {} {what} done", samples.len());
        return Err(Stopped.into());
    }
    let after = cached.stats();
    Ok(Epoch {
        rows: samples.len() as u64,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        seconds: took.as_secs_f64(),
        digest: hasher.finalize().to_string(),
    })
}

/// The form in which processes and runs pass on the figures of an epoch.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, hits, misses, seconds, digest } = self;
        write!(f, "{rows} {hits} {misses} {seconds} {digest}")
    }
}

impl FromStr for Epoch {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        let [rows, hits, misses, seconds, digest] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(Malformed);
        };
        let count = |word: &str| word.parse().map_err(|_| Malformed);
        let seconds = seconds.parse().map_err(|_| Malformed)?;
        Ok(Self {
            rows: count(rows)?,
            hits: count(hits)?,
            misses: count(misses)?,
            seconds,
            digest: digest.to_owned(),
        })
    }
}

/// A line without the figures of an epoch.
#[derive(Debug, thiserror::Error)]
#[error("not the record of an epoch")]
pub struct Malformed;
