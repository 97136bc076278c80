//! The names of the files in a module's folder. Whatever has another name is not tcx's.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::bytes::{Random, parse_hex64};

/// The longest id of a module in bytes.
const MAX_ID_BYTES: usize = 100;

/// Checks the id of a module or table: it names a folder.
///
/// ```
/// use tcx_store::check_module_id;
///
/// assert!(check_module_id("resnet50_v1").is_ok());
/// assert!(check_module_id("../elsewhere").is_err());
/// ```
///
/// # Errors
///
/// Returns an error unless the id is a letter or digit, followed by letters, digits, `_`, `-` and `.`, with at most 100 bytes.
pub fn check_module_id(id: &str) -> Result<()> {
    let first = id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if first && rest && id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    Err(Error::of_kind(
        ErrorKind::InvalidId,
        format!(
            "module id {id:?} cannot name a folder: expected a letter or digit, then letters, digits, `_`, `-` and `.`, \
         at most {MAX_ID_BYTES} bytes"
        ),
    ))
}

/// Between the id of a module and the digest of an identity in the name of a folder. No id contains it.
const SEPARATOR: char = '+';

/// The number of hex digits of the digest in the name. Two identities with the same ones differ in change 0.
const DIGITS: usize = 12;

/// The folder of one identity of a module, beside that of the module.
pub(crate) fn separate_folder(id: &str, digest: &str) -> String {
    format!("{id}{SEPARATOR}{}", digest.get(..DIGITS).unwrap_or(digest))
}

/// The id of the module that a folder of a cache is of, by the folder's name: that of the module, or that of one
/// [identity](crate::OnMismatch::Separate) of it. `None` if no module has such a folder.
///
/// ```
/// use tcx_store::module_of_folder;
///
/// assert_eq!(module_of_folder("resnet50_v1"), Some("resnet50_v1"));
/// assert_eq!(module_of_folder("resnet50_v1+04d21c9b77aa"), Some("resnet50_v1"));
/// assert_eq!(module_of_folder("resnet50_v1+weights"), None);
/// ```
pub fn module_of_folder(name: &str) -> Option<&str> {
    let id = match name.split_once(SEPARATOR) {
        None => name,
        Some((id, digest)) => {
            let is_hex = digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (digest.len() == DIGITS && is_hex).then_some(id)?
        }
    };
    check_module_id(id).is_ok().then_some(id)
}

/// The next id: what a refusal advises. `resnet50_v1` becomes `resnet50_v2`, `resnet50` becomes `resnet50_v2`.
pub(crate) fn bumped(id: &str) -> String {
    let stem = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = id[stem.len()..].parse::<u64>().ok().and_then(|number| number.checked_add(1));
    match number {
        Some(next) if stem.ends_with('v') => format!("{stem}{next}"),
        _ => format!("{id}_v2"),
    }
}

/// The name of a segment: random bits that are its writer's own, and the checksum of its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    pub(crate) random: Random,
    pub(crate) tail: u64,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seg-{}-{:016x}.arrow", self.random, self.tail)
    }
}

/// A file of tcx, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(SegmentName),
    Change(u64),
    /// The changes up to a number, merged.
    Merged(u64),
    Run(Random),
    /// A file that is being written, or was when its process ended.
    Temporary(Random),
}

impl FileName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("seg-") {
            let (random, tail) = rest.strip_suffix(".arrow")?.split_once('-')?;
            let (random, tail) = (Random::parse(random)?, parse_hex64(tail)?);
            return Some(Self::Segment(SegmentName { random, tail }));
        }
        if let Some(rest) = name.strip_prefix("run-") {
            return Random::parse(rest.strip_suffix(".idx")?).map(Self::Run);
        }
        if let Some(rest) = name.strip_prefix("tmp-") {
            return Random::parse(rest).map(Self::Temporary);
        }
        if let Some(rest) = name.strip_prefix("merged-") {
            return parse_number(rest).map(Self::Merged);
        }
        parse_number(name.strip_prefix("change-")?).map(Self::Change)
    }
}

/// There is a number behind each.
fn parse_number(digits: &str) -> Option<u64> {
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?.filter(|&number| number < u64::MAX)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(name) => name.fmt(f),
            Self::Change(number) => write!(f, "change-{number:020}"),
            Self::Merged(number) => write!(f, "merged-{number:020}"),
            Self::Run(random) => write!(f, "run-{random}.idx"),
            Self::Temporary(random) => write!(f, "tmp-{random}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strangers_are_not() {
        let names = [
            FileName::Segment(SegmentName { random: Random::new(), tail: 7 }),
            FileName::Change(0),
            FileName::Change(u64::MAX - 1),
            FileName::Merged(3),
            FileName::Run(Random::new()),
            FileName::Temporary(Random::new()),
        ];
        for name in names {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        let unrecognised = [
            "",
            "change-1",
            "change-+0000000000000000001",
            "run-.idx",
            "seg-a-b.arrow",
            "notes.txt",
            "change-99999999999999999999",
            "change-18446744073709551615",
        ];
        for stranger in unrecognised {
            assert_eq!(FileName::parse(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_bumped_id_is_the_next_version() {
        assert_eq!(bumped("resnet50_v1"), "resnet50_v2");
        assert_eq!(bumped("clip_v09"), "clip_v10");
        assert_eq!(bumped("resnet50"), "resnet50_v2");
    }

    #[test]
    fn no_id_is_the_name_of_the_folder_of_an_identity() {
        let long = "a".repeat(100);
        for id in ["resnet50_v1", "a", "7b.v-2", &long] {
            let folder = separate_folder(id, &"0123456789abcdef".repeat(4));
            assert_eq!(folder, format!("{id}+0123456789ab"));
            assert_eq!(module_of_folder(&folder), Some(id));
            check_module_id(&folder).unwrap_err();
        }
        for name in
            ["m+", "m+0123456789a", "m+0123456789AB", "m+0123456789ab+0123456789ab", "+0123456789ab", "m+x"]
        {
            assert_eq!(module_of_folder(name), None, "{name}");
        }
    }

    #[test]
    fn an_id_cannot_leave_the_cache() {
        for id in ["resnet50_v1", "a", "7b.v-2"] {
            check_module_id(id).unwrap();
        }
        let long = "a".repeat(101);
        for id in ["", ".", "..", "../x", "a/b", "-x", "_x", "é", "a b", &long] {
            check_module_id(id).unwrap_err();
        }
    }
}
