//! The rows of one leaf in memory: what a computed batch brings, and what the write buffer holds.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::schema::LeafKind;

/// The rows of one leaf: their bytes, and for rows of differing length where each begins and ends.
#[derive(Clone, Debug)]
pub struct Column {
    values: Buffer,
    /// `rows + 1` positions in `values`, for text.
    offsets: Option<Vec<i64>>,
}

impl Column {
    /// Rows of equal width, one after the other, copied once into an aligned buffer.
    ///
    /// `bytes` are the elements in memory order (little-endian), `rows * width` of them.
    pub fn dense(bytes: &[u8]) -> Self {
        Self { values: Buffer::from(bytes), offsets: None }
    }

    /// One string per row.
    ///
    /// ```
    /// let column = tcx_store::Column::text(["a cat", "", "a dog"]);
    /// assert_eq!(column.bytes(), 10);
    /// ```
    pub fn text<S: AsRef<str>>(rows: impl IntoIterator<Item = S>) -> Self {
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for row in rows {
            values.extend_from_slice(row.as_ref().as_bytes());
            offsets.push(values.len() as i64);
        }
        Self { values: Buffer::from_vec(values), offsets: Some(offsets) }
    }

    /// The size of the rows' bytes.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }

    /// The memory this column takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.values.len() + self.offsets.as_ref().map_or(0, |offsets| offsets.len() * size_of::<i64>())
    }

    pub(crate) fn values(&self) -> &Buffer {
        &self.values
    }

    /// The bytes of one row; `kind` is that of the leaf.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row: usize, kind: &LeafKind) -> &[u8] {
        self.row_of_width(row, kind.width().unwrap_or(0))
    }

    /// Some of the rows, in the order asked.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize], kind: &LeafKind) -> Self {
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for &row in rows {
            values.extend_from_slice(self.row(row, kind));
            offsets.push(values.len() as i64);
        }
        Self { values: Buffer::from_vec(values), offsets: self.offsets.is_some().then_some(offsets) }
    }

    /// As [`row`](Self::row); `width` is that of the leaf, 0 for text.
    pub(crate) fn row_of_width(&self, row: usize, width: usize) -> &[u8] {
        self.slice(row..row + 1, width)
    }

    /// The bytes of the rows of a range, one after the other.
    pub(crate) fn slice(&self, rows: Range<usize>, width: usize) -> &[u8] {
        match &self.offsets {
            Some(offsets) => &self.values[offsets[rows.start] as usize..offsets[rows.end] as usize],
            None => &self.values[rows.start * width..rows.end * width],
        }
    }

    /// Whether this holds `rows` rows of `kind`.
    pub(crate) fn fits(&self, kind: &LeafKind, rows: usize) -> bool {
        match (kind.width(), &self.offsets) {
            (Some(width), None) => self.values.len() == rows * width,
            (None, Some(offsets)) => offsets.len() == rows + 1,
            _ => false,
        }
    }
}
