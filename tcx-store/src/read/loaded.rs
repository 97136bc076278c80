//! Copies of rows that do not lie in memory as they are wanted: of compressed segments, and of such as are
//! read.

use crate::schema::leaf::Leaf;
use crate::schema::presence::Presence;

/// Rows of every leaf, one after the other. They belong to one lookup and grow with it.
#[derive(Debug)]
pub(crate) struct LoadedRows {
    columns: Vec<LoadedColumn>,
    rows: u32,
}

#[derive(Debug)]
struct LoadedColumn {
    values: Vec<u8>,
    /// Bytes of a row; `None` where rows differ in length.
    width: Option<usize>,
    /// Where each row ends, where they differ in length.
    ends: Vec<usize>,
    presence: Presence,
}

impl LoadedRows {
    pub(crate) fn new(leaves: &[Leaf]) -> Self {
        let column = |leaf: &Leaf| LoadedColumn {
            values: Vec::new(),
            width: leaf.kind.width(),
            ends: Vec::new(),
            presence: Presence::default(),
        };
        Self { columns: leaves.iter().map(column).collect(), rows: 0 }
    }

    /// Appends a row: the bytes of each leaf, and whether it has a value. Returns its number.
    pub(crate) fn push(&mut self, row: &[(impl AsRef<[u8]>, bool)]) -> u32 {
        for (column, (bytes, present)) in self.columns.iter_mut().zip(row) {
            column.values.extend_from_slice(bytes.as_ref());
            if column.width.is_none() {
                column.ends.push(column.values.len());
            }
            column.presence.push(*present);
        }
        self.rows += 1;
        self.rows - 1
    }

    /// # Panics
    ///
    /// If there is no such row or leaf.
    pub(crate) fn row(&self, leaf: usize, row: usize) -> &[u8] {
        let LoadedColumn { values, width, ends, .. } = &self.columns[leaf];
        match width {
            Some(width) => &values[row * width..(row + 1) * width],
            None => &values[row.checked_sub(1).map_or(0, |before| ends[before])..ends[row]],
        }
    }

    /// # Panics
    ///
    /// If there is no such row or leaf.
    pub(crate) fn is_present(&self, leaf: usize, row: usize) -> bool {
        self.columns[leaf].presence.is_present(row)
    }

    /// All rows of a dense leaf.
    pub(crate) fn dense(&self, leaf: usize) -> &[u8] {
        &self.columns[leaf].values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnType, DType, Field};

    #[test]
    fn rows_are_kept_in_order_whatever_their_lengths() {
        const OUTPUT: ColumnType = ColumnType::Struct(&[
            Field { name: "text", column: ColumnType::Text },
            Field { name: "pair", column: ColumnType::Dense { dtype: DType::U8, shape: &[2] } },
        ]);
        let mut rows = LoadedRows::new(&OUTPUT.leaves());
        for (number, text) in ["", "abc", "", "d"].into_iter().enumerate() {
            let pair = [number as u8, 7];
            assert_eq!(rows.push(&[(text.as_bytes(), number != 2), (&pair[..], true)]) as usize, number);
        }
        assert_eq!(rows.dense(1), [0, 7, 1, 7, 2, 7, 3, 7]);
        for (number, text) in ["", "abc", "", "d"].into_iter().enumerate() {
            assert_eq!(rows.row(0, number), text.as_bytes());
            assert_eq!(rows.row(1, number), [number as u8, 7]);
            assert_eq!((rows.is_present(0, number), rows.is_present(1, number)), (number != 2, true));
        }
    }
}
