//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lexopt::{Arg, Parser};

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: resnet50 [FOLDER] [OPTIONS]

Computes ResNet-50's features of the images in a folder, in two epochs: the second finds them in the cache.

  FOLDER          the folder whose JPEG and PNG files are read, and those of the folders in it;
                  names that start with a dot are passed over. By default, some
                  patterns that the program draws into the cache's folder

  --like FILE     search instead: print the images of the folder that are most like FILE
  --weights FILE  trained weights, .safetensors or .ot, under the names that
                  torchvision gives them (random ones, the same in every run)
  --limit N       read the first N images only, in the order of their names
  --batch N       images per batch (32)
  --cache DIR     keep the cache here (target/resnet50-cache, below the current folder)
  --fresh         remove this program's cache first
  --help
";

/// What this call is to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Args {
    pub(crate) help: bool,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) like: Option<PathBuf>,
    pub(crate) weights: Option<PathBuf>,
    pub(crate) limit: Option<usize>,
    pub(crate) batch: usize,
    pub(crate) cache: PathBuf,
    pub(crate) fresh: bool,
}

impl Args {
    /// Understands the arguments that follow the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut args = Self {
            help: false,
            folder: None,
            like: None,
            weights: None,
            limit: None,
            batch: 32,
            cache: Path::new("target").join("resnet50-cache"),
            fresh: false,
        };
        let mut parser = Parser::from_args(arguments);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("help") | Arg::Short('h') => args.help = true,
                Arg::Long("like") => args.like = Some(parser.value()?.into()),
                Arg::Long("weights") => args.weights = Some(parser.value()?.into()),
                Arg::Long("limit") => args.limit = Some(positive(&mut parser, "--limit")?),
                Arg::Long("batch") => args.batch = positive(&mut parser, "--batch")?,
                Arg::Long("cache") => args.cache = parser.value()?.into(),
                Arg::Long("fresh") => args.fresh = true,
                Arg::Value(folder) if args.folder.is_none() => args.folder = Some(folder.into()),
                Arg::Value(folder) => bail!("one folder is enough, found `{}` too", folder.display()),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(args)
    }
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
        let Args { help, folder, like, weights, limit, batch, cache, fresh } = args;
        assert_eq!((help, folder, like, weights, limit), (false, None, None, None, None));
        assert_eq!((batch, &*cache, fresh), (32, Path::new("target/resnet50-cache"), false));
    }

    #[test]
    fn every_option_is_taken() {
        let args =
            parse("photos --like=a.jpg --weights w.ot --limit 1_000 --batch 4 --cache c --fresh -h").unwrap();
        let expected = Args {
            help: true,
            folder: Some("photos".into()),
            like: Some("a.jpg".into()),
            weights: Some("w.ot".into()),
            limit: Some(1000),
            batch: 4,
            cache: "c".into(),
            fresh: true,
        };
        assert_eq!(args, expected);
    }

    #[test]
    fn a_wrong_turn_is_named() {
        assert_eq!(refusal("--limits 3"), "invalid option '--limits'");
        assert_eq!(refusal("--limit none"), "`--limit`: expected a number of at least 1, found `none`");
        assert_eq!(refusal("--batch 0"), "`--batch`: expected a number of at least 1, found `0`");
        assert_eq!(refusal("a b"), "one folder is enough, found `b` too");
        assert_eq!(refusal("--like"), "missing argument for option '--like'");
    }
}
