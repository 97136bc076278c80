//! The rows of one leaf in memory: what a computed batch brings, and what the write buffer holds.

use std::ops::Range;

use crate::schema::constraint::Constraint;
use crate::schema::leaf::{Leaf, LeafKind};
use crate::schema::presence::Presence;
use crate::sys::buffer_pool::SpareBytes;

/// The rows of one leaf: their bytes, for rows of differing length where each begins and ends, and for an optional leaf
/// which of them have a value.
///
/// ```
/// use tcx_store::{Column, DType, LeafKind};
///
/// let pairs = LeafKind::Dense { dtype: DType::U8, shape: vec![2] };
/// let column = Column::dense(&[1, 2, 3, 4]);
/// assert_eq!(column.row(1, &pairs), [3, 4]);
/// let reversed = column.select(&[1, 0], &pairs);
/// assert_eq!(reversed.row(0, &pairs), [3, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Column {
    values: SpareBytes,
    /// `rows + 1` positions in `values`, for rows of differing length.
    offsets: Option<Vec<i64>>,
    presence: Option<Presence>,
}

impl Column {
    /// Rows of equal width, one after the other, copied once.
    ///
    /// `bytes` are the elements in memory order (little-endian), `rows * width` of them.
    pub fn dense(bytes: &[u8]) -> Self {
        Self { values: SpareBytes::copied(bytes), offsets: None, presence: None }
    }

    /// One string per row.
    ///
    /// ```
    /// let column = tcx_store::Column::text(["a cat", "", "a dog"]);
    /// assert_eq!(column.bytes(), 10);
    /// ```
    pub fn text<S: AsRef<str>>(rows: impl IntoIterator<Item = S>) -> Self {
        let (mut values, mut ends) = (Vec::new(), Vec::new());
        for row in rows {
            values.extend_from_slice(row.as_ref().as_bytes());
            ends.push(values.len());
        }
        Self::varying(values, ends)
    }

    /// Rows that differ in length, one after the other; `ends` says where in `values` each one ends. They are strings of
    /// UTF-8 or of bytes, or the elements of ragged tensors in memory order.
    ///
    /// ```
    /// let column = tcx_store::Column::varying(vec![1, 2, 3], [2, 2, 3]);
    /// assert_eq!(column.row(0, &tcx_store::LeafKind::Bytes), [1, 2]);
    /// assert_eq!(column.row(1, &tcx_store::LeafKind::Bytes), []);
    /// ```
    pub fn varying(values: Vec<u8>, ends: impl IntoIterator<Item = usize>) -> Self {
        let offsets = std::iter::once(0).chain(ends.into_iter().map(|end| end as i64)).collect();
        Self { values: values.into(), offsets: Some(offsets), presence: None }
    }

    /// The same rows, of which only some have a value: one truth value per row. The bytes in the rows of the others are
    /// stored as well, and should be zeros or nothing.
    ///
    /// ```
    /// let column = tcx_store::Column::dense(&[7, 0]).optional([true, false]);
    /// assert!(column.is_present(0) && !column.is_present(1));
    /// ```
    #[must_use]
    pub fn optional(self, present: impl IntoIterator<Item = bool>) -> Self {
        Self { presence: Some(present.into_iter().collect()), ..self }
    }

    /// The size of the rows' bytes.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }

    /// The memory this column takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let offsets = self.offsets.as_ref().map_or(0, |offsets| offsets.len() * size_of::<i64>());
        self.values.len() + offsets + self.presence.as_ref().map_or(0, |presence| presence.bits().len())
    }

    pub(crate) fn values(&self) -> &[u8] {
        &self.values
    }

    /// Whether a row has a value.
    ///
    /// # Panics
    ///
    /// If the column is optional and there is no such row.
    pub fn is_present(&self, row: usize) -> bool {
        self.presence.as_ref().is_none_or(|presence| presence.is_present(row))
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
        let offsets = self.offsets.is_some().then_some(offsets);
        let select = |presence: &Presence| rows.iter().map(|&row| presence.is_present(row)).collect();
        Self { values: values.into(), offsets, presence: self.presence.as_ref().map(select) }
    }

    /// As [`row`](Self::row); `width` is that of the leaf, 0 where rows differ in length.
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

    /// Whether this holds `rows` rows, of this width where all are equally long.
    pub(crate) fn has_rows(&self, rows: usize, width: usize) -> bool {
        let all = match &self.offsets {
            Some(offsets) => {
                let ends_there = offsets.last().is_some_and(|&end| end == self.values.len() as i64);
                offsets.len() == rows + 1 && offsets.is_sorted() && ends_there
            }
            None => self.values.len() == rows * width,
        };
        all && self.presence.is_none()
    }

    /// Whether this holds `rows` rows of `leaf`; `next` is the column after it, which may have the sizes of ragged tensors.
    pub(crate) fn fits(&self, leaf: &Leaf, rows: usize, next: Option<&Self>) -> bool {
        let values = match (leaf.kind.width(), &self.offsets) {
            (Some(width), None) => self.values.len() == rows * width,
            (None, Some(offsets)) => {
                let end = offsets.last().is_some_and(|&end| end == self.values.len() as i64);
                let ascending = end && offsets.len() == rows + 1 && offsets.is_sorted();
                let (content, width) = (Constraint::of(&leaf.kind), leaf.kind.varying() * size_of::<i64>());
                let sizes = |row| next?.values.get(row * width..(row + 1) * width);
                let accepts = |row| content.accepts(self.row_of_width(row, 0), || sizes(row));
                ascending && (0..rows).all(accepts)
            }
            _ => false,
        };
        let presence = match &self.presence {
            Some(presence) => leaf.optional && presence.rows() == rows,
            None => !leaf.optional,
        };
        values && presence
    }
}
