//! Where in a segment's file the columns of its record batches lie: parsed from the footer and the batches'
//! headers, every offset checked.

use std::num::NonZeroUsize;

use arrow::datatypes::{DataType, Schema};
use arrow_ipc::{Block, Footer, RecordBatch};

use super::columns::KEY_COLUMNS;
use super::piece::Stored;

/// Bytes before the flatbuffer of a message: the continuation marker and a length.
const MESSAGE_PREFIX: usize = 8;

/// The bytes of one column of a record batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where the values begin in the file, and how many bytes they are.
    pub(super) values: usize,
    pub(super) len: usize,
    /// Where the 64-bit offsets begin, for keys and rows of differing length.
    pub(super) offsets: Option<NonZeroUsize>,
    /// Bytes of a row, 0 where rows differ in length.
    pub(super) width: usize,
}

/// The columns of one record batch: key, view, leaves.
#[derive(Debug)]
pub(super) struct BatchLayout {
    pub(super) rows: usize,
    pub(super) key: Place,
    pub(super) view: Place,
    pub(super) leaves: Vec<Place>,
}

impl BatchLayout {
    pub(super) fn place(&self, column: Stored) -> Option<&Place> {
        match column {
            Stored::Key => Some(&self.key),
            Stored::Leaf { number, .. } => self.leaves.get(number),
        }
    }
}

/// Bytes of a row of this type, 0 where rows differ in length.
fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(item, len) => *len as usize * width(item.data_type()),
        other => other.primitive_width().unwrap_or(0),
    }
}

/// Whether the file's columns have the names and kinds of `schema`.
pub(super) fn has_schema(footer: &Footer<'_>, schema: &Schema) -> bool {
    let Some(fields) = footer.schema().and_then(|own| own.fields()) else { return false };
    fields.len() == schema.fields().len()
        && fields.iter().zip(schema.fields()).all(|(own, field)| {
            let kind = match field.data_type() {
                DataType::FixedSizeList(_, len) => {
                    own.type_as_fixed_size_list().is_some_and(|list| list.listSize() == *len)
                }
                DataType::LargeUtf8 => own.type_type() == arrow_ipc::Type::LargeUtf8,
                DataType::LargeBinary => own.type_type() == arrow_ipc::Type::LargeBinary,
                DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                    own.type_type() == arrow_ipc::Type::FloatingPoint
                }
                _ => own.type_type() == arrow_ipc::Type::Int,
            };
            own.name() == Some(field.name()) && kind
        })
}

/// The bytes of a block's header and body in the file, if they lie before `end`.
pub(super) fn block_ranges(block: &Block, end: usize) -> Option<(usize, usize, usize)> {
    let start = usize::try_from(block.offset()).ok()?;
    let body = start.checked_add(usize::try_from(block.metaDataLength()).ok()?)?;
    let stop = body.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
    (stop <= end && start + MESSAGE_PREFIX <= body).then_some((start, body, stop))
}

/// The layout of the record batch whose header is `header` and whose buffers are `body..stop` of the file.
pub(super) fn parse_batch(
    header: &[u8],
    body: usize,
    stop: usize,
    schema: &Schema,
) -> Result<BatchLayout, String> {
    let message = header.get(MESSAGE_PREFIX..).ok_or("a record batch has no header")?;
    let message =
        arrow_ipc::root_as_message(message).map_err(|error| format!("a record batch's header: {error}"))?;
    let batch = message.header_as_record_batch().ok_or("a block is no record batch")?;
    if batch.compression().is_some() {
        return Err("a record batch is compressed, which this version does not read".to_owned());
    }
    layout(&batch, body, stop, schema)
        .ok_or_else(|| "a record batch's buffers do not fit its schema".to_owned())
}

fn layout(batch: &RecordBatch<'_>, body: usize, stop: usize, schema: &Schema) -> Option<BatchLayout> {
    if batch.nodes()?.iter().any(|node| node.null_count() != 0) {
        return None;
    }
    let rows = usize::try_from(batch.length()).ok()?;
    let mut buffers = batch.buffers()?.iter().map(|buffer| {
        let start = body.checked_add(usize::try_from(buffer.offset()).ok()?)?;
        let len = usize::try_from(buffer.length()).ok()?;
        (start.checked_add(len)? <= stop).then_some((start, len))
    });
    let mut next = || buffers.next().flatten();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        next()?; // validity: without nulls it says nothing
        if matches!(field.data_type(), DataType::FixedSizeList(..)) {
            next()?;
        }
        columns.push(place(width(field.data_type()), rows, &mut next)?);
    }
    let leaves = columns.split_off(KEY_COLUMNS);
    let [key, view] = columns[..] else { return None };
    Some(BatchLayout { rows, key, view, leaves })
}

fn place(width: usize, rows: usize, next: &mut impl FnMut() -> Option<(usize, usize)>) -> Option<Place> {
    let (first, bytes) = next()?;
    if width > 0 {
        let len = rows.checked_mul(width)?;
        return (len <= bytes).then_some(Place { values: first, len, offsets: None, width });
    }
    let complete = rows.checked_add(1)?.checked_mul(size_of::<i64>())? <= bytes;
    let (values, len) = next()?;
    // No buffer begins where the file does.
    let offsets = Some(NonZeroUsize::new(first)?);
    complete.then_some(Place { values, len, offsets, width })
}
