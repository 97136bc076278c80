//! Sealing rows: from buffered batches to one Arrow IPC file.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{ArrayData, Int64Array};
use arrow::array::{
    ArrayRef, FixedSizeListArray, LargeBinaryArray, LargeStringArray, RecordBatch, UInt32Array, make_array,
};
use arrow::buffer::{Buffer, MutableBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

use super::columns::{KEY_COLUMNS, element};
use super::metadata::Metadata;
use crate::buffer::RowBatch;
use crate::bytes::Random;
use crate::checksum::{BlockChecksums, checksum};
use crate::key::KeyType;
use crate::name::{FileName, SegmentName};
use crate::schema::{Leaf, LeafKind};
use crate::storage::{Draft, Storage};

/// What the rows of a new segment have in common.
pub(crate) struct SegmentHeader<'a> {
    pub(crate) schema: &'a SchemaRef,
    pub(crate) leaves: &'a [Leaf],
    pub(crate) key_type: KeyType,
    pub(crate) identity: &'a str,
    pub(crate) instance: Random,
    pub(crate) base: u64,
    pub(crate) born: u64,
}

/// Some rows of a buffered batch.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) batch: &'a RowBatch,
    pub(crate) start: usize,
    pub(crate) rows: usize,
}

/// A complete file that waits for its name.
pub(crate) struct WrittenSegment {
    pub(crate) name: SegmentName,
    pub(crate) bytes: u64,
    draft: Box<dyn Draft>,
}

impl WrittenSegment {
    /// Durable when this returns.
    pub(crate) fn publish(self) -> io::Result<()> {
        self.draft.publish(&FileName::Segment(self.name).to_string(), true)
    }
}

/// Writes a segment of these pieces, in order.
pub(crate) fn write_segment(
    storage: &dyn Storage,
    header: &SegmentHeader<'_>,
    pieces: &[Piece<'_>],
) -> io::Result<WrittenSegment> {
    let batch = record_batch(header, pieces).map_err(broken)?;
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).map_err(broken)?;
    let target = ChecksumWriter::new(storage.draft()?);
    let mut file = FileWriter::try_new_with_options(target, header.schema, options).map_err(into_io)?;
    file.write(&batch).map_err(into_io)?;
    let checksums = file.get_mut().end_body();
    let metadata = Metadata {
        identity: header.identity.to_owned(),
        instance: header.instance,
        base: header.base,
        born: header.born,
        rows: batch.num_rows(),
        batch_rows: batch.num_rows(),
        view: common_view(pieces),
        checksums,
    };
    for (name, value) in metadata.entries() {
        file.write_metadata(name, value);
    }
    let target = file.into_inner().map_err(into_io)?;
    let name = SegmentName { random: Random::new(), tail: checksum(&target.tail) };
    Ok(WrittenSegment { name, bytes: target.written, draft: target.draft })
}

/// The view of all rows, if they share one.
fn common_view(pieces: &[Piece<'_>]) -> Option<u32> {
    let mut views = pieces.iter().map(|piece| piece.batch.keys.view());
    let first = views.next()?;
    views.all(|view| view == first).then_some(first)
}

fn record_batch(header: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> Result<RecordBatch, ArrowError> {
    let rows = pieces.iter().map(|piece| piece.rows).sum::<usize>();
    let views = pieces.iter().flat_map(|piece| std::iter::repeat_n(piece.batch.keys.view(), piece.rows));
    let mut arrays =
        vec![key_array(header.key_type, pieces)?, Arc::new(UInt32Array::from_iter_values(views))];
    for (number, leaf) in header.leaves.iter().enumerate() {
        let data_type = header.schema.field(KEY_COLUMNS + number).data_type();
        arrays.push(leaf_array(leaf, number, data_type, rows, pieces)?);
    }
    RecordBatch::try_new(header.schema.clone(), arrays)
}

fn key_array(key_type: KeyType, pieces: &[Piece<'_>]) -> Result<ArrayRef, ArrowError> {
    let keys = pieces.iter().flat_map(|p| (p.start..p.start + p.rows).map(|row| p.batch.keys.key(row)));
    if key_type == KeyType::Int {
        let ints = keys.filter_map(|key| key.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)));
        return Ok(Arc::new(Int64Array::from_iter_values(ints)));
    }
    let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
    for key in keys {
        bytes.extend_from_slice(key);
        offsets.push(bytes.len() as i64);
    }
    let (values, offsets) = (Buffer::from_vec(bytes), OffsetBuffer::new(ScalarBuffer::from(offsets)));
    Ok(match key_type {
        KeyType::Text => Arc::new(LargeStringArray::try_new(offsets, values, None)?),
        _ => Arc::new(LargeBinaryArray::try_new(offsets, values, None)?),
    })
}

fn leaf_array(
    leaf: &Leaf,
    number: usize,
    data_type: &DataType,
    rows: usize,
    pieces: &[Piece<'_>],
) -> Result<ArrayRef, ArrowError> {
    match &leaf.kind {
        LeafKind::Text => text_array(number, pieces),
        LeafKind::Dense { dtype, shape } => {
            let width = leaf.kind.width().unwrap_or_default();
            let elements = ArrayData::builder(element(*dtype))
                .len(rows * shape.iter().product::<usize>())
                .add_buffer(dense_values(number, width, rows, pieces));
            let elements = make_array(elements.build()?);
            let DataType::FixedSizeList(item, len) = data_type else { return Ok(elements) };
            Ok(Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *len, elements, None, rows)?))
        }
    }
}

/// The bytes of a dense leaf; a single piece is not copied.
fn dense_values(number: usize, width: usize, rows: usize, pieces: &[Piece<'_>]) -> Buffer {
    if let [piece] = pieces {
        let values = piece.batch.columns[number].values();
        return values.slice_with_length(piece.start * width, rows * width);
    }
    let mut joined = MutableBuffer::with_capacity(rows * width);
    for piece in pieces {
        let values = piece.batch.columns[number].values();
        joined.extend_from_slice(&values[piece.start * width..][..piece.rows * width]);
    }
    joined.into()
}

fn text_array(number: usize, pieces: &[Piece<'_>]) -> Result<ArrayRef, ArrowError> {
    let (mut values, mut offsets) = (Vec::new(), vec![0]);
    for piece in pieces {
        let column = &piece.batch.columns[number];
        // `RowBatch` only takes columns that fit their leaves.
        let own = column.offsets().unwrap_or_default();
        let (first, last) = (own[piece.start], own[piece.start + piece.rows]);
        let shift = values.len() as i64 - first;
        offsets.extend(own[piece.start + 1..=piece.start + piece.rows].iter().map(|offset| offset + shift));
        values.extend_from_slice(&column.values()[first as usize..last as usize]);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(LargeStringArray::try_new(offsets, Buffer::from_vec(values), None)?))
}

/// Counts and checksums what is written: the body by blocks, then the tail as a whole.
struct ChecksumWriter {
    draft: Box<dyn Draft>,
    written: u64,
    body: Option<BlockChecksums>,
    /// Kept to be checksummed: some hundred bytes, and 16 for each block of the body.
    tail: Vec<u8>,
}

impl ChecksumWriter {
    fn new(draft: Box<dyn Draft>) -> Self {
        Self { draft, written: 0, body: Some(BlockChecksums::new()), tail: Vec::new() }
    }

    /// What is written from here on is the tail.
    fn end_body(&mut self) -> Vec<u64> {
        self.body.take().map_or_else(Vec::new, BlockChecksums::finish)
    }
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.draft.write(bytes)?;
        let bytes = &bytes[..written];
        match &mut self.body {
            Some(body) => body.update(bytes),
            None => self.tail.extend_from_slice(bytes),
        }
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.draft.flush()
    }
}

fn into_io(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, source) => source,
        other => broken(&other),
    }
}

/// Arrow refuses what the store made: a mistake of the store, told as an error all the same.
fn broken(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("arrow refuses the rows: {error}"))
}
