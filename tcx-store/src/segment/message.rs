//! The messages of an Arrow IPC file around the rows: the schema, the header of a record batch, the footer. Laid
//! out as arrow's own `FileWriter` does it, which wants the rows in memory as one batch.

use std::io;

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{
    Block, BodyCompression, BodyCompressionArgs, BodyCompressionMethod, Buffer, FieldNode, FooterBuilder,
    KeyValue, KeyValueBuilder, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use arrow_schema::ArrowError;
use arrow_schema::Schema;
use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::codec::Codec;

/// Messages and buffers begin at multiples of this.
pub(super) const ALIGNMENT: usize = 64;
const MAGIC: &[u8; 6] = b"ARROW1";
/// The end-of-stream marker: a message of no bytes.
const END_OF_STREAM: [u8; 8] = [255, 255, 255, 255, 0, 0, 0, 0];

/// The values of a large column begin at a page of memory: a row that is as long as a page then lies in one of them, and
/// reading it asks for fewer translations of addresses.
const PAGE: usize = 4096;
/// A column of this number of bytes is large: what aligning it wastes is next to nothing.
const LARGE: usize = 16 * PAGE;

/// The metadata of a record batch with its chunks, see `docs/format.md`.
pub(super) const CHUNKS: &str = "tcx.chunks";

/// Bytes that are missing to the next multiple of [`ALIGNMENT`].
pub(super) fn padding(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT) - len
}

/// What the beginning of the values of a column is a multiple of in the file, if they have `len` bytes.
pub(super) fn alignment_of_values(len: usize) -> usize {
    if len < LARGE { ALIGNMENT } else { PAGE }
}

/// The beginning of a file: the magic and the schema.
pub(super) fn file_start(schema: &Schema) -> io::Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    out.resize(ALIGNMENT, 0);
    let mut dictionaries = DictionaryTracker::new(true);
    let encoder = IpcDataGenerator::default();
    let message = encoder.schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut dictionaries,
        &options().map_err(refused)?,
    );
    frame(&mut out, message.ipc_message)?;
    Ok(out)
}

/// The header of a record batch, made while its columns are announced one after the other.
pub(super) struct BatchHeader {
    rows: usize,
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    /// Where the buffers begin in the file.
    start: usize,
    body: usize,
    /// How the buffers are compressed, and the table of their chunks.
    codec: Option<(Codec, String)>,
    /// By the number of the buffer: the bytes of a row in it, where rows have equal length; 1 otherwise.
    strides: Vec<usize>,
}

impl BatchHeader {
    pub(super) fn new(rows: usize, start: usize) -> Self {
        Self {
            rows,
            nodes: Vec::new(),
            buffers: Vec::new(),
            start,
            body: 0,
            codec: None,
            strides: Vec::new(),
        }
    }

    /// The header of the same columns in buffers of these lengths, which are compressed, with the table of their chunks.
    pub(super) fn compressed(&self, codec: Codec, buffers: &[usize], chunks: String) -> Self {
        let mut header = Self::new(self.rows, 0);
        header.nodes.clone_from(&self.nodes);
        header.codec = Some((codec, chunks));
        for len in buffers {
            header.buffer(*len);
        }
        header
    }

    /// Where each buffer begins in the body, its length, and the bytes of a row in it, where rows have equal length, or 1.
    pub(super) fn spans(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let spans = self.buffers.iter().map(|buffer| (buffer.offset() as usize, buffer.length() as usize));
        spans.zip(&self.strides).map(|((start, len), stride)| (start, len, *stride))
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// A column of `values` values, none of them null: its buffers follow.
    pub(super) fn column(&mut self, values: usize) {
        self.nullable(values, 0, 0);
    }

    /// A column of `values` values, of which `nulls` are null, with a bitmap of `bitmap` bytes; without nulls there is no bitmap.
    pub(super) fn nullable(&mut self, values: usize, nulls: usize, bitmap: usize) {
        self.nodes.push(FieldNode::new(values as i64, nulls as i64));
        self.buffer(bitmap);
    }

    /// The next buffer of the column, of `len` bytes: values.
    pub(super) fn values(&mut self, len: usize) {
        self.body = (self.start + self.body).next_multiple_of(alignment_of_values(len)) - self.start;
        self.buffer(len);
        if let (Some(stride), Some(width)) = (self.strides.last_mut(), len.checked_div(self.rows)) {
            *stride = width.max(1);
        }
    }

    /// The next buffer of the column, of `len` bytes.
    pub(super) fn buffer(&mut self, len: usize) {
        self.buffers.push(Buffer::new(self.body as i64, len as i64));
        self.strides.push(1);
        self.body += len + padding(len);
    }

    /// Bytes of all buffers with their padding.
    pub(super) fn body(&self) -> usize {
        self.body
    }

    pub(super) fn message(&self) -> io::Result<Vec<u8>> {
        let mut builder = FlatBufferBuilder::new();
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(&self.buffers);
        let compression = self.codec.as_ref().map(|(codec, _)| {
            let args = BodyCompressionArgs { codec: codec.arrow(), method: BodyCompressionMethod::BUFFER };
            BodyCompression::create(&mut builder, &args)
        });
        let chunks = self.codec.as_ref().map(|(_, chunks)| {
            let pair = pair(&mut builder, CHUNKS, chunks);
            builder.create_vector(&[pair])
        });
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(self.rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        if let Some(compression) = compression {
            batch.add_compression(compression);
        }
        let batch = batch.finish();
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(self.body as i64);
        message.add_header(batch.as_union_value());
        if let Some(chunks) = chunks {
            message.add_custom_metadata(chunks);
        }
        let message = message.finish();
        builder.finish(message, None);
        let mut out = Vec::new();
        frame(&mut out, builder.finished_data().to_vec())?;
        Ok(out)
    }
}

/// The tail of a file: the end-of-stream marker, the footer with this metadata, its length, the magic.
pub(super) fn tail(schema: &Schema, blocks: &[Block], metadata: &[(&str, String)]) -> io::Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<Block>(&[]);
    let blocks = builder.create_vector(blocks);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let pairs: Vec<_> = metadata.iter().map(|(name, value)| pair(&mut builder, name, value)).collect();
    let pairs = builder.create_vector(&pairs);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(blocks);
    footer.add_custom_metadata(pairs);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    let len = i32::try_from(footer.len()).map_err(refused)?;
    Ok([&END_OF_STREAM[..], footer, &len.to_le_bytes(), MAGIC].concat())
}

/// An entry of metadata.
fn pair<'b>(builder: &mut FlatBufferBuilder<'b>, name: &str, value: &str) -> WIPOffset<KeyValue<'b>> {
    let (name, value) = (builder.create_string(name), builder.create_string(value));
    let mut pair = KeyValueBuilder::new(builder);
    pair.add_key(name);
    pair.add_value(value);
    pair.finish()
}

/// Appends a message with its length before it, and zeros up to the next multiple of [`ALIGNMENT`].
fn frame(out: &mut Vec<u8>, message: Vec<u8>) -> io::Result<()> {
    let message = EncodedData { ipc_message: message, arrow_data: Vec::new() };
    write_message(out, message, &options().map_err(refused)?).map_err(refused)?;
    Ok(())
}

fn options() -> Result<IpcWriteOptions, ArrowError> {
    IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
}

/// Arrow refuses what the store made: a mistake of the store, returned as an error all the same.
fn refused(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("arrow refuses the segment: {error}"))
}
