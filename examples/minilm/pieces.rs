//! The tokenizer: from texts to the numbers of their word pieces.

use std::fmt;
use std::path::Path;

use anyhow::{Context, anyhow};
use tcx::Stateless;
use tokenizers::{Tokenizer, TruncationParams};

/// The tokenizer that `tokenizer.json` describes, except that texts are cut after `max_tokens`, and not padded.
#[derive(Stateless)]
pub(crate) struct Pieces {
    #[tcx(assume_stateless)] // the other fields tell what it does
    tokenizer: Tokenizer,
    /// The hash of the file: the same weights on another vocabulary compute something else.
    fingerprint: String,
    max_tokens: i64,
}

impl Pieces {
    pub(crate) fn load(file: &Path, max_tokens: i64) -> anyhow::Result<Self> {
        let json = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let unusable = |error| anyhow!("{} is no tokenizer: {error}", file.display());
        let mut tokenizer = Tokenizer::from_bytes(&json).map_err(unusable)?;
        let cut = TruncationParams { max_length: usize::try_from(max_tokens)?, ..Default::default() };
        tokenizer.with_truncation(Some(cut)).map_err(unusable)?.with_padding(None);
        Ok(Self { tokenizer, fingerprint: blake3::hash(&json).to_string(), max_tokens })
    }

    /// The numbers of each text's word pieces, between the marks that start and end a sentence.
    pub(crate) fn encode(&self, texts: &[String]) -> tokenizers::Result<Vec<Vec<i64>>> {
        let texts = texts.iter().map(String::as_str).collect();
        let encodings = self.tokenizer.encode_batch_fast(texts, true)?;
        Ok(encodings.iter().map(|text| text.get_ids().iter().map(|&id| i64::from(id)).collect()).collect())
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}
