//! One pass over the texts.

use tcx::Cached;
use tcx_examples::Epoch;

use crate::corpus::Passage;
use crate::model::MiniLm;
use crate::network::Tensor;

/// The whole use of the cache: ids for all texts, the texts themselves for those that are missing.
pub(crate) fn fetch(cached: &Cached<MiniLm>, passages: &[Passage]) -> tcx::Result<Tensor> {
    let ids: Vec<&str> = passages.iter().map(|passage| &*passage.id).collect();
    let sentences = cached.fetch(&ids, |missing| {
        Ok(missing.positions().iter().map(|&at| passages[at].text.clone()).collect())
    })?;
    Ok(sentences.embedding)
}

/// Fetches the embeddings of all passages and hands them, batch by batch, to `each`.
pub(crate) fn epoch(
    cached: &Cached<MiniLm>,
    passages: &[Passage],
    batch: usize,
    each: impl FnMut(Tensor),
) -> anyhow::Result<Epoch> {
    tcx_examples::epoch(cached, "texts", passages, batch, |passages| Ok(fetch(cached, passages)?), each)
}
