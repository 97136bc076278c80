//! What a segment says of itself in its footer.

use std::collections::HashMap;

use super::ancestors::Ancestors;
use super::checksums::BodyChecksums;
use super::codec::Codec;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;

/// The versions of the format that are read; the last is written.
const FORMATS: [&str; 3] = ["1", "2", "3"];
/// The checksums are in the footer.
const FIRST: u32 = 1;
/// As the first, of segments that count only with a change.
const WITH_COMMIT: u32 = 2;
/// The checksums are in a table. Segments that count only with a change are of this version, too.
const WITH_TABLE: u32 = 3;
const CHECKSUM: &str = "crc64-nvme";

/// The footer's metadata, see `docs/format.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) identity: String,
    pub(crate) instance: Random,
    /// The newest change that the rows know.
    pub(crate) base: u64,
    /// The nonce of that change, without which the rows do not count.
    pub(crate) commit: Option<Random>,
    /// Milliseconds since 1970.
    pub(crate) born: u64,
    /// When the youngest was born of the segments from which the rows came, one after the other; of a joined one, if that is known.
    pub(crate) youngest: Option<u64>,
    pub(crate) rows: usize,
    pub(crate) batch_rows: usize,
    /// The view of every row, if all have the same: readers need not look at the column then.
    pub(crate) view: Option<u32>,
    /// The segments that this one replaces.
    pub(crate) inputs: Vec<SegmentName>,
    pub(crate) ancestors: Ancestors,
    /// How the rows are compressed, and how many bytes they have without.
    pub(crate) codec: Option<(Codec, usize)>,
    /// Rows that are decompressed together, of a segment whose buffers consist of chunks.
    pub(crate) chunk_rows: Option<usize>,
    pub(crate) checksums: BodyChecksums,
}

/// Why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetadataError {
    /// Another version wrote it: no damage.
    Version(String),
    /// An entry is missing or malformed.
    Entry(&'static str),
}

impl Metadata {
    pub(crate) fn entries(&self) -> Vec<(&'static str, String)> {
        let view = self.view.map(|view| ("tcx.view", view.to_string()));
        let inputs: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        let inputs = (!inputs.is_empty()).then(|| ("tcx.inputs", inputs.join(" ")));
        let ancestors = (!self.inputs.is_empty()).then(|| ("tcx.ancestors", self.ancestors.entry()));
        let youngest = self.youngest.map(|youngest| ("tcx.youngest", youngest.to_string()));
        let entries = [
            ("tcx.format", self.format().to_string()),
            ("tcx.identity", self.identity.clone()),
            ("tcx.instance", self.instance.to_string()),
            ("tcx.base", self.base.to_string()),
            ("tcx.born", self.born.to_string()),
            ("tcx.rows", self.rows.to_string()),
            ("tcx.batch_rows", self.batch_rows.to_string()),
            ("tcx.checksum", CHECKSUM.to_owned()),
        ];
        let codec = self.codec.map(|(codec, unpacked)| {
            [("tcx.codec", codec.name().to_owned()), ("tcx.unpacked", unpacked.to_string())]
        });
        let chunk_rows = self.chunk_rows.map(|rows| ("tcx.chunk_rows", rows.to_string()));
        let commit = self.commit.map(|commit| ("tcx.commit", commit.to_string()));
        entries
            .into_iter()
            .chain(self.checksums.entries())
            .chain(commit)
            .chain(view)
            .chain(inputs)
            .chain(ancestors)
            .chain(youngest)
            .chain(codec.into_iter().flatten())
            .chain(chunk_rows)
            .collect()
    }

    /// When the youngest of the segments was born from which the rows came; `u64::MAX` if an earlier version has joined them, which did not
    /// note it.
    pub(crate) fn youngest(&self) -> u64 {
        let unknown = if self.inputs.is_empty() { self.born } else { u64::MAX };
        self.youngest.unwrap_or(unknown)
    }

    /// The version that this is written in.
    pub(crate) fn format(&self) -> u32 {
        match (&self.checksums, self.commit) {
            (BodyChecksums::InTable { .. }, _) => WITH_TABLE,
            (BodyChecksums::InFooter(_), Some(_)) => WITH_COMMIT,
            (BodyChecksums::InFooter(_), None) => FIRST,
        }
    }

    pub(crate) fn parse(entries: &HashMap<&str, &str>) -> Result<Self, MetadataError> {
        let get = |name: &'static str| entries.get(name).copied().ok_or(MetadataError::Entry(name));
        let known: [(_, &[&str]); 2] = [("tcx.format", &FORMATS), ("tcx.checksum", &[CHECKSUM])];
        for (name, known) in known {
            let found = get(name)?;
            if !known.contains(&found) {
                let known: Vec<_> = known.iter().map(|known| format!("{known:?}")).collect();
                return Err(MetadataError::Version(format!(
                    "its {name} is {found:?}, this program knows {}",
                    known.join(", ")
                )));
            }
        }
        let inputs = inputs(entries.get("tcx.inputs")).ok_or(MetadataError::Entry("tcx.inputs"))?;
        let ancestors = Ancestors::parse(entries.get("tcx.ancestors").copied(), !inputs.is_empty())
            .ok_or(MetadataError::Entry("tcx.ancestors"))?;
        let format = number(get("tcx.format")?, "tcx.format")? as u32;
        let commit = commit(format, entries.get("tcx.commit").copied())?;
        if commit.is_some() && !inputs.is_empty() {
            // It would stand for others before it counts.
            return Err(MetadataError::Entry("tcx.inputs"));
        }
        let rows = number(get("tcx.rows")?, "tcx.rows")?;
        let batch_rows = number(get("tcx.batch_rows")?, "tcx.batch_rows")?;
        Ok(Self {
            identity: get("tcx.identity")?.to_owned(),
            instance: Random::parse(get("tcx.instance")?).ok_or(MetadataError::Entry("tcx.instance"))?,
            base: number(get("tcx.base")?, "tcx.base")?,
            born: number(get("tcx.born")?, "tcx.born")?,
            youngest: entries
                .get("tcx.youngest")
                .map(|youngest| number(youngest, "tcx.youngest"))
                .transpose()?,
            rows: usize::try_from(rows).map_err(|_| MetadataError::Entry("tcx.rows"))?,
            view: entries
                .get("tcx.view")
                .map(|view| view.parse())
                .transpose()
                .map_err(|_| MetadataError::Entry("tcx.view"))?,
            batch_rows: usize::try_from(batch_rows).map_err(|_| MetadataError::Entry("tcx.batch_rows"))?,
            inputs,
            ancestors,
            commit,
            codec: codec(entries)?,
            chunk_rows: chunk_rows(entries.get("tcx.chunk_rows").copied())?,
            checksums: BodyChecksums::parse(entries, format == WITH_TABLE)?,
        })
    }
}

fn number(text: &str, name: &'static str) -> Result<u64, MetadataError> {
    text.parse().map_err(|_| MetadataError::Entry(name))
}

/// The nonce, in the versions that have it and in no other: a program that overlooked it would serve rows that do not count.
fn commit(format: u32, nonce: Option<&str>) -> Result<Option<Random>, MetadataError> {
    match (format, nonce.map(Random::parse)) {
        (FIRST | WITH_TABLE, None) => Ok(None),
        (WITH_COMMIT | WITH_TABLE, Some(Some(nonce))) => Ok(Some(nonce)),
        _ => Err(MetadataError::Entry("tcx.commit")),
    }
}

fn codec(entries: &HashMap<&str, &str>) -> Result<Option<(Codec, usize)>, MetadataError> {
    let Some(name) = entries.get("tcx.codec") else { return Ok(None) };
    let codec = Codec::parse(name).ok_or_else(|| {
        let known: Vec<_> = Codec::ALL.iter().map(|codec| format!("{:?}", codec.name())).collect();
        MetadataError::Version(format!("its codec is {name:?}, this program knows {}", known.join(" and ")))
    })?;
    let unpacked = entries.get("tcx.unpacked").and_then(|bytes| bytes.parse().ok());
    Ok(Some((codec, unpacked.ok_or(MetadataError::Entry("tcx.unpacked"))?)))
}

/// A number of rows; none of a segment that is not compressed, or whose buffers are decompressed as a whole.
fn chunk_rows(rows: Option<&str>) -> Result<Option<usize>, MetadataError> {
    let Some(rows) = rows else { return Ok(None) };
    let rows = rows.parse().ok().filter(|rows| *rows > 0);
    Ok(Some(rows.ok_or(MetadataError::Entry("tcx.chunk_rows"))?))
}

/// Names with a space between them; there is no entry where there is no name.
fn inputs(names: Option<&&str>) -> Option<Vec<SegmentName>> {
    let segment = |name| match FileName::parse(name) {
        Some(FileName::Segment(name)) => Some(name),
        _ => None,
    };
    names.map_or(Some(Vec::new()), |names| names.split(' ').map(segment).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tail: u64) -> SegmentName {
        SegmentName { random: Random::new(), tail }
    }

    #[test]
    fn metadata_is_read_back_and_no_entry_can_be_missing() {
        let metadata = Metadata {
            identity: "ab".repeat(32),
            instance: Random::new(),
            base: 0,
            commit: None,
            born: 1,
            youngest: Some(2),
            rows: 3,
            batch_rows: 2,
            view: Some(7),
            inputs: vec![name(1), name(2)],
            ancestors: Ancestors { names: vec![Random::new()], has_more: false },
            codec: Some((Codec::Zstd, 77)),
            chunk_rows: Some(3),
            checksums: BodyChecksums::InTable { block: 4096, body: 77, parts: vec![u64::MAX, 0] },
        };
        let written = metadata.entries();
        let entries: HashMap<&str, &str> =
            written.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(Metadata::parse(&entries), Ok(metadata));
        for (name, _) in &written {
            let mut less = entries.clone();
            less.remove(name);
            let missing = Metadata::parse(&less);
            match *name {
                "tcx.view" => assert_eq!(missing.map(|metadata| metadata.view), Ok(None)),
                // The other one is of a joined segment.
                "tcx.inputs" => assert_eq!(missing, Err(MetadataError::Entry("tcx.ancestors"))),
                "tcx.ancestors" => assert_eq!(missing.map(|metadata| metadata.ancestors.has_more), Ok(true)),
                "tcx.youngest" => assert_eq!(missing.map(|metadata| metadata.youngest), Ok(None)),
                "tcx.codec" => assert_eq!(missing.map(|metadata| metadata.codec), Ok(None)),
                "tcx.chunk_rows" => assert_eq!(missing.map(|metadata| metadata.chunk_rows), Ok(None)),
                name => assert_eq!(missing, Err(MetadataError::Entry(name))),
            }
        }
        let change = FileName::Change(1).to_string();
        for malformed in
            ["", " ", "seg-1", &change, &format!("{} ", name(3)), &format!("{}  {}", name(4), name(5))]
        {
            let mut wrong = entries.clone();
            wrong.insert("tcx.inputs", malformed);
            assert_eq!(Metadata::parse(&wrong), Err(MetadataError::Entry("tcx.inputs")), "{malformed:?}");
        }
        for malformed in ["", "0", "-1", "99999999999999999999"] {
            let mut wrong = entries.clone();
            wrong.insert("tcx.chunk_rows", malformed);
            assert_eq!(Metadata::parse(&wrong), Err(MetadataError::Entry("tcx.chunk_rows")), "{malformed:?}");
        }
        for (name, value) in [("tcx.format", "4"), ("tcx.codec", "brotli")] {
            let mut newer = entries.clone();
            newer.insert(name, value);
            let Err(MetadataError::Version(what)) = Metadata::parse(&newer) else { panic!("{name}") };
            assert!(what.contains(value), "{what}");
        }
    }

    #[test]
    fn rows_that_have_to_be_committed_are_of_a_format_that_other_programs_ignore() {
        let commit = Random::new();
        let metadata = Metadata {
            identity: "ab".repeat(32),
            instance: Random::new(),
            base: 7,
            commit: Some(commit),
            born: 1,
            youngest: Some(2),
            rows: 3,
            batch_rows: 3,
            view: None,
            inputs: Vec::new(),
            ancestors: Ancestors::default(),
            codec: None,
            chunk_rows: None,
            checksums: BodyChecksums::InFooter(vec![1]),
        };
        let written = metadata.entries();
        let entries: HashMap<&str, &str> =
            written.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // Programs that know format 1 alone compare this entry first, and ignore the file.
        assert_eq!(entries["tcx.format"], "2");
        assert_eq!(Metadata::parse(&entries), Ok(metadata));
        let with = |name, value: Option<&'static str>| {
            let mut other = entries.clone();
            match value {
                Some(value) => drop(other.insert(name, value)),
                None => drop(other.remove(name)),
            }
            Metadata::parse(&other)
        };
        let commit_is_wrong = Err(MetadataError::Entry("tcx.commit"));
        for wrong in [with("tcx.commit", None), with("tcx.commit", Some("")), with("tcx.format", Some("1"))] {
            assert_eq!(wrong, commit_is_wrong);
        }
        let input = name(1).to_string().leak();
        assert_eq!(with("tcx.inputs", Some(input)), Err(MetadataError::Entry("tcx.inputs")));
    }
}
