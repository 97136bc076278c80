//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use tcx_examples::positive;

use crate::network;

/// Embeds paragraphs of documentation with all-MiniLM-L6-v2 and shows what a cache does to the epochs after the first.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "minilm")]
pub(crate) struct Args {
    /// The folder whose text files are read; by default, the documentation of the crates that Cargo has downloaded.
    pub(crate) folder: Option<PathBuf>,
    /// Search the passages instead: print those that answer TEXT best.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) query: Option<String>,
    /// Read at most N paragraphs.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "8000")]
    pub(crate) limit: usize,
    /// Texts in a batch.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "128")]
    pub(crate) batch: usize,
    /// Remove this demo's cache first.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Keep the cache in this folder.
    #[arg(long, value_name = "DIR", default_value = network::CACHE)]
    pub(crate) cache: PathBuf,
    /// A folder with model.safetensors, tokenizer.json and config.json; by default, the folder in `TCX_MODEL`,
    /// or the model that `cargo xtask demo` has downloaded.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Run one epoch and report it to the process that started this one.
    #[arg(long, hide = true)]
    pub(crate) epoch: bool,
}

impl Args {
    /// The arguments for a process that runs one epoch on the same texts and the same cache.
    pub(crate) fn for_epoch(&self, model: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--epoch".into()];
        let mut option = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
        option("--limit", self.limit.to_string().into());
        option("--batch", self.batch.to_string().into());
        option("--cache", self.cache.clone().into());
        option("--model", model.into());
        if let Some(folder) = &self.folder {
            arguments.extend(["--".into(), folder.into()]);
        }
        arguments
    }

    /// The model's folder, with everything in it.
    pub(crate) fn model(&self) -> anyhow::Result<PathBuf> {
        let folder = self.model.clone().unwrap_or_else(default_model);
        for file in ["model.safetensors", "tokenizer.json", "config.json"] {
            ensure!(
                folder.join(file).is_file(),
                "no model in {}: {file} is missing; `cargo xtask demo` downloads the model and runs this program, \
                 `--model DIR` names another folder",
                folder.display()
            );
        }
        Ok(folder)
    }
}

/// Where `cargo xtask` puts the model.
pub(crate) fn default_model() -> PathBuf {
    let named = std::env::var_os("TCX_MODEL").filter(|named| !named.is_empty());
    named.map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models/all-MiniLM-L6-v2"),
        PathBuf::from,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Args {
        Args::try_parse_from(["minilm"].into_iter().chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn an_epoch_elsewhere_reads_the_same_texts_into_the_same_cache() {
        let args = parse("docs --limit 7 --batch 3 --cache here --fresh");
        let words = args.for_epoch(Path::new("model"));
        let there = Args::try_parse_from([OsString::from("minilm")].into_iter().chain(words)).unwrap();
        let expected = Args { epoch: true, fresh: false, model: Some("model".into()), ..args };
        assert_eq!(there, expected);
    }

    #[test]
    fn a_missing_model_is_named_with_the_way_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let args = Args { model: Some(folder.path().into()), ..parse("") };
        let message = args.model().unwrap_err().to_string();
        assert!(message.contains("model.safetensors is missing; `cargo xtask demo`"), "{message}");
    }
}
