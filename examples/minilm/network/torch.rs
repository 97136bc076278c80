//! The network with tch: BERT, as far as sentence embeddings need it, with mean pooling on top.
//!
//! The variables have the names that the published `model.safetensors` gives them.

use std::path::Path;

pub(crate) use tch::Tensor;
use tch::{Device, Kind, nn};
use tcx::Frozen;

use crate::config::Config;

pub(crate) fn load(weights: &Path, config: &Config) -> anyhow::Result<Frozen<Bert>> {
    Ok(Frozen::load(Device::Cpu, weights, |path| Bert::new(path, config))?)
}

/// The same weights, for another thread: tensors may be sent from thread to thread, but not be shared by reference.
pub(crate) fn share(bert: &Bert) -> Bert {
    bert.share()
}

/// libtorch itself can split every operation among threads. In a network as small as this one they mostly wait for each
/// other, and on a busy machine for long: on two cores, beside two busy loops, threads that split every operation embedded
/// 8 to 22 texts a second, and threads with texts of their own 34 to 71.
pub(crate) fn embed(bert: &Bert, tokens: &[i64], lengths: &[i64], width: usize) -> tcx::Result<Tensor> {
    tch::set_num_threads(1);
    let tokens = Tensor::from_slice(tokens).f_view([lengths.len() as i64, width as i64])?;
    Ok(bert.forward(&tokens, &Tensor::from_slice(lengths)))
}

/// The network from token numbers to sentence embeddings.
///
/// It consists of bare tensors where `tch::nn` has layers, since [`share`] cannot copy those.
#[derive(Debug)]
pub(crate) struct Bert {
    words: Tensor,
    positions: Tensor,
    types: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
}

impl Bert {
    fn new(path: &nn::Path<'_>, config: &Config) -> Self {
        let embeddings = path / "embeddings";
        let table = |name: &str, rows: i64| (&embeddings / name).zeros("weight", &[rows, config.hidden_size]);
        let layers = path / "encoder" / "layer";
        Self {
            words: table("word_embeddings", config.vocab_size),
            positions: table("position_embeddings", config.max_position_embeddings),
            types: table("token_type_embeddings", config.type_vocab_size),
            norm: Norm::new(&(&embeddings / "LayerNorm"), config),
            layers: (0..config.num_hidden_layers).map(|i| Layer::new(&(&layers / i), config)).collect(),
        }
    }

    fn share(&self) -> Self {
        Self {
            words: self.words.shallow_clone(),
            positions: self.positions.shallow_clone(),
            types: self.types.shallow_clone(),
            norm: self.norm.share(),
            layers: self.layers.iter().map(Layer::share).collect(),
        }
    }

    fn forward(&self, tokens: &Tensor, lengths: &Tensor) -> Tensor {
        let width = tokens.size()[1];
        let positions = Tensor::arange(width, (Kind::Int64, tokens.device()));
        let real = positions.unsqueeze(0).lt_tensor(&lengths.unsqueeze(1));
        // Sentences are no pairs: all tokens are of the first type.
        let embedded =
            self.words.index_select(0, &tokens.flatten(0, -1)).view([-1, width, self.words.size()[1]])
                + self.positions.narrow(0, 0, width)
                + self.types.get(0);
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
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    narrow_norm: Norm,
    heads: i64,
}

impl Layer {
    fn new(path: &nn::Path<'_>, config: &Config) -> Self {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let attention = path / "attention";
        let (looking, output) = (&attention / "self", &attention / "output");
        Self {
            query: Linear::new(&(&looking / "query"), hidden, hidden),
            key: Linear::new(&(&looking / "key"), hidden, hidden),
            value: Linear::new(&(&looking / "value"), hidden, hidden),
            attended: Linear::new(&(&output / "dense"), hidden, hidden),
            attended_norm: Norm::new(&(&output / "LayerNorm"), config),
            wide: Linear::new(&(path / "intermediate" / "dense"), hidden, wide),
            narrow: Linear::new(&(path / "output" / "dense"), wide, hidden),
            narrow_norm: Norm::new(&(path / "output" / "LayerNorm"), config),
            heads: config.num_attention_heads,
        }
    }

    fn share(&self) -> Self {
        Self {
            query: self.query.share(),
            key: self.key.share(),
            value: self.value.share(),
            attended: self.attended.share(),
            attended_norm: self.attended_norm.share(),
            wide: self.wide.share(),
            narrow: self.narrow.share(),
            narrow_norm: self.narrow_norm.share(),
            heads: self.heads,
        }
    }

    fn forward(&self, hidden: &Tensor, mask: &Tensor) -> Tensor {
        let attended = self.attended.forward(&self.attend(hidden, mask));
        let hidden = self.attended_norm.forward(&(attended + hidden));
        let narrow = self.narrow.forward(&self.wide.forward(&hidden).gelu("none"));
        self.narrow_norm.forward(&(narrow + hidden))
    }

    fn attend(&self, hidden: &Tensor, mask: &Tensor) -> Tensor {
        let by_head = |map: &Linear| map.forward(hidden).unflatten(-1, [self.heads, -1]).transpose(1, 2);
        let (query, key, value) = (by_head(&self.query), by_head(&self.key), by_head(&self.value));
        // The scale by default is that of BERT: one over the root of the head's size.
        Tensor::scaled_dot_product_attention(&query, &key, &value, Some(mask), 0., false, None, false)
            .transpose(1, 2)
            .flatten(-2, -1)
    }
}

#[derive(Debug)]
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn new(path: &nn::Path<'_>, from: i64, to: i64) -> Self {
        Self { weight: path.zeros("weight", &[to, from]), bias: path.zeros("bias", &[to]) }
    }

    fn share(&self) -> Self {
        Self { weight: self.weight.shallow_clone(), bias: self.bias.shallow_clone() }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl Norm {
    fn new(path: &nn::Path<'_>, config: &Config) -> Self {
        let size = [config.hidden_size];
        let (weight, bias) = (path.zeros("weight", &size), path.zeros("bias", &size));
        Self { weight, bias, epsilon: config.layer_norm_eps }
    }

    fn share(&self) -> Self {
        let (weight, bias) = (self.weight.shallow_clone(), self.bias.shallow_clone());
        Self { weight, bias, epsilon: self.epsilon }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.epsilon, true)
    }
}
