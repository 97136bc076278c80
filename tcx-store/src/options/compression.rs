//! The compression of segments, and its names.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// How the rows of new segments are compressed. Keys never are.
///
/// Random access is fastest without compression: rows are copied straight from the files. Compressed rows are decompressed
/// about 8 KiB at a time, or up to 64 KiB where smaller parts would compress much less, and kept in the memory cache.
///
/// ```
/// # use tcx_store::{Column, ColumnType, Compression, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[65_536] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let options = Options { compression: Compression::Zstd, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// let mut rows = store.lookup(Keys::ints([1], 0))?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[7; 65_536])])?;
/// store.flush()?;
/// assert!(store.stats().bytes < 65_536);
/// assert_eq!(store.lookup(Keys::ints([1], 0))?.bytes(0, 0), [7; 65_536]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A name is parsed, as from a file of settings. For a compression that tcx does not have, the error names one to use instead:
///
/// ```
/// use tcx_store::Compression;
///
/// assert_eq!("zstd".parse::<Compression>()?, Compression::Zstd);
/// assert_eq!(Compression::Lz4.to_string(), "lz4");
/// let refused = "gzip".parse::<Compression>().unwrap_err();
/// assert!(refused.to_string().ends_with("; use `zstd`"));
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: faster, with larger files.
    Lz4,
    /// Zstandard: slower, with smaller files.
    Zstd,
}

impl Compression {
    const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Its name, which can be parsed.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// By its name, in capital or small letters.
impl FromStr for Compression {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let own = Self::ALL.into_iter().find(|own| name.eq_ignore_ascii_case(own.name()));
        own.ok_or_else(|| refused(name))
    }
}

/// Why a name is no compression of tcx, and what to use instead.
fn refused(name: &str) -> Error {
    // As in `gzip-9`, `zstd:19` and `zstd(3)`.
    let end = name.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(name.len());
    let (codec, level) = name.split_at(end);
    let why = match codec.to_ascii_lowercase().as_str() {
        "none" | "lz4" | "zstd" if !level.is_empty() => {
            format!("its level cannot be chosen; use `{}`", codec.to_ascii_lowercase())
        }
        // Files with these are smaller, or as small, if they are compressed with Zstandard.
        "gzip" | "gz" | "zlib" | "deflate" | "brotli" | "br" | "xz" | "lzma" | "bzip2" | "bz2"
        | "zstandard" => {
            format!("{ARROW}; use `zstd`")
        }
        "snappy" | "lzo" | "blosc" | "lz4hc" => format!("{ARROW}; use `lz4`"),
        _ => "expected `none`, `lz4` or `zstd`".to_owned(),
    };
    Error::of_kind(ErrorKind::InvalidOptions, format!("cannot compress with `{name}`: {why}"))
}

/// Segments stay readable for any Arrow program.
const ARROW: &str = "Arrow files are compressed with `lz4` or `zstd` only";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        let error = name.parse::<Compression>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        error.to_string()
    }

    #[test]
    fn every_compression_is_parsed_from_its_name() {
        for compression in Compression::ALL {
            assert_eq!(compression.to_string().parse::<Compression>().unwrap(), compression);
            assert_eq!(format!("{compression:?}").parse::<Compression>().unwrap(), compression);
        }
    }

    #[test]
    fn a_compression_that_arrow_files_lack_is_refused_with_one_to_use_instead() {
        assert_eq!(
            refusal("gzip"),
            "cannot compress with `gzip`: Arrow files are compressed with `lz4` or `zstd` only; use `zstd`"
        );
        for name in ["GZIP", "gzip-9", "gz", "zlib", "deflate", "brotli", "xz", "bz2"] {
            assert!(refusal(name).ends_with("; use `zstd`"), "{name}");
        }
        assert!(refusal("snappy").ends_with("; use `lz4`"));
    }

    #[test]
    fn a_level_and_an_unknown_name_are_refused() {
        assert_eq!(
            refusal("zstd:19"),
            "cannot compress with `zstd:19`: its level cannot be chosen; use `zstd`"
        );
        for name in ["", "best", "zst d", "zstd2"] {
            let refusal = refusal(name);
            assert!(refusal.contains("expected `none`") || refusal.contains("its level"), "{refusal}");
        }
        assert_eq!(refusal("best"), "cannot compress with `best`: expected `none`, `lz4` or `zstd`");
    }
}
