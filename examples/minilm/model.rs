//! The cached module: texts in, sentence embeddings out.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use tch::{Device, Tensor};
use tcx::{CacheableOutput, Extractor, Frozen, cached_module};
use tcx_examples::on_all_cores;

use crate::bert::{Bert, Config};
use crate::pieces::Pieces;

/// How many numbers make an embedding.
pub(crate) const SIZE: usize = 384;
/// Longer texts are cut, as the model's publishers do.
const MAX_TOKENS: i64 = 256;
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
        let file = folder.join("config.json");
        let json =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let config: Config = serde_json::from_str(&json)
            .with_context(|| format!("{} is no configuration of a BERT model", file.display()))?;
        config.check().map_err(|what| anyhow!("{}: {what}", file.display()))?;
        ensure!(
            config.hidden_size == SIZE as i64,
            "{}: `hidden_size`: expected {SIZE}, found {}",
            file.display(),
            config.hidden_size
        );
        let pieces = Pieces::load(&folder.join("tokenizer.json"), MAX_TOKENS)?;
        let weights = folder.join("model.safetensors");
        let bert = Frozen::load(Device::Cpu, weights, |path| Bert::new(path, &config))?;
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
        let mut embedded = on_all_cores(work, || self.bert.share(), |bert, part| embed(bert, part))?;
        embedded.reverse();
        let embedded = Tensor::f_cat(&embedded, 0)?;
        let mut places = vec![0; order.len()];
        for (place, &row) in order.iter().enumerate() {
            places[row] = place as i64;
        }
        Ok(Sentences { embedding: embedded.f_index_select(0, &Tensor::from_slice(&places))? })
    }
}

/// The embeddings of some rows of token numbers, padded to the longest.
///
/// libtorch itself can split every operation among threads. In a network as small as this one they mostly wait for each
/// other, and on a busy machine for long: on two cores, beside two busy loops, threads that split every operation embedded
/// 8 to 22 texts a second, and threads with texts of their own 34 to 71.
fn embed(bert: &Bert, rows: &[&[i64]]) -> tcx::Result<Tensor> {
    tch::set_num_threads(1);
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    // What the padding is does not matter: the network looks away.
    let mut tokens = vec![0; rows.len() * width];
    for (padded, row) in tokens.chunks_mut(width).zip(rows) {
        padded[..row.len()].copy_from_slice(row);
    }
    let tokens = Tensor::from_slice(&tokens).f_view([rows.len() as i64, width as i64])?;
    let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
    Ok(bert.forward(&tokens, &Tensor::from_slice(&lengths)))
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
