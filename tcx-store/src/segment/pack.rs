//! Writing compressed record batches, whose buffers consist of chunks, so that reading one row decompresses little.

use std::fmt::Write as _;
use std::io;

use arrow_ipc::Block;

use super::body::{Body, Sink};
use super::codec::{Codec, MOST_CHUNK};
use super::columns::KEY_COLUMNS;
use super::message::BatchHeader;
use super::packed::{BUFFERS, NUMBERS};
use super::piece::{Piece, PieceRows, Stored};
use super::writer::{SegmentHeader, batch_header, changed, columns};

/// What the rows of a record batch take before they are compressed, keys not counted. Rows that are larger than the largest chunk have
/// batches of their own.
const BATCH: usize = 256 << 10;
/// What the rows take that are decompressed together; more if a single row has more.
const ROWS: usize = 8 << 10;
/// The fewest bytes of a chunk: shorter ones are hardly compressed. Where rows differ in length, chunks begin with more, since a row
/// lies in two of them at least.
const LEAST_CHUNK: usize = 1 << 10;
const LEAST_VARYING_CHUNK: usize = 4 << 10;
/// Chunks are made larger while they take more than this part more than the largest do.
const MORE: usize = 15;
/// No batch is compressed that has more bytes than this: a reader allocates what it says it has.
pub(crate) const MOST_UNPACKED: usize = 16 << 20;
/// Precedes the bytes of a buffer that is not compressed, instead of their number.
pub(super) const RAW: i64 = -1;
/// Bytes of that number.
pub(super) const PREFIX: usize = size_of::<i64>();

/// The record batches of a segment.
pub(super) struct Packed {
    pub(super) blocks: Vec<Block>,
    /// Rows of each but the last.
    pub(super) batch_rows: usize,
    /// Bytes of all of them before they were compressed.
    pub(super) unpacked: usize,
    /// Rows that are decompressed together, if they are compressed.
    pub(super) chunk_rows: Option<usize>,
}

/// A record batch before it is compressed.
struct Plain {
    header: BatchHeader,
    bytes: Vec<u8>,
    /// Buffers of the keys, which are confirmed where they lie.
    key_buffers: usize,
}

/// How the batches of a segment are compressed.
struct Chunking {
    codec: Codec,
    /// By the number of the buffer; `None` for one that is compressed as a whole.
    chunks: Vec<Option<usize>>,
}

/// Writes the rows of these pieces in compressed record batches.
pub(super) fn write_packed(
    body: &mut Body,
    header: &SegmentHeader<'_>,
    pieces: &[Piece<'_>],
    codec: Codec,
) -> io::Result<Packed> {
    let row_bytes = row_bytes(header, pieces)?;
    let rows = pieces.iter().map(Piece::rows).sum::<usize>();
    let batch_rows = if row_bytes > MOST_CHUNK { 1 } else { (BATCH / row_bytes).clamp(1, rows.max(1)) };
    let mut packed = Packed { blocks: Vec::new(), batch_rows, unpacked: 0, chunk_rows: None };
    let mut chunking = None;
    for pieces in batches(pieces, batch_rows) {
        let plain = Plain::new(header, &pieces)?;
        // By the first batch, for all.
        let chunking = match &chunking {
            Some(chunking) => chunking,
            None => chunking.insert(Chunking::new(codec, &plain, row_bytes)?),
        };
        packed.chunk_rows.get_or_insert_with(|| chunking.rows(&plain, row_bytes));
        packed.blocks.push(chunking.write(body, &plain)?);
        packed.unpacked += plain.bytes.len();
    }
    Ok(packed)
}

/// How many bytes a row has on average, keys not counted; at least one.
fn row_bytes(header: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> io::Result<usize> {
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
    Ok(bytes.div_ceil(rows.max(1)).max(1))
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

impl Plain {
    fn new(segment: &SegmentHeader<'_>, pieces: &[Piece<'_>]) -> io::Result<Self> {
        let columns = columns(segment, pieces)?;
        let header = batch_header(&columns, pieces, 0);
        let mut bytes = Vec::with_capacity(header.body());
        columns.iter().try_for_each(|column| column.write(header.rows(), pieces, &mut bytes))?;
        let key_buffers = batch_header(&columns[..KEY_COLUMNS], pieces, 0).spans().count();
        Ok(Self { header, bytes, key_buffers })
    }

    /// The bytes of each buffer, and those of a row in it, where rows have equal length, or 1.
    fn buffers(&self) -> impl Iterator<Item = io::Result<(&[u8], usize)>> {
        self.header.spans().map(|(start, len, stride)| {
            let bytes = self.bytes.get(start..start + len).ok_or_else(changed)?;
            Ok((bytes, stride))
        })
    }
}

impl Chunking {
    /// Of each buffer the smallest chunks that take little more than the largest.
    fn new(codec: Codec, plain: &Plain, row_bytes: usize) -> io::Result<Self> {
        let buffers = plain.buffers().collect::<io::Result<Vec<_>>>()?;
        let least = |number: usize, stride: usize| {
            let least = match stride {
                1 => LEAST_VARYING_CHUNK,
                stride => (ROWS / row_bytes).max(LEAST_CHUNK.div_ceil(stride)).max(1) * stride,
            };
            // A batch of one row is decompressed as a whole anyway.
            (number >= plain.key_buffers && row_bytes.max(least) <= MOST_CHUNK).then_some(least)
        };
        let mut packed = Vec::with_capacity(buffers.len());
        for (number, &(bytes, stride)) in buffers.iter().enumerate() {
            packed.push(match least(number, stride) {
                Some(least) => packed_len(codec, bytes, MOST_CHUNK / least * least)?,
                None => bytes.len(),
            });
        }
        let bytes = |lens: &mut dyn Iterator<Item = usize>| lens.skip(plain.key_buffers).sum::<usize>();
        let all = bytes(&mut buffers.iter().map(|(bytes, _)| bytes.len())).max(1);
        let all_packed = bytes(&mut packed.iter().copied());
        let mut chunks = Vec::with_capacity(buffers.len());
        for (number, (&(bytes, stride), packed)) in buffers.iter().zip(packed).enumerate() {
            // Half of what a buffer may take more is by its share of the rows: it does not matter that a short one is nearly as short.
            let more = (packed + bytes.len() * all_packed / all) / (2 * MORE);
            let chunk = least(number, stride).map(|least| chunk_of(codec, bytes, least, packed + more));
            chunks.push(chunk.transpose()?);
        }
        Ok(Self { codec, chunks })
    }

    /// How many rows are decompressed together: the fewest of which the chunks have at most twice as many bytes as the rows.
    fn rows(&self, plain: &Plain, row_bytes: usize) -> usize {
        let most = plain.header.rows().max(1);
        let leaves = || plain.header.spans().zip(&self.chunks).skip(plain.key_buffers);
        let bytes = leaves().map(|((_, len, _), _)| len).sum::<usize>();
        let mut rows = (ROWS / row_bytes).clamp(1, most);
        let unpacked = |rows: usize| {
            let of = |((_, len, _), chunk): ((_, usize, _), &Option<usize>)| {
                (rows * len / most).max(chunk.unwrap_or(len).min(len))
            };
            leaves().map(of).sum::<usize>()
        };
        while rows < most && unpacked(rows) > 2 * rows * bytes / most {
            rows *= 2;
        }
        rows.min(most)
    }

    /// Writes a batch; returns where it is.
    fn write(&self, body: &mut Body, plain: &Plain) -> io::Result<Block> {
        let compresses = plain.bytes.len() <= MOST_UNPACKED;
        let (mut lens, mut bytes, mut table) = (Vec::new(), Vec::new(), String::new());
        for (number, buffer) in plain.buffers().enumerate() {
            if number > 0 {
                table.push(BUFFERS);
            }
            let ((buffer, _), before) = (buffer?, bytes.len());
            if !buffer.is_empty() {
                let chunk = self.chunks.get(number).filter(|_| compresses && number >= plain.key_buffers);
                pack(self.codec, buffer, chunk, &mut bytes, &mut table)?;
            }
            lens.push(bytes.len() - before);
            bytes.pad()?;
        }
        let header = plain.header.compressed(self.codec, &lens, table);
        let (start, message) = (body.len(), header.message()?);
        body.put(&message)?;
        body.put(&bytes)?;
        let message = i32::try_from(message.len()).map_err(io::Error::other)?;
        Ok(Block::new(start as i64, message, header.body() as i64))
    }
}

/// What a buffer takes in chunks of this number of bytes, or as it is if that is less.
fn packed_len(codec: Codec, buffer: &[u8], chunk: usize) -> io::Result<usize> {
    Ok(codec.compress_chunks(buffer, chunk)?.0.len().min(buffer.len()))
}

/// The bytes of a buffer's chunks, a multiple of `least`: the fewest with which the buffer takes at most `most` bytes.
fn chunk_of(codec: Codec, buffer: &[u8], least: usize, most: usize) -> io::Result<usize> {
    let largest = MOST_CHUNK / least * least;
    let mut chunk = least;
    while chunk < largest.min(buffer.len()) && packed_len(codec, buffer, chunk)? > most {
        chunk *= 2;
    }
    Ok(chunk.min(largest))
}

/// A buffer as it is in the file, compressed if that makes it shorter, and its entry in the table of chunks.
fn pack(
    codec: Codec,
    buffer: &[u8],
    chunk: Option<&Option<usize>>,
    out: &mut Vec<u8>,
    table: &mut String,
) -> io::Result<()> {
    let packed = match chunk {
        None => None,
        Some(None) => Some((codec.compress(buffer)?, Vec::new())),
        Some(Some(chunk)) => Some(codec.compress_chunks(buffer, *chunk)?),
    };
    let Some((packed, lens)) = packed.filter(|(packed, _)| packed.len() < buffer.len()) else {
        out.extend_from_slice(&RAW.to_le_bytes());
        out.extend_from_slice(buffer);
        return Ok(());
    };
    out.extend_from_slice(&(buffer.len() as i64).to_le_bytes());
    out.extend_from_slice(&packed);
    let chunk = chunk.copied().flatten();
    for number in [buffer.len()].into_iter().chain(chunk).chain(lens) {
        if !(table.is_empty() || table.ends_with(BUFFERS)) {
            table.push(NUMBERS);
        }
        write!(table, "{number}").map_err(io::Error::other)?;
    }
    Ok(())
}
