//! Writing a segment: rows of buffered batches and of other segments, to one Arrow IPC file. The body is streamed
//! column by column from where the rows are: nothing is joined in memory.

use std::io;

use arrow_ipc::Block;
use arrow_schema::SchemaRef;

use super::ancestors::Ancestors;
use super::body::{Body, Sink};
use super::checksums::{BodyChecksums, block_of, table};
use super::codec::Codec;
use super::message::{BatchHeader, file_start, tail};
use super::metadata::Metadata;
use super::pack::{Packed, write_packed};
use super::piece::{Piece, Stored};
use crate::changes::Needs;
use crate::options::Compression;
use crate::schema::key::KeyType;
use crate::schema::leaf::{Leaf, LeafKind};
use crate::schema::presence::Presence;
use crate::storage::name::{FileName, SegmentName};
use crate::storage::{Draft, Storage};
use crate::sys::bytes::Random;
use crate::sys::checksum::checksum;

/// What the rows of a new segment have in common.
pub(crate) struct SegmentHeader<'a> {
    pub(crate) schema: &'a SchemaRef,
    pub(crate) leaves: &'a [Leaf],
    pub(crate) key_type: KeyType,
    pub(crate) identity: &'a str,
    pub(crate) instance: Random,
    pub(crate) needs: Needs,
    pub(crate) born: u64,
    /// When the youngest of the segments was born from which the rows came, if they came from any.
    pub(crate) youngest: Option<u64>,
    /// The segments that the new one replaces.
    pub(crate) inputs: Vec<SegmentName>,
    /// What these were joined from.
    pub(crate) ancestors: Ancestors,
    pub(crate) compression: Compression,
}

/// A complete file that waits for its name.
pub(crate) struct WrittenSegment {
    pub(crate) name: SegmentName,
    pub(crate) bytes: u64,
    draft: Box<dyn Draft>,
}

impl WrittenSegment {
    /// Makes the file durable, so that only its name is left to give.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.draft.sync()
    }

    /// Durable when this returns.
    pub(crate) fn publish(self) -> io::Result<()> {
        self.draft.publish(&FileName::Segment(self.name).to_string(), true)
    }
}

/// Writes a segment of these pieces, in order.
///
/// # Errors
///
/// Returns an error if a write fails. If a row of a source segment does not verify, the error is `InvalidData` and names the
/// segment.
pub(crate) fn write_segment(
    storage: &dyn Storage,
    header: &SegmentHeader<'_>,
    pieces: &[Piece<'_>],
) -> io::Result<WrittenSegment> {
    let rows = pieces.iter().map(Piece::rows).sum::<usize>();
    let codec = Codec::of(header.compression);
    let block = block_of(pieces);
    let mut body = Body::new(storage.draft()?, block);
    body.put(&file_start(header.schema)?)?;
    let Packed { blocks, batch_rows, unpacked, chunk_rows } = match codec {
        None => write_plain(&mut body, header, pieces)?,
        Some(codec) => write_packed(&mut body, header, pieces, codec)?,
    };
    let start = body.len().next_multiple_of(BodyChecksums::table_alignment(body.len().div_ceil(block)));
    body.pad_to(start)?;
    let body_bytes = body.len();
    let (mut draft, checksums) = body.finish()?;
    let (table, checksums) = table(block, body_bytes, &checksums);
    draft.write_all(&table)?;
    let metadata = Metadata {
        identity: header.identity.to_owned(),
        instance: header.instance,
        base: header.needs.base,
        commit: header.needs.commit,
        born: header.born,
        youngest: header.youngest,
        rows,
        batch_rows,
        view: common_view(pieces)?,
        inputs: header.inputs.clone(),
        ancestors: header.ancestors.clone(),
        codec: codec.map(|codec| (codec, unpacked)),
        chunk_rows,
        checksums,
    };
    let tail = tail(header.schema, &blocks, &metadata.entries())?;
    draft.write_all(&tail)?;
    let name = SegmentName { random: Random::new(), tail: checksum(&tail) };
    Ok(WrittenSegment { name, bytes: (body_bytes + table.len() + tail.len()) as u64, draft })
}

/// All rows in one record batch, as they are.
fn write_plain(body: &mut Body, header: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> io::Result<Packed> {
    let (columns, rows) = (columns(header, pieces)?, pieces.iter().map(Piece::rows).sum());
    // The header is as long wherever the buffers begin, which is where it ends.
    let start = body.len();
    let header =
        batch_header(&columns, pieces, start + batch_header(&columns, pieces, start).message()?.len());
    let message = header.message()?;
    body.put(&message)?;
    columns.iter().try_for_each(|column| column.write(rows, pieces, body))?;
    if body.len() != start + message.len() + header.body() {
        return Err(changed());
    }
    let message = i32::try_from(message.len()).map_err(io::Error::other)?;
    let block = Block::new(start as i64, message, header.body() as i64);
    Ok(Packed { blocks: vec![block], batch_rows: rows, unpacked: header.body(), chunk_rows: None })
}

/// The header of a record batch of these columns, whose buffers begin at `start`.
pub(super) fn batch_header(columns: &[Column], pieces: &[Piece<'_>], start: usize) -> BatchHeader {
    let rows = pieces.iter().map(Piece::rows).sum();
    let mut header = BatchHeader::new(rows, start);
    for column in columns {
        column.announce(rows, &mut header);
    }
    header
}

/// A source that is not what it was a moment ago.
pub(super) fn changed() -> io::Error {
    io::Error::other("the lengths of the rows have changed")
}

/// A column of the new segment.
pub(super) struct Column {
    values: Values,
    /// Which rows have a value, if not all have.
    presence: Option<Presence>,
}

enum Values {
    View,
    /// Rows of equal width: a list with a fixed number of elements, or the value itself.
    Fixed {
        stored: Stored,
        width: usize,
        list: Option<usize>,
    },
    /// Rows that differ in length, and the bytes of all of them: strings, or lists of elements of a size.
    Varying {
        stored: Stored,
        bytes: usize,
        element: Option<usize>,
    },
}

/// The columns in their order, see [`arrow_schema`](super::arrow_schema).
pub(super) fn columns(header: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> io::Result<Vec<Column>> {
    let key = match header.key_type {
        KeyType::Int => Values::Fixed { stored: Stored::Key, width: size_of::<i64>(), list: None },
        KeyType::Text | KeyType::Bytes => varying(pieces, Stored::Key, None)?,
    };
    let mut columns: Vec<_> =
        [key, Values::View].into_iter().map(|values| Column { values, presence: None }).collect();
    for (number, leaf) in header.leaves.iter().enumerate() {
        let width = leaf.kind.width().unwrap_or(0);
        let stored = Stored::Leaf { number, width };
        let values = match &leaf.kind {
            LeafKind::Dense { shape, .. } => {
                let list = leaf.kind.elements().filter(|_| !shape.is_empty());
                Values::Fixed { stored, width, list }
            }
            LeafKind::Ragged { dtype, .. } => varying(pieces, stored, Some(dtype.size()))?,
            LeafKind::Text | LeafKind::Bytes => varying(pieces, stored, None)?,
        };
        let presence = if leaf.optional { presence(pieces, number)? } else { None };
        columns.push(Column { values, presence });
    }
    Ok(columns)
}

fn varying(pieces: &[Piece<'_>], stored: Stored, element: Option<usize>) -> io::Result<Values> {
    let mut bytes = 0;
    pieces.iter().try_for_each(|piece| {
        piece.lengths(stored, &mut |len| {
            bytes += len;
            Ok(())
        })
    })?;
    Ok(Values::Varying { stored, bytes, element })
}

/// Which rows of a leaf have a value; nothing if all have.
fn presence(pieces: &[Piece<'_>], leaf: usize) -> io::Result<Option<Presence>> {
    let mut presence = Presence::default();
    pieces.iter().try_for_each(|piece| piece.presence(leaf, &mut |present| presence.push(present)))?;
    Ok(Some(presence).filter(|presence| presence.absent() > 0))
}

impl Column {
    /// Announces to the header of the batch what will be written.
    fn announce(&self, rows: usize, header: &mut BatchHeader) {
        match &self.presence {
            Some(presence) => header.nullable(rows, presence.absent(), presence.bits().len()),
            None => header.column(rows),
        }
        match self.values {
            Values::View => header.buffer(rows * size_of::<u32>()),
            Values::Fixed { width, list, .. } => {
                if let Some(elements) = list {
                    header.column(rows * elements);
                }
                header.values(rows * width);
            }
            Values::Varying { bytes, element, .. } => {
                header.buffer((rows + 1) * size_of::<i64>());
                if let Some(size) = element {
                    header.column(bytes / size);
                }
                header.buffer(bytes);
            }
        }
    }

    pub(super) fn write(&self, rows: usize, pieces: &[Piece<'_>], body: &mut impl Sink) -> io::Result<()> {
        if let Some(presence) = &self.presence {
            body.put(presence.bits())?;
            body.pad()?;
        }
        match self.values {
            Values::View => write_views(pieces, body)?,
            Values::Fixed { stored, width, .. } => {
                body.pad_for_values(rows * width)?;
                write_values(pieces, stored, body)?;
            }
            Values::Varying { stored, element, .. } => {
                write_offsets(pieces, stored, element.unwrap_or(1), body)?;
                body.pad()?;
                write_values(pieces, stored, body)?;
            }
        }
        body.pad()
    }
}

fn write_values(pieces: &[Piece<'_>], stored: Stored, body: &mut impl Sink) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| piece.values(stored, &mut |bytes| body.put(bytes)))
}

/// Where each row begins, and where the last one ends, in elements of this size.
fn write_offsets(pieces: &[Piece<'_>], stored: Stored, size: usize, body: &mut impl Sink) -> io::Result<()> {
    let mut end = 0_i64;
    body.put(&end.to_le_bytes())?;
    pieces.iter().try_for_each(|piece| {
        piece.lengths(stored, &mut |len| {
            end += (len / size) as i64;
            body.put(&end.to_le_bytes())
        })
    })
}

fn write_views(pieces: &[Piece<'_>], body: &mut impl Sink) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| {
        piece.views(&mut |view, rows| (0..rows).try_for_each(|_| body.put(&view.to_le_bytes())))
    })
}

/// The view of all rows, if they share one.
fn common_view(pieces: &[Piece<'_>]) -> io::Result<Option<u32>> {
    let (mut first, mut shared) = (None, true);
    for piece in pieces {
        piece.views(&mut |view, _| {
            shared &= *first.get_or_insert(view) == view;
            Ok(())
        })?;
    }
    Ok(first.filter(|_| shared))
}
