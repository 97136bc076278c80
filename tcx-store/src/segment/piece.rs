//! What a new segment is made of: rows of buffered batches and of other segments.

use std::io;
use std::ops::Range;

use super::Segment;
use crate::computed::RowBatch;
use crate::schema::key::{KeyHash, KeySeed};

/// Some rows of one source, in the order they are written.
pub(crate) struct Piece<'a> {
    pub(crate) source: PieceSource<'a>,
    pub(crate) rows: PieceRows<'a>,
}

#[derive(Clone, Copy)]
pub(crate) enum PieceSource<'a> {
    Batch(&'a RowBatch),
    Segment(&'a Segment),
}

pub(crate) enum PieceRows<'a> {
    Range(Range<usize>),
    /// Ascending. Neighbours are copied as one slice.
    Selected(&'a [u32]),
}

/// A column that a source has as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Key,
    /// A leaf; `width` is that of its rows, 0 where they differ.
    Leaf {
        number: usize,
        width: usize,
    },
}

/// Takes bytes in the order they are written.
type Put<'p> = &'p mut dyn FnMut(&[u8]) -> io::Result<()>;

impl PieceRows<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::Selected(rows) => rows.len(),
        }
    }

    /// The rows as ranges, as long as can be.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let (range, selected) = match self {
            Self::Range(range) => (Some(range.clone()), &[][..]),
            Self::Selected(rows) => (None, *rows),
        };
        let neighbours = selected.chunk_by(|row, next| row.checked_add(1) == Some(*next));
        let runs = neighbours.map(|run| run[0] as usize..run[0] as usize + run.len());
        range.into_iter().chain(runs)
    }
}

impl Piece<'_> {
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// About how many bytes a row has that is not compressed.
    pub(super) fn row_bytes(&self) -> usize {
        let (bytes, rows) = match self.source {
            PieceSource::Batch(batch) => (batch.bytes(), batch.rows()),
            PieceSource::Segment(segment) => (segment.unpacked_bytes(), segment.rows()),
        };
        bytes / rows.max(1)
    }

    /// When the oldest row of the source was computed, milliseconds since 1970.
    pub(crate) fn born(&self) -> u64 {
        match self.source {
            PieceSource::Batch(batch) => batch.born,
            PieceSource::Segment(segment) => segment.born(),
        }
    }

    /// The hashes of the rows' keys.
    ///
    /// # Errors
    ///
    /// Returns an error if a row does not verify.
    pub(crate) fn hashes(&self, seed: KeySeed) -> io::Result<Vec<KeyHash>> {
        let mut hashes = Vec::with_capacity(self.rows());
        for row in self.rows.runs().flatten() {
            hashes.push(match self.source {
                PieceSource::Batch(batch) => batch.keys.hash(row, seed),
                PieceSource::Segment(segment) => segment
                    .key(row)
                    .map(|(key, view)| seed.hash(&key, view))
                    .ok_or_else(|| damaged(segment, row))?,
            });
        }
        Ok(hashes)
    }

    /// Calls `put` with the views of the rows: a view, and how many rows in succession have it.
    pub(super) fn views(&self, put: &mut dyn FnMut(u32, usize) -> io::Result<()>) -> io::Result<()> {
        let common = match self.source {
            PieceSource::Batch(batch) => Some(batch.keys.view()),
            PieceSource::Segment(segment) => segment.view,
        };
        match (common, self.source) {
            (None, PieceSource::Segment(segment)) => self.rows.runs().flatten().try_for_each(|row| {
                let (_, view) = segment.key(row).ok_or_else(|| damaged(segment, row))?;
                put(view, 1)
            }),
            (common, _) => put(common.unwrap_or_default(), self.rows()),
        }
    }

    /// Calls `put` for every row of a leaf, with whether it has a value.
    pub(super) fn presence(&self, leaf: usize, put: &mut dyn FnMut(bool)) -> io::Result<()> {
        self.rows.runs().flatten().try_for_each(|row| {
            put(match self.source {
                PieceSource::Batch(batch) => batch.columns[leaf].is_present(row),
                PieceSource::Segment(segment) => {
                    segment.is_present(leaf, row).ok_or_else(|| damaged(segment, row))?
                }
            });
            Ok(())
        })
    }

    /// Calls `put` with the bytes of every row of a column, in slices as long as can be.
    pub(super) fn values(&self, column: Stored, put: Put<'_>) -> io::Result<()> {
        self.rows.runs().try_for_each(|run| match self.source {
            PieceSource::Batch(batch) => put(batch_slice(batch, column, run)),
            PieceSource::Segment(segment) => segment_values(segment, column, run, put),
        })
    }

    /// Calls `put` with the length of every row of a column whose rows differ in length.
    pub(super) fn lengths(
        &self,
        column: Stored,
        put: &mut dyn FnMut(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        self.rows.runs().flatten().try_for_each(|row| {
            put(match self.source {
                PieceSource::Batch(batch) => batch_slice(batch, column, row..row + 1).len(),
                PieceSource::Segment(segment) => {
                    segment.row_len(column, row).ok_or_else(|| damaged(segment, row))?
                }
            })
        })
    }
}

/// The rows of a range, which lie one after the other.
fn batch_slice(batch: &RowBatch, column: Stored, rows: Range<usize>) -> &[u8] {
    match column {
        Stored::Key => batch.keys.slice(rows),
        Stored::Leaf { number, width } => batch.columns[number].slice(rows, width),
    }
}

fn segment_values(segment: &Segment, column: Stored, run: Range<usize>, put: Put<'_>) -> io::Result<()> {
    let mut row = run.start;
    while row < run.end {
        let (bytes, rows) = segment.slice(column, row..run.end).ok_or_else(|| damaged(segment, row))?;
        put(&bytes)?;
        row += rows;
    }
    Ok(())
}

fn damaged(segment: &Segment, row: usize) -> io::Error {
    let what = format!("row {row} of {} does not verify", segment.name());
    io::Error::new(io::ErrorKind::InvalidData, what)
}
