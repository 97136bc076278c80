//! The rows of a compressed record batch in memory.

use std::ops::Range;

use arrow_schema::Schema;

use super::codec::Codec;
use super::layout::{self, BatchLayout, ColumnPlace};
use super::message::{ALIGNMENT, padding};
use super::pack::{MOST_UNPACKED, PREFIX, RAW};
use super::piece::Stored;
use crate::schema::leaf::Leaf;
use crate::schema::presence::is_set;
use crate::sys::bytes::u64_at;

/// A record batch that was decompressed. Every offset and text in it has been checked.
#[derive(Debug)]
pub(crate) struct Unpacked {
    bytes: Vec<u8>,
    layout: BatchLayout,
}

/// A buffer in the file, and where in memory it goes.
struct Buffer<'a> {
    stored: &'a [u8],
    is_packed: bool,
    to: Range<usize>,
}

impl Unpacked {
    /// Decompresses the batch of this header, whose buffers lie in `body`. `None` if they are not what a writer makes. No
    /// more memory is taken than a writer's batch has, beside the bytes that the file has uncompressed.
    pub(super) fn new(
        header: &[u8],
        body: &[u8],
        (schema, leaves): (&Schema, &[Leaf]),
        codec: Codec,
    ) -> Option<Self> {
        let batch = layout::record_batch(header, Some(codec)).ok()?;
        let (mut buffers, mut room, mut room_as_it_is) = (Vec::new(), MOST_UNPACKED, body.len());
        // No buffer of a layout begins where its file does.
        let mut end = ALIGNMENT;
        for span in layout::spans(&batch, 0, body.len()) {
            let (start, len) = span?;
            let (size, is_packed) = size(&body[start..start + len])?;
            let room = if is_packed { &mut room } else { &mut room_as_it_is };
            *room = room.checked_sub(size)?;
            let stored = &body[start + len.min(PREFIX)..start + len];
            buffers.push(Buffer { stored, is_packed, to: end..end.checked_add(size)? });
            end = end.checked_add(size)?.checked_add(padding(size))?;
        }
        let mut bytes = vec![0; end];
        for Buffer { stored, is_packed, to } in &buffers {
            let to = bytes.get_mut(to.clone())?;
            if *is_packed { codec.decompress(stored, to)? } else { to.copy_from_slice(stored) }
        }
        let spans = buffers.iter().map(|buffer| Some((buffer.to.start, buffer.to.len())));
        let layout = layout::layout(&batch, spans, schema.fields(), leaves)?;
        let unpacked = Self { bytes, layout };
        unpacked.is_sound().then_some(unpacked)
    }

    fn is_sound(&self) -> bool {
        (0..self.layout.leaves.len())
            .all(|leaf| (0..self.layout.rows).all(|row| self.is_sound_row(leaf, row)))
    }

    fn is_sound_row(&self, leaf: usize, row: usize) -> bool {
        let sizes = || self.row(self.layout.leaves.get(leaf + 1)?, row);
        let content = self.layout.leaves[leaf].content;
        self.value(leaf, row).is_some_and(|(bytes, _)| content.accepts(bytes, sizes))
    }

    pub(super) fn rows(&self) -> usize {
        self.layout.rows
    }

    /// The memory it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.layout.leaves.len() * size_of::<ColumnPlace>()
    }

    /// The bytes of a row of a leaf, and whether it has a value; `None` if there is no such row or leaf.
    pub(crate) fn value(&self, leaf: usize, row: usize) -> Option<(&[u8], bool)> {
        let place = self.layout.leaves.get(leaf)?;
        let present = match place.validity {
            Some(validity) => is_set(*self.bytes.get(validity.get() + row / 8)?, row),
            None => true,
        };
        Some((self.row(place, row)?, present))
    }

    /// The bytes of rows of a column, which lie one after the other.
    pub(super) fn slice(&self, column: Stored, rows: Range<usize>) -> Option<&[u8]> {
        let place = self.layout.place(column)?;
        let last = self.range(place, rows.end.checked_sub(1)?)?;
        self.bytes.get(self.range(place, rows.start)?.start..last.end)
    }

    fn row(&self, place: &ColumnPlace, row: usize) -> Option<&[u8]> {
        self.bytes.get(self.range(place, row)?)
    }

    fn range(&self, place: &ColumnPlace, row: usize) -> Option<Range<usize>> {
        if row >= self.layout.rows {
            return None;
        }
        place.range(row, |range| self.bytes.get(range))
    }
}

/// How many bytes a buffer has when it is decompressed, and whether it has to be.
fn size(buffer: &[u8]) -> Option<(usize, bool)> {
    if buffer.is_empty() {
        return Some((0, false));
    }
    match u64_at(buffer, 0)?.cast_signed() {
        RAW => Some((buffer.len() - PREFIX, false)),
        size => Some((usize::try_from(size).ok()?, true)),
    }
}
