//! Where in a segment's file the columns of its record batches lie: parsed from the footer and the batches'
//! headers, every offset checked.

use std::num::NonZeroUsize;
use std::ops::{Deref, Range};

use arrow_ipc::{Block, BodyCompressionMethod, Footer, RecordBatch};
use arrow_schema::{DataType, FieldRef, Schema};

use super::codec::Codec;
use super::columns::KEY_COLUMNS;
use super::message::CHUNKS;
use super::piece::Stored;
use crate::schema::constraint::Constraint;
use crate::schema::leaf::Leaf;
use crate::sys::bytes::u64_at;

/// Bytes before the flatbuffer of a message: the continuation marker and a length.
const MESSAGE_PREFIX: usize = 8;

/// Where a buffer begins, and its length.
pub(super) type Span = (usize, usize);

/// The bytes of one column of a record batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnPlace {
    /// Where the values begin in the file, and how many bytes they are.
    pub(super) values: usize,
    pub(super) len: usize,
    /// Where the 64-bit offsets begin, for keys and rows of differing length.
    pub(super) offsets: Option<NonZeroUsize>,
    /// Bytes of a row; where rows differ in length, those that the offsets count in.
    pub(super) width: usize,
    /// Where the bits begin that say which rows have a value, if not all have.
    pub(super) validity: Option<NonZeroUsize>,
    /// What the row of a leaf has to be.
    pub(super) content: Constraint,
}

/// The columns of one record batch: key, view, leaves.
#[derive(Debug)]
pub(super) struct BatchLayout {
    pub(super) rows: usize,
    pub(super) key: ColumnPlace,
    pub(super) view: ColumnPlace,
    pub(super) leaves: Vec<ColumnPlace>,
}

impl ColumnPlace {
    /// Where the bytes of a row are, by the offsets, if it has any, that `read` finds in a range; `None` if they are wrong.
    #[inline]
    pub(super) fn range<B: Deref<Target = [u8]>>(
        &self,
        row: usize,
        read: impl FnOnce(Range<usize>) -> Option<B>,
    ) -> Option<Range<usize>> {
        let Some(offsets) = self.offsets else {
            let start = self.values + row * self.width;
            return Some(start..start + self.width);
        };
        let at = offsets.get() + row * size_of::<i64>();
        // `read` verifies them. What they say is checked all the same: a checksum proves who wrote it, not that it is right.
        let both = read(at..at + 2 * size_of::<i64>())?;
        let position = |at| usize::try_from(u64_at(&both, at)?).ok()?.checked_mul(self.width);
        let (start, end) = (position(0)?, position(size_of::<i64>())?);
        (start <= end && end <= self.len).then(|| self.values + start..self.values + end)
    }
}

impl BatchLayout {
    pub(super) fn place(&self, column: Stored) -> Option<&ColumnPlace> {
        match column {
            Stored::Key => Some(&self.key),
            Stored::Leaf { number, .. } => self.leaves.get(number),
        }
    }
}

/// Bytes of a row of this type; where rows differ in length, those that their offsets count in.
fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(item, len) => *len as usize * width(item.data_type()),
        DataType::LargeList(item) => width(item.data_type()),
        other => other.primitive_width().unwrap_or(1),
    }
}

fn is_varying(data_type: &DataType) -> bool {
    matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_))
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
                DataType::LargeList(_) => own.type_type() == arrow_ipc::Type::LargeList,
                DataType::LargeUtf8 => own.type_type() == arrow_ipc::Type::LargeUtf8,
                DataType::LargeBinary => own.type_type() == arrow_ipc::Type::LargeBinary,
                DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                    own.type_type() == arrow_ipc::Type::FloatingPoint
                }
                _ => own.type_type() == arrow_ipc::Type::Int,
            };
            own.name() == Some(field.name()) && own.nullable() == field.is_nullable() && kind
        })
}

/// The bytes of a block's header and body in the file, if they lie before `end`.
pub(super) fn block_ranges(block: &Block, end: usize) -> Option<(usize, usize, usize)> {
    let start = usize::try_from(block.offset()).ok()?;
    let body = start.checked_add(usize::try_from(block.metaDataLength()).ok()?)?;
    let stop = body.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
    (stop <= end && start + MESSAGE_PREFIX <= body).then_some((start, body, stop))
}

/// The record batch of a header, whose buffers have to be compressed with `codec`.
pub(super) fn record_batch(header: &[u8], codec: Option<Codec>) -> Result<RecordBatch<'_>, String> {
    let message = header.get(MESSAGE_PREFIX..).ok_or("a record batch has no header")?;
    let message =
        arrow_ipc::root_as_message(message).map_err(|error| format!("a record batch's header: {error}"))?;
    let batch = message.header_as_record_batch().ok_or("a block is not a record batch")?;
    let found = batch.compression().map(|compression| (compression.codec(), compression.method()));
    let expected = codec.map(|codec| (codec.arrow(), BodyCompressionMethod::BUFFER));
    if found != expected {
        return Err(format!("a record batch's codec is {found:?}, the footer says {expected:?}"));
    }
    Ok(batch)
}

/// The table of the chunks of a record batch's buffers, which is in the metadata of its header.
pub(super) fn chunk_table(header: &[u8]) -> Option<&str> {
    let message = arrow_ipc::root_as_message(header.get(MESSAGE_PREFIX..)?).ok()?;
    message.custom_metadata()?.iter().find(|pair| pair.key() == Some(CHUNKS))?.value()
}

/// Where the buffers of a batch begin, and their lengths; `None` for one that does not lie in `body..stop`.
pub(super) fn spans<'a>(
    batch: &RecordBatch<'a>,
    body: usize,
    stop: usize,
) -> impl Iterator<Item = Option<Span>> + use<'a> {
    batch.buffers().into_iter().flatten().map(move |buffer| {
        let start = body.checked_add(usize::try_from(buffer.offset()).ok()?)?;
        let len = usize::try_from(buffer.length()).ok()?;
        (start.checked_add(len)? <= stop).then_some((start, len))
    })
}

/// The layout of the columns `fields`, which begin with the keys, in buffers at `spans`.
pub(super) fn layout(
    batch: &RecordBatch<'_>,
    spans: impl Iterator<Item = Option<Span>>,
    fields: &[FieldRef],
    leaves: &[Leaf],
) -> Option<BatchLayout> {
    let rows = usize::try_from(batch.length()).ok()?;
    let mut nulls = batch.nodes()?.iter().map(|node| usize::try_from(node.null_count()).ok());
    let mut buffers = Buffers { rows, buffers: spans };
    let mut columns = Vec::with_capacity(fields.len());
    let contents = std::iter::repeat_n(Constraint::Any, KEY_COLUMNS)
        .chain(leaves.iter().map(|leaf| Constraint::of(&leaf.kind)));
    for (field, content) in fields.iter().zip(contents) {
        let (absent, bitmap) = (nulls.next()??, buffers.next()?);
        if matches!(field.data_type(), DataType::FixedSizeList(..) | DataType::LargeList(_)) {
            (nulls.next()?? == 0).then_some(())?;
        }
        let mut place = ColumnPlace { content, ..buffers.values(field.data_type())? };
        if absent > 0 {
            place.validity = Some(validity(bitmap, rows).filter(|_| field.is_nullable() && absent <= rows)?);
        }
        columns.push(place);
    }
    // Of a compressed batch the keys are looked at alone.
    (fields.len() == KEY_COLUMNS || nulls.next().is_none()).then_some(())?;
    let leaves = columns.split_off(KEY_COLUMNS);
    let [key, view] = columns[..] else { return None };
    Some(BatchLayout { rows, key, view, leaves })
}

/// Where the bits are that say which rows have a value, if there is one for each.
fn validity((start, len): (usize, usize), rows: usize) -> Option<NonZeroUsize> {
    // No buffer begins where the file does.
    NonZeroUsize::new(start).filter(|_| rows.div_ceil(8) <= len)
}

/// The buffers of a record batch, in order: where each begins in the file, and its length.
struct Buffers<I> {
    rows: usize,
    buffers: I,
}

impl<I: Iterator<Item = Option<(usize, usize)>>> Buffers<I> {
    fn next(&mut self) -> Option<(usize, usize)> {
        self.buffers.next().flatten()
    }

    fn values(&mut self, data_type: &DataType) -> Option<ColumnPlace> {
        let width = width(data_type);
        let offsets = if is_varying(data_type) {
            let (start, len) = self.next()?;
            (self.rows.checked_add(1)?.checked_mul(size_of::<i64>())? <= len).then_some(())?;
            Some(NonZeroUsize::new(start)?)
        } else {
            None
        };
        if matches!(data_type, DataType::FixedSizeList(..) | DataType::LargeList(_)) {
            // Validity of the elements, none of which is null.
            self.next()?;
        }
        let (values, bytes) = self.next()?;
        // No row of fixed width ends behind its buffer: readers of a row rely on it.
        let len = if offsets.is_some() { bytes } else { self.rows.checked_mul(width)? };
        let place = ColumnPlace { values, len, offsets, width, validity: None, content: Constraint::Any };
        (len <= bytes).then_some(place)
    }
}
