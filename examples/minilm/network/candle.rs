//! The network with candle: BERT as `candle-transformers` has it, with mean pooling on top.

use std::path::Path;

pub(crate) use candle_core::Tensor;
use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{self, BertModel};
use tcx::Frozen;

use crate::config::Config;

/// The network from token numbers to sentence embeddings.
pub(crate) struct Bert(BertModel);

pub(crate) fn load(weights: &Path, config: &Config) -> anyhow::Result<Frozen<Bert>> {
    Ok(Frozen::candle(&Device::Cpu, DType::F32, weights, |vb| Bert::new(vb, config))?)
}

/// Threads can use one network.
pub(crate) fn share(bert: &Bert) -> &Bert {
    bert
}

pub(crate) fn embed(bert: &Bert, tokens: &[i64], lengths: &[i64], width: usize) -> tcx::Result<Tensor> {
    let shape = (lengths.len(), width);
    let tokens = Tensor::from_slice(tokens, shape, &Device::Cpu)?;
    let real =
        lengths.iter().flat_map(|&length| (0..width as i64).map(move |at| f32::from(u8::from(at < length))));
    let real = Tensor::from_iter(real, &Device::Cpu)?.reshape(shape)?;
    // Sentences are no pairs: all tokens are of the first type.
    let hidden = bert.0.forward(&tokens, &tokens.zeros_like()?, Some(&real))?;
    let real = real.unsqueeze(2)?;
    let mean = hidden.broadcast_mul(&real)?.sum(1)?.broadcast_div(&real.sum(1)?)?;
    let length = mean.sqr()?.sum_keepdim(1)?.sqrt()?;
    Ok(mean.broadcast_div(&length)?)
}

impl Bert {
    fn new(vb: VarBuilder<'_>, config: &Config) -> candle_core::Result<Self> {
        let size = |size: i64| usize::try_from(size).map_err(candle_core::Error::wrap);
        // The other settings of BERT are those of training, or checked by `Config::check`.
        let config = bert::Config {
            vocab_size: size(config.vocab_size)?,
            hidden_size: size(config.hidden_size)?,
            num_hidden_layers: size(config.num_hidden_layers)?,
            num_attention_heads: size(config.num_attention_heads)?,
            intermediate_size: size(config.intermediate_size)?,
            max_position_embeddings: size(config.max_position_embeddings)?,
            type_vocab_size: size(config.type_vocab_size)?,
            layer_norm_eps: config.layer_norm_eps,
            ..bert::Config::default()
        };
        Ok(Self(BertModel::load(vb, &config)?))
    }
}
