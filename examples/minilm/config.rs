//! The shape of the network.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::Deserialize;
use tcx::Stateless;

/// What `config.json` says about the network. It decides what the weights compute, so it is
/// part of the cache's identity.
#[derive(Debug, Deserialize, Stateless)]
pub(crate) struct Config {
    pub(crate) hidden_size: i64,
    pub(crate) num_hidden_layers: i64,
    pub(crate) num_attention_heads: i64,
    pub(crate) intermediate_size: i64,
    pub(crate) max_position_embeddings: i64,
    pub(crate) type_vocab_size: i64,
    pub(crate) vocab_size: i64,
    pub(crate) layer_norm_eps: f64,
    hidden_act: String,
    position_embedding_type: String,
}

impl Config {
    /// Reads `config.json` in the model's folder.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join("config.json");
        let json =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let config: Self = serde_json::from_str(&json)
            .with_context(|| format!("{} is no configuration of a BERT model", file.display()))?;
        config.check().map_err(|what| anyhow!("{}: {what}", file.display()))?;
        Ok(config)
    }

    /// Names what this network does otherwise than the configuration wants it.
    fn check(&self) -> Result<(), String> {
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
