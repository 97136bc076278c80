//! The compressed buffers of a record batch, and how parts of them are decompressed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::ops::Range;

use arrow_schema::Schema;

use super::codec::Codec;
use super::layout::{self, ColumnPlace, Span};
use super::pack::{MOST_UNPACKED, PREFIX, RAW};
use crate::schema::leaf::Leaf;
use crate::sys::bytes::u64_at;

/// Between the buffers of a table of chunks, and between the numbers of a buffer.
pub(super) const BUFFERS: char = ';';
pub(super) const NUMBERS: char = ' ';

thread_local! {
    /// Chunks of which only a part is wanted.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns the verified bytes of a range of the file; `None` if they cannot be trusted or read.
pub(super) trait ReadRange<'m>: Fn(Range<usize>) -> Option<Cow<'m, [u8]>> {}

impl<'m, F: Fn(Range<usize>) -> Option<Cow<'m, [u8]>>> ReadRange<'m> for F {}

/// The buffers of a compressed record batch. Every number of it has been checked; what the buffers hold has not.
#[derive(Debug)]
pub(super) struct PackedBatch {
    /// The leaves. Their places are numbers of buffers, the first of which is 1.
    pub(super) leaves: Vec<ColumnPlace>,
    pub(super) rows: usize,
    buffers: Box<[PackedBuffer]>,
    codec: Codec,
}

/// A buffer in the file.
#[derive(Debug)]
struct PackedBuffer {
    /// Where its bytes begin, behind its length.
    start: usize,
    /// How many bytes it has when it is not compressed.
    size: usize,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Raw,
    /// This number of bytes are decompressed as a whole.
    Whole(usize),
    /// Each chunk but the last has this number of bytes when it is not compressed. Where the chunks end, counted from the first.
    Chunks {
        bytes: usize,
        ends: Box<[u32]>,
    },
}

impl PackedBatch {
    /// The batch of this header, whose buffers lie in `body`. Of a segment with chunks, the header has the table of them; of another one,
    /// each buffer says how long it is. `None` if they are not what a writer makes.
    pub(super) fn new<'m>(
        header: &[u8],
        body: Range<usize>,
        (schema, leaves): (&Schema, &[Leaf]),
        (codec, has_chunks): (Codec, bool),
        stored: impl ReadRange<'m>,
    ) -> Option<Self> {
        let batch = layout::record_batch(header, Some(codec)).ok()?;
        let spans = layout::spans(&batch, body.start, body.end);
        let buffers: Box<[PackedBuffer]> = if has_chunks {
            let mut table = layout::chunk_table(header)?.split(BUFFERS);
            let buffers = spans.map(|span| PackedBuffer::listed(span?, table.next()?, codec));
            let buffers = buffers.collect::<Option<_>>()?;
            table.next().is_none().then_some(buffers)?
        } else {
            spans.map(|span| PackedBuffer::with_prefix(span?, &stored)).collect::<Option<_>>()?
        };
        let packed = buffers.iter().filter(|buffer| !matches!(buffer.form, Form::Raw));
        let unpacked = packed.map(|buffer| buffer.size).try_fold(0_usize, usize::checked_add)?;
        // A reader takes no more memory than a writer's batch has.
        (unpacked <= MOST_UNPACKED).then_some(())?;
        let numbered = (1..).zip(&buffers).map(|(number, buffer)| Some((number, buffer.size)));
        let layout = layout::layout(&batch, numbered, schema.fields(), leaves)?;
        Some(Self { leaves: layout.leaves, rows: layout.rows, buffers, codec })
    }

    /// Appends a range of a buffer.
    pub(super) fn read<'m>(
        &self,
        number: usize,
        range: Range<usize>,
        stored: &impl ReadRange<'m>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        self.buffers.get(number.checked_sub(1)?)?.read(range, self.codec, stored, out)
    }

    /// Where the bytes are in the file that these rows are made of; of rows that differ in length, all that the batch has.
    pub(super) fn stored(&self, rows: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        self.leaves.iter().flat_map(move |place| {
            let of = |number: usize| self.buffers.get(number.checked_sub(1)?);
            let fixed = rows.start.saturating_mul(place.width)..rows.end.saturating_mul(place.width);
            let values = of(place.values).and_then(|buffer| {
                buffer.stored(if place.offsets.is_some() { 0..buffer.size } else { fixed })
            });
            let whole =
                |number: NonZeroUsize| of(number.get()).and_then(|buffer| buffer.stored(0..buffer.size));
            [place.validity.and_then(whole), place.offsets.and_then(whole), values].into_iter().flatten()
        })
    }
}

impl PackedBuffer {
    /// The buffer at `span`, of which the table of chunks has `entry`.
    fn listed((start, len): Span, entry: &str, codec: Codec) -> Option<Self> {
        if entry.is_empty() {
            return Some(Self::raw((start, len)));
        }
        let mut numbers = entry.split(NUMBERS).map(|number| number.parse::<usize>().ok());
        let (size, start, len) = (numbers.next()??, start.checked_add(PREFIX)?, len.checked_sub(PREFIX)?);
        let Some(bytes) = numbers.next() else { return Some(Self { start, size, form: Form::Whole(len) }) };
        let (bytes, room, mut end) = (bytes?, len.checked_sub(codec.first_chunk())?, 0_usize);
        let end = |len: Option<usize>| {
            end = end.checked_add(len?).filter(|end| *end <= room)?;
            u32::try_from(end).ok()
        };
        let ends: Box<[u32]> = numbers.map(end).collect::<Option<_>>()?;
        let form = Form::Chunks { bytes, ends };
        let chunks = Self { start: start.checked_add(codec.first_chunk())?, size, form };
        chunks.has_every_chunk().then_some(chunks)
    }

    fn has_every_chunk(&self) -> bool {
        match &self.form {
            Form::Chunks { bytes, ends } => *bytes > 0 && ends.len() == self.size.div_ceil(*bytes),
            _ => true,
        }
    }

    /// The buffer at `span`, which begins with its length.
    fn with_prefix<'m>((start, len): Span, stored: &impl ReadRange<'m>) -> Option<Self> {
        if len == 0 {
            return Some(Self::raw((start, len)));
        }
        let size = u64_at(&stored(start..start.checked_add(PREFIX)?)?, 0)?.cast_signed();
        let packed = len.checked_sub(PREFIX)?;
        if size == RAW {
            return Some(Self::raw((start, len)));
        }
        Some(Self { start: start + PREFIX, size: usize::try_from(size).ok()?, form: Form::Whole(packed) })
    }

    fn raw((start, len): Span) -> Self {
        let before = len.min(PREFIX);
        Self { start: start + before, size: len - before, form: Form::Raw }
    }

    /// The chunk of this number: where it is in the file, and what part of the buffer it holds.
    fn chunk(&self, number: usize) -> Option<(Range<usize>, Range<usize>)> {
        let Form::Chunks { bytes, ends } = &self.form else { return None };
        let end = |number: usize| ends.get(number).map(|end| self.start + *end as usize);
        let start = number.checked_sub(1).map_or(Some(self.start), end)?;
        let first = number.checked_mul(*bytes)?;
        Some((start..end(number)?, first..self.size.min(first.checked_add(*bytes)?)))
    }

    /// The numbers of the chunks in which a range lies that is not empty.
    fn chunks(&self, range: &Range<usize>) -> Range<usize> {
        match &self.form {
            Form::Chunks { bytes, .. } => range.start / bytes..range.end.div_ceil(*bytes),
            _ => 0..0,
        }
    }

    /// Where the bytes are in the file that a range is made of.
    fn stored(&self, range: Range<usize>) -> Option<Range<usize>> {
        match &self.form {
            Form::Raw => Some(self.start + range.start.min(self.size)..self.start + range.end.min(self.size)),
            Form::Whole(len) => Some(self.start..self.start + len),
            Form::Chunks { .. } => {
                let numbers = self.chunks(&range);
                Some(self.chunk(numbers.start)?.0.start..self.chunk(numbers.end.checked_sub(1)?)?.0.end)
            }
        }
    }

    fn read<'m>(
        &self,
        range: Range<usize>,
        codec: Codec,
        stored: &impl ReadRange<'m>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if range.start > range.end || range.end > self.size {
            return None;
        }
        if range.is_empty() {
            return Some(());
        }
        out.reserve_exact(range.len());
        match &self.form {
            Form::Raw => out.extend_from_slice(&stored(self.start + range.start..self.start + range.end)?),
            Form::Whole(len) => {
                let packed = stored(self.start..self.start + len)?;
                append(0..self.size, &range, out, |out| codec.decompress(&packed, out))?;
            }
            Form::Chunks { .. } => self.chunks(&range).try_for_each(|number| {
                let (place, part) = self.chunk(number)?;
                let packed = stored(place)?;
                append(part, &range, out, |out| codec.decompress_chunk(&packed, out))
            })?,
        }
        Some(())
    }
}

/// Appends what is wanted of a part of a buffer, which `unpack` decompresses.
fn append(
    part: Range<usize>,
    wanted: &Range<usize>,
    out: &mut Vec<u8>,
    unpack: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Option<()> {
    let own = wanted.start.max(part.start) - part.start..wanted.end.min(part.end) - part.start;
    if own.len() == part.len() {
        let before = out.len();
        out.resize(before + part.len(), 0);
        return unpack(&mut out[before..]);
    }
    let append_by = |scratch: &mut Vec<u8>| {
        scratch.clear();
        scratch.resize(part.len(), 0);
        unpack(scratch)?;
        out.extend_from_slice(&scratch[own]);
        // A segment that has no chunks may have large parts.
        scratch.shrink_to(super::codec::MOST_CHUNK);
        Some(())
    };
    // A thread that ends has none.
    if SCRATCH.try_with(|_| ()).is_err() {
        return append_by(&mut Vec::new());
    }
    SCRATCH.with_borrow_mut(append_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a part of a chunk when its thread ends: after the memory that such reads share is gone, if that was used later.
    struct ReadsAtTheEnd(std::sync::mpsc::Sender<Vec<u8>>);

    impl Drop for ReadsAtTheEnd {
        fn drop(&mut self) {
            self.0.send(part_of_chunk()).unwrap();
        }
    }

    fn part_of_chunk() -> Vec<u8> {
        let mut out = Vec::new();
        let unpack = |chunk: &mut [u8]| {
            (0..).zip(chunk).for_each(|(number, byte)| *byte = number);
            Some(())
        };
        append(0..8, &(2..5), &mut out, unpack).unwrap();
        out
    }

    #[test]
    fn a_thread_that_ends_reads_parts_of_chunks() {
        thread_local! {
            static LAST: RefCell<Option<ReadsAtTheEnd>> = const { RefCell::new(None) };
        }
        let (tell, read) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            LAST.set(Some(ReadsAtTheEnd(tell)));
            part_of_chunk()
        });
        assert_eq!(thread.join().unwrap(), [2, 3, 4]);
        assert_eq!(read.recv().unwrap(), [2, 3, 4]);
    }
}
