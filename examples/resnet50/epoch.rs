//! One pass over the images.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use tch::Tensor;
use tcx::Cached;

use crate::load::load;
use crate::model::ResNet50;
use crate::pictures::Picture;

/// What an epoch did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Epoch {
    pub(crate) images: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// In the cache, the decoder and the network, until every row was durable; without what the caller did with
    /// the features.
    pub(crate) seconds: f64,
    /// The hash of all features, bit for bit.
    pub(crate) digest: String,
}

/// The whole use of the cache: ids for all images, the images themselves for those that are missing.
pub(crate) fn fetch(cached: &Cached<ResNet50>, pictures: &[Picture]) -> anyhow::Result<Tensor> {
    let ids: Vec<&str> = pictures.iter().map(|picture| &*picture.id).collect();
    let features = cached.fetch(&ids, |missing| {
        load(&missing.positions().iter().map(|&at| &pictures[at]).collect::<Vec<_>>())
    });
    match features {
        Ok(features) => Ok(features.pooled),
        // It names the file, and that is all there is to say.
        Err(tcx::Error::Loader { error, .. }) => Err(anyhow!(error)),
        Err(error) => Err(error.into()),
    }
}

/// Fetches the features of all images and hands them, batch by batch, to `each`.
pub(crate) fn epoch(
    cached: &Cached<ResNet50>,
    pictures: &[Picture],
    batch: usize,
    mut each: impl FnMut(Tensor),
) -> anyhow::Result<Epoch> {
    let before = cached.stats();
    let bar = progress_bar(pictures.len() as u64);
    let mut took = Duration::ZERO;
    let mut hasher = blake3::Hasher::new();
    for pictures in pictures.chunks(batch) {
        let start = Instant::now();
        let pooled = fetch(cached, pictures)?;
        took += start.elapsed();
        digest(&mut hasher, &pooled)?;
        each(pooled);
        bar.inc(pictures.len() as u64);
    }
    let start = Instant::now();
    cached.flush()?;
    took += start.elapsed();
    bar.finish_and_clear();
    let after = cached.stats();
    Ok(Epoch {
        images: pictures.len() as u64,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        seconds: took.as_secs_f64(),
        digest: hasher.finalize().to_string(),
    })
}

fn digest(hasher: &mut blake3::Hasher, features: &Tensor) -> anyhow::Result<()> {
    let numbers: Vec<f32> = features.flatten(0, -1).try_into()?;
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    hasher.update(&bytes);
    Ok(())
}

/// Shown on a terminal only.
fn progress_bar(images: u64) -> ProgressBar {
    let style = "{wide_bar} {human_pos} of {human_len} images, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(images).with_style(style)
}
