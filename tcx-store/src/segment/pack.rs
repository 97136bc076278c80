//! Writing compressed record batches: small ones, so that reading one row decompresses little.

use std::io;

use arrow_ipc::Block;

use super::body::{Body, Sink};
use super::codec::Codec;
use super::columns::KEY_COLUMNS;
use super::piece::{Piece, PieceRows, Stored};
use super::writer::{SegmentHeader, batch_header, changed, columns};

/// What the rows of a record batch take before they are compressed, keys not counted; more if a single row has more.
const BATCH: usize = 64 << 10;
/// No batch is compressed that has more bytes than this: a reader allocates what it says it has.
pub(crate) const MOST_UNPACKED: usize = 16 << 20;
/// Precedes the bytes of a buffer that is not compressed, instead of their number.
pub(super) const RAW: i64 = -1;
/// Bytes of that number.
pub(super) const PREFIX: usize = size_of::<i64>();

/// The record batches of a compressed segment.
pub(super) struct Packed {
    pub(super) blocks: Vec<Block>,
    /// Rows of each but the last.
    pub(super) batch_rows: usize,
    /// Bytes of all of them before they were compressed.
    pub(super) unpacked: usize,
}

/// Writes the rows of these pieces in compressed record batches.
pub(super) fn write_packed(
    body: &mut Body,
    header: &SegmentHeader<'_>,
    pieces: &[Piece<'_>],
    codec: Codec,
) -> io::Result<Packed> {
    let batch_rows = batch_rows(header, pieces)?;
    let (mut blocks, mut unpacked) = (Vec::new(), 0);
    for pieces in batches(pieces, batch_rows) {
        let (block, bytes) = write_batch(body, header, &pieces, codec)?;
        blocks.push(block);
        unpacked += bytes;
    }
    Ok(Packed { blocks, batch_rows, unpacked })
}

/// How many rows make a batch.
fn batch_rows(header: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> io::Result<usize> {
    let rows = pieces.iter().map(Piece::rows).sum::<usize>();
    let mut bytes = 0;
    for (number, leaf) in header.leaves.iter().enumerate() {
        match leaf.kind.width() {
            Some(width) => bytes += rows * width,
            None => pieces.iter().try_for_each(|piece| {
                piece.lengths(Stored::Leaf { number, width: 0 }, &mut |len| {
                    bytes += len + size_of::<i64>();
                    Ok(())
                })
            })?,
        }
    }
    let row_bytes = bytes.div_ceil(rows.max(1)).max(1);
    Ok((BATCH / row_bytes).clamp(1, rows.max(1)))
}

/// The same rows, `batch_rows` at a time; one batch without rows where there are none.
fn batches<'a>(pieces: &[Piece<'a>], batch_rows: usize) -> Vec<Vec<Piece<'a>>> {
    let (mut batches, mut current, mut room) = (Vec::new(), Vec::new(), batch_rows);
    for piece in pieces {
        let mut start = 0;
        while start < piece.rows() {
            let end = piece.rows().min(start + room);
            let rows = match &piece.rows {
                PieceRows::Range(range) => PieceRows::Range(range.start + start..range.start + end),
                PieceRows::Selected(rows) => PieceRows::Selected(&rows[start..end]),
            };
            current.push(Piece { source: piece.source, rows });
            (room, start) = (room - (end - start), end);
            if room == 0 {
                batches.push(std::mem::take(&mut current));
                room = batch_rows;
            }
        }
    }
    if batches.is_empty() || !current.is_empty() {
        batches.push(current);
    }
    batches
}

/// Writes one batch; returns where it is and its size before compression.
fn write_batch(
    body: &mut Body,
    header: &SegmentHeader<'_>,
    pieces: &[Piece<'_>],
    codec: Codec,
) -> io::Result<(Block, usize)> {
    let (columns, rows) = (columns(header, pieces)?, pieces.iter().map(Piece::rows).sum());
    let plain = batch_header(&columns, pieces, 0);
    let mut unpacked = Vec::with_capacity(plain.body());
    columns.iter().try_for_each(|column| column.write(rows, pieces, &mut unpacked))?;
    let compresses = unpacked.len() <= MOST_UNPACKED;
    // Keys are confirmed where they lie.
    let key_buffers = batch_header(&columns[..KEY_COLUMNS], pieces, 0).spans().count();
    let (mut packed, mut bytes) = (plain.compressed(codec), Vec::new());
    for (number, (start, len)) in plain.spans().enumerate() {
        let buffer = unpacked.get(start..start + len).ok_or_else(changed)?;
        let before = bytes.len();
        if len > 0 {
            pack(codec, buffer, compresses && number >= key_buffers, &mut bytes)?;
        }
        packed.buffer(bytes.len() - before);
        bytes.pad()?;
    }
    let (start, message) = (body.len(), packed.message()?);
    body.put(&message)?;
    body.put(&bytes)?;
    let message = i32::try_from(message.len()).map_err(io::Error::other)?;
    Ok((Block::new(start as i64, message, packed.body() as i64), unpacked.len()))
}

/// A buffer as it is in the file: compressed if that makes it shorter.
fn pack(codec: Codec, buffer: &[u8], compresses: bool, out: &mut Vec<u8>) -> io::Result<()> {
    let packed = if compresses { Some(codec.compress(buffer)?) } else { None };
    let packed = packed.filter(|packed| packed.len() < buffer.len());
    let len = if packed.is_some() { buffer.len() as i64 } else { RAW };
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(packed.as_deref().unwrap_or(buffer));
    Ok(())
}
