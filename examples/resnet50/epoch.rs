//! One pass over the images.

use tch::Tensor;
use tcx::Cached;
use tcx_examples::Epoch;

use crate::load::load;
use crate::model::ResNet50;
use crate::pictures::Picture;

/// The whole use of the cache: ids for all images, the images themselves for those that are missing.
pub(crate) fn fetch(cached: &Cached<ResNet50>, pictures: &[Picture]) -> anyhow::Result<Tensor> {
    let ids: Vec<&str> = pictures.iter().map(|picture| &*picture.id).collect();
    let features = cached.fetch(&ids, |missing| {
        load(&missing.positions().iter().map(|&at| &pictures[at]).collect::<Vec<_>>())
    })?;
    Ok(features.pooled)
}

/// Fetches the features of all images and hands them, batch by batch, to `each`.
pub(crate) fn epoch(
    cached: &Cached<ResNet50>,
    pictures: &[Picture],
    batch: usize,
    each: impl FnMut(Tensor),
) -> anyhow::Result<Epoch> {
    tcx_examples::epoch(cached, "images", pictures, batch, |pictures| fetch(cached, pictures), each)
}
