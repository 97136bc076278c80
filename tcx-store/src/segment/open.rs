//! Opening a segment: its tail and the header of its first record batch, every byte of them verified.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use arrow_schema::SchemaRef;

use super::batches::Batches;
use super::metadata::{Metadata, MetadataError};
use super::reader::Reader;
use super::{Segment, SegmentError, layout, verified};
use crate::schema::leaf::Leaf;
use crate::segment::memory_cache::MemoryCache;
use crate::storage::Sealed;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::sys::checksum::{CHECKSUM_BLOCK, checksum};
use crate::sys::mmap::Mapped;
use crate::sys::verified_blocks::VerifiedBlocks;

/// The end of an Arrow IPC file: the footer's length and the magic.
pub(super) const CLOSING: usize = 10;
/// The end-of-stream marker before the footer.
pub(super) const END_OF_STREAM: usize = 8;
/// The most bytes of a footer: the largest that is written has the checksums of the first version for a row of many GiB.
pub(super) const MAX_FOOTER: usize = 64 << 20;
/// The most bytes that a segment is taken to have when it is not compressed, whatever it says.
const MOST_BYTES: usize = 1 << 40;

impl Segment {
    /// Reads the footer and the batches' headers; the rows are verified when they are first used.
    pub(crate) fn open(
        file: Sealed,
        memory_cache: &Arc<MemoryCache>,
        name: SegmentName,
        (schema, leaves): (&SchemaRef, &Arc<[Leaf]>),
        identity: &str,
        instance: Random,
    ) -> Result<Self, SegmentError> {
        let (map, reader) = match file {
            Sealed::Mapped(map) => (map, None),
            Sealed::Read(file) => (Mapped::nothing(), Some(Reader::new(file, name, memory_cache.clone()))),
        };
        let bytes = reader.as_ref().map_or(map.len(), Reader::bytes);
        let tail_bytes = &*verified_tail(&map, reader.as_ref(), name)?;
        let tail = bytes - tail_bytes.len();
        let footer = &tail_bytes[END_OF_STREAM..tail_bytes.len() - CLOSING];
        let footer =
            arrow_ipc::root_as_footer(footer).map_err(|error| damaged(format!("its footer: {error}")))?;
        let metadata = footer_metadata(&footer)?;
        if metadata.identity != identity || metadata.instance != instance {
            return Err(SegmentError::Foreign("it belongs to another identity".to_owned()));
        }
        if !layout::has_schema(&footer, schema) {
            return Err(damaged("its columns are not the module's"));
        }
        if metadata.inputs.contains(&name) {
            return Err(damaged("it names itself among its inputs"));
        }
        let format = metadata.format();
        let youngest = metadata.youngest();
        let (blocks, body) = metadata.checksums.open(tail).map_err(damaged)?;
        let (codec, unpacked) = metadata.codec.unzip();
        let batches = Batches::new(&footer, body, metadata.rows, metadata.batch_rows).map_err(damaged)?;
        announce_header(&map, &batches, &blocks);
        let read = |range: Range<usize>| verified(&map, reader.as_ref(), &blocks, range);
        let failed = || reader.as_ref().is_some_and(|reader| reader.failures() > 0);
        let batch = batches.read(0, (schema, leaves), codec, read).map_err(|what| {
            if failed() { SegmentError::Failed(io::Error::other(what)) } else { damaged(what) }
        })?;
        // A store that opens thousands of segments may read rows of a few.
        map.let_go();
        Ok(Self {
            damaged: AtomicBool::new(false),
            is_direct: codec.is_none() && reader.is_none(),
            view: metadata.view,
            base: metadata.base,
            commit: metadata.commit,
            rows: metadata.rows,
            blocks,
            batch,
            batches,
            body,
            tail,
            name,
            schema: schema.clone(),
            leaves: leaves.clone(),
            codec,
            chunk_rows: metadata.chunk_rows,
            reader,
            unpacked: unpacked.unwrap_or(0).clamp(bytes, MOST_BYTES.max(bytes)),
            youngest,
            born: metadata.born,
            format,
            inputs: metadata.inputs,
            ancestors: metadata.ancestors,
            dead: Mutex::default(),
            sound_keys: OnceLock::new(),
            last_unpacked: Mutex::default(),
            uses: AtomicU64::new(0),
            map,
        })
    }
}

/// Announces the header of the first record batch, and the checksums by which it is verified: a large table of checksums begins far
/// before the tail.
fn announce_header(map: &Mapped, batches: &Batches, blocks: &VerifiedBlocks) {
    let Some((header, _)) = batches.ranges(0) else { return };
    let (header, table) = blocks.with_unverified(header);
    [Some(header), table].into_iter().flatten().for_each(|range| map.announce(range));
}

/// The tail of a file. What is on another machine may have been damaged on its way, once.
fn verified_tail<'m>(
    map: &'m Mapped,
    reader: Option<&Reader>,
    name: SegmentName,
) -> Result<Cow<'m, [u8]>, SegmentError> {
    let is_good = |tail: &Cow<'_, [u8]>| checksum(tail) == name.tail;
    let mut tail = read_tail(map, reader);
    if let Some(reader) = reader.filter(|reader| reader.is_far() && !tail.as_ref().is_ok_and(is_good)) {
        reader.forget();
        tail = read_tail(map, Some(reader));
    }
    let tail = tail?;
    if is_good(&tail) { Ok(tail) } else { Err(damaged("the checksum of its tail is wrong")) }
}

/// The tail of a file, which is not verified.
fn read_tail<'m>(map: &'m Mapped, reader: Option<&Reader>) -> Result<Cow<'m, [u8]>, SegmentError> {
    let tail = if let Some(reader) = reader {
        reader.read_tail().map_err(SegmentError::Failed)?.map(Cow::Owned)
    } else {
        // Or the system would read what is around these pages as well: 8 MiB of each segment, on some machines.
        map.announce(0..CHECKSUM_BLOCK.min(map.len()));
        map.announce(map.len().saturating_sub(CHECKSUM_BLOCK)..map.len());
        let start = tail_len(map).and_then(|len| map.len().checked_sub(len));
        start.inspect(|&start| map.announce(start..map.len()));
        start.and_then(|start| map.get(start..)).map(Cow::Borrowed)
    };
    tail.ok_or_else(|| damaged("it is not an Arrow file"))
}

fn damaged(what: impl Into<String>) -> SegmentError {
    SegmentError::Damaged(what.into())
}

/// How long the tail of a file is, by the footer's length at its end.
pub(super) fn tail_len(file: &[u8]) -> Option<usize> {
    let closing = file.len().checked_sub(CLOSING)?;
    let len = u32::from_le_bytes(*file[closing..].first_chunk()?);
    (file[closing + 4..] == *b"ARROW1").then_some(())?;
    usize::try_from(len).ok().filter(|len| *len <= MAX_FOOTER)?.checked_add(CLOSING + END_OF_STREAM)
}

pub(super) fn footer_metadata(footer: &arrow_ipc::Footer<'_>) -> Result<Metadata, SegmentError> {
    let pairs = footer.custom_metadata().into_iter().flatten();
    let entries: HashMap<&str, &str> = pairs.filter_map(|pair| Some((pair.key()?, pair.value()?))).collect();
    Metadata::parse(&entries).map_err(|error| match error {
        MetadataError::Version(what) => SegmentError::Unknown(what),
        MetadataError::Entry(name) => damaged(format!("its entry `{name}` is missing or malformed")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_that_says_to_be_huge_is_none() {
        let end = |len: usize| [&(len as u32).to_le_bytes()[..], b"ARROW1"].concat();
        assert_eq!(tail_len(&end(MAX_FOOTER)), Some(MAX_FOOTER + CLOSING + END_OF_STREAM));
        assert_eq!(tail_len(&end(MAX_FOOTER + 1)), None);
        assert_eq!(tail_len(&end(i32::MAX as usize)), None);
    }
}
