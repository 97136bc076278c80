//! The record batches of a segment. Only the first one's header is read when the segment is opened: those of the others
//! are distributed over the file.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use arrow_ipc::Footer;
use arrow_schema::Schema;

use super::codec::Codec;
use super::columns::KEY_COLUMNS;
use super::layout::{self, BatchLayout, Span, block_ranges, record_batch, spans};
use super::pack::{PREFIX, RAW};
use super::packed::{PackedBatch, ReadRange};
use crate::schema::leaf::Leaf;
use crate::sys::bytes::u64_at;

/// Where the batches of a segment are, and what is known of them.
#[derive(Debug)]
pub(super) struct Batches {
    rows: usize,
    /// Rows of each but the last.
    batch_rows: usize,
    places: Vec<BatchPlace>,
}

#[derive(Debug)]
struct BatchPlace {
    header: Range<usize>,
    /// Where the buffers end, which follow the header.
    stop: usize,
    /// Of every batch but the first, once it was wanted.
    layout: OnceLock<Box<BatchLayout>>,
    /// Of every batch that is compressed, once it was wanted.
    packed: OnceLock<Box<PackedBatch>>,
}

impl Batches {
    /// The batches of a footer, in a file with a body of this length, whose footer says how many rows it has.
    pub(super) fn new(
        footer: &Footer<'_>,
        body: usize,
        rows: usize,
        batch_rows: usize,
    ) -> Result<Self, String> {
        let mut after = 0;
        let place = |block| {
            let (start, header, stop) = block_ranges(block, body).filter(|&(start, ..)| start >= after)?;
            after = stop;
            Some(BatchPlace { header: start..header, stop, layout: OnceLock::new(), packed: OnceLock::new() })
        };
        let places = footer.recordBatches().into_iter().flatten().map(place).collect::<Option<Vec<_>>>();
        let places = places.ok_or("a record batch is outside the file or overlaps another")?;
        let needed = rows.div_ceil(batch_rows.max(1)).max(1);
        // A row's number fits 32 bits.
        let fits = u32::try_from(rows).is_ok_and(|rows| rows < u32::MAX);
        if places.len() != needed || !fits {
            return Err("the rows of its batches differ from its footer".to_owned());
        }
        Ok(Self { rows, batch_rows, places })
    }

    /// Whether all rows are in one batch.
    pub(super) fn is_one(&self) -> bool {
        self.places.len() == 1
    }

    /// The batch of a row, and the row's number in it.
    pub(super) fn locate(&self, row: usize) -> Option<(usize, usize)> {
        let (number, row_in_batch) = (row.checked_div(self.batch_rows)?, row.checked_rem(self.batch_rows)?);
        (row < self.rows).then_some((number, row_in_batch))
    }

    /// How many rows a batch has.
    pub(super) fn rows_of(&self, number: usize) -> usize {
        self.batch_rows.min(self.rows.saturating_sub(number.saturating_mul(self.batch_rows)))
    }

    /// Every batch, and its first row.
    pub(super) fn first_rows(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.places.len()).map(|number| (number, number.saturating_mul(self.batch_rows)))
    }

    /// Where the header and the buffers of a batch are.
    pub(super) fn ranges(&self, number: usize) -> Option<(Range<usize>, Range<usize>)> {
        self.places.get(number).map(|place| (place.header.clone(), place.header.end..place.stop))
    }

    /// The layout of a batch behind the first. It is read once.
    pub(super) fn later<'m>(
        &self,
        number: usize,
        columns: (&Schema, &[Leaf]),
        codec: Option<Codec>,
        read: impl Fn(Range<usize>) -> Option<Cow<'m, [u8]>>,
    ) -> Option<&BatchLayout> {
        let layout = &self.places.get(number)?.layout;
        if layout.get().is_none() {
            // Another thread may have been faster: it has read the same.
            let _ = layout.set(Box::new(self.read(number, columns, codec, read).ok()?));
        }
        layout.get().map(|layout| &**layout)
    }

    /// The compressed buffers of a batch. Its header is read once.
    pub(super) fn packed<'m>(
        &self,
        number: usize,
        columns: (&Schema, &[Leaf]),
        codec: (Codec, bool),
        read: impl ReadRange<'m>,
    ) -> Option<&PackedBatch> {
        let packed = &self.places.get(number)?.packed;
        if packed.get().is_none() {
            // Another thread may have been faster: it has read the same.
            let _ = packed.set(Box::new(self.read_packed(number, columns, codec, read)?));
        }
        packed.get().map(|packed| &**packed)
    }

    /// Reads the header of a compressed batch, and with a segment without chunks where its buffers begin.
    pub(super) fn read_packed<'m>(
        &self,
        number: usize,
        columns: (&Schema, &[Leaf]),
        codec: (Codec, bool),
        read: impl ReadRange<'m>,
    ) -> Option<PackedBatch> {
        let (header, body) = self.ranges(number)?;
        let batch = PackedBatch::new(&read(header)?, body, columns, codec, &read)?;
        (batch.rows == self.rows_of(number)).then_some(batch)
    }

    /// Reads the header of a batch. Of a compressed one only the keys can be read where they lie.
    pub(super) fn read<'m>(
        &self,
        number: usize,
        columns: (&Schema, &[Leaf]),
        codec: Option<Codec>,
        read: impl Fn(Range<usize>) -> Option<Cow<'m, [u8]>>,
    ) -> Result<BatchLayout, String> {
        let (schema, leaves) = columns;
        let place = self.places.get(number).ok_or("there is no such record batch")?;
        let header = read(place.header.clone()).ok_or("the checksum of a record batch's header is wrong")?;
        let batch = record_batch(&header, codec)?;
        let spans = spans(&batch, place.header.end, place.stop);
        let layout = if codec.is_some() {
            let spans = spans.map(|span| raw(span?, &read));
            layout::layout(&batch, spans, &schema.fields()[..KEY_COLUMNS], &[])
        } else {
            layout::layout(&batch, spans, schema.fields(), leaves)
        };
        let layout = layout.ok_or("a record batch's buffers do not fit its schema")?;
        if layout.rows != self.rows_of(number) {
            return Err("the rows of its batches differ from its footer".to_owned());
        }
        Ok(layout)
    }
}

/// Where the bytes are of a buffer that is not compressed, though its batch is.
fn raw<'m>((start, len): Span, read: &impl Fn(Range<usize>) -> Option<Cow<'m, [u8]>>) -> Option<Span> {
    if len == 0 {
        return Some((start, len));
    }
    let prefix = u64_at(&read(start..start.checked_add(PREFIX)?)?, 0)?.cast_signed();
    (prefix == RAW && len >= PREFIX).then(|| (start + PREFIX, len - PREFIX))
}
