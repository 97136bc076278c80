//! One pass over the texts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use tch::Tensor;
use tcx::Cached;

use crate::corpus::Passage;
use crate::model::MiniLm;

/// Set by the first Ctrl-C: the epoch ends after the batch that it is at.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C end the epoch in good order, and a second one end the process.
pub(crate) fn stop_on_ctrl_c() -> anyhow::Result<()> {
    let stop = || {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    };
    ctrlc::set_handler(stop).context("cannot watch for Ctrl-C")
}

/// What a shell expects of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Ended by Ctrl-C. The rows computed so far are on disk.
#[derive(Debug, thiserror::Error)]
#[error("stopped; what was computed is kept: start again to go on from there")]
pub(crate) struct Stopped;

/// What an epoch did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Epoch {
    pub(crate) rows: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// In the cache and the model, until every row was durable; without what the caller did with the rows.
    pub(crate) seconds: f64,
    /// The hash of all embeddings, bit for bit.
    pub(crate) digest: String,
}

/// Fetches the embeddings of all passages and hands them, batch by batch, to `each`.
pub(crate) fn epoch(
    cached: &Cached<MiniLm>,
    passages: &[Passage],
    batch: usize,
    mut each: impl FnMut(Tensor),
) -> anyhow::Result<Epoch> {
    let before = cached.stats();
    let bar = progress_bar(passages.len() as u64);
    let mut took = Duration::ZERO;
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    for passages in passages.chunks(batch) {
        if STOPPED.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let embedding = fetch(cached, passages)?;
        took += start.elapsed();
        digest(&mut hasher, &embedding)?;
        each(embedding);
        done += passages.len();
        bar.inc(passages.len() as u64);
    }
    let start = Instant::now();
    cached.flush()?;
    took += start.elapsed();
    bar.finish_and_clear();
    if done < passages.len() {
        eprintln!("{done} of {} texts done", passages.len());
        return Err(Stopped.into());
    }
    let after = cached.stats();
    Ok(Epoch {
        rows: passages.len() as u64,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        seconds: took.as_secs_f64(),
        digest: hasher.finalize().to_string(),
    })
}

/// The whole use of the cache: ids for all texts, the texts themselves for those that are missing.
pub(crate) fn fetch(cached: &Cached<MiniLm>, passages: &[Passage]) -> tcx::Result<Tensor> {
    let ids: Vec<&str> = passages.iter().map(|passage| &*passage.id).collect();
    let sentences = cached.fetch(&ids, |missing| {
        Ok(missing.positions().iter().map(|&at| passages[at].text.clone()).collect())
    })?;
    Ok(sentences.embedding)
}

fn digest(hasher: &mut blake3::Hasher, embedding: &Tensor) -> anyhow::Result<()> {
    let numbers: Vec<f32> = embedding.flatten(0, -1).try_into()?;
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    hasher.update(&bytes);
    Ok(())
}

/// Shown on a terminal only.
fn progress_bar(rows: u64) -> ProgressBar {
    let style = "{wide_bar} {human_pos} of {human_len} texts, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(rows).with_style(style)
}
