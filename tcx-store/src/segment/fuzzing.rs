//! Decoding segments that no store has written.

use std::collections::HashMap;

use super::layout::{block_ranges, has_schema, layout, record_batch, spans};
use super::open::{CLOSING, END_OF_STREAM, footer_metadata, tail_len};
use super::*;
use crate::schema::leaf::{ColumnType, DType, Field};
use crate::segment::memory_cache::MemoryCache;
use crate::storage::{ReadAt, Sealed};
use crate::sys::bytes::Random;
use crate::sys::checksum::{CHECKSUM_BLOCK, checksum};
use crate::sys::verified_blocks::{CHECKSUM, TABLE_PART};
use crate::testing::fuzzing::mapped;
use crate::{DYNAMIC_DIM, KeyType, Leaf, MemoryCachePolicy};

/// The output of the module whose segments they seem to be.
pub(crate) const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[2, 3] } },
    Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    Field { name: "caption", column: ColumnType::Text },
    Field {
        name: "maybe",
        column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::I64, shape: &[] }),
    },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
]);

/// So many rows are both read and mapped.
const COMPARED: usize = 32;

fn leaves() -> Vec<Leaf> {
    OUTPUT.leaves()
}

/// The footer alone, without the file around it.
pub(crate) fn footer(bytes: &[u8]) {
    let Ok(footer) = arrow_ipc::root_as_footer(bytes) else { return };
    let _ = has_schema(&footer, &arrow_schema(KeyType::Text, &leaves()));
    let _ = footer_metadata(&footer);
    let blocks = footer.recordBatches().into_iter().flatten();
    for (start, body, stop) in blocks.filter_map(|block| block_ranges(block, bytes.len())) {
        assert!(start < body && body <= stop && stop <= bytes.len());
    }
}

/// The header of a record batch, before buffers of as many bytes.
pub(crate) fn batch(bytes: &[u8]) {
    let (body, stop) = (bytes.len(), 2 * bytes.len());
    let schema = arrow_schema(KeyType::Text, &leaves());
    let Ok(batch) = record_batch(bytes, None) else { return };
    let Some(batch) = layout(&batch, spans(&batch, body, stop), schema.fields(), &leaves()) else { return };
    for place in batch.leaves.iter().chain([&batch.key, &batch.view]) {
        assert!(place.values >= body && place.values + place.len <= stop);
        assert!(place.offsets.is_some() || place.len == batch.rows * place.width);
    }
}

/// A whole file.
pub(crate) fn segment(bytes: &[u8]) {
    open_and_use(bytes);
    let mut sealed = bytes.to_vec();
    if seal(&mut sealed).is_some() {
        open_and_use(&sealed);
    }
}

/// Makes the checksums of the body's blocks right, as far as the file has room for them, wherever they are.
pub(crate) fn seal(file: &mut [u8]) -> Option<()> {
    let tail = tail_start(file)?;
    let (before, rest) = file.split_at_mut(tail);
    let rest_bytes = rest.to_vec();
    let footer = arrow_ipc::root_as_footer(&rest_bytes[END_OF_STREAM..rest.len() - CLOSING]).ok()?;
    let pairs = footer.custom_metadata()?;
    let get = |name| pairs.iter().find(|pair| pair.key() == Some(name))?.value();
    let mut write = |name, sums: &mut dyn Iterator<Item = u64>| {
        let hex = get(name)?;
        let at = hex.as_ptr() as usize - rest_bytes.as_ptr() as usize;
        for (digits, sum) in rest[at..at + hex.len()].chunks_exact_mut(16).zip(sums) {
            digits.copy_from_slice(format!("{sum:016x}").as_bytes());
        }
        Some(())
    };
    if get("tcx.checksums").is_some() {
        return write("tcx.checksums", &mut before.chunks(CHECKSUM_BLOCK).map(checksum));
    }
    let number = |name| get(name)?.parse().ok().filter(|&number: &usize| number > 0);
    let (body, table) = before.split_at_mut_checked(number("tcx.body")?)?;
    for (room, block) in table.chunks_exact_mut(CHECKSUM).zip(body.chunks(number("tcx.block")?)) {
        room.copy_from_slice(&checksum(block).to_le_bytes());
    }
    write("tcx.table", &mut table.chunks(TABLE_PART).map(checksum))
}

/// A file of these bytes.
#[derive(Debug)]
struct InMemory(Vec<u8>);

impl ReadAt for InMemory {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        bytes.copy_from_slice(self.0.get(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Opens the file under the name that its tail would give it, of the folder that it says it belongs to.
fn open(bytes: &[u8], file: Sealed) -> Option<Segment> {
    let tail = &bytes[tail_start(bytes)?..];
    let name = SegmentName { random: Random([1; 16]), tail: checksum(tail) };
    let footer = arrow_ipc::root_as_footer(&tail[END_OF_STREAM..tail.len() - CLOSING]).ok()?;
    let metadata = footer_metadata(&footer).ok()?;
    let (schema, leaves) = (arrow_schema(KeyType::Text, &leaves()), leaves().into());
    let memory_cache = Arc::new(MemoryCache::new(2 * bytes.len(), MemoryCachePolicy::Lru));
    Segment::open(file, &memory_cache, name, (&schema, &leaves), &metadata.identity, metadata.instance).ok()
}

/// Reads every row in every way there is.
fn open_and_use(bytes: &[u8]) {
    let read = open(bytes, Sealed::Read(Box::new(InMemory(bytes.to_vec()))));
    let Some(segment) = open(bytes, Sealed::Mapped(mapped(bytes))) else {
        return assert!(read.is_none(), "it opens only where it is read");
    };
    let (rows, leaves) = (segment.rows(), leaves());
    let read = read.expect("it opens only where it is mapped");
    for row in (0..=rows).take(COMPARED) {
        assert_eq!((read.key(row), read.read_row(row)), (segment.key(row), segment.read_row(row)));
    }
    assert!(rows * size_of::<u32>() <= bytes.len(), "{rows} rows have not room in {} bytes", bytes.len());
    let mut keys = HashMap::new();
    for row in 0..=rows {
        segment.prefetch_offsets(row);
        if let Some((key, view)) = segment.key(row) {
            keys.insert((key.to_vec(), view), row);
            let found = segment.prefetch_row(row, None).expect("a key that can be read can be found");
            assert_eq!(segment.confirm_key(row, found, key.as_ref(), view), Some(true));
        }
        let read = segment.read_row(row);
        assert!(row < rows || read.is_none());
        if segment.is_compressed() {
            // What a row is decompressed with may be sound where its record batch is not.
            let unpacked = || unpacked(&segment, row);
            assert!(row >= COMPARED || read.is_none() || read == unpacked(), "row {row} has two values");
            continue;
        }
        let _ = segment.has_intact_leaves(row, None);
        for (number, leaf) in leaves.iter().enumerate() {
            let bytes = segment.leaf(number, row);
            let present = segment.is_present(number, row);
            assert!(row < rows || bytes.is_none() && present.is_none());
            assert!(bytes.zip(leaf.kind.width()).is_none_or(|(bytes, width)| bytes.len() == width));
        }
    }
    drop(keys);
    let _ = (segment.has_sound_keys(), segment.is_intact());
    for (number, leaf) in leaves.iter().enumerate() {
        let dense = segment.dense(number);
        let width = leaf.kind.width().unwrap_or(0);
        assert!(dense.is_none_or(|dense| dense.len() >= rows * width));
        let _ = copied(&segment, Stored::Leaf { number, width });
    }
    let _ = copied(&segment, Stored::Key);
}

/// The leaves of a compressed row as a lookup finds them.
fn unpacked(segment: &Segment, row: usize) -> Option<Vec<Value<'_>>> {
    segment.needed_at_first(row, None, &mut |_| {});
    segment.needed_by_offsets(row, None, &mut |_| {});
    let (rows, number) = segment.packed_rows(row)?;
    let unpacked = segment.unpack(rows)?;
    let leaf = |leaf| unpacked.value(leaf, number).map(|(bytes, present)| (bytes.to_vec().into(), present));
    Some((0..leaves().len()).map(leaf).collect::<Option<_>>().expect("a row has every leaf"))
}

/// Copies a column as compaction does; tells how many bytes that were.
fn copied(segment: &Segment, column: Stored) -> std::io::Result<usize> {
    let piece = Piece { source: PieceSource::Segment(segment), rows: PieceRows::Range(0..segment.rows()) };
    let mut bytes = 0;
    piece.hashes(crate::schema::key::KeySeed::NONE)?;
    piece.views(&mut |_, _| Ok(()))?;
    piece.lengths(column, &mut |_| Ok(()))?;
    piece.values(column, &mut |row| {
        bytes += row.len();
        Ok(())
    })?;
    Ok(bytes)
}

fn tail_start(file: &[u8]) -> Option<usize> {
    file.len().checked_sub(tail_len(file)?)
}

/// The footer of a valid file.
#[cfg(test)]
pub(crate) fn footer_of(file: &[u8]) -> &[u8] {
    &file[tail_start(file).unwrap() + END_OF_STREAM..file.len() - CLOSING]
}

/// The headers of a valid file's record batches.
#[cfg(test)]
pub(crate) fn batch_headers(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let footer = arrow_ipc::root_as_footer(footer_of(file)).unwrap();
    let ranges = footer.recordBatches().unwrap().iter().map(|block| block_ranges(block, file.len()).unwrap());
    ranges.map(|(start, body, _)| &file[start..body]).collect::<Vec<_>>().into_iter()
}
