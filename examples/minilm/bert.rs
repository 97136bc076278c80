//! The network: BERT, as far as sentence embeddings need it, with mean pooling on top.
//!
//! The variables have the names that the published `model.safetensors` gives them.

use serde::Deserialize;
use tch::nn::{self, Init, Module};
use tch::{Device, Kind, Tensor};
use tcx::Stateless;

/// What `config.json` says about the network. It decides what the weights compute, so it is
/// part of the cache's identity.
#[derive(Debug, Deserialize, Stateless)]
pub(crate) struct Config {
    pub(crate) hidden_size: i64,
    num_hidden_layers: i64,
    num_attention_heads: i64,
    intermediate_size: i64,
    max_position_embeddings: i64,
    type_vocab_size: i64,
    vocab_size: i64,
    layer_norm_eps: f64,
    hidden_act: String,
    position_embedding_type: String,
    pub(crate) pad_token_id: i64,
}

impl Config {
    /// Names what this network does otherwise than the configuration wants it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let expect = |name: &str, expected: &str, found: &str| {
            let is_known = found == expected;
            is_known.then_some(()).ok_or_else(|| format!("`{name}`: expected `{expected}`, found `{found}`"))
        };
        expect("hidden_act", "gelu", &self.hidden_act)?;
        expect("position_embedding_type", "absolute", &self.position_embedding_type)?;
        if self.num_attention_heads < 1 || self.hidden_size % self.num_attention_heads != 0 {
            return Err(format!(
                "`hidden_size`: expected a multiple of `num_attention_heads` = {}, found {}",
                self.num_attention_heads, self.hidden_size
            ));
        }
        Ok(())
    }
}

/// The network from token numbers to sentence embeddings.
#[derive(Debug)]
pub(crate) struct Bert {
    words: nn::Embedding,
    positions: nn::Embedding,
    types: nn::Embedding,
    norm: nn::LayerNorm,
    layers: Vec<Layer>,
}

impl Bert {
    pub(crate) fn new(path: &nn::Path<'_>, config: &Config) -> Self {
        let embeddings = path / "embeddings";
        let embedding = |name: &str, rows: i64| {
            // The weights come from a file: no random numbers for them first.
            let blank = nn::EmbeddingConfig { ws_init: Init::Const(0.), ..Default::default() };
            nn::embedding(&embeddings / name, rows, config.hidden_size, blank)
        };
        let layers = path / "encoder" / "layer";
        Self {
            words: embedding("word_embeddings", config.vocab_size),
            positions: embedding("position_embeddings", config.max_position_embeddings),
            types: embedding("token_type_embeddings", config.type_vocab_size),
            norm: norm(&(&embeddings / "LayerNorm"), config),
            layers: (0..config.num_hidden_layers).map(|i| Layer::new(&(&layers / i), config)).collect(),
        }
    }

    /// Embeds sentences: from `[rows, tokens]` token numbers, padded at the end, and the number of tokens of
    /// each row to `[rows, hidden]`, every row of length 1.
    pub(crate) fn forward(&self, tokens: &Tensor, lengths: &Tensor) -> Tensor {
        let width = tokens.size()[1];
        let positions = Tensor::arange(width, (Kind::Int64, tokens.device()));
        let real = positions.unsqueeze(0).lt_tensor(&lengths.unsqueeze(1));
        let first_type = Tensor::zeros([1, 1], (Kind::Int64, tokens.device()));
        let embedded = self.words.forward(tokens)
            + self.positions.forward(&positions).unsqueeze(0)
            + self.types.forward(&first_type);
        let mut hidden = self.norm.forward(&embedded);
        let mask = attention_mask(&real, hidden.kind(), hidden.device());
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &mask);
        }
        mean_of_tokens(&hidden, &real)
    }
}

/// What is added to the attention scores: nothing for real tokens, minus infinity for padding, whose share
/// in every sum is then exactly nought. So a row does not depend on how far its batch is padded.
fn attention_mask(real: &Tensor, kind: Kind, device: Device) -> Tensor {
    let padding = real.logical_not().unsqueeze(1).unsqueeze(1);
    Tensor::zeros(padding.size(), (kind, device)).masked_fill(&padding, f64::NEG_INFINITY)
}

/// The mean over the real tokens, scaled to length 1.
fn mean_of_tokens(hidden: &Tensor, real: &Tensor) -> Tensor {
    let share = real.to_kind(hidden.kind()).unsqueeze(-1);
    let sum = (hidden * &share).sum_dim_intlist(1, false, None);
    let mean = sum / share.sum_dim_intlist(1, false, None).clamp_min(1e-9);
    let length = mean.square().sum_dim_intlist(1, true, None).sqrt().clamp_min(1e-12);
    mean / length
}

/// One layer: self-attention, then two linear maps; each with its way round and its normalisation.
#[derive(Debug)]
struct Layer {
    query: nn::Linear,
    key: nn::Linear,
    value: nn::Linear,
    attended: nn::Linear,
    attended_norm: nn::LayerNorm,
    wide: nn::Linear,
    narrow: nn::Linear,
    narrow_norm: nn::LayerNorm,
    heads: i64,
}

impl Layer {
    fn new(path: &nn::Path<'_>, config: &Config) -> Self {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let attention = path / "attention";
        let (looking, output) = (&attention / "self", &attention / "output");
        Self {
            query: linear(&(&looking / "query"), hidden, hidden),
            key: linear(&(&looking / "key"), hidden, hidden),
            value: linear(&(&looking / "value"), hidden, hidden),
            attended: linear(&(&output / "dense"), hidden, hidden),
            attended_norm: norm(&(&output / "LayerNorm"), config),
            wide: linear(&(path / "intermediate" / "dense"), hidden, wide),
            narrow: linear(&(path / "output" / "dense"), wide, hidden),
            narrow_norm: norm(&(path / "output" / "LayerNorm"), config),
            heads: config.num_attention_heads,
        }
    }

    fn forward(&self, hidden: &Tensor, mask: &Tensor) -> Tensor {
        let attended = self.attended.forward(&self.attend(hidden, mask));
        let hidden = self.attended_norm.forward(&(attended + hidden));
        let narrow = self.narrow.forward(&self.wide.forward(&hidden).gelu("none"));
        self.narrow_norm.forward(&(narrow + hidden))
    }

    fn attend(&self, hidden: &Tensor, mask: &Tensor) -> Tensor {
        let &[rows, tokens, size] = hidden.size().as_slice() else {
            unreachable!("hidden states have three dimensions")
        };
        let by_head = |map: &nn::Linear| {
            map.forward(hidden).view([rows, tokens, self.heads, size / self.heads]).transpose(1, 2)
        };
        let (query, key, value) = (by_head(&self.query), by_head(&self.key), by_head(&self.value));
        // The scale by default is that of BERT: one over the root of the head's size.
        Tensor::scaled_dot_product_attention(&query, &key, &value, Some(mask), 0., false, None, false)
            .transpose(1, 2)
            .reshape([rows, tokens, size])
    }
}

fn linear(path: &nn::Path<'_>, from: i64, to: i64) -> nn::Linear {
    let blank =
        nn::LinearConfig { ws_init: Init::Const(0.), bs_init: Some(Init::Const(0.)), ..Default::default() };
    nn::linear(path, from, to, blank)
}

fn norm(path: &nn::Path<'_>, config: &Config) -> nn::LayerNorm {
    let eps = nn::LayerNormConfig { eps: config.layer_norm_eps, ..Default::default() };
    nn::layer_norm(path, vec![config.hidden_size], eps)
}
