//! The cached module: texts in, sentence embeddings out.

use std::path::Path;

use anyhow::ensure;
use tcx::{CacheableOutput, Extractor, Frozen, TensorLike, cached_module};
use tcx_examples::on_all_cores;

use crate::config::Config;
use crate::network::{self, Bert, Tensor};
use crate::pieces::Pieces;

/// How many numbers make an embedding.
pub(crate) const SIZE: usize = 384;
/// Longer texts are cut, as the model's publishers do.
pub(crate) const MAX_TOKENS: i64 = 256;
/// How many tokens, padding included, go through the network at once. On paragraphs of documentation, which have
/// 40 tokens on average, a core embeds 74 rows a second with 512; 69 with 1024 and 58 with 2048, which pad more;
/// 63 with 256.
const TOKENS_AT_ONCE: usize = 512;

/// What the model says about some texts.
#[derive(CacheableOutput)]
pub(crate) struct Sentences {
    /// One row per text, of length 1: the dot product of two rows is the similarity of their texts.
    #[tensor(f32, [SIZE])]
    pub(crate) embedding: Tensor,
}

/// all-MiniLM-L6-v2. Weights, configuration and tokenizer are fields, so each of them is part of the cache's
/// identity: with another vocabulary, this cache is refused instead of misread.
#[cached_module(id = "all_minilm_l6_v2_v1")]
pub(crate) struct MiniLm {
    bert: Frozen<Bert>,
    config: Config,
    pieces: Pieces,
}

impl MiniLm {
    /// Reads the model's three files.
    pub(crate) fn load(folder: &Path) -> anyhow::Result<Self> {
        let config = Config::read(folder)?;
        ensure!(
            config.hidden_size == SIZE as i64,
            "{}: `hidden_size`: expected {SIZE}, found {}",
            folder.join("config.json").display(),
            config.hidden_size
        );
        let pieces = Pieces::load(&folder.join("tokenizer.json"), MAX_TOKENS)?;
        let bert = network::load(&folder.join("model.safetensors"), &config)?;
        Ok(Self { bert, config, pieces })
    }
}

impl Extractor for MiniLm {
    type Input = Vec<String>;
    type Output = Sentences;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Sentences> {
        let rows = self.pieces.encode(texts).map_err(tcx::Error::loader)?;
        // Texts of like length share a pass through the network, so that little of it is spent on padding.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&row| rows[row].len());
        let sorted: Vec<&[i64]> = order.iter().map(|&row| &*rows[row]).collect();
        let parts = parts(&sorted);
        // From the end, where the long texts are: the last work of an epoch should be short.
        let work = parts.iter().rev();
        let mut embedded = on_all_cores(work, || network::share(&self.bert), |bert, part| embed(bert, part))?;
        embedded.reverse();
        let embedded: Tensor = TensorLike::concat(&embedded.iter().collect::<Vec<_>>())?;
        let mut places = vec![0; order.len()];
        for (place, &row) in order.iter().enumerate() {
            places[row] = place;
        }
        Ok(Sentences { embedding: embedded.select_samples(&places)? })
    }
}

/// The embeddings of some rows of token numbers, padded to the longest.
fn embed(bert: &Bert, rows: &[&[i64]]) -> tcx::Result<Tensor> {
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    // What the padding is does not matter: the network looks away.
    let mut tokens = vec![0; rows.len() * width];
    for (padded, row) in tokens.chunks_mut(width).zip(rows) {
        padded[..row.len()].copy_from_slice(row);
    }
    let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
    network::embed(bert, &tokens, &lengths, width)
}

/// Cuts rows that ascend in length into parts with a bounded number of tokens, each padded to its last row.
fn parts<'a, 'b>(mut rows: &'a [&'b [i64]]) -> Vec<&'a [&'b [i64]]> {
    let mut parts = Vec::new();
    while !rows.is_empty() {
        let fits = |&count: &usize| count == 1 || count * rows[count - 1].len() <= TOKENS_AT_ONCE;
        let count = (1..=rows.len()).take_while(fits).count();
        let (part, rest) = rows.split_at(count);
        parts.push(part);
        rows = rest;
    }
    parts
}

/// The numbers of each row.
pub(crate) fn numbers<T: TensorLike>(rows: &T) -> tcx::Result<Vec<Vec<f32>>> {
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    rows.with_bytes(|bytes| {
        let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(number).collect();
        numbers.chunks(SIZE).map(<[f32]>::to_vec).collect()
    })
}

/// The similarity of two texts, by their rows.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_row_and_few_tokens() {
        let rows: Vec<Vec<i64>> = [2, 3, 3, 200, 250, 256, 256, 900].map(|tokens| vec![0; tokens]).into();
        let rows: Vec<&[i64]> = rows.iter().map(|row| &**row).collect();
        let lengths = |part: &&[&[i64]]| part.iter().map(|row| row.len()).collect::<Vec<_>>();
        let parts: Vec<_> = parts(&rows).iter().map(lengths).collect();
        assert_eq!(parts, [vec![2, 3, 3], vec![200, 250], vec![256, 256], vec![900]]);
        assert!(super::parts(&[]).is_empty());
    }
}
