//! The messages of an Arrow IPC file around the rows: the schema, the header of a record batch, the footer. Laid
//! out as arrow's own `FileWriter` does it, which wants the rows in memory as one batch.

use std::io;

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{
    Block, BodyCompression, BodyCompressionArgs, BodyCompressionMethod, Buffer, FieldNode, FooterBuilder,
    KeyValueBuilder, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use arrow_schema::ArrowError;
use arrow_schema::Schema;
use flatbuffers::FlatBufferBuilder;

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
    codec: Option<Codec>,
}

impl BatchHeader {
    pub(super) fn new(rows: usize, start: usize) -> Self {
        Self { rows, nodes: Vec::new(), buffers: Vec::new(), start, body: 0, codec: None }
    }

    /// The header of the same columns in buffers that are compressed, which follow.
    pub(super) fn compressed(&self, codec: Codec) -> Self {
        let nodes = self.nodes.clone();
        Self { rows: self.rows, nodes, buffers: Vec::new(), start: 0, body: 0, codec: Some(codec) }
    }

    /// Where each buffer begins in the body, and its length.
    pub(super) fn spans(&self) -> impl Iterator<Item = (usize, usize)> {
        self.buffers.iter().map(|buffer| (buffer.offset() as usize, buffer.length() as usize))
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
    }

    /// The next buffer of the column, of `len` bytes.
    pub(super) fn buffer(&mut self, len: usize) {
        self.buffers.push(Buffer::new(self.body as i64, len as i64));
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
        let compression = self.codec.map(|codec| {
            let args = BodyCompressionArgs { codec: codec.arrow(), method: BodyCompressionMethod::BUFFER };
            BodyCompression::create(&mut builder, &args)
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
    let mut pairs = Vec::with_capacity(metadata.len());
    for (name, value) in metadata {
        let (name, value) = (builder.create_string(name), builder.create_string(value));
        let mut pair = KeyValueBuilder::new(&mut builder);
        pair.add_key(name);
        pair.add_value(value);
        pairs.push(pair.finish());
    }
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
