//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use lexopt::{Arg, Parser, ValueExt};

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: minilm [FOLDER] [OPTIONS]

Embeds paragraphs of documentation with all-MiniLM-L6-v2 and shows what a cache does to the epochs after the first.

  FOLDER         the folder whose text files are read; by default the documentation of
                 the crates that Cargo has downloaded

  --query TEXT   search the passages instead: print those that answer TEXT best
  --limit N      read at most N paragraphs (8000)
  --fresh        remove this demo's cache first
  --batch N      texts per batch (128)
  --cache DIR    keep the cache here (target/minilm-cache, below the current folder)
  --model DIR    a folder with model.safetensors, tokenizer.json and config.json
                 (the variable TCX_MODEL, else what `cargo xtask demo` has downloaded)
  --help
";

/// What this call is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Help,
    /// All epochs and the table.
    Demo,
    /// One epoch, reported to the process that started this one.
    Epoch,
    /// The best passages.
    Query,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Args {
    pub(crate) mode: Mode,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) query: String,
    pub(crate) limit: usize,
    pub(crate) batch: usize,
    pub(crate) fresh: bool,
    pub(crate) cache: PathBuf,
    pub(crate) model: Option<PathBuf>,
}

impl Args {
    /// Understands the arguments that follow the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut args = Self {
            mode: Mode::Demo,
            folder: None,
            query: String::new(),
            limit: 8000,
            batch: 128,
            fresh: false,
            cache: Path::new("target").join("minilm-cache"),
            model: None,
        };
        let mut parser = Parser::from_args(arguments);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("help") | Arg::Short('h') => args.mode = Mode::Help,
                Arg::Long("epoch") => args.mode = Mode::Epoch,
                Arg::Long("query") => {
                    args.mode = Mode::Query;
                    args.query = parser.value()?.string()?;
                    ensure!(!args.query.trim().is_empty(), "`--query` has nothing to look for");
                }
                Arg::Long("limit") => args.limit = positive(&mut parser, "--limit")?,
                Arg::Long("batch") => args.batch = positive(&mut parser, "--batch")?,
                Arg::Long("fresh") => args.fresh = true,
                Arg::Long("cache") => args.cache = parser.value()?.into(),
                Arg::Long("model") => args.model = Some(parser.value()?.into()),
                Arg::Value(folder) if args.folder.is_none() => args.folder = Some(folder.into()),
                Arg::Value(folder) => bail!("one folder is enough, found `{}` too", folder.display()),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(args)
    }

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
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/models/all-MiniLM-L6-v2"),
        PathBuf::from,
    )
}

fn positive(parser: &mut Parser, name: &str) -> anyhow::Result<usize> {
    let value = parser.value()?;
    let number = value.to_str().and_then(|value| value.replace('_', "").parse().ok());
    number
        .filter(|&number| number > 0)
        .with_context(|| format!("`{name}`: expected a number of at least 1, found `{}`", value.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Args> {
        Args::parse(line.split_whitespace().map(OsString::from))
    }

    fn refusal(line: &str) -> String {
        parse(line).unwrap_err().to_string()
    }

    #[test]
    fn everything_has_a_default() {
        let args = parse("").unwrap();
        assert_eq!((args.mode, args.folder, args.limit, args.fresh), (Mode::Demo, None, 8000, false));
        let args = parse("docs --limit 1_000 --fresh --query=how").unwrap();
        assert_eq!(args.folder.as_deref(), Some(Path::new("docs")));
        assert_eq!((args.mode, args.limit, args.fresh), (Mode::Query, 1000, true));
    }

    #[test]
    fn a_wrong_turn_is_named() {
        assert_eq!(refusal("--limits 3"), "invalid option '--limits'");
        assert_eq!(refusal("--limit none"), "`--limit`: expected a number of at least 1, found `none`");
        assert_eq!(refusal("--batch 0"), "`--batch`: expected a number of at least 1, found `0`");
        assert_eq!(refusal("a b"), "one folder is enough, found `b` too");
        assert_eq!(refusal("--query= --fresh"), "`--query` has nothing to look for");
    }

    #[test]
    fn an_epoch_elsewhere_reads_the_same_texts_into_the_same_cache() {
        let args = parse("docs --limit 7 --batch 3 --cache here --fresh").unwrap();
        let there = Args::parse(args.for_epoch(Path::new("model"))).unwrap();
        let expected = Args { mode: Mode::Epoch, fresh: false, model: Some("model".into()), ..args };
        assert_eq!(there, expected);
    }

    #[test]
    fn a_missing_model_is_named_with_the_way_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let args = Args { model: Some(folder.path().into()), ..parse("").unwrap() };
        let message = args.model().unwrap_err().to_string();
        assert!(message.contains("model.safetensors is missing; `cargo xtask demo`"), "{message}");
    }
}
